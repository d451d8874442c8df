"""What the files of a new project hold, read as a whole, and what is decided by that.

Everything that comes back was seen in the files; `said` has a sentence for whatever was guessed or looks wrong.
"""

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl

from espalier.engine.errors import EspalierError
from espalier.engine.labels.spans import marks_entities
from espalier.engine.text.macros import ATTRIBUTE_GAP
from espalier.tasks import formats
from espalier.tasks.formats import Reading
from espalier.tasks.formats.labels import JOINT
from espalier.tasks.formats.lists import NO_NUMBER
from espalier.tasks.ingest import input_fractions, partly_labelled
from espalier.tasks.pages.page import count, percent
from espalier.tasks.sources import with_tags
from espalier.tasks.sources.profile import BETWEEN, MARK, Profiler
from espalier.tasks.sources.sequence_hashes import input_hashes
from espalier.tasks.starting import treebanks
from espalier.tasks.starting.guessing import guess

ROLES = {"test": ("test", "testb", "eval"), "dev": ("dev", "devel", "valid", "validation", "testa")}
LETTERS = 0.9  # from this share of single characters on, tokens are letters
SMALL = 2000  # sequences up to which a split is tried out beforehand
FEW = 50  # sequences below which a tenth of them says nothing
SEEDS = 200  # tried at most, for a split that has test data
SHARES = (0.1, 0.2, 0.3)


@dataclass
class OtherColumn:
    """An input column beside the token itself."""

    distinct: int
    numeric: bool


@dataclass
class Found:
    """The files of a project by their roles, how they are read, and what they hold."""

    files: dict[str, list[Path]]  # train, and dev and test where they are given
    how: Reading
    profile: dict  # of the training files, as `tasks.sources.profile` makes it
    letters: bool  # tokens are single characters
    columns: list[OtherColumn]
    said: list[str] = field(default_factory=list)
    trees: bool = False  # not labels of tokens
    attributes: bool = False  # a token is a list of attributes, not a word
    share: float = 0.1  # of development and of test data that are split off
    seed: int = 0

    @property
    def entities(self) -> bool:
        """Whether labels mark entities, by which the task is judged then."""
        return marks_entities(self.profile["labels"])


def roles_of(files: list[str], dev: str | None, test: str | None) -> tuple[dict[str, list[Path]], list[str]]:
    """Which file is what: as told, else by its name; and what was decided by a name. Patterns stand for many files."""
    found = {"train": [], "dev": _there([dev] if dev else []), "test": _there([test] if test else [])}
    said, files = [], _there(files)
    for path in files:
        words = set(re.split(r"[^a-z0-9]+", path.name.lower()))
        role = next((role for role, names in ROLES.items() if words & set(names)), "train")
        role = "train" if len(files) == 1 else role
        found[role].append(path)
        if role != "train":
            said.append(f"{path}: {'development' if role == 'dev' else 'test'} data, by its name")
    for role in ("dev", "test"):
        if len(found[role]) > 1:
            names = ", ".join(str(path) for path in found[role])
            raise EspalierError(f"{names}: expected one {role} file; name it by --{role} and leave the others out")
    if not found["train"]:
        raise EspalierError("no file is left to train on: name the training file first, and others by --dev and --test")
    return {role: paths for role, paths in found.items() if paths}, said


def _there(names: list[str]) -> list[Path]:
    """The files that names or patterns stand for; each is read several times, so that a pipe is refused."""
    paths = [path for name in names for path in formats.expand(Path("."), name)]
    for path in paths:
        if not path.is_file():
            raise EspalierError(f"{path}: is a folder, pipe or device; expected a file that can be read again")
    return paths


def look(files: dict[str, list[Path]], told: Reading) -> Found:
    """Read all files; what `told` says of reading is not guessed."""
    first = files["train"][0]
    how, said = guess(first, told)
    seen = _Seen(files["train"], how)
    if seen.trees:
        said.append(treebanks.labels_told(seen.profile, seen.brackets))
    else:
        how, more = with_marks(seen.profile, how, told)
        if more:
            seen = _Seen(files["train"], how)
        said += [_labels_told(seen.profile), *more]
    found = Found(files, how, seen.profile, seen.letters >= LETTERS, seen.columns, said, seen.trees, seen.attributes)
    said.append(_tokens_told(found, seen))
    said += _findings(seen.profile)
    for role in ("dev", "test"):
        if role in files:
            said.append(_overlap(files[role], replace(how, inputs=seen.profile["columns"]), role, seen))
    _split(found)
    return found


class _Seen:
    """The training files in one pass: their profile, and what the first block shows of the columns."""

    def __init__(self, paths: list[Path], how: Reading):
        profiler, self.hashes, self.letters, self.columns = Profiler([str(path) for path in paths]), [], 0.0, []
        name, kind = formats.format_of(paths[0], how.format)
        self.trees, self.brackets, self.attributes = kind.trees, Counter(), name == "crfsuite"
        for block in formats.read_located(paths, how, True):
            if not self.columns:
                names = formats.input_names(block)
                self.attributes |= block["x0"].str.contains(ATTRIBUTE_GAP, literal=True).any()
                self.letters = float((block["x0"].str.len_chars() == 1).mean())
                self.columns = [_column(block[name]) for name in names[1:]]
            if self.trees:
                self.brackets += treebanks.brackets_of(block)
            profiler.add(with_tags(block) if self.trees else block)
            self.hashes.append(input_hashes(block.drop("file", "line")))
        self.profile = profiler.result()
        self.inputs = np.concatenate(self.hashes)


def _column(texts: pl.Series) -> OtherColumn:
    numbers = texts.cast(pl.Float64, strict=False).is_not_null() | (texts == NO_NUMBER)
    return OtherColumn(texts.n_unique(), numbers.all())


def with_marks(profile: dict, how: Reading, told: Reading) -> tuple[Reading, list[str]]:
    """Marks of labels that are not known, or are sets, where nothing else can be meant; and what was decided."""
    labels, said = set(profile["labels"]), []
    if MARK in labels and told.unknown is None:
        if marks_entities(labels - {MARK}):
            how = replace(how, unknown=MARK)
            said.append(f"the label {MARK} says that a label is not known, because all others mark entities; "
                        "ingest.unknown: null if it is a label")  # fmt: skip
        else:
            said.append(f"the label {MARK} is taken for a label like any other; ingest.unknown: {MARK} if it says that "
                        "the label is not known")  # fmt: skip
    sets = [label for label in labels if BETWEEN in label.strip(BETWEEN)]
    if sets and told.set_separator is None:
        if all(part in labels for label in sets for part in label.split(BETWEEN)):
            how = replace(how, set_separator=BETWEEN)
            said.append(f"labels such as {sets[0]} say that one of several is right, because each of them is a label; "
                        "ingest.set_separator: null if not")  # fmt: skip
        else:
            said.append(f"labels such as {sets[0]} are taken as they are; ingest.set_separator: \"{BETWEEN}\" if they "
                        "say that one of several is right")  # fmt: skip
    return how, said


def _labels_told(profile: dict) -> str:
    labels = list(profile["labels"])
    shown = ", ".join(labels[:6]) + (", …" if len(labels) > 6 else "")
    judged = "F1 of entities" if marks_entities(labels) else "the error of tokens"
    return f"{count(len(labels), 'label')}: {shown}; tagging scheme {profile['scheme'] or 'none'}, judged by {judged}"


def _tokens_told(found: Found, seen: _Seen) -> str:
    if found.attributes:
        return "tokens are lists of attributes"
    kind = "letters" if found.letters else "words"
    return f"tokens are {kind} ({percent(seen.letters)} of them are single characters)"


def _findings(profile: dict) -> list[str]:
    """What looks wrong, a sentence each; `espalier profile` tells all of it."""
    found, said = profile["findings"], []
    texts = {
        "illegal_transitions": ("transition", "against the scheme"),
        "conflicts": ("input", "with other labels elsewhere"),
        "strange_labels": ("label", "with characters that cannot be seen"),
        "rare_labels": ("label", "seen once alone"),
    }
    for name, (noun, text) in texts.items():
        if found[name]["count"]:
            first = found[name]["examples"][0]
            said.append(f"{count(found[name]['count'], noun)} {text}, the first at {first['place']}"
                        + (f": {first['text']}" if first["text"] else ""))  # fmt: skip
    if found["duplicates"]["count"]:
        said.append(f"{count(found['duplicates']['count'], 'sequence')} of the training data with an input that was "
                    "there before; a split keeps equal ones together")  # fmt: skip
    return said


def _overlap(paths: list[Path], how: Reading, role: str, seen: _Seen) -> str:
    """How much of a file stands in the training data, and the labels that do not."""
    hashes, labels = [], set()
    for block in formats.read_blocks(paths, how, True):
        hashes.append(input_hashes(block))
        tagged = with_tags(block) if seen.trees else block
        labels |= set(tagged["label"].unique()) if "label" in tagged.columns else set()
    inputs = np.concatenate(hashes)
    again = int(np.isin(inputs, seen.inputs).sum())
    new = sorted(label for label in labels - set(seen.profile["labels"]) if label and JOINT not in label)
    text = f"{paths[0]}: {count(len(inputs), 'sequence')} for {'development' if role == 'dev' else 'the test'}; "
    text += f"{again:,} of them ({percent(again / len(inputs))}) also stand in the training data"
    return text + (f"; labels that training does not have: {', '.join(new[:5])}" if new else "")


# The split ------------------------------------------------------------------------------------------


def _split(found: Found) -> None:
    """Choose how much is split off, and by which seed where there is so little data that it matters."""
    wanted = [role for role in ("dev", "test") if role not in found.files]
    sequences = found.profile["sequences"]
    if not wanted:
        return
    found.share = 0.1 if sequences >= FEW else 0.2
    if sequences <= SMALL and "test" in wanted:
        _try_out(found, wanted)
    names = {"dev": "development", "test": "test"}
    parts = " and ".join(f"{found.share:.0%} for {names[role]}" for role in wanted)
    said = f"split off the training data by a hash of the input: {parts}"
    if sequences < FEW:
        said += f"; {count(sequences, 'sequence')} are so few that figures will say little"
    found.said.append(said + (f" (seed {found.seed}, for one that leaves test data)" if found.seed else ""))


def _try_out(found: Found, wanted: list[str]) -> None:
    """A seed by which the test data have a sequence whose labels training knows."""
    tokens = pl.concat(list(formats.read_blocks(found.files["train"], found.how, True)), rechunk=True)
    partial = partly_labelled(tokens)
    tokens = with_tags(tokens) if found.trees else tokens
    tokens = tokens if "label" in tokens.columns else tokens.with_columns(label=pl.lit(""))
    labels = tokens.group_by("sequence", maintain_order=True).agg(pl.col("label").unique())["label"].to_list()
    for share in [share for share in SHARES if share >= found.share]:
        for seed in range(SEEDS):
            fractions = np.where(partial, 1.0, input_fractions(tokens, f"split{seed}"))  # these stay in training
            if _is_good(fractions, labels, share, wanted):
                found.share, found.seed = share, seed
                return
    different = found.profile["sequences"] - found.profile["findings"]["duplicates"]["count"]
    raise EspalierError(
        f"{found.files['train'][0]}: {count(different, 'different sequence')}, too few to split test data off that "
        "have the labels of the others; give more, or name a test file by --test"
    )


def _is_good(fractions: np.ndarray, labels: list[list[str]], share: float, wanted: list[str]) -> bool:
    """Whether a split leaves something to train on, to test, and for development where that is split off, too."""
    begin = share if "dev" in wanted else 0.0
    test = (begin <= fractions) & (fractions < begin + share)
    train = fractions >= begin + share
    known = {label for one, chosen in zip(labels, train, strict=True) if chosen for label in one}
    fits = any(chosen and known >= set(one) for one, chosen in zip(labels, test, strict=True))
    return bool(fits and train.any() and (begin == 0.0 or (fractions < begin).any()))
