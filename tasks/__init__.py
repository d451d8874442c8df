"""The stages of the pipeline: one module each, a pure function and a short main(root, params, progress)."""
