"""Promote: the candidate against the champion on the same test data, and the decision on record.

Not a stage of DVC: it reads and writes the champion, which would be a cycle.
"""

import getpass
import hashlib
import shutil
import socket
from pathlib import Path

import numpy as np
import polars as pl

from engine.errors import EspalierError
from engine.measures import paired_bootstrap, sequence_errors
from engine.model import Model
from tasks import archive, history, store
from tasks.cases import check_cases, read_cases
from tasks.decision_page import decision_page
from tasks.params import Params, Promote
from tasks.progress import Progress
from tasks.regressions import compare_labels
from tasks.sources import input_columns
from tasks.tagging import tag

TOLD_LABELS, TOLD_CASES = 30, 20  # that a decision lists
NAMED = 5  # labels that have a reason of their own


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


# Reasons to refuse, besides the error as a whole ----------------------------------------------------


def label_reasons(rows: list[dict], margin: float | None) -> list[str]:
    """One for each label that lost too much; of many, the worst are named."""
    lost = [row for row in rows if row["regressed"]]
    reasons = [
        f"label {row['label']} loses {-row['difference']:.2%} of F1 ({-row['high']:.2%} to {-row['low']:.2%}), more "
        f"than promote.label_margin, {margin:.2%}"
        for row in lost[:NAMED]
    ]
    return [*reasons, *([f"{len(lost) - NAMED} more labels lose as clearly"] if len(lost) > NAMED else [])]


def case_reasons(found: dict | None) -> list[str]:
    if not found or not found["wrong"]:
        return []
    first = found["wrong"][0]
    where = f"line {first['line']} of {found['file']}, {' '.join(first['tokens'])!r}"
    wanted, got = (" ".join(first[name]) for name in ("expected", "said"))
    return [f"{found['failed']} of {found['cases']} cases that must not break are wrong, the first at {where}: "
            f"expected {wanted}, got {got}"]  # fmt: skip


def drift_words(found: dict | None) -> list[str]:
    if not found or not found["drifted"]:
        return []
    return [f"the pool has drifted: {found['jensen_shannon']:.4f} bits against weigh.drift_limit, {found['limit']:g}"]


def rollback_reasons(digest: str, earlier: list[dict]) -> list[str]:
    """What was taken away on purpose does not come back by itself."""
    record = archive.rolled_back(earlier).get(digest)
    return [f"this very model was {record['reason']} ({record['time'][:10]})"] if record else []


# What is looked at ----------------------------------------------------------------------------------


def version_of(tokens: pl.DataFrame) -> str:
    """A hash of what the test data hold, whatever file they lie in."""
    return hashlib.sha256(tokens.write_csv().encode()).hexdigest()


def changed_test_data(root: Path, earlier: list[dict], version: str) -> list[str]:
    """A word of warning when the champion was promoted on other test data than these."""
    before = archive.promotion_of(earlier, store.file_hash(root / store.CHAMPION)).get("test_version")
    if before in (None, version):
        return []
    return [f"the test data have changed since the champion was promoted ({before[:12]} → {version[:12]}): both models "
            "were measured on the new ones"]  # fmt: skip


def drift_of(root: Path) -> dict | None:
    """The drift that `weigh` found; None where it did not look."""
    if not (root / store.CLUSTERS).exists():
        return None
    found = store.read_json(root / store.CLUSTERS)
    if found.get("jensen_shannon") is None:
        return None
    return {"jensen_shannon": found["jensen_shannon"], "limit": found["drift_limit"], "drifted": found["drifted"]}


def cases_of(
    root: Path, params: Params, tokens: pl.DataFrame, challenger: Model, champion: Model | None
) -> dict | None:
    """How the models do on the cases of `promote.cases`; None without such a file."""
    if not params.promote.cases:
        return None
    cases = read_cases(root, params, len(input_columns(tokens)))
    wrong = check_cases(challenger, cases)
    champions = None if champion is None else {row["line"] for row in check_cases(champion, cases)}
    for row in wrong:
        row["champion_too"] = champions is not None and row["line"] in champions
    return {"file": params.promote.cases, "cases": cases["sequence"].n_unique(), "failed": len(wrong),
            "champion_failed": None if champions is None else len(champions), "wrong": wrong[:TOLD_CASES]}  # fmt: skip


def someone() -> str:
    """Who runs this: the user and the machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def weighed(root: Path, params: Params, earlier: list[dict], progress: Progress) -> dict:
    """The decision as the data have it: all reasons to refuse together, warnings, and the figures behind them."""
    candidate, champion = root / store.CANDIDATE, root / store.CHAMPION
    options, tokens = params.promote, store.read_tokens(root, "test")[0]
    offsets = store.sequence_offsets(tokens["sequence"].to_numpy())
    lengths, gold, version = np.diff(offsets), tokens["label"].to_list(), version_of(tokens)
    # Each model makes its own features of the tokens: a champion may know observations that the vocabulary of the
    # newest training data has lost.
    challenger_model = Model.load(candidate)
    challenger = tag(challenger_model, tokens)
    errors = sequence_errors(np.array(gold), np.array(challenger), offsets)
    progress.step(note="challenger")
    champion_model, rows, warnings = None, [], []
    if champion.exists():
        champion_model = Model.load(champion)
        said = tag(champion_model, tokens)
        decision = decide(sequence_errors(np.array(gold), np.array(said), offsets), errors, lengths, options)
        rows = compare_labels(gold, said, challenger, offsets, options)
        warnings += changed_test_data(root, earlier, version)
    else:
        decision = first_decision(errors, lengths)
    progress.step(note="champion")
    cases, drift = cases_of(root, params, tokens, challenger_model, champion_model), drift_of(root)
    digest = store.file_hash(candidate)
    reasons = [] if decision["promoted"] else [decision["reason"]]
    reasons += [*label_reasons(rows, options.label_margin), *case_reasons(cases), *rollback_reasons(digest, earlier)]
    drifted = drift_words(drift)
    reasons += drifted if options.on_drift == "refuse" else []
    warnings += drifted if options.on_drift == "warn" else []
    told = [row for row in rows if row["difference"] or row["low"] or row["high"]][:TOLD_LABELS]
    return decision | {
        "promoted": not reasons, "reason": "; ".join(reasons) or decision["reason"], "reasons": reasons,
        "warnings": warnings, "labels": told, "labels_compared": len(rows), "cases": cases, "drift": drift,
        "test_version": version, "model_sha256": digest, "kind": "decision",
    }  # fmt: skip


def main(
    root: Path,
    params: Params,
    progress: Progress,
    force: bool = False,
    why: str | None = None,
    by: str | None = None,
) -> dict:
    """Decide, and put the candidate in the champion's place when nothing speaks against it, or by force."""
    progress.begin(3, "step")
    candidate, champion = root / store.CANDIDATE, root / store.CHAMPION
    if not candidate.is_file():
        raise EspalierError(f"{candidate}: there is no candidate to promote; run `espalier run` first")
    manifest, log = store.whole_manifest(root), root / store.DECISIONS
    earlier = store.read_jsonl(log) if log.exists() else []
    decision = weighed(root, params, earlier, progress)
    forced = force and not decision["promoted"]
    time = history.now()
    if forced:
        who = by or someone()
        reason = f"forced by {who}" + (f": {why}" if why else "") + f"; against it: {decision['reason']}"
        decision |= {"promoted": True, "reason": reason, "by": who, "why": why}
    decision |= {"time": time, "forced": forced, "data_version": manifest["data_version"],
                 "id": archive.new_id(root, earlier, time, decision["model_sha256"])}  # fmt: skip
    archive.keep(root, decision, params)
    if decision["promoted"]:
        if champion.exists():
            archive.keep_champion(root, earlier, params)
        with store.replacing(champion) as temporary:
            shutil.copyfile(candidate, temporary)
    store.write_jsonl(log, [*earlier, decision])
    store.write_text(root / store.DECISION, decision_page([*earlier, decision]))
    archive.prune(root, [*earlier, decision], params.version.keep)
    progress.end(("promoted: " if decision["promoted"] else "refused: ") + decision["reason"])
    return decision
