"""What a trainer is given, and what it hands back."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from espalier.engine.data.dataset import Dataset
from espalier.engine.errors import EspalierError
from espalier.engine.families import require
from espalier.engine.families.labeller import Predictor
from espalier.engine.families.memm import PER_LABEL, SHARED, per_label_kinds
from espalier.engine.families.objectives import objective_of, refuse_triples
from espalier.engine.labels.scheme import Transitions, named, transitions_of
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.losses.loss_table import LOG
from espalier.engine.parts.sharded_objective import BLOCK_TOKENS
from espalier.engine.penalty_search import PathOptions
from espalier.engine.runtime.kernel_cache import source_hash
from espalier.engine.weights.layout import KINDS, Layout
from espalier.engine.weights.stop_twins import ends_of, with_twin_kinds, with_twin_texts
from espalier.tasks import store
from espalier.tasks.params import Params
from espalier.tasks.progress import Progress

if TYPE_CHECKING:
    from espalier.tasks.training.checkpoint import Checkpoint

CHAMPION = "champion"  # train.initial that is the champion of when the run began
NO_PATH = {"chosen": None, "points": []}  # what is written where rho1 is given: DVC wants the file in any case


@dataclass(frozen=True)
class Options:
    """All that decides a training by gradients: the family's own section, what all trainings share, where it runs."""

    family: str = "crf"
    solver: str = "auto"
    rho1: float | str = 0.5
    rho2: float = 0.001
    pairs: str = "seen"
    start: bool = True
    stop: bool = False
    weights: str = "shared"
    start_from: str | None = None
    sparse: str = "auto"
    loss: str = LOG
    scheme: str | None = None
    pi: float = 1.0
    max_iterations: int = 1000
    tolerance: float = 0.0004
    patience: int | None = None
    initial: str | None = None
    dev_every: int | None = 1
    dev_sequences: int | None = 5000
    seed: int = 0
    checkpoint_seconds: float | None = 60
    threads: int | None = None
    cluster: str | None = None

    @classmethod
    def of(cls, params: Params) -> "Options":
        sections = params.of_family, params.train, params.compute
        return cls(params.model.family, **{name: value for one in sections for name, value in vars(one).items()})

    @property
    def of_path(self) -> PathOptions:
        """What of it the points of a path are solved with."""
        return PathOptions(self.solver, self.rho2, self.max_iterations, self.tolerance)


@dataclass(frozen=True)
class Job:
    """One training: a project's folder and parameters, who listens, and how large the blocks of data are."""

    root: Path
    params: Params
    progress: Progress = field(default_factory=Progress)
    block_tokens: int = BLOCK_TOKENS

    @property
    def family(self) -> str:
        return self.params.model.family

    @cached_property
    def manifest(self) -> dict:
        return store.read_manifest(self.root)

    @property
    def labels(self) -> list[str]:
        return self.manifest["labels"]

    @cached_property
    def templates_of(self) -> np.ndarray:
        """For each observation the template that it comes from, int64 [V]."""
        return self._vocabulary["template"].to_numpy().astype(np.int64)

    @cached_property
    def kinds(self) -> np.ndarray:
        """What each observation carries, as bits, uint8 [V]; with twins for the end where they have weights."""
        return with_twin_kinds(self._kinds_of_texts) if self.twins is not None else self._kinds_of_texts

    @cached_property
    def _kinds_of_texts(self) -> np.ndarray:
        kinds = np.array([KINDS[kind] for kind in self.manifest["kinds"]], np.uint8)[self.templates_of]
        if not self._per_label:
            return kinds
        if self.manifest.get("value_columns"):
            raise EspalierError(
                "memm.weights is per-label and the templates see values, which have weights for single labels only: "
                "set memm.weights to shared or leave out %v"
            )
        return per_label_kinds(kinds)

    @property
    def _per_label(self) -> bool:
        return getattr(self.params.of_family, "weights", SHARED) == PER_LABEL

    @cached_property
    def twins(self) -> np.ndarray | None:
        """The observations of the end, see `engine.weights.stop_twins`; None where the family has no weights of it."""
        return ends_of(self._kinds_of_texts, "crf.stop") if getattr(self.params.of_family, "stop", False) else None

    def observations(self) -> list[str]:
        """The texts of the observations; a training needs them when it is over, to name its weights."""
        texts = self._vocabulary["observation"].to_list()
        return texts if self.twins is None else with_twin_texts(texts, self._kinds_of_texts)

    @cached_property
    def text_bytes(self) -> int:
        """Of the texts of all observations."""
        return int(self._vocabulary["observation"].str.len_bytes().sum())

    @cached_property
    def _vocabulary(self) -> pl.DataFrame:
        return store.read_vocabulary(self.root)

    @cached_property
    def weights(self) -> np.ndarray:
        """The weight of each training sequence, float64 [N]."""
        weights, sequences = store.read_weights(self.root), self.manifest["splits"]["train"]["sequences"]
        if len(weights) != sequences:
            raise EspalierError(
                f"{self.root / store.WEIGHTS}: {len(weights):,} weights for {sequences:,} sequences; "
                "run `espalier stage weigh` again"
            )
        return weights

    def objective(self, dataset: Dataset, layout: Layout, options: Options) -> ChainObjective:
        """The objective of its family and loss over data in this process."""
        how = options.sparse, options.loss, options.pi, self.transitions
        return objective_of(self.family, dataset, layout, *how)

    @cached_property
    def scheme(self) -> str | None:
        """The name of the scheme that transitions keep to in training, None where all are allowed."""
        asked = getattr(self.params.of_family, "scheme", None)
        try:
            return asked and named(self.labels, asked)
        except EspalierError as error:
            raise EspalierError(f"{self.family}.scheme is {asked}: {error}") from None

    @cached_property
    def transitions(self) -> Transitions | None:
        """What it allows."""
        return self.scheme and transitions_of(self.labels, self.scheme)

    @property
    def of_scheme(self) -> dict:
        """What the model file says of it."""
        return {"scheme": self.scheme} if self.scheme else {}

    def shards(self, split: str = "train") -> store.Shards:
        return store.Shards(self.root, split, self.manifest, twins=self.twins)

    def check(self) -> None:
        """Refuse what the parameters ask of a family that cannot do it."""
        self.check_kind_of_data()
        self.check_triples()
        if self.params.compute.cluster:
            require(self.family, "shards", "set compute.cluster to null")
        if self._per_label and not self.params.memm.start:
            raise EspalierError(
                "memm.weights is per-label and memm.start false: the first label of a sequence would have no weight; "
                "set memm.start to true"
            )
        if getattr(self.params.of_family, "start_from", None):
            self._check_start_from()
        if self.params.train.initial:
            require(self.family, "warm_start", "set train.initial to null")

    def check_kind_of_data(self) -> None:
        """Refuse trees for a family that labels tokens, and labels of tokens for one of trees."""
        if self.manifest.get("trees"):
            require(self.family, "trees", "give it data whose tokens have labels")
        else:
            require(self.family, "labels", "give it trees (ingest.format: brackets)")

    def check_triples(self) -> None:
        """Refuse templates that begin with T where nothing can be learned from them."""
        if "T" not in self.manifest["kinds"]:
            return
        family = self.params.of_family
        loss, scheme = getattr(family, "loss", LOG), getattr(family, "scheme", None)
        refuse_triples(self.family, loss, scheme is not None, "model.family")
        if getattr(self.params.of_family, "pairs", "seen") == "all":
            raise EspalierError(
                f"{self.family}.pairs is all, and templates that begin with T have weights for the triples of "
                f"labels that are seen alone: set {self.family}.pairs to seen, or leave them out"
            )

    def _check_start_from(self) -> None:
        """Refuse what a training that begins with one of another family cannot have."""
        asked, params = f"{self.family}.start_from is {self.params.of_family.start_from}", self.params
        if params.train.initial:
            raise EspalierError(
                f"{asked} and train.initial {params.train.initial!r}, and training starts from one of them: set the "
                "other to null"
            )
        if params.compute.cluster:
            raise EspalierError(
                f"{asked}, which is trained in one process, and compute.cluster {params.compute.cluster!r}: set one of "
                "them to null"
            )

    def check_labels(self, train: Dataset, otherwise: str | None = None) -> None:
        """Refuse labels that are unknown or sets where a family, or what it is told, cannot learn from them."""
        if len(train.labels) and train.labels.min() < 0:
            require(self.family, "partial", "leave sequences without labels out of the training data")
            if otherwise:
                raise EspalierError(f"some labels of the training data are not known: set {otherwise}")

    def described(self, **more) -> dict:
        """What the model file says of the data that it was trained on, and of how it decodes."""
        manifest, train = self.manifest, self.manifest["splits"]["train"]
        return more | {
            "nouns": manifest["nouns"], "kinds": manifest["kinds"], "data_version": manifest["data_version"],
            "code_version": source_hash(), "train_sequences": train["sequences"], "train_tokens": train["tokens"],
            **{key: manifest[key] for key in ("lists", "reading", "scales") if manifest.get(key)},
            "decode": self.params.evaluate.decode,
        }  # fmt: skip


@dataclass
class Trained:
    """A model and how it came to be; `keeper` has the state of a training that could go on."""

    model: Predictor
    trace: list[dict]
    seconds: list[float]  # of each record of the trace
    figures: dict  # of the stage
    note: str  # the end of it in a line
    path: dict = field(default_factory=lambda: NO_PATH)
    keeper: "Checkpoint | None" = None
