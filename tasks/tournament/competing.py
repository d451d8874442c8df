"""A tournament in a project: each entrant planned, trained and kept, then all of them asked, one after the other.

Whoever runs it calls `attempt` for each entrant, in any order and from any threads, then `finish`. What fails with one
entrant is told of it and harms no other.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.families.labeller import Labeller
from espalier.engine.runtime import compiling, threads
from espalier.tasks import evaluate, report, store, train
from espalier.tasks.answering.tagging import numbered
from espalier.tasks.cluster.sharing import clear_dead
from espalier.tasks.judging.kept_answers import named
from espalier.tasks.keeping import history
from espalier.tasks.pages import tournament_page
from espalier.tasks.params import Params
from espalier.tasks.progress import Progress
from espalier.tasks.tournament.entrants import Entrant, entrants_of
from espalier.tasks.tournament.kept import Kept, Said, data_hashes, key_of, prune
from espalier.tasks.tournament.standings import Contender, standings
from espalier.tasks.training import plan, trainer_of
from espalier.tasks.training.job import Job

FIGURES = "reports/tournament.json"
TRAINED, REFUSED, LEFT_OUT, FAILED = "trained", "refused", "left out", "failed"


class Outcome(NamedTuple):
    """What became of an entrant: `why` it has no model, `now` where it was not kept from before."""

    how: str
    why: str | None = None
    now: bool = False


class MemoryBudget:
    """What all trainings of this machine may take together: who needs more than is free waits for others to end."""

    def __init__(self, allowed: int):
        self.allowed = self.free = allowed
        self.changed = threading.Condition()

    @contextmanager
    def taken(self, needed: int) -> Iterator[None]:
        needed = min(needed, self.allowed)
        with self.changed:
            self.changed.wait_for(lambda: self.free >= needed)
            self.free -= needed
        try:
            yield
        finally:
            with self.changed:
                self.free += needed
                self.changed.notify_all()


class Ended(EspalierError):
    """Somebody has ended the tournament."""


class Place:
    """Where entrants are trained, this process: so many at once, and the memory that each takes beside the others."""

    def __init__(self, at_once: int = 1):
        self.at_once = at_once

    def check(self, planned: dict) -> None:
        """Refuse what fits nowhere there."""

    def bytes_of(self, planned: dict) -> int:
        return max(0, planned["bytes"]["all"] - plan.PROCESS)

    def train(self, root: Path, params: Params, key: str, progress: Progress, ended: threading.Event) -> None:
        train_here(root, params, key, Heard(progress, ended), self.at_once == 1)


class Heard(Progress):
    """What a training tells of itself, to who listens to the whole; `ended` ends it between two iterations."""

    def __init__(self, progress: Progress, ended: threading.Event):
        self.progress, self.ended = progress, ended

    def step(self, n=1, note=""):
        if self.ended.is_set():
            raise Ended("the tournament was ended")
        self.progress.step(n, note)

    def compiling(self, state):
        self.progress.compiling(state)

    def say(self, text):
        self.progress.say(text)


def train_here(root: Path, params: Params, key: str, progress: Progress, alone: bool) -> None:
    """Train one entrant in this process and keep it; a training that was interrupted goes on where it was.

    The seconds of one that is `alone` are without those of compiling, which others could not be told from.
    """
    begin = time.perf_counter()
    with compiling.hears(progress.compiling) as compiled:
        trained = trainer_of(params.model.family).fit(Job(root, params, progress))
    seconds = time.perf_counter() - begin
    Kept(root, key).write(trained, {"seconds": seconds - alone * min(seconds, compiled.seconds), "alone": alone})
    if trained.keeper:
        trained.keeper.forget()


def plan_of(root: Path, params: Params) -> dict:
    """What the training of an entrant takes; refused, in words, where it cannot be or takes more than it may."""
    Job(root, params).check()
    planned = plan.main(root, params)
    plan.check(planned)
    return planned


@dataclass
class Competition:
    """The entrants of a project, and what became of each so far."""

    root: Path
    params: Params
    entrants: list[Entrant]
    keys: dict[str, str]
    memory: MemoryBudget
    ended: threading.Event = field(default_factory=threading.Event)
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    @classmethod
    def open(cls, root: Path, params: Params, options: dict[str, Any], say: Callable[[str], None]) -> "Competition":
        """Its entrants; a champion that cannot be read is told of before anything is trained."""
        entrants = entrants_of(params, **options)
        threads.set_threads(params.compute.threads)
        clear_dead(root)
        if (root / store.CHAMPION).is_file():
            store.read_model(root / store.CHAMPION)
        if params.train.initial:
            say("train.initial is left out: entrants start from nothing, so that they are compared as equals")
        data = data_hashes(root)
        keys = {entrant.name: key_of(root, entrant, data) for entrant in entrants}
        allowed = plan.allowed_bytes(params) - plan.PROCESS
        return cls(root, params, entrants, keys, MemoryBudget(max(1, allowed)))

    # One entrant.

    def attempt(self, entrant: Entrant, progress: Progress, place: Place) -> Outcome:
        """Train an entrant unless it is kept; why it has no model is in its outcome, and what failed is raised too."""
        key = self.keys[entrant.name]
        if Kept(self.root, key).record():
            return self._ended(entrant, Outcome(TRAINED))
        try:
            planned = plan_of(self.root, entrant.params)
            place.check(planned)
        except EspalierError as error:
            return self._ended(entrant, Outcome(REFUSED if entrant.asked else LEFT_OUT, str(error)))
        if "advice" in planned and not entrant.asked:
            return self._ended(entrant, Outcome(LEFT_OUT, f"it would take long: {planned['advice']}"))
        try:
            with self.memory.taken(place.bytes_of(planned)):
                place.train(self.root, entrant.params, key, progress, self.ended)
            return self._ended(entrant, Outcome(TRAINED, now=True))
        except Exception as error:
            text = str(error) or "no words"
            told = text if isinstance(error, EspalierError) else f"{type(error).__name__}: {text}"
            self._ended(entrant, Outcome(FAILED, told))
            raise

    def _ended(self, entrant: Entrant, outcome: Outcome) -> Outcome:
        self.outcomes[entrant.name] = outcome
        return outcome

    # All of them.

    def finish(self, progress: Progress) -> dict:
        """Ask the models, set them side by side, and make the winner the candidate; the figures and the times."""
        trained = [one for one in self.entrants if self.outcomes[one.name].how == TRAINED]
        others = [{"name": one.name, "family": one.family, "how": self.outcomes[one.name].how,
                   "why": self.outcomes[one.name].why} for one in self.entrants if one not in trained]  # fmt: skip
        if not trained:
            told = "\n".join(f"  - {row['name']} is {row['how']}: {row['why']}" for row in others)
            raise EspalierError(f"no entrant has a model:\n{told}")
        contenders, times = [], {}
        for entrant in trained:
            contender, times[entrant.name] = self._asked(entrant)
            contenders.append(contender)
            progress.step(0, f"{entrant.name} has labelled the development and test data")
        figures = standings(self.root, self.params, contenders) | {"others": others}
        winner = next(one for one in trained if one.name == figures["winner"])
        self._make_candidate(winner)
        store.write_json(self.root / FIGURES, figures)
        page = tournament_page.as_page(figures, times, self.root.resolve().name, history.now())
        store.write_text(self.root / tournament_page.PAGE, page)
        prune(self.root, set(self.keys.values()))
        progress.end(f"{figures['winner']} wins, of {len(trained)} with a model")
        return figures | {"times": times}

    def _asked(self, entrant: Entrant) -> tuple[Contender, dict]:
        """What its model says, and the times of it: asked one after the other, so that these are like each other."""
        kept = Kept(self.root, self.keys[entrant.name])
        model, record = store.read_model(kept.model), kept.record()
        manifest, said, seconds = store.read_manifest(self.root), {}, None
        for split in ("dev", "test"):
            tokens, _ = store.read_tokens(self.root, split)
            found = kept.said(split, tokens)
            if found is None:
                found = ask(self.root, manifest, model, split)
                kept.write_said(split, tokens, *found)
            said[split], seconds = found
        times = {"training": record["seconds"], "alone": record["alone"], "tagging": seconds,
                 "now": self.outcomes[entrant.name].now}  # fmt: skip
        contender = Contender(
            entrant.name, entrant.family, entrant.settings, said["dev"], said["test"], "probability" in model.can,
            model.labels, sum(model.sizes().values()), kept.model.stat().st_size, record["files"][0], model.info,
        )  # fmt: skip
        return contender, times

    def _make_candidate(self, winner: Entrant) -> None:
        """As if it had been trained alone: the model with its trace, then evaluated and reported."""
        kept = Kept(self.root, self.keys[winner.name])
        train.write(self.root, kept.trained())
        for stage in (evaluate, report):
            stage.main(self.root, winner.params, Progress())


def ask(root: Path, manifest: dict, model: Labeller, split: str) -> tuple[Said, float | None]:
    """What a model says of a split, and the seconds that labelling it took once its kernels were there."""
    numbers, parts, seconds = evaluate.numbers_of(root, manifest, model), [], 0.0
    shards = [numbered(shard, numbers) for shard in store.read_shards(root, split, manifest)]
    for at, shard in enumerate(shards):
        if not at:
            model.decoded(shard)
        begin = time.perf_counter()
        predicted = model.decoded(shard)
        seconds += time.perf_counter() - begin
        parts.append(evaluate.measure(shard, model, predicted))
    if not parts:
        return Said([], np.empty(0), np.empty(0)), None
    found = evaluate.merge(parts)
    return Said(named(model, found.predicted), found.confidence, found.losses), seconds


def at_once(params: Params) -> int:
    """How many entrants are trained at a time: as many as threads, or workers."""
    if params.compute.cluster is None:
        return params.compute.threads or threads.threads()
    from espalier.tasks.cluster.workers import look

    return look(params.compute.cluster)["workers"]


@contextmanager
def place_of(root: Path, params: Params, at_once: int, say: Callable[[str], None]) -> Iterator[Place]:
    """Where the entrants of a project are trained: here so many at a time, or on the workers of `compute.cluster`."""
    if params.compute.cluster is None:
        yield Place(at_once)
        return
    from espalier.tasks.cluster.entrants import on_workers

    with on_workers(params.compute.cluster, root, params.compute.threads, say) as place:
        yield place
