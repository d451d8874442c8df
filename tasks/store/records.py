"""Artefacts in JSON: figures, decisions and histories, each read in the shape that it must have (`tasks.shapes`).

A reader fails with an EspalierError that names the file, what is wrong with it and what to do.
"""

import json
from pathlib import Path

from espalier.engine.errors import EspalierError
from espalier.tasks import shapes
from espalier.tasks.store.places import (
    CLUSTERS,
    DECISIONS,
    HISTORY,
    KNOWN,
    MANIFEST,
    MARKER,
    METRICS,
    NEWS,
    PROFILE,
    RHO1_PATH,
    TIMING,
    TRACE,
    damaged,
    missing,
)


def _text(path: Path) -> str:
    """The whole text of a file."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise missing(path) from None
    except (OSError, ValueError) as error:
        raise damaged(path, error) from None


def _checked_json(path: Path, text: str, shape, place: str = ""):
    """The value of a JSON text of the given shape; `place` is said before what is wrong with it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(path, ValueError(f"{place}{error}") if place else error) from None
    if wrong := shapes.fault(value, shape):
        raise damaged(path, ValueError(place + wrong))
    return value


def read_json(path: Path, shape=shapes.ANY):
    """What a JSON file holds, in the shape that it must have (see `tasks.shapes`)."""
    return _checked_json(path, _text(path), shape)


def read_jsonl(path: Path, shape=shapes.ANY) -> list[dict]:
    """The values of a file with one on each line, all of one shape."""
    lines = enumerate(_text(path).split("\n"), 1)
    return [_checked_json(path, line, shape, f"line {number}: ") for number, line in lines if line]


def read_metrics(root: Path) -> dict:
    return read_json(root / METRICS, shapes.METRICS)


def read_profile(root: Path) -> dict:
    return read_json(root / PROFILE, shapes.PROFILE)


def read_clusters(root: Path) -> dict:
    return read_json(root / CLUSTERS, shapes.CLUSTERS)


def read_manifest(root: Path) -> dict:
    """The manifest, with everything that the stages after `template` rely on."""
    return read_json(root / MANIFEST, shapes.MANIFEST)


def read_trace(root: Path) -> list[dict]:
    return read_jsonl(root / TRACE, shapes.ITERATION)


def read_timing(root: Path) -> list[dict]:
    return read_jsonl(root / TIMING, shapes.TIMING)


def read_decisions(root: Path) -> list[dict]:
    """All decisions, oldest first; none when nothing has been decided."""
    return read_jsonl(root / DECISIONS, shapes.DECISION) if (root / DECISIONS).exists() else []


def last_decision(root: Path) -> dict:
    """The newest decision; fails where nothing has been decided."""
    decisions = read_decisions(root)
    if not decisions:
        raise EspalierError(f"{root / DECISIONS}: holds no decision; run `espalier run` or `espalier promote` first")
    return decisions[-1]


def read_decision(path: Path) -> dict:
    """The decision that is kept in a folder of the archive."""
    return read_json(path, shapes.DECISION)


def read_history(root: Path) -> list[dict]:
    """All entries, oldest first; none when nothing has been recorded."""
    return read_jsonl(root / HISTORY, shapes.RUN) if (root / HISTORY).exists() else []


def read_path(root: Path) -> dict | None:
    """The path that the last training has chosen its penalty by; None where that was given."""
    path = root / RHO1_PATH
    if not path.exists() or not read_json(path, shapes.PATH)["points"]:
        return None
    figures = read_json(path, shapes.SEARCH)
    if (figures["chosen"], figures["chosen_rho2"]) not in [(p["rho1"], p["rho2"]) for p in figures["points"]]:
        raise damaged(path, ValueError("none of its points is the chosen one"))
    if any(point.get(f"dev_{figures['measure']}") is None for point in figures["points"]):
        raise damaged(path, ValueError(f"a point has no dev_{figures['measure']}"))
    return figures


def read_news(root: Path) -> dict | None:
    """What the last comparison with the champion's data found; None where there was none."""
    return read_json(root / NEWS, shapes.NEWS) if (root / NEWS).is_file() else None


def read_known_version(root: Path) -> str:
    return read_json(root / KNOWN, shapes.VERSION)["data_version"]


def read_marker(root: Path) -> str:
    """When the run began that is under way or was killed."""
    return read_json(root / MARKER, shapes.MARKER)["time"]
