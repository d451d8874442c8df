"""Which labels a model answers with: the likeliest labelling as a whole, or the likeliest label of each position.

Viterbi finds the labelling with the largest probability, so it has the fewest wrong sequences to be expected;
posterior decoding the fewest wrong labels. One place decides: what a model file says of itself (`evaluate.decode` when
it was trained), unless someone asks for another.
"""

import numpy as np

from espalier.engine.data.dataset import Dataset
from espalier.engine.decoding import decode
from espalier.engine.errors import EspalierError, quoted
from espalier.engine.model import Model
from espalier.engine.weights.layout import Layout

DECODERS = {"viterbi": decode.viterbi, "posterior": decode.posterior}
DEFAULT = "viterbi"


def decoder_of(model: Model, asked: str | None = None) -> str:
    """The name of the decoder of a model, or of the one that was asked for."""
    name = asked or model.info.get("decode") or DEFAULT
    if name not in DECODERS:
        raise EspalierError(f"decoder {quoted(str(name))} is not known: choose one of {', '.join(DECODERS)}")
    return name


def decoded(dataset: Dataset, layout: Layout, theta: np.ndarray, decoder: str = DEFAULT, **only) -> np.ndarray:
    """The labels that a decoder says, int32 [T]; `only` restricts them, see `engine.decoding.decode`."""
    return DECODERS[decoder](dataset, layout, theta, **only)
