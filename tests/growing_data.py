"""Data that grow: words whose labels follow from letters, and later words with letters and labels of their own."""

import random

from stage_runs import set_options

from espalier.tasks.params import Params

VOWELS = "aeiou"


def labels_of(word: str) -> list[str]:
    """A vowel is V, doubled W; a consonant C, N before a vowel; what stands for itself in later data is X."""
    found = []
    for i, letter in enumerate(word):
        following = word[i + 1 : i + 2]
        if letter in "xyz":
            found.append("X")
        elif letter in VOWELS:
            found.append("W" if following == letter else "V")
        else:
            found.append("N" if following and following in VOWELS else "C")
    return found


def words(count: int, letters: str, seed: int) -> list[str]:
    rng, found = random.Random(seed), {}
    while len(found) < count:
        found["".join(rng.choices(letters, k=rng.randint(2, 8)))] = None
    return list(found)


def text_of(some: list[str], relabel=lambda labels: labels) -> str:
    """Columns of letter and label; one label in twelve is wrong, always the same ones."""
    blocks = []
    for word in some:
        rng, labels = random.Random(word), relabel(labels_of(word))
        noisy = [rng.choice("CVN") if rng.random() < 1 / 12 else label for label in labels]
        blocks.append("\n".join(f"{a} {b}" for a, b in zip(word, noisy, strict=True)))
    return "\n\n".join(blocks) + "\n"


def growing_params(**train) -> Params:
    """Read from raw/old.conll, and what is added to it."""
    params = Params()
    params.ingest.source, params.ingest.path, params.ingest.limit = "conll", "raw/old.conll", None
    params.ingest.unlabelled_share = 0.0
    params.template.lines = ["*:%x[0,0]", "U+:%x[0,0]/%x[1,0]", "U-:%x[-1,0]/%x[0,0]", "B"]
    params.weigh.method, params.weigh.clusters, params.promote.rounds = "none", 0, 100
    return set_options(params, **({"rho1": 0.3, "rho2": 0.01, "max_iterations": 500, "tolerance": 1e-7} | train))


def write_data(root, old: int = 300, new: int = 120) -> None:
    """raw/old.conll, and raw/new.conll with letters and a label that the old words have not."""
    (root / "raw").mkdir(parents=True, exist_ok=True)
    (root / "raw" / "old.conll").write_text(text_of(words(old, "abcdefgiou", 0)), encoding="utf-8")
    (root / "raw" / "new.conll").write_text(text_of(words(new, "abcdeixyz", 1)), encoding="utf-8")
