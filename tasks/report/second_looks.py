"""What the report says of test data that training had seen, and of the decoder that suits a measure."""

from espalier.tasks.judging.headline import ENTITIES, measure_in, names
from espalier.tasks.pages.page import Html, capital, count, join, lead, percent, table
from espalier.tasks.report.words import Metrics, Nouns

PARTS = {"dev": "development", "test": "test"}


def newness(m: Metrics, nouns: Nouns) -> str:
    """The end of "tested on 200 words …": whether training had seen them, with the figures without those."""
    found = m.get("overlap") or {}
    if not found.get("sequences"):
        return "it had not seen."
    size = count(found["sequences"], nouns.sequence)
    seen = f"of which {size} ({percent(found['share'])}) also stand in the training data"
    if not found.get("without"):
        return f"{seen}: it had seen all of them."
    called = names(measure_in(m), nouns._asdict())
    figures = ", ".join(f"{called[key]} {percent(value, 2)}" for key, value in found["without"].items())
    return f"{seen}. Without them: {figures}."


def decoders(m: Metrics, nouns: Nouns) -> Html | None:
    """Both decoders on the same data, and which of them suits which measure."""
    found = m.get("decoders")
    if not found or "posterior" not in found:  # a model without probabilities has one decoder
        return None
    called, viterbi, posterior = names(measure_in(m), nouns._asdict()), found["viterbi"], found["posterior"]
    rows = [
        (capital(called[key]), percent(value, 2), percent(posterior[key], 2), _better(key, value, posterior[key]))
        for key, value in viterbi.items()
        if key in posterior
    ]
    opening = lead(
        "Viterbi takes the likeliest labelling as a whole, posterior decoding the likeliest label of each "
        f"{nouns.token}. Both on the {PARTS[found['part']]} data; this model uses {found['used']} (evaluate.decode)."
    )
    headings = ("Measure", "Viterbi", "Posterior", "Suits it")
    return join([opening, table("Decoders", headings, rows, numeric=(1, 2))])


def _better(name: str, viterbi: float, posterior: float) -> str:
    if viterbi == posterior:
        return "either"
    return "viterbi" if (viterbi > posterior) == (name == ENTITIES) else "posterior"
