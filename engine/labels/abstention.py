"""Labels left out where a model is not sure of them: how sure it is, and precision against recall as that is asked.

A label is as sure as its probability by itself (the marginal). An entity is as sure as the least sure of its labels,
so that it is left out as a whole or not at all; its probability as a whole is at most that.
"""

from collections.abc import Sequence
from numbers import Real

import numpy as np

from espalier.engine.errors import EspalierError, brief
from espalier.engine.labels.spans import Span, marks_entities, spans

LIMITS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
ENTITIES, TOKENS = "entities", "tokens"


def check_limit(limit: object, name: str = "abstain") -> float:
    """The limit as a number; refused where it is no probability."""
    if isinstance(limit, bool) or not isinstance(limit, Real) or not 0.0 <= limit <= 1.0:
        raise EspalierError(f"{name} is {brief(limit)}: expected a probability from 0 to 1, such as 0.9")
    return float(limit)


def certainty(labels: Sequence[str], confidence: np.ndarray, offsets: np.ndarray, entities: bool) -> np.ndarray:
    """How sure each token's label is, float64 [T]: its probability, within an entity the least one of the entity."""
    found = confidence.copy()
    for lo, hi in zip(offsets, offsets[1:], strict=False) if entities else ():
        for span in spans(labels[lo:hi]):
            found[lo + span.begin : lo + span.end] = confidence[lo + span.begin : lo + span.end].min()
    return found


def unsure(
    names: Sequence[str], ids: np.ndarray, confidence: np.ndarray, offsets: np.ndarray, limit: float
) -> np.ndarray:  # fmt: skip
    """Which labels are left out below a limit, bool [T]; `names` are those of the model, `ids` what it says."""
    said = [names[i] for i in ids]
    return certainty(said, confidence, offsets, marks_entities(names)) < limit


def curve(
    gold: Sequence[str], said: Sequence[str], confidence: np.ndarray, offsets: np.ndarray, entities: bool,
    limits: Sequence[float] = LIMITS,
) -> list[dict]:  # fmt: skip
    """For each limit what is left of it: of entities precision and recall, of tokens accuracy and coverage.

    `kept` is how many are at least as sure, `coverage` their share of all that are predicted; precision and accuracy
    are None where nothing is left. Tokens are counted for entity tasks, too: `abstained` is their share left out.
    """
    sure = certainty(said, confidence, offsets, entities)
    if entities:
        wanted, levels, right = _entities(gold, said, sure, offsets)
    else:
        wanted, levels = len(gold), sure
        right = np.fromiter((a == b for a, b in zip(gold, said, strict=True)), bool, len(gold))
    names = ("precision", "recall") if entities else ("accuracy", None)
    rows = []
    for limit in limits:
        kept, hits = int(np.sum(levels >= limit)), int(np.sum(right[levels >= limit]))
        row = {"limit": limit, "kept": kept, "coverage": kept / len(levels) if len(levels) else 0.0,
               "abstained": float(np.mean(sure < limit)) if len(sure) else 0.0,
               names[0]: hits / kept if kept else None}  # fmt: skip
        rows.append(row | ({names[1]: hits / wanted if wanted else 0.0} if names[1] else {}))
    return rows


def _entities(gold, said, sure: np.ndarray, offsets: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
    """(how many entities there are, how sure each predicted one is, whether it is right)."""
    wanted, levels, right = 0, [], []
    for lo, hi in zip(offsets, offsets[1:], strict=False):
        there: set[Span] = set(spans(gold[lo:hi]))
        wanted += len(there)
        for span in spans(said[lo:hi]):
            levels.append(sure[lo + span.begin])
            right.append(span in there)
    return wanted, np.array(levels, float), np.array(right, bool)
