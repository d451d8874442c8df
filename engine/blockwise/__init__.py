"""What blockwise descent keeps and renews: shared matrices, messages, derivatives of the weights of one observation."""
