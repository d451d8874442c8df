"""The cases. Each yields rows from jobs; a job is one system in a process of its own."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module

from benchmarks import job
from benchmarks.rows import FIELDS, make_row
from espalier.engine.errors import EspalierError


@dataclass
class Context:
    """Where the corpora are, whether the run is a quick one, and where words for the reader go."""

    case: str
    data: str
    quick: bool
    say: Callable[[str], None]

    failed: list[str] = field(default_factory=list)

    def job(self, function: str, system: str, setting: str, threads: int = 1, /, **arguments) -> dict | None:
        """What a job found, or None when it cannot run here or fails; the others go on."""
        self.say(f"{self.case}: {system}, {setting}")
        try:
            return job.run(f"benchmarks.cases.{function}", threads, data=self.data, quick=self.quick, **arguments)
        except job.Skip as reason:
            self.say(f"{self.case}: {system} skipped: {reason}")
        except EspalierError as error:
            self.say(f"{self.case}: {error}")
            self.failed.append(f"{self.case}: {system}, {setting}")
        return None

    def row(self, system: str, setting: str, found: dict) -> dict:
        return make_row(self.case, system, setting, {name: found[name] for name in FIELDS[3:] if name in found})


@dataclass(frozen=True)
class Case:
    """Where its rows come from, and what we aim at."""

    function: str
    target: str

    def rows(self, context: Context) -> Iterator[dict]:
        module, _, name = self.function.partition(":")
        yield from getattr(import_module(f"benchmarks.cases.{module}"), name)(context)


CASES = {
    "nettalk": Case(
        "nettalk:rows", "within 1 % of 57,415.3 in the time of 3 iterations of an optimised Wapiti, 0.1 % in twice that"
    ),
    "nettalk-sbcd": Case("nettalk:path_rows", "SBCD's time falls with the number of active features"),
    "conll2000": Case(
        "conll2000:rows", "at least 5 times as fast as CRFsuite (8 end to end) to its objective, F1 at least 93.6"
    ),
    "conll2000-l1": Case(
        "conll2000:l1_rows", "at least 5 times as fast as CRFsuite to its objective, F1 at least 93.6"
    ),
    "defaults": Case(
        "defaults:rows", "CRFsuite's F1 or better within 0.1, in less time, with nothing set but its penalty"
    ),
    "suite": Case(
        "suite:rows", "geometric mean 8 times with two threads and 5 with one, no case below 3 (1.5 with one thread)"
    ),
    "suite-others": Case("suite:other_rows", "what CRFsuite's other algorithms cost on the corpora of the suite"),
    "rich": Case("rich:rows", "a gradient in 3 s, in 1 s with 95 % of the weights zero, in 3 GiB"),
    "ngram5": Case("ngram5:rows", "20 sweeps over 100 million features in 5 minutes and 4 GiB, error at most 7 %"),
    "corpus": Case("corpus:rows", "CoNLL-2000 from gz text to features in 1 s; 50 million tokens within 4 GiB"),
    "tag": Case("tag:rows", "1,000,000 tokens a second from features, 300,000 from text"),
    "hmm": Case(
        "hmm:rows", "a sweep 10 times as fast as hmmlearn's; from text to model in 2 s, tagging 1,000,000 tokens/s"
    ),
    "grammar": Case(
        "grammar:rows", "5 times as fast as torch-struct, 1,000 times as nltk; 1,000 words parsed a second"
    ),
    "memm": Case("memm:rows", "a gradient 5 times as fast as Wapiti's"),
    "perceptron": Case(
        "perceptron:rows", "2 times as fast as CRFsuite from attributes to model, one thread each, F1 no worse"
    ),
    "boosting": Case("boosting:rows", "1,000 exact rounds on Spanish named entities in 5 minutes, two threads"),
    "gp": Case(
        "gp:rows", "degree 2 on 1,000 sentences of 21,000 words: dense in 5 minutes, sparse 25 % in 2, within 4 GiB"
    ),
    "hmsvm": Case("hmsvm:rows", "3,000 sentences to a gap of 1 % in 10 minutes by degree 2, in 30 by degree 3"),
    "scaling": Case("scaling:rows", "linear in tokens; below quadratic in labels when bigram weights are sparse"),
    "losses": Case("losses:rows", "a gradient of another loss takes at most 2.5 of that of the log loss"),
    "triples": Case("triples:rows", "a gradient with 3 % of the triples active takes at most 4 of one of pairs"),
    "scale": Case("scale:rows", "two workers at least 1.6 times one; the driver adds a tenth of the time at most"),
    "retrain": Case("retrain:rows", "a warm start ends where a cold one does, in fewer iterations"),
    "coldstart": Case("coldstart:rows", "import in 1 s, first fit in 3 s, first fit ever in 60 s"),
}
