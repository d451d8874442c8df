"""Espalier trains sequence labellers and keeps them trained.

>>> from espalier import CRF
>>> labeller = CRF().fit([["the", "cat"], ["a", "cat"]], [["DT", "NN"], ["DT", "NN"]])
>>> labeller.predict([["the", "dog"]])
[['DT', 'NN']]

`espalier.engine` is the mathematics, `espalier.tasks` are the stages of the pipeline, `espalier.flows` put them in
order. Importing this package loads none of them; the names below arrive when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from espalier.engine.errors import EspalierError as EspalierError
    from espalier.engine.estimator import CRF as CRF
    from espalier.engine.estimator import load as load
    from espalier.engine.families.logistic import fit_logistic as fit_logistic
    from espalier.engine.families.naive_bayes import fit_naive_bayes as fit_naive_bayes
    from espalier.engine.model import Model as Model
    from espalier.engine.optimise.penalty import ElasticNet as ElasticNet
    from espalier.engine.optimise.solvers import minimise as minimise
    from espalier.engine.optimise.virtual_weights import minimise_virtual as minimise_virtual
    from espalier.engine.semisup.mixture import fit_mixture as fit_mixture

    __version__: str

_WHERE = {
    "CRF": "espalier.engine.estimator",
    "ElasticNet": "espalier.engine.optimise.penalty",
    "EspalierError": "espalier.engine.errors",
    "Model": "espalier.engine.model",
    "fit_logistic": "espalier.engine.families.logistic",
    "fit_mixture": "espalier.engine.semisup.mixture",
    "fit_naive_bayes": "espalier.engine.families.naive_bayes",
    "load": "espalier.engine.estimator",
    "minimise": "espalier.engine.optimise.solvers",
    "minimise_virtual": "espalier.engine.optimise.virtual_weights",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("espalier-crf")
    if name not in _WHERE:
        raise AttributeError(f"module 'espalier' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
