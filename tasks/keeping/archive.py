"""The archive: model, report, figures and decision of earlier retrainings, each in a folder of its own.

`models/archive/ID/` is written whole or not at all, when it is decided whether a model goes live. From it a champion is
put back (`roll_back`) and any earlier retraining is brought out again (`restore`).
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import yaml

from espalier.engine.errors import EspalierError
from espalier.tasks import store
from espalier.tasks.evaluate import model_figures
from espalier.tasks.keeping import history
from espalier.tasks.pages.decision_page import write_page
from espalier.tasks.params import Params

DECISION_FILE, PARAMS_FILE = "decision.json", "params.yaml"
# Name in the archive, where it lies in the project; those after the first only if they are of the same model.
FILES = {"candidate.model": store.CANDIDATE, "trace.jsonl": store.TRACE, "metrics.json": store.METRICS,
         "report.html": store.REPORT, "profile.json": store.PROFILE, "clusters.json": store.CLUSTERS,
         "dvc.lock": "dvc.lock"}  # fmt: skip
IN_PLACE = ("candidate.model", "trace.jsonl", "metrics.json", "report.html")
KEPT_FIGURES = ("measure", "measure_name", "challenger_value", "challenger_error", "test_version")
STEPS_DIGITS = 3  # a longer number is the beginning of a hash


def folder(root: Path, name: str) -> Path:
    return root / store.ARCHIVE / name


def names(root: Path) -> list[str]:
    """Of all that is kept, oldest first."""
    place = root / store.ARCHIVE
    return sorted((path.parent.name for path in place.glob(f"[!.]*/{DECISION_FILE}")), key=_age)


def _age(name: str) -> tuple:
    """Date, time and, of runs within a second, which it was."""
    day, time, digest, *number = [*name.split("-"), "", "", ""][:4]
    return day, time, int(number[0]) if number and number[0].isdigit() else 1, digest


def keep(root: Path, decision: dict, params: Params, source: str = store.CANDIDATE) -> Path:
    """Put the model at `source` with all that belongs to it into the folder of the decision's id."""
    target = folder(root, decision["id"])
    temporary = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        shutil.copyfile(root / source, temporary / "candidate.model")
        if source == store.CANDIDATE and _belong(root):
            for name, path in FILES.items():
                if name != "candidate.model" and (root / path).is_file():
                    shutil.copyfile(root / path, temporary / name)
        if source == store.CANDIDATE:
            used = {name: values for name, values in params.as_dict().items() if name not in history.SECRET}
            store.write_text(temporary / PARAMS_FILE, yaml.safe_dump(used, sort_keys=False, allow_unicode=True))
        store.write_json(temporary / DECISION_FILE, decision)
        os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def renew_report(root: Path, name: str) -> None:
    """Keep the report as it is now: it is made once more when the decision is known."""
    kept = folder(root, name) / "report.html"
    if kept.is_file() and (root / store.REPORT).is_file():
        with store.replacing(kept) as temporary:
            shutil.copyfile(root / store.REPORT, temporary)


def _belong(root: Path) -> bool:
    """Whether the metrics that lie there are of the candidate, and not of a model before it."""
    if not (root / store.METRICS).is_file():
        return False
    metrics, model = store.read_metrics(root), store.read_model(root / store.CANDIDATE)
    try:
        return all(metrics.get(name) == value for name, value in model_figures(model).items())
    except KeyError:  # a model that no training of ours has made
        return False


def keep_champion(root: Path, decisions: list[dict], params: Params) -> None:
    """The champion that is about to go, where nothing is kept of it: one of earlier versions, or put there by hand."""
    digest = store.file_hash(root / store.CHAMPION)
    if kept_as(root, digest) is None:
        known = promotion_of(decisions, digest)
        time = known.get("time") or history.now()
        named = {"time": time, "model_sha256": digest, "id": new_id(root, decisions, time, digest)}
        keep(root, known | named, params, store.CHAMPION)


def prune(root: Path, decisions: list[dict], limit: int | None) -> None:
    """Remove all but the newest `limit` retrainings and those that have the newest `limit` champions."""
    for name in surplus(root, names(root), decisions, limit):
        shutil.rmtree(folder(root, name))


def surplus(root: Path, kept: Iterable[str], decisions: list[dict], limit: int | None) -> list[str]:
    """Those that are more than the newest `limit` and have none of the newest `limit` champions."""
    if limit is None:
        return []
    models = {d["id"]: d["model_sha256"] for d in decisions if "id" in d}
    champions = set(reigns(decisions)[-limit:])
    return [name for name in sorted(kept, key=_age)[:-limit]
            if (models.get(name) or model_of(root, name)) not in champions]  # fmt: skip


def promotion_of(decisions: list[dict], digest: str) -> dict:
    """The last decision that made this model the champion; empty where none is on record."""
    return next((d for d in reversed(decisions) if d["promoted"] and d["model_sha256"] == digest), {})


def new_id(root: Path, decisions: list[dict], time: str, digest: str) -> str:
    """A name that no decision and nothing that is kept has had."""
    return history.new_id(root, time, digest, ids(root, decisions))


def ids(root: Path, decisions: list[dict]) -> list[str]:
    """All that have been given, also to what has been cleared away since."""
    return [*names(root), *(d["id"] for d in decisions if "id" in d)]


def model_of(root: Path, name: str) -> str:
    """The hash of a kept model, as its decision says; the empty text where that is damaged."""
    try:
        return store.read_decision(folder(root, name) / DECISION_FILE)["model_sha256"]
    except EspalierError:
        return ""


def kept_as(root: Path, digest: str) -> str | None:
    """The newest folder with this model."""
    return next((name for name in reversed(names(root)) if model_of(root, name) == digest), None)


# Champions ------------------------------------------------------------------------------------------


def reigns(decisions: list[dict]) -> list[str]:
    """The champions in the order of their reigns, the present last: a roll back takes away those after its target."""
    return _walk(decisions)[0]


def rolled_back(decisions: list[dict]) -> dict[str, dict]:
    """Models that a roll back took away and nobody has put back since, each with the record of that."""
    return _walk(decisions)[1]


def _walk(decisions: list[dict]) -> tuple[list[str], dict[str, dict]]:
    line: list[str] = []
    away: dict[str, dict] = {}
    for decision in decisions:
        model = decision["model_sha256"]
        if not decision["promoted"]:
            continue
        if decision.get("kind") == history.ROLLBACK and model in line:
            at = len(line) - line[::-1].index(model)
            away |= dict.fromkeys(line[at:], decision)
            line = line[:at]
        elif line[-1:] != [model]:
            line.append(model)
        away.pop(model, None)
    return line, away


def earlier_champion(root: Path, what: str) -> str:
    """The hash of the champion that `what` means: so many steps back, or the beginning of a hash."""
    path = root / store.DECISIONS
    decisions = store.read_decisions(root)
    line, champion = reigns(decisions), root / store.CHAMPION
    present = store.file_hash(champion) if champion.is_file() else None
    if present and present not in line[-1:]:
        line.append(present)  # put there by hand
    if what.isdigit() and len(what) <= STEPS_DIGITS:
        steps, before = int(what), max(0, len(line) - 1)
        if not 1 <= steps <= before:
            raise EspalierError(f"cannot go back by {steps}: the number of earlier champions on record is {before}")
        return line[-1 - steps]
    ever = dict.fromkeys(d["model_sha256"] for d in decisions if d["promoted"])
    found = [model for model in ever if what and model.startswith(what)]
    if not found:
        raise EspalierError(
            f"no champion {what!r} in {path}: expected a number of steps or the beginning of the hash of a model that "
            "was promoted; `espalier history` lists them"
        )
    if len(found) > 1:
        raise EspalierError(f"{what!r} is the beginning of several models ({', '.join(m[:12] for m in found)})")
    if found == [present]:
        raise EspalierError(f"model {found[0][:12]} is the champion already")
    return found[0]


def roll_back(root: Path, digest: str, by: str, why: str | None) -> dict:
    """Put an earlier champion back in its place; the record of it, which stands among the decisions."""
    name = kept_as(root, digest)
    if name is None:
        raise EspalierError(
            f"model {digest[:12]} is not in {root / store.ARCHIVE}: only the newest champions are kept (version.keep); "
            "bring it back with `git checkout` of its tag or commit and `dvc checkout models/champion.model.dvc`"
        )
    model = folder(root, name) / "candidate.model"
    if store.file_hash(model) != digest:
        raise EspalierError(f"{model}: damaged, its hash is not {digest[:12]}; remove {model.parent}")
    decisions = store.read_decisions(root)
    champion, time, kept = root / store.CHAMPION, history.now(), store.read_decision(model.parent / DECISION_FILE)
    before = store.file_hash(champion) if champion.is_file() else None
    reason = f"rolled back by {by}" + (f": {why}" if why else "")
    record = {
        "kind": history.ROLLBACK, "id": new_id(root, decisions, time, digest), "time": time,
        "promoted": True, "forced": False, "reason": reason, "by": by, "why": why, "model_sha256": digest,
        "from_sha256": before, "restored_from": name, "data_version": kept.get("data_version"),
        "difference": None, "low": None, "high": None, "champion_error": None, "champion_value": None,
        **{name: kept.get(name) for name in KEPT_FIGURES},
    }  # fmt: skip
    with store.replacing(champion) as temporary:
        shutil.copyfile(model, temporary)
    store.write_jsonl(root / store.DECISIONS, [*decisions, record])
    write_page(root, [*decisions, record])
    return record


def restore(root: Path, name: str, target: Path | None) -> list[Path]:
    """Copy what is kept of a retraining into a folder, or, without one, model, metrics and report to their places."""
    source = folder(root, name)
    if name not in names(root):  # '', '.' and '..' are folders, too
        raise EspalierError(
            f"{source}: nothing is kept of this retraining (version.keep); with a commit or tag of it "
            "`git checkout` and `dvc checkout` bring it back"
        )
    here = sorted(path for path in source.iterdir() if path.is_file())
    if target is None:
        pairs = [(path, root / FILES[path.name]) for path in here if path.name in IN_PLACE]
    else:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise EspalierError(f"{target}: is there already and not an empty folder; choose another with --to")
        pairs = [(path, target / path.name) for path in here]
    for path, place in pairs:
        with store.replacing(place) as temporary:
            shutil.copyfile(path, temporary)
    return [place for _, place in pairs]
