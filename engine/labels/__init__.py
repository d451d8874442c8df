"""What labels mean: the schemes that mark entities, entities themselves, and the measures that judge predictions.

Knows no model: it sees lists of labels, or the edits between two of them. Labels may be pieces of trees.
"""
