"""Templates over whole columns by Polars, and the files of patterns that other tools have."""
