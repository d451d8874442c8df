"""What scikit-learn expects of an estimator, without it: parameters, tags, requests of metadata, the error before fit.

Only what scikit-learn itself calls imports it, and then when it is called.
"""

import copy
import inspect
import sys
from typing import Any, Self

from espalier.engine.errors import EspalierError, brief

UNCHANGED = "$UNCHANGED$"  # how scikit-learn writes a request that stays as it is
Request = bool | str | None
# What each method takes beside X and y; nobody routes any of it until it is asked for.
METADATA = {
    "fit": ("sample_weight", "token_weight", "start_from"),
    "predict": ("method", "scheme", "allowed"),
    "score": ("sample_weight",),
}


def not_fitted(text: str) -> EspalierError:
    """The error of a use before fit: one of scikit-learn, too, where that is loaded, so that its users can catch it."""
    exceptions = sys.modules.get("sklearn.exceptions")
    if exceptions is None:
        return EspalierError(text)

    class NotFitted(EspalierError, exceptions.NotFittedError):  # type: ignore[name-defined, misc]
        """A model was asked before it was fitted or loaded."""

        def __reduce__(self) -> tuple[Any, ...]:  # errors travel between processes
            return not_fitted, (text,)

    return NotFitted(text)


class Conventions:
    """An estimator whose parameters are the arguments of its constructor, kept under their names."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name.

        Parameters
        ----------
        deep : bool
            Without effect: no parameter is an estimator.

        Examples
        --------
        >>> from espalier import CRF
        >>> CRF(rho1=0.1).get_params()["rho1"]
        0.1
        """
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name; a name that is not known is refused.

        Examples
        --------
        >>> from espalier import CRF
        >>> CRF().set_params(rho1=0.1, solver="owlqn")
        CRF(solver='owlqn', rho1=0.1)
        """
        known = self._defaults()
        for name in params:
            if name not in known:
                raise EspalierError(f"unknown parameter {name!r}: known are {', '.join(known)}")
        for name, value in params.items():
            setattr(self, name, value)
        return self

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {name: one.default for name, one in inspect.signature(cls).parameters.items()}

    def __repr__(self) -> str:
        """The parameters that are not the default."""
        values = ((name, getattr(self, name), default) for name, default in self._defaults().items())
        changed = [f"{name}={brief(repr(value))}" for name, value, default in values if repr(value) != repr(default)]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks before it uses an estimator: sequences in, sequences out, y is needed."""
        from sklearn.utils import InputTags, Tags, TargetTags

        inputs = InputTags(two_d_array=False, string=True, dict=True)
        return Tags(estimator_type=None, target_tags=TargetTags(required=True), input_tags=inputs)

    # Requests of metadata ---------------------------------------------------------------------------

    def get_metadata_routing(self) -> Any:
        """What scikit-learn may hand to `fit`, `predict` and `score` beside X and y."""
        return copy.deepcopy(self._requests())

    def set_fit_request(
        self, *, sample_weight: Request = UNCHANGED, token_weight: Request = UNCHANGED,
        start_from: Request = UNCHANGED,
    ) -> Self:  # fmt: skip
        """Say what a meta-estimator of scikit-learn hands to `fit`, where metadata routing is enabled.

        Parameters
        ----------
        sample_weight, token_weight, start_from : bool, str or None
            True: hand it on; False: do not; None: refuse it; a text: hand on what has this name.

        Examples
        --------
        >>> import sklearn
        >>> from espalier import CRF
        >>> with sklearn.config_context(enable_metadata_routing=True):
        ...     crf = CRF().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        """
        return self._request(
            "fit", {"sample_weight": sample_weight, "token_weight": token_weight, "start_from": start_from}
        )

    def set_predict_request(
        self, *, method: Request = UNCHANGED, scheme: Request = UNCHANGED, allowed: Request = UNCHANGED
    ) -> Self:
        """Say what a meta-estimator of scikit-learn hands to `predict`; see `set_fit_request`."""
        return self._request("predict", {"method": method, "scheme": scheme, "allowed": allowed})

    def set_score_request(self, *, sample_weight: Request = UNCHANGED) -> Self:
        """Say what a meta-estimator of scikit-learn hands to `score`; see `set_fit_request`."""
        return self._request("score", {"sample_weight": sample_weight})

    def _requests(self) -> Any:
        if not hasattr(self, "_metadata_request"):
            from sklearn.utils.metadata_routing import MetadataRequest

            requests = MetadataRequest(owner=type(self).__name__)
            for method, names in METADATA.items():
                for name in names:
                    getattr(requests, method).add_request(param=name, alias=None)
            return requests
        return self._metadata_request

    def _request(self, method: str, requests: dict[str, Request]) -> Self:
        from sklearn import get_config

        if not get_config()["enable_metadata_routing"]:
            raise RuntimeError(
                f"set_{method}_request needs metadata routing: call sklearn.set_config(enable_metadata_routing=True)"
            )
        changed = self.get_metadata_routing()
        for name, alias in requests.items():
            if alias != UNCHANGED:
                getattr(changed, method).add_request(param=name, alias=alias)
        self._metadata_request = changed
        return self
