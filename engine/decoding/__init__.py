"""Answers of a trained chain: best labellings, n best, marginals, probabilities, under what is known or allowed."""
