"""What surrounds a solver: the plan before it, its checkpoints, the search for penalties, sweeps."""
