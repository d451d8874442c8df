"""Promote: the candidate against the champion on the same test data, and the decision on record.

Not a stage of DVC: it reads and writes the champion, which would be a cycle.
"""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from engine.errors import EspalierError
from engine.measures import paired_bootstrap, sequence_errors
from engine.model import Model
from tasks import store
from tasks.page import capital, card, cards, join, lead, page, percent, points, section, short, table
from tasks.params import Params, Promote
from tasks.progress import Progress
from tasks.tagging import tag


def errors_of(path: Path, tokens: pl.DataFrame, offsets: np.ndarray) -> np.ndarray:
    """Wrong positions of each test sequence under a model.

    Each model makes its own features of the tokens: a champion may know observations that
    the vocabulary of the newest training data has lost.
    """
    return sequence_errors(tokens["label"].to_numpy(), np.array(tag(Model.load(path), tokens)), offsets)


def decide(champion: np.ndarray, challenger: np.ndarray, lengths: np.ndarray, options: Promote) -> dict:
    """Promoted when the challenger loses at most `margin` at the upper end of the interval."""
    interval = paired_bootstrap(champion, challenger, lengths, options.level, options.rounds, options.seed)
    good = interval.high <= options.margin
    bound = f"{interval.high:+.2%} against a margin of {options.margin:.2%}"
    reason = (
        f"not worse than the champion: the upper end of the difference is {bound}"
        if good
        else f"may be worse than the champion: the upper end of the difference is {bound}"
    )
    return {
        "promoted": good, "reason": reason, "difference": interval.difference, "low": interval.low,
        "high": interval.high, "champion_error": float(champion.sum() / lengths.sum()),
        "challenger_error": float(challenger.sum() / lengths.sum()),
    }  # fmt: skip


def first_decision(challenger: np.ndarray, lengths: np.ndarray) -> dict:
    return {
        "promoted": True, "reason": "the first model: there was no champion", "difference": None, "low": None,
        "high": None, "champion_error": None, "challenger_error": float(challenger.sum() / lengths.sum()),
    }  # fmt: skip


def decision_page(decisions: list[dict]) -> str:
    """A page with the last decision and all earlier ones."""
    last = decisions[-1]
    figures = [card("Challenger", percent(last["challenger_error"], 2), "error on the test data")]
    if last["difference"] is not None:
        interval = f"between {points(last['low'])} and {points(last['high'])} in resamples of the test data"
        figures.insert(0, card("Champion", percent(last["champion_error"], 2), "error on the test data"))
        figures.append(card("Difference", points(last["difference"]), interval))
    verdict = "Promoted" if last["promoted"] else "Refused"
    heads = ["When (UTC)", "Decision", "Champion", "Challenger", "Difference", "Model", "Why"]
    history = table("Latest first", heads, [_row(d) for d in reversed(decisions)], (2, 3, 4), "stack")
    body = (
        section("verdict", verdict, lead(f"{capital(last['reason'])}."), cards(figures)),
        section("history", "All decisions", history),
    )
    return page("Champion and challenger", join(body))


def _row(d: dict) -> list[str]:
    difference = (
        "–" if d["difference"] is None else f"{points(d['difference'])} ({points(d['low'])} to {points(d['high'])})"
    )
    champion = "–" if d["champion_error"] is None else percent(d["champion_error"], 2)
    when = d["time"].replace("T", " ").removesuffix("+00:00")
    verdict = ("forced" if d["forced"] else "promoted") if d["promoted"] else "refused"
    return [
        when,
        verdict,
        champion,
        percent(d["challenger_error"], 2),
        difference,
        short(d["model_sha256"]),
        d["reason"],
    ]


def main(root: Path, params: Params, progress: Progress, force: bool = False) -> dict:
    progress.begin(3, "step")
    candidate, champion = root / store.CANDIDATE, root / store.CHAMPION
    if not candidate.is_file():
        raise EspalierError(f"{candidate}: there is no candidate to promote; run `espalier run` first")
    manifest, log = store.whole_manifest(root), root / store.DECISIONS
    earlier = store.read_jsonl(log) if log.exists() else []
    tokens = store.read_tokens(root, "test")[0]
    offsets = store.sequence_offsets(tokens["sequence"].to_numpy())
    challenger, lengths = errors_of(candidate, tokens, offsets), np.diff(offsets)
    progress.step(note="challenger")
    if champion.exists():
        decision = decide(errors_of(champion, tokens, offsets), challenger, lengths, params.promote)
    else:
        decision = first_decision(challenger, lengths)
    progress.step(note="champion")
    if force and not decision["promoted"]:
        decision |= {"promoted": True, "reason": f"forced, although it {decision['reason']}"}
    decision |= {"time": datetime.now(UTC).isoformat(timespec="seconds"), "forced": force,
                 "model_sha256": store.file_hash(candidate), "data_version": manifest["data_version"]}  # fmt: skip
    if decision["promoted"]:
        with store.replacing(champion) as temporary:
            shutil.copyfile(candidate, temporary)
    store.write_jsonl(log, [*earlier, decision])
    store.write_text(root / store.DECISION, decision_page([*earlier, decision]))
    progress.end(("promoted: " if decision["promoted"] else "refused: ") + decision["reason"])
    return decision
