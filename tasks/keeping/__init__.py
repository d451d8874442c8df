"""The champion and what is on record of it: archive, history, decisions, who is told.

What is written here belongs to DVC or git (docs/decisions.md, "Who keeps what"); nothing here may lose a model.
"""
