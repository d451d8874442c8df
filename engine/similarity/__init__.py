"""How much rows of attributes have in common: what kernel machines compute instead of weights.

A row is the set of attributes at a position; equal rows are one. The kernel of two rows is (m + 1)^degree, where m is
the number of attributes that both have, so that only whole numbers are counted and no matrix of all pairs is ever made.
Nothing here knows labels' scores, losses or models.
"""
