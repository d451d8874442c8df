"""Both forms of a perceptron: weights of attributes, or rows of the training data that support labels by a kernel."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from espalier.engine import warm_start
from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families.labeller import Labeller
from espalier.engine.families.perceptron import DualPerceptronLabeller, PerceptronLabeller
from espalier.engine.families.perceptron_dual import chain_of, check_options, fit_dual
from espalier.engine.families.perceptron_options import PerceptronOptions
from espalier.engine.families.perceptron_training import fit
from espalier.engine.optimise.monitor import Result
from espalier.engine.similarity.rows import AttributeRows
from espalier.engine.weights.layout import make_layout
from espalier.tasks.training.by_gradient import ModelOf, earlier_model, models_of
from espalier.tasks.training.job import Job
from espalier.tasks.training.kernel_machine import KernelWork, WhileTraining, plan_of

STARTS = ("perceptron", "crf", "memm")  # whose weights are a start: they score labels and pairs of them
WRONG = 0.05  # of the positions are wrong when they are met, about, in the mean over a training
VECTORS = 10  # of H and what goes with it: A, sums, D, its marks, the model, the best, a copy on its way


class PerceptronForm(NamedTuple):
    """What a form makes of the training data of a job."""

    features: int  # numbers that move
    model_of: ModelOf  # what they say while they are still being trained
    learn: Callable[..., Result]  # told who listens and who keeps
    labeller: Callable[[Result, dict], Labeller]  # the model of what was found, and what its file says
    initial: str | None = None  # the file of the model that it starts from


def form_of(job: Job, data: Dataset, options: PerceptronOptions) -> PerceptronForm:
    return (primal if options.degree is None else dual)(job, data, options)


def primal(job: Job, data: Dataset, options: PerceptronOptions) -> PerceptronForm:
    """A weight for each attribute and label."""
    initial, earlier = earlier_model(job, STARTS)
    layout = make_layout(job.params.perceptron.pairs, data, len(job.labels), job.kinds, job.params.perceptron.start)
    theta = None
    if earlier:
        scales = job.manifest.get("scales")
        theta = warm_start.starting_point(earlier, layout, job.observations(), job.labels, scales)

    def labeller(found: Result, info: dict) -> Labeller:
        templates = job.manifest["templates"]
        return PerceptronLabeller.compact(layout, found.theta, job.observations(), job.labels, templates, info)

    return PerceptronForm(
        layout.size, models_of(job, layout), lambda listen, keeper: fit(data, layout, options, theta, listen, keeper),
        labeller, initial if earlier else None,
    )  # fmt: skip


def dual(job: Job, data: Dataset, options: PerceptronOptions) -> PerceptronForm:
    """Rows that support labels."""
    if job.params.train.initial:
        raise EspalierError(
            f"perceptron.degree is {options.degree} and train.initial {job.params.train.initial!r}: with a kernel "
            "there are no weights of attributes to start from; set one of them to null"
        )
    own = job.params.perceptron
    chain = chain_of(data, len(job.labels), job.kinds, options, own.pairs, own.start)

    def labeller(found: Result, info: dict) -> Labeller:
        names = job.observations(), job.labels, job.manifest["templates"]
        return DualPerceptronLabeller.of_theta(chain, found.theta, *names, info, options)

    return PerceptronForm(chain.layout.size, WhileTraining(chain).model,
                lambda listen, keeper: fit_dual(chain, options, listen, keeper), labeller)  # fmt: skip


def dual_plan(job: Job, options: PerceptronOptions) -> dict:
    """What the dual form takes."""
    check_options(options)
    return plan_of(job, options, dual_work)


def dual_work(job: Job, options: PerceptronOptions, rows: AttributeRows, tokens: int) -> KernelWork:
    """Positions that are wrong cost the kernel with all rows, and so do the development data where they are looked at:
    with every row that supports a label, all of them at most."""
    cells, train, dev = rows.count * len(job.labels), job.params.train, job.manifest["splits"]["dev"]
    most = dev["sequences"] if train.dev_sequences is None else train.dev_sequences
    looked = dev["tokens"] * min(1.0, most / max(1, dev["sequences"])) / train.dev_every if train.dev_every else 0
    kernels = int(np.ceil((WRONG * tokens + looked) * rows.count))
    return KernelWork(cells, kernels, True, 1, 8 * VECTORS * cells, options.epochs, "perceptron.degree to null")
