"""From text to features: CoNLL-2000 with a warm interpreter, and a corpus of millions of tokens in little memory."""

import itertools
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import corpora, peers
from benchmarks.cases import Context
from benchmarks.cases.conll2000 import LINES
from benchmarks.job import ROOT, largest_mib
from benchmarks.rows import OURS
from espalier.engine.errors import EspalierError

MILLIONS = (10, 50)
OTHER = 0.1  # share of words of the synthetic corpus that are drawn from the pronouncing dictionary
REPEATS = 3


def rows(context: Context) -> Iterator[dict]:
    found = context.job("corpus:features", OURS, "gz text to features", 2)
    if found:
        yield context.row(OURS, "gz text to features", found)
    for millions in (0.05,) if context.quick else MILLIONS:
        setting = f"ingest and template, {millions:g} million tokens"
        found = context.job("corpus:stream", OURS, setting, 2, tokens=int(millions * 1e6))
        if found:
            yield context.row(OURS, setting, found)


def features(data: str, quick: bool) -> dict:
    """CoNLL-2000's training part by the 19 templates and the transitions of the other cases."""
    seconds = []
    for _ in range(REPEATS + 1):  # the first one loads the kernels
        begin = time.perf_counter()
        train = corpora.read_part(data, "conll2000", 0, quick)
        corpora.make_problem(train, train.clear(), LINES)
        seconds.append(time.perf_counter() - begin)
    median = float(np.median(seconds[1:]))
    return {"seconds": median, "tokens_per_second": len(train) / median}


def stream(data: str, quick: bool, tokens: int) -> dict:
    """Both stages in a process of their own; the corpus is written to a temporary folder and removed."""
    with tempfile.TemporaryDirectory(prefix="espalier-bench-") as folder:
        root = Path(folder)
        write_corpus(root / "corpus.conll", peers.read_text(corpora.paths(data, "conll2000")[0], quick), tokens)
        lines = "\n".join(f'    - "{line}"' for line in LINES)
        (root / "params.yaml").write_text(
            f"ingest:\n  source: conll\n  path: corpus.conll\n  limit: null\ntemplate:\n  lines:\n{lines}\n"
        )
        begin = time.perf_counter()
        for stage in ("ingest", "template"):
            command = [sys.executable, "-m", "espalier.flows.cli", "-C", folder, "stage", stage, "--quiet"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            if done.returncode:
                raise EspalierError(f"{stage} failed: {done.stderr.strip()[-500:]}")
        seconds = time.perf_counter() - begin
    return {"seconds": seconds, "tokens_per_second": tokens / seconds,
            "peak_mib": round(largest_mib(resource.RUSAGE_CHILDREN), 1)}  # fmt: skip


def write_corpus(path: Path, sentences: list, tokens: int) -> None:
    """Sentences drawn again and again, some of their words replaced by words of the dictionary."""
    from espalier.tasks.sources.cmudict import dictionary_path, read_dictionary

    random = np.random.default_rng(0)
    others = np.array([spelling for spelling, _ in read_dictionary(dictionary_path())])
    written = 0
    with path.open("w", encoding="utf-8") as file:
        while written < tokens:
            chosen = random.integers(0, len(sentences), 10_000)
            replaced = iter(random.random(10_000_000) < OTHER)
            words = itertools.cycle(others[random.integers(0, len(others), 100_000)].tolist())
            block = []
            for n in chosen:
                for word, tag, label in zip(*sentences[n], strict=True):
                    block.append(f"{next(words) if next(replaced, False) else word} {tag} {label}\n")
                    written += 1
                block.append("\n")
                if written >= tokens:
                    break
            file.write("".join(block))
