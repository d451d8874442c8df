"""Probabilistic context-free grammars in Chomsky normal form, with rules of one symbol where they are wanted.

Rules are flat arrays, strings are numbers, charts are arrays that the caller owns. Nothing here knows files or stages.
"""
