"""A tournament in a project: what both drivers do around the training of an entrant, and the driver without Prefect."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager

from espalier.flows.locks import lease
from espalier.flows.pipeline import Project
from espalier.tasks.progress import Progress, working
from espalier.tasks.tournament.competing import Competition, Place, at_once, place_of
from espalier.tasks.tournament.entrants import Entrant


class Turns(Progress):
    """What several trainings tell at once, one word after the other, each with the name of its entrant."""

    def __init__(self, progress: Progress, entrant: Entrant, lock: threading.Lock):
        self.progress, self.name, self.lock = progress, entrant.name, lock

    def step(self, n=1, note=""):
        with self.lock:
            self.progress.step(0, f"{self.name}: {note}" if note else self.name)

    def compiling(self, state):
        with self.lock:
            self.progress.compiling(state)

    def say(self, text):
        with self.lock:
            self.progress.say(f"{self.name}: {text}")


@contextmanager
def begun(project: Project, options: dict, progress: Progress, most: int) -> Iterator[tuple[Competition, Place]]:
    """The entrants and where they are trained; whatever ends the block early ends what is being trained."""
    work = Competition.open(project.root, project.params, options, progress.say)
    progress.begin(len(work.entrants), "entrant")
    with place_of(project.root, project.params, most, progress.say) as place:
        try:
            yield work, place
        finally:
            work.ended.set()


def told(work: Competition, entrant: Entrant, progress: Progress) -> None:
    """One entrant is done with; what is not as it was asked for is said."""
    outcome = work.outcomes[entrant.name]
    if outcome.why:
        progress.say(f"{entrant.name} is {outcome.how}: {outcome.why}")
    progress.step(1, f"{entrant.name} {outcome.how if outcome.now or outcome.why else 'kept from before'}")


def tournament_direct(project: Project, options: dict, progress_of: Callable[[str], Progress]) -> dict:
    """Without Prefect: one entrant after the other here, or several on the workers of a cluster; the figures."""
    most = at_once(project.params) if project.params.compute.cluster else 1
    with lease(project.root, "a tournament"):
        progress = progress_of("tournament")
        with working(progress):
            with begun(project, options, progress, most) as (work, place):
                train_all(work, place, progress)
            return work.finish(progress)


def train_all(work: Competition, place: Place, progress: Progress) -> None:
    """Each entrant once; one that fails is told of when all are done with."""
    lock = threading.Lock()

    def attempt(entrant: Entrant) -> Entrant:
        try:
            work.attempt(entrant, Turns(progress, entrant, lock), place)
        except Exception:
            if entrant.name not in work.outcomes:
                raise
        return entrant

    if place.at_once == 1:
        for entrant in work.entrants:
            told(work, attempt(entrant), progress)
        return
    with ThreadPoolExecutor(place.at_once, thread_name_prefix="entrant") as pool:
        try:
            for future in as_completed([pool.submit(attempt, entrant) for entrant in work.entrants]):
                told(work, future.result(), progress)
        except BaseException:
            work.ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
