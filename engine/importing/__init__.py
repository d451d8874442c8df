"""Models of other programs become models of ours: those of CRFsuite (and chaine), Wapiti and CRF++, and HMMs as text.

The files are not trusted. A reader takes what it needs by places that it has checked, follows no chain of references,
and refuses what does not fit together with an `EspalierError`; it takes no more memory than a few times the file.
"""

from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.engine.families.labeller import Labeller
from espalier.engine.importing.crfpp import read_crfpp
from espalier.engine.importing.crfsuite import read_crfsuite
from espalier.engine.importing.hmm_text import read_hmm, read_names
from espalier.engine.importing.wapiti import read_wapiti

__all__ = ["READERS", "kind_of", "read", "read_crfpp", "read_crfsuite", "read_hmm", "read_wapiti"]

READERS = {"CRFsuite": read_crfsuite, "Wapiti": read_wapiti, "CRF++": read_crfpp, "HMM": read_hmm}
BEGINNINGS = {b"lCRF": "CRFsuite", b"#mdl#": "Wapiti", b"version: ": "CRF++", b"HMM ": "HMM"}
NAMELESS = frozenset({"HMM"})  # whose files have no names of labels
BINARY_CRFPP = b"\x64\x00\x00\x00\x00\x00\x00\x00"  # version 100, type 0


def kind_of(path: str | Path) -> str | None:
    """The program whose models begin as this file does, None for any other file."""
    return _kind(_beginning(Path(path)))


def read(path: str | Path, names: str | Path | None = None) -> Labeller:
    """The model of a file of another program; `names` is a file with its labels, one a line, where it has none."""
    path = Path(path)
    beginning = _beginning(path)
    kind = _kind(beginning)
    if kind is None and beginning.startswith(BINARY_CRFPP):
        raise EspalierError(
            f"{path}: a binary model of CRF++; expected its text, MODEL.txt, which `crf_learn -t` writes beside it"
        )
    if kind is None:
        raise EspalierError(
            f"{path}: begins with {beginning[:8]!r}, which no model does that we read: expected one of CRFsuite, of "
            "Wapiti, of CRF++ as text (`crf_learn -t`), or an HMM as text (`HMM n m`)"
        )
    if names is None:
        return READERS[kind](path.read_bytes(), str(path))
    if kind not in NAMELESS:
        raise EspalierError(f"{path}: a model of {kind} has the names of its labels in it: leave --labels out")
    return READERS[kind](path.read_bytes(), str(path), read_names(_existing(Path(names)).read_bytes(), str(names)))


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise EspalierError(f"{path}: there is no such file; check its name and folder")
    return path


def _beginning(path: Path) -> bytes:
    with _existing(path).open("rb") as file:
        return file.read(16)


def _kind(beginning: bytes) -> str | None:
    return next((kind for head, kind in BEGINNINGS.items() if beginning.startswith(head)), None)
