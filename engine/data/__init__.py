"""Data as flat arrays, checked once: sequences of observations with labels and weights, bags of counts.

Every kernel relies on what is checked here and checks nothing again.
"""
