"""What is on record of the run that made a model: the decision, its line of the history, the environment.

None of it is an output of a stage, so any of it may be missing; a report must not fail for its past.
"""

import os
import platform
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from espalier.engine.errors import EspalierError
from espalier.engine.runtime import compile_target, threads
from espalier.tasks import store
from espalier.tasks.params import Params, renamed

# What can change neither the model nor the page, and what may hold addresses with keys in them.
NOT_SHOWN = {"promote", "version", "notify", "memory", "compute.threads"}
PACKAGES = ("numpy", "numba", "polars", "pyarrow", "prefect", "dvc")


class Run(NamedTuple):
    """What is known; every part may be empty."""

    project: str = ""
    time: str | None = None  # when it was decided on, or else when its model was written
    name: str | None = None  # its id in the history
    decision: dict[str, Any] = {}  # of this very model
    before: dict[str, Any] = {}  # the line of the last retraining before this one that was measured
    changed: dict[str, tuple[Any, Any]] = {}  # parameters that are not as they were then
    data_version: str | None = None
    model: str | None = None  # the hash of the model
    seconds: dict[str, float] = {}  # of each step
    environment: dict[str, str] = {}


def read_run(root: Path, params: Params) -> Run:
    digest = store.file_hash(root / store.CANDIDATE)
    decisions = _readable(store.read_decisions, root)
    decision = next((d for d in reversed(decisions) if d.get("model_sha256") == digest), {})
    earlier, entry = split_history(_readable(store.read_history, root), decision.get("id"))
    before = earlier[-1] if earlier else {}
    data_version = store.read_manifest(root).get("data_version")
    seconds = entry.get("seconds") or training_seconds(root)
    changed = changed_parameters(before["parameters"], params) if "parameters" in before else {}
    told = {"project": root.resolve().name, "time": decision.get("time") or written(root / store.CANDIDATE)}
    told |= {"name": decision.get("id"), "decision": decision, "before": before, "changed": changed}
    return Run(**told, data_version=data_version, model=digest, seconds=seconds, environment=environment(root))


def written(path: Path) -> str:
    """When a file was written, as records tell a moment."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")


def split_history(rows: list[dict[str, Any]], name: str | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The measured retrainings before the one of this id, and its own line if it has one yet."""
    runs = [row for row in rows if row.get("kind") == "retrain"]
    at = next((i for i, row in enumerate(runs) if name is not None and row.get("id") == name), len(runs))
    measured = [row for row in runs[:at] if row.get("token_error") is not None]
    return measured, runs[at] if at < len(runs) else {}


def changed_parameters(before: dict[str, Any], params: Params) -> dict[str, tuple[Any, Any]]:
    """{section.key: (then, now)}; `before` holds those that were not at their default."""
    before, (usual, now) = renamed(before), (flat(one) for one in (Params(), params))
    pairs = {name: (before.get(name, usual[name]), now[name]) for name in now}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def flat(params: Params) -> dict[str, Any]:
    """Every parameter that may have changed a result, as section.key."""
    shown = (item for item in params.as_dict().items() if item[0] not in NOT_SHOWN)
    pairs = {f"{name}.{key}": value for name, values in shown for key, value in values.items()}
    return {name: value for name, value in pairs.items() if name not in NOT_SHOWN}


def _readable(read: Callable[[Path], list[dict[str, Any]]], root: Path) -> list[dict[str, Any]]:
    """What is on record; nothing where that is damaged: a report must not fail for its past."""
    try:
        return read(root)
    except EspalierError:
        return []


def training_seconds(root: Path) -> dict[str, float]:
    """Where there is no history: what the training took by its last iteration."""
    times = [row["seconds"] for row in _readable(store.read_timing, root)]
    return {"train": max(times)} if times else {}


# Environment ----------------------------------------------------------------------------------------


def environment(root: Path) -> dict[str, str]:
    """Versions and machine, without names of hosts, users or folders."""
    found = {"Python": ".".join(map(str, sys.version_info[:3]))}
    found |= {name: version for name in PACKAGES if (version := _version(name))}
    found |= {"system": f"{platform.system()} {platform.machine()}", "processor": processor(),
              "compiled for": compile_target.compile_target()}  # fmt: skip
    found["threads"] = f"{threads.threads()} of {threads.available_cores()} cores"
    commit = git_commit(root)
    return found | ({"git commit": commit} if commit else {})


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def processor(path: Path = Path("/proc/cpuinfo")) -> str:
    """The name of the processor where the system tells it."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine() or "unknown"


def git_commit(root: Path) -> str | None:
    """The commit that is checked out in the project's own repository, read from its files; None without one."""
    try:
        folder = root / ".git"
        if folder.is_file():  # a worktree names the folder
            folder = root / folder.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        head = (folder / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref:"):
            return head or None
        name = head.removeprefix("ref:").strip()
        shared = folder / "commondir"
        common = folder / shared.read_text(encoding="utf-8").strip() if shared.is_file() else folder
        if (common / name).is_file():
            return (common / name).read_text(encoding="utf-8").strip() or None
        packed = (common / "packed-refs").read_text(encoding="utf-8").splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)
    except (OSError, ValueError):
        return None


# Private paths --------------------------------------------------------------------------------------


def without_folders(value: Any) -> Any:
    """Texts that are absolute paths shortened to …/name, in lists and dictionaries, too."""
    if isinstance(value, dict):
        return {key: without_folders(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_folders(item) for item in value]
    if isinstance(value, str) and (value.startswith("~") or os.path.isabs(value)) and len(Path(value).parts) > 2:
        return f"…/{Path(value).name}"
    return value


def public_profile(profile: dict[str, Any]) -> dict[str, Any]:
    """A profile whose places do not tell in which folders its files lie."""
    private = {name: without_folders(name) for name in profile.get("files", []) if without_folders(name) != name}

    def told(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: told(item) for key, item in value.items()}
        if isinstance(value, list):
            return [told(item) for item in value]
        for name, short in private.items() if isinstance(value, str) else ():
            value = value.replace(name, short)
        return value

    return told(profile) if private else profile
