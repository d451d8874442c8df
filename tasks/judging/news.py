"""News: what the data of a run hold that the champion has not seen: labels, observations, sequences.

A model file keeps only what is active, so a run begins by putting away what the champion was trained on, while its
features are still there. The comparison is written beside the metrics; it is no stage, because the champion of a
project is none of the inputs that a stage may depend on.
"""

import shutil
from pathlib import Path

import numpy as np
import polars as pl

from espalier.engine.errors import EspalierError
from espalier.engine.families.labeller import Labeller
from espalier.engine.labels.trees import labels_above, tag_of
from espalier.tasks import store
from espalier.tasks.ingest import input_fractions

# What the champion was trained on: vocabulary, hashes of sequences, version of the data.
KNOWN = str(Path(store.KNOWN).parent)
LABELLED = ("train", "dev", "test")
SHOWN = 10  # labels named in a text
SALT = "news"


def sequence_hashes(root: Path) -> tuple[np.ndarray, np.ndarray]:
    """Of each labelled sequence a number for its input, and one for its input with its labels."""
    inputs, whole = [np.empty(0)], [np.empty(0)]
    for split in LABELLED:
        for tokens in store.token_blocks(root, split):
            inputs.append(input_fractions(tokens, SALT))
            whole.append(input_fractions(tokens.rename({"label": f"x{tokens.width}"}), SALT))
    return np.concatenate(inputs), np.concatenate(whole)


def champion_of(root: Path) -> Labeller | None:
    """The champion; one that cannot be read counts as none here: to say so is up to those who need it."""
    try:
        return store.read_model(root / store.CHAMPION) if (root / store.CHAMPION).is_file() else None
    except EspalierError:
        return None


def remember(root: Path) -> bool:
    """Put away what the champion was trained on, if its data are the ones on disk; whether that is at hand now."""
    champion, folder = champion_of(root), root / KNOWN
    version = champion.info.get("data_version") if champion else None
    if version is None:
        return False
    if _known_version(root) == version:
        return True
    try:
        if store.read_manifest(root)["data_version"] != version:
            return False
        names = store.read_vocabulary(root)["observation"]
        inputs, whole = sequence_hashes(root)
    except EspalierError:  # half a run, or none: then nothing is known of it
        return False
    shutil.rmtree(folder, ignore_errors=True)
    store.write_arrow(folder / "observations.arrow", pl.DataFrame({"observation": names}))
    store.write_arrow(folder / "sequences.arrow", pl.DataFrame({"input": inputs, "whole": whole}))
    store.write_json(root / store.KNOWN, {"data_version": version})  # last: it says that all is there
    return True


def _known_version(root: Path) -> str | None:
    try:
        return store.read_known_version(root)
    except EspalierError:
        return None


def compare(root: Path) -> dict | None:
    """What is new since the champion, written to `reports/news.json`; None where there is no champion.

    Without a memory of the champion's data only labels can be compared, and the other figures are None.
    """
    champion = champion_of(root)
    if champion is None:
        (root / store.NEWS).unlink(missing_ok=True)
        return None
    manifest = store.read_manifest(root)
    now = labels_of(manifest)
    before = now if champion.info.get("symbols") else set(champion.labels)  # symbols of its own are none of the data's
    found = {
        "champion_data_version": champion.info.get("data_version"), "data_version": manifest["data_version"],
        "new_labels": sorted(now - before), "lost_labels": sorted(before - now),
        "new_observations": None, "lost_observations": None,
        "new_sequences": None, "lost_sequences": None, "relabelled_sequences": None,
    }  # fmt: skip
    folder = root / KNOWN
    if _known_version(root) == found["champion_data_version"]:
        found |= _since(root, folder)
    store.write_json(root / store.NEWS, found)
    return found


def labels_of(manifest: dict) -> set[str]:
    """The labels of the data; of trees those of brackets and words, not the pieces that stand at the words."""
    if not manifest.get("trees"):
        return set(manifest["labels"])
    return {label for piece in manifest["labels"] for label in (*labels_above(piece), tag_of(piece)) if label}


def _since(root: Path, folder: Path) -> dict[str, int]:
    old = pl.from_arrow(store.read_arrow(folder / "observations.arrow")[0])["observation"]
    new = store.read_vocabulary(root)["observation"]
    both = int(new.is_in(old.implode()).sum())
    known = store.read_arrow(folder / "sequences.arrow")[0]
    inputs, whole = sequence_hashes(root)
    old_inputs, old_whole = (np.unique(known.column(name).to_numpy()) for name in ("input", "whole"))
    there = np.isin(inputs, old_inputs)
    return {
        "new_observations": len(new) - both, "lost_observations": len(old) - both,
        "new_sequences": int((~there).sum()), "lost_sequences": int((~np.isin(old_inputs, inputs)).sum()),
        "relabelled_sequences": int((there & ~np.isin(whole, old_whole)).sum()),
    }  # fmt: skip


def read(root: Path) -> dict | None:
    """What the last comparison found, for those who decide; None where there was none."""
    return store.read_news(root)


def figures(found: dict | None) -> dict:
    """The counts that are not zero, for a line of a log."""
    if found is None:
        return {}
    counts = {name: len(value) if isinstance(value, list) else value for name, value in found.items()
              if not name.endswith("version")}  # fmt: skip
    return {name: count for name, count in counts.items() if count}


def text(found: dict | None) -> str:
    """The same for people."""
    if found is None:
        return "there is no champion to compare the data with"
    told = [f"{count:,} {name.replace('_', ' ', 1) if count != 1 else _one(name)}"
            for name, count in figures(found).items()]  # fmt: skip
    names = ", ".join(found["new_labels"][:SHOWN]) + (" …" if len(found["new_labels"]) > SHOWN else "")
    ending = f" ({names})" if names else ""
    unknown = "" if found["new_sequences"] is not None else "; the data of the champion are not at hand to compare more"
    return f"since the champion: {', '.join(told) or 'no news'}{ending}{unknown}"


def _one(name: str) -> str:
    return name.replace("_", " ", 1).removesuffix("s")
