"""Promote: the candidate against the champion on the same test data, and the decision on record.

Not a stage of DVC: it reads and writes the champion, which would be a cycle.
"""

import getpass
import hashlib
import shutil
import socket
from pathlib import Path
from typing import NamedTuple

import polars as pl

from espalier.engine.errors import EspalierError, quoted
from espalier.engine.families.labeller import Labeller
from espalier.engine.labels.measures import Counts, Measure, measure_of, paired_bootstrap, token_counts
from espalier.tasks import store
from espalier.tasks.judging import headline
from espalier.tasks.judging.cases import check_cases, read_cases
from espalier.tasks.judging.kept_answers import answers_of
from espalier.tasks.judging.regressions import compare_labels
from espalier.tasks.keeping import archive, history
from espalier.tasks.keeping.champion import lost, require, stranger
from espalier.tasks.pages.decision_page import write_page
from espalier.tasks.pages.page import percent, points
from espalier.tasks.params import Params, Promote, margin_of
from espalier.tasks.progress import Progress
from espalier.tasks.sources import input_columns

TOLD_LABELS, TOLD_CASES = 30, 20  # that a decision lists
NAMED = 5  # labels that have a reason of their own
VERDICTS = {  # by whether it stays within the margin, and whether the whole interval is on the bad side
    (True, True): "worse than the champion, but within the margin", (True, False): "not worse than the champion",
    (False, True): "is worse than the champion", (False, False): "may be worse than the champion",
}  # fmt: skip


class Judged(NamedTuple):
    """One model on the test data: by what the task is judged by, and by its tokens."""

    counts: Counts
    tokens: Counts


def decide(measure: Measure, name: str, champion: Judged, challenger: Judged, options: Promote) -> dict:
    """Promoted when the challenger loses at most the margin at the bad end of the interval.

    `name` is what the measure is called in the data.
    """
    found = paired_bootstrap(champion.counts, challenger.counts, options.level, options.rounds, options.seed)
    most, least = (-found.low, -found.high) if measure.higher_is_better else (found.high, found.low)  # what is lost
    margin = margin_of(options.margin, measure.loss(champion.counts.value))
    good, worse = most <= margin, least > 0
    verdict = VERDICTS[good, worse]
    decision = figures_of(measure, name, challenger, champion)
    decision |= {"difference": found.value, "low": found.low, "high": found.high, "margin": margin}
    told = headline.difference_words(headline.compared(decision))
    reason = (
        f"{verdict}: {name} {percent(challenger.counts.value, 2)} against {percent(champion.counts.value, 2)}, {told}, "
        f"with a margin of {margin_words(margin, options.margin)}"
    )
    return decision | {"promoted": good, "reason": reason}


def margin_words(margin: float, asked: float | str) -> str:
    """`0.50 points`, or `0.19 points (2% of the champion's errors)`."""
    share = f" ({asked} of the champion's errors)" if isinstance(asked, str) else ""
    return points(margin).lstrip("+") + share


def figures_of(measure: Measure, name: str, challenger: Judged, champion: Judged | None = None) -> dict:
    """Both models by the measure of the task, with errors of tokens beside them."""
    return {
        "measure": measure.name, "measure_name": name, "margin": None, "difference": None, "low": None, "high": None,
        "champion_value": champion and champion.counts.value, "challenger_value": challenger.counts.value,
        "champion_error": champion and champion.tokens.value, "challenger_error": challenger.tokens.value,
    }  # fmt: skip


def first_decision(measure: Measure, name: str, challenger: Judged) -> dict:
    first = {"promoted": True, "reason": "the first model: there was no champion"}
    return figures_of(measure, name, challenger) | first


# Reasons to refuse, besides the error as a whole ----------------------------------------------------


def label_reasons(rows: list[dict], margin: float | str | None) -> list[str]:
    """One for each label that lost too much; of many, the worst are named."""
    lost = [row for row in rows if row["regressed"]]
    reasons = [
        f"label {row['label']} loses {-100 * row['difference']:.2f} points of F1 ({-100 * row['high']:.2f} to "
        f"{-100 * row['low']:.2f}), more than promote.label_margin, "
        f"{margin_words(margin_of(margin, 1 - row['champion_f1']), margin)}"
        for row in lost[:NAMED]
    ]
    return [*reasons, *([f"{len(lost) - NAMED} more labels lose as clearly"] if len(lost) > NAMED else [])]


def case_reasons(found: dict | None) -> list[str]:
    if not found or not found["wrong"]:
        return []
    first = found["wrong"][0]
    where = f"line {first['line']} of {found['file']}, {quoted(' '.join(first['tokens']))}"
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
    found = store.read_clusters(root)
    if found.get("jensen_shannon") is None:
        return None
    return {"jensen_shannon": found["jensen_shannon"], "limit": found["drift_limit"], "drifted": found["drifted"]}


def cases_of(
    root: Path, params: Params, tokens: pl.DataFrame, challenger: Labeller, champion: Labeller | None
) -> dict | None:
    """How the models do on the cases of `promote.cases`; None without such a file."""
    if not params.promote.cases:
        return None
    cases = read_cases(root, params, len(input_columns(tokens)), challenger.labels)
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
    options, (tokens, info) = params.promote, store.read_tokens(root, "test")
    offsets = store.sequence_offsets(tokens["sequence"].to_numpy())
    gold, version = tokens["label"].to_list(), version_of(tokens)
    challenger_model = store.read_model(candidate)
    challenger = answers_of(root, candidate, tokens).labels
    measure = measure_of(info.get("measure"), {*gold, *challenger_model.labels})
    name = headline.names(measure.name, info["nouns"])[measure.name]

    def judged(said: list[str]) -> Judged:
        return Judged(measure.counts(gold, said, offsets), token_counts(*measure.of_tokens(gold, said), offsets))

    progress.step(note="challenger")
    champion_model, rows, warnings = None, [], []
    if champion.exists():
        champion_model = store.read_model(champion)
        said = answers_of(root, champion, tokens).labels
        decision = decide(measure, name, judged(said), judged(challenger), options)
        rows = compare_labels(gold, said, challenger, offsets, options, measure.trees)
        warnings += [*changed_test_data(root, earlier, version), *filter(None, [stranger(root)])]
    else:
        decision = first_decision(measure, name, judged(challenger))
        if text := lost(root):
            decision |= {"promoted": False, "reason": text}
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
    if not force:
        require(root)
    manifest, log = store.read_manifest(root), root / store.DECISIONS
    earlier = store.read_decisions(root)
    decision = weighed(root, params, earlier, progress)
    forced = force and not decision["promoted"]
    time = history.now()
    if forced:
        who = by or someone()
        reason = f"forced by {who}" + (f": {why}" if why else "")
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
    write_page(root, [*earlier, decision])
    archive.prune(root, [*earlier, decision], params.version.keep)
    progress.end(history.outcome(decision))
    return decision
