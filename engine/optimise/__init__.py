"""Minimising loss + penalty: the penalty, the solvers, when they stop, what they keep to go on, paths, virtual weights.

A solver knows neither templates nor files, and takes data in one block or in many.
"""
