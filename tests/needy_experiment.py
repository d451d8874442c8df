"""An experiment whose corpus is not there."""

from tiny_experiment import NEEDY as EXPERIMENT  # noqa: F401
