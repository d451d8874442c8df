"""One module for each family of models beside the chain."""
