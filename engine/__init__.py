"""The mathematics of Espalier: models of sequences over flat arrays.

Knows numpy, numba and pyarrow only. Importing the package loads no kernel and compiles nothing.
"""
