"""The families of models: what each can do, and where it is.

A family is a module here with a class of models (`engine.families.labeller`): a trained model in words, which labels
data or puts trees over them. The table below is all that others know of a family; its module is loaded when it is first
asked for. What a family `can` do decides what stages and commands offer; what it cannot is refused in one sentence that
names those that can. Classifiers of bags (`logistic`, `naive_bayes`) have their modules here, too.
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from espalier.engine.errors import EspalierError, quoted

if TYPE_CHECKING:
    from espalier.engine.families.labeller import Predictor

# What a family may be able to do, in words that end "FAMILY cannot …".
ABILITIES = {
    "labels": "label tokens one by one",
    "trees": "put trees over sequences",
    "probability": "say how likely its labels are",
    "nbest": "list several labellings",
    "limits": "keep to known labels or to the transitions of a scheme",
    "weights": "show weights",
    "warm_start": "start from an earlier model",
    "partial": "learn from partial labels",
    "shards": "train on data in several processes",
    "path": "follow a path of penalties",
    "values": "learn from real values",
    "resume": "go on where an interrupted training was",
    "likelihood": "say how likely an input is",
    "sample": "draw sequences",
    "triples": "weigh three labels in a row",
    "states": "be written down as states, transitions and emissions",
    "duplicates": "learn from a sequence of weight 2 as from two of them",
    "objective": "say how far it is from an optimum",
}
KINDS = frozenset({"labels", "trees"})  # of what a family says of a sequence; each has one of them
GENERATIVE = frozenset({"likelihood", "sample", "states"})  # what a model of inputs and labels together can


@dataclass(frozen=True)
class Family:
    """`where` is module:class of its models, in this folder; `called` is what a report calls such a model."""

    where: str
    called: str
    help: str
    can: frozenset[str]

    @property
    def labeller(self) -> type["Predictor"]:
        module, _, name = self.where.partition(":")
        return getattr(import_module(f"espalier.engine.families.{module}"), name)


ANSWERS = frozenset({"labels", "probability", "nbest", "limits", "weights"})  # what lattices of probabilities give
SCORES = frozenset({"labels", "limits", "weights"})  # what lattices of scores give that are no probabilities
MINIMISES = frozenset({"duplicates", "objective"})  # what follows from an objective that is a sum over sequences
FAMILIES = {
    "crf": Family(
        "crf:CrfLabeller", "sparse conditional random field", "conditional random field, a linear chain",
        frozenset(ABILITIES) - GENERATIVE - {"trees"},
    ),
    "memm": Family(
        "memm:MemmLabeller", "sparse maximum-entropy Markov model",
        "maximum-entropy Markov model, each label given the one before",
        ANSWERS | MINIMISES | {"warm_start", "path", "resume", "values"},
    ),
    "hmm": Family(
        "hmm:HmmLabeller", "hidden Markov model", "hidden Markov model, from counts, known or expected",
        ANSWERS | MINIMISES | GENERATIVE | {"warm_start", "partial"},
    ),
    "gp": Family(
        "gp:GpLabeller", "Gaussian process for sequences",
        "Gaussian process, a conditional random field in the space of a kernel",
        ANSWERS | MINIMISES,
    ),
    "hmsvm": Family(
        "hmsvm:HmsvmLabeller", "hidden Markov support vector machine",
        "hidden Markov support vector machine, the largest margin in the space of a kernel",
        frozenset({"labels", "nbest", "limits", "weights"}) | MINIMISES,
    ),
    "perceptron": Family(
        "perceptron:PerceptronLabeller", "structured perceptron", "averaged perceptron: scores learnt from mistakes",
        SCORES | {"warm_start", "resume", "values"},
    ),
    "boosting": Family(
        "boosting:BoostingLabeller", "sequence AdaBoost",
        "sequence AdaBoost: weights chosen one by one, each for what it takes from the odds against the right labels",
        SCORES | {"warm_start", "resume", "duplicates"},
    ),
    "pcfg": Family(
        "pcfg:PcfgModel", "probabilistic context-free grammar", "probabilistic grammar: trees, from trees or strings",
        frozenset({"trees", "likelihood", "partial", "duplicates", "shards", "sample"}),
    ),
}  # fmt: skip


def family(name: str) -> Family:
    """The family of that name."""
    if not isinstance(name, str) or name not in FAMILIES:
        raise EspalierError(f"family {quoted(str(name))} is not known: choose one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


def require(name: str, ability: str, otherwise: str = "", setting: str = "model.family") -> None:
    """Refuse, in one sentence, what a family cannot do; it names those that can, and what else would help.

    `setting` is what the user chose the family by, `otherwise` a clause of its own: "set a to b", "leave c out".
    """
    if ability not in family(name).can:
        kind = set() if ability in KINDS else family(name).can & KINDS  # another kind would need other data
        able = ", ".join(other for other, one in FAMILIES.items() if {ability, *kind} <= one.can)
        choice = f"set {setting} to {f'one of {able}' if ',' in able else able}" if able else ""
        ways = ", or ".join(way for way in (choice, otherwise) if way) or "no family for such data can"
        raise EspalierError(f"{name} cannot {ABILITIES[ability]}: {ways}")


def load(path: str | Path) -> "Predictor":
    """The model of a file, whatever its family."""
    from espalier.engine.model import Model
    from espalier.engine.model_file import NESTED, REMEDY, open_model

    file = open_model(path)
    if file.family not in FAMILIES:
        if file.head["format"] != NESTED:
            Model.read(file)  # a damaged file is called damaged
        raise EspalierError(
            f"{path}: a model of the family {quoted(file.family)}, this version knows {', '.join(FAMILIES)}; "
            "use the version that trained it, or train it again"
        )
    model = FAMILIES[file.family].labeller.read(file)
    try:
        model.check()
    except ValueError as error:
        raise EspalierError(f"{path}: {error}; {REMEDY}") from None
    return model
