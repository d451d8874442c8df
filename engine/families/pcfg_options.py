"""How probabilistic grammars can be trained, by name; loads neither numpy nor numba."""

# What is counted, by the name in the parameters: the name that `engine.grammar.estimation` has for it, None for the
# counts of trees.
TRAININGS = {"counts": None, "inside-outside": "io", "viterbi": "vs", "k-best": "kvs"}
SIDES = ("right", "left")
ORDERS = ("random", "short", "long")
