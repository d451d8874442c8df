"""The mathematics of Espalier: sparse linear-chain CRFs over flat arrays.

Knows numpy, numba and pyarrow only. Importing the package loads no kernel and
compiles nothing; names below arrive when they are first asked for.
"""

from importlib import import_module

_EXPORTS = {
    "CRF": "engine.estimator",
    "ChainObjective": "engine.chain_objective",
    "Dataset": "engine.data",
    "ElasticNet": "engine.penalty",
    "Layout": "engine.layout",
    "LogisticObjective": "engine.logistic",
    "Model": "engine.model",
    "dense_layout": "engine.layout",
    "fit_logistic": "engine.logistic",
    "fit_mixture": "engine.mixture",
    "fit_naive_bayes": "engine.naive_bayes",
    "minimise": "engine.solvers",
    "minimise_virtual": "engine.working_set",
    "seen_layout": "engine.layout",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str):
    if name not in _EXPORTS:
        raise AttributeError(f"module 'engine' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return __all__
