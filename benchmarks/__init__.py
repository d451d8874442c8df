"""Our figures and the peers' in one run: same machine, same data, same model, same penalty."""
