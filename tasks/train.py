"""Train: features and weights become a model, by the trainer of its family."""

from pathlib import Path

from espalier.engine import warm_up
from espalier.engine.optimise.solver_table import fitting
from espalier.engine.parts.sharded_objective import BLOCK_TOKENS
from espalier.engine.runtime import threads
from espalier.tasks import store
from espalier.tasks.cluster.sharing import clear_dead
from espalier.tasks.params import Params
from espalier.tasks.progress import Progress
from espalier.tasks.training import plan, trainer_of
from espalier.tasks.training.job import Job, Trained


def write(root: Path, trained: Trained) -> None:
    """The model and how it came to be; a training that could go on is forgotten once they are written."""
    keeper = trained.keeper
    try:
        store.write_model(root / store.CANDIDATE, trained.model)
        store.write_json(root / store.RHO1_PATH, trained.path)
        store.write_jsonl(root / store.TRACE, trained.trace)
        times = zip(trained.trace, trained.seconds, strict=True)
        store.write_jsonl(root / store.TIMING, [{"iteration": r["iteration"], "seconds": s} for r, s in times])
    except BaseException as error:
        if keeper:
            keeper.add_last_words(error)
        raise
    if keeper:
        keeper.forget()


def main(root: Path, params: Params, progress: Progress, block_tokens: int = BLOCK_TOKENS) -> dict:
    clear_dead(root)
    job = Job(root, params, progress, block_tokens)
    job.check()
    threads.set_threads(params.compute.threads)
    if job.family == "crf" and fitting(params.crf.solver) == fitting("auto"):
        warm_up.before_first_fit()
    planned = plan.main(root, params, block_tokens)
    progress.plan(planned | {"max_iterations": params.train.max_iterations})
    plan.check(planned)
    if "advice" in planned:
        progress.say(planned["advice"])
    trained = trainer_of(job.family).fit(job)
    write(root, trained)
    progress.end(trained.note)
    return trained.figures
