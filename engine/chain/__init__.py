"""Scores and recursions of a linear chain: factors, forward-backward in lockstep and by logarithms, expected counts.

The inner kernels of training and decoding; a recurrence stands above the loop that computes it. Speed is what this room
is for: measure `conll2000`, `nettalk` and `rich` before and after a change.
"""
