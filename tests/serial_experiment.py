"""The experiment of sums, one cell at a time."""

from tiny_experiment import EXPERIMENT as TINY

EXPERIMENT = TINY._replace(name="serial", serial=True)
