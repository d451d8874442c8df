"""Lattices: the log-potentials of sequences without the model they come from, and every decoder over them.

A family of models that can fill a lattice has best and n best labellings, marginals, probabilities, entropies and
samples from here, under any limits. Nothing here knows a weight, a feature or a layout. Recursions run in the log
domain: exact for any finite scores, for what is impossible (-inf), and for any length.
"""
