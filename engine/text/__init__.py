"""Texts and how they become integers: columns of files, templates, macros, lists of names, the search of observations.

Strings end here and come back only when labels are written.
"""
