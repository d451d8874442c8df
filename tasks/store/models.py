"""Models, of any family."""

from pathlib import Path
from typing import TYPE_CHECKING

from espalier.engine import families

if TYPE_CHECKING:
    from espalier.engine.families.labeller import Labeller


def read_model(path: Path) -> "Labeller":
    """The model of a file, checked against its checksum."""
    return families.load(path)


def write_model(path: Path, model: "Labeller") -> None:
    """Written whole or not at all; one that could not be used is refused."""
    model.save(path)
