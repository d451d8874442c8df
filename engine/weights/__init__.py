"""Which weights exist and where each lies in theta: layouts, their sizes before they are made, parts of them.

Knows data and labels by number only; nothing here computes a score.
"""
