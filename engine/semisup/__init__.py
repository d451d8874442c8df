"""What unlabelled data can do: mixtures of the marginal, weights, entropy, self-training; and the theory of it."""
