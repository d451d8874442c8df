"""Models side by side: what the task is judged by with paired intervals, calibration, what each alone gets right.

The winner is the best on the development data, so that its figures on the test data are not the luck of having been
chosen by them. Nothing here depends on the order in which models were trained, or on how long it took.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from espalier.engine.labels.measures import F1, Measure, bootstrap, calibration, measure_of, paired_bootstrap
from espalier.engine.labels.spans import spans
from espalier.tasks import store
from espalier.tasks.judging import headline
from espalier.tasks.judging.kept_answers import answers_of
from espalier.tasks.params import Params
from espalier.tasks.tournament.kept import Said

EXAMPLES = 5  # of what one entrant alone gets right
AROUND = 6  # tokens shown on either side


class Contender(NamedTuple):
    """A trained entrant and what its model says."""

    name: str
    family: str
    settings: tuple[str, ...]
    dev: Said
    test: Said
    probable: bool
    labels: list[str]
    active: int
    bytes: int
    sha256: str
    info: dict[str, Any]


class Unit(NamedTuple):
    """What is right or wrong as a whole: a token, or an entity; positions [begin, end) of the split."""

    sequence: int
    begin: int
    end: int
    label: str


class Gold(NamedTuple):
    """A split with its right labels."""

    tokens: pl.DataFrame
    labels: list[str]
    offsets: np.ndarray
    info: dict[str, Any]


def gold_of(root: Path, split: str) -> Gold:
    tokens, info = store.read_tokens(root, split)
    return Gold(tokens, tokens["label"].to_list(), store.sequence_offsets(tokens["sequence"].to_numpy()), info)


def standings(root: Path, params: Params, contenders: Sequence[Contender]) -> dict[str, Any]:
    """All figures of a page; entrants with the winner first, the others by the measure that chose it."""
    dev, test = gold_of(root, "dev"), gold_of(root, "test")
    labels = {*test.labels, *store.read_manifest(root)["labels"]}
    measure, options = measure_of(test.info.get("measure"), labels), params.promote
    by, gold = ("dev", dev) if dev.labels else ("test", test)
    chosen = {one.name: measure.counts(gold.labels, getattr(one, by).labels, gold.offsets).value for one in contenders}
    order = sorted(contenders, key=lambda one: (measure.loss(chosen[one.name]), one.active, one.name))
    counts = {one.name: measure.counts(test.labels, one.test.labels, test.offsets) for one in order}
    best, champion = order[0], champion_of(root, measure, test)
    resampling = options.level, options.rounds, options.seed
    rows = []
    for one in order:
        row = {"name": one.name, "family": one.family, "settings": list(one.settings), "active": one.active,
               "bytes": one.bytes, "sha256": one.sha256, "chosen": chosen[one.name],
               "test": bootstrap(counts[one.name], *resampling)._asdict()}  # fmt: skip
        row |= {name: one.info.get(name) for name in ("iterations", "stop_reason")}
        row["against_winner"] = against(counts[best.name], counts[one.name], one is best, resampling)
        row["against_champion"] = champion and against(
            champion["counts"], counts[one.name], champion["sha256"] == one.sha256, resampling
        )
        rows.append(row | certainty(one, test, params.evaluate.bins))
    if champion:
        champion = {key: value for key, value in champion.items() if key != "counts"} | {
            "test": bootstrap(champion["counts"], *resampling)._asdict()
        }
    return {
        "measure": measure.name, "measure_name": headline.names(measure.name, test.info["nouns"])[measure.name],
        "higher_is_better": measure.higher_is_better, "nouns": test.info["nouns"], "level": options.level,
        "chosen_by": by, "winner": best.name, "winner_settings": overrides_of(best), "entrants": rows,
        "champion": champion, "test": {"sequences": len(test.offsets) - 1, "tokens": len(test.labels)},
        "dev": {"sequences": len(dev.offsets) - 1, "tokens": len(dev.labels)},
    } | alone(measure, test, order)  # fmt: skip


def overrides_of(one: Contender) -> list[str]:
    """What `--set` says to have its parameters."""
    return [f"model.family={one.family}", *one.settings]


def against(first, second, same: bool, resampling: tuple) -> dict | None:
    """The second minus the first, with the interval of sequences drawn again for both; None for the same model."""
    return None if same else paired_bootstrap(first, second, *resampling)._asdict()


def champion_of(root: Path, measure: Measure, test: Gold) -> dict[str, Any] | None:
    path = root / store.CHAMPION
    if not path.is_file():
        return None
    model, said = store.read_model(path), answers_of(root, path, test.tokens).labels
    return {"family": model.family, "active": sum(model.sizes().values()), "bytes": path.stat().st_size,
            "sha256": store.file_hash(path), "counts": measure.counts(test.labels, said, test.offsets)}  # fmt: skip


def certainty(one: Contender, test: Gold, bins: int) -> dict[str, float | None]:
    """Log-loss of what has labels that the model knows, and the calibration error; None without probabilities."""
    if not one.probable:
        return {"log_loss": None, "calibration_error": None}
    known = ~np.isnan(one.test.losses)
    tokens = int(np.diff(test.offsets)[known].sum())
    right = np.array([a == b for a, b in zip(test.labels, one.test.labels, strict=True)], bool)
    return {"log_loss": float(one.test.losses[known].sum() / tokens) if tokens else None,
            "calibration_error": float(calibration(one.test.confidence, right, bins)[0])}  # fmt: skip


# ---- what each gets right that the others miss


def units_of(measure: Measure, labels: Sequence[str], offsets: np.ndarray) -> list[Unit]:
    """The entities of labels where a task is judged by them, else each position with its label."""
    bounds = list(zip(offsets.tolist(), offsets.tolist()[1:], strict=False))
    if measure.name == F1.name:
        return [Unit(n, lo + s.begin, lo + s.end, s.kind)
                for n, (lo, hi) in enumerate(bounds) for s in spans(labels[lo:hi])]  # fmt: skip
    return [Unit(n, t, t + 1, labels[t]) for n, (lo, hi) in enumerate(bounds) for t in range(lo, hi)]


def alone(measure: Measure, test: Gold, order: Sequence[Contender]) -> dict[str, Any]:
    """How many are right by all, by some, by none; by one alone, by all but one, and by one and not by another."""
    units = units_of(measure, test.labels, test.offsets)
    right = np.zeros((len(units), len(order)), bool)
    for k, one in enumerate(order):
        said = set(units_of(measure, one.test.labels, test.offsets))
        right[:, k] = [unit in said for unit in units]
    how_many, several = right.sum(axis=1), len(order) > 1
    rows = []
    for k, one in enumerate(order):
        only, missed = right[:, k] & (how_many == 1), ~right[:, k] & (how_many == len(order) - 1)
        rows.append({
            "name": one.name, "right": int(right[:, k].sum()), "only": int(only.sum()), "missed": int(missed.sum()),
            "not_by": [int(np.sum(right[:, k] & ~right[:, other])) for other in range(len(order))],
            "examples": [example(test, units[u], order, k) for u in np.flatnonzero(only)[:EXAMPLES]],
        })  # fmt: skip
    return {
        "units": {"of": "entity" if measure.name == F1.name else "token", "count": len(units),
                  "by_all": int(np.sum(how_many == len(order))), "by_some": int(np.sum(how_many > 0)),
                  "by_none": int(np.sum(how_many == 0))},
        "alone": rows if several else [],
    }  # fmt: skip


def example(test: Gold, unit: Unit, order: Sequence[Contender], k: int) -> dict[str, Any]:
    """The tokens around, and what each of the others says there."""
    lo, hi = int(test.offsets[unit.sequence]), int(test.offsets[unit.sequence + 1])
    begin, end = max(lo, unit.begin - AROUND), min(hi, unit.end + AROUND)
    texts = test.tokens["x0"]
    return {
        "sequence": unit.sequence + 1, "label": unit.label, "tokens": texts[begin:end].to_list(),
        "at": [unit.begin - begin, unit.end - begin], "cut": [begin > lo, end < hi],
        "gold": test.labels[unit.begin : unit.end],
        "said": {one.name: one.test.labels[unit.begin : unit.end] for at, one in enumerate(order) if at != k},
    }  # fmt: skip
