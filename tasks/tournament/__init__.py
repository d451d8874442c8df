"""Models of several families, and of several settings of one, on the same features, set side by side."""
