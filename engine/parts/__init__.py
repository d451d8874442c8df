"""Data in several blocks, here or in other processes: sums by a tree, the same bytes whoever holds which."""
