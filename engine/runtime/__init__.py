"""How kernels are compiled, cached and run: the decorator of all of them, one budget of threads, sums in a fixed order.

Knows nothing of sequences or models. What is changed here changes every kernel, and the bytes of every model.
"""
