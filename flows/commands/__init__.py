"""The commands of `espalier`, a module for each group."""
