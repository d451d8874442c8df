"""What a trained model says: labels for tables, files and streams, and why.

Everything here takes a model and texts; nothing here trains or compares.
"""
