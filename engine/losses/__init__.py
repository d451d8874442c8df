"""Losses over a data set and their gradients: of plain labels, of partial ones, with token weights.

An objective says here what it offers to solvers. Baselines that select features by counts live here too.
"""
