"""The commands of `espalier`, a module for each group.

`declaring` is how a command is declared, `shared` what several groups use; `flows.cli` makes the parser of them all.
"""
