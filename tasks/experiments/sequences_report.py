"""The experiment `semisup-sequences`: CRFs weighted by clusters, which the thesis leaves open."""

import numpy as np

from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings
from espalier.tasks.experiments.semisup import spread
from espalier.tasks.experiments.sequences import METHODS, RHO1, TEMPLATES, compared
from espalier.tasks.pages.charts import Box, box_chart
from espalier.tasks.pages.page import figure, join, lead, number, percent, points, signed, table, tag

LIMIT, LABELLED, TEST, BIAS, CLUSTERS, SEED = 20_000, 1_000, 2_000, 0.5, 10, 0
BLOCKS, PER_BLOCK = 5, 2
QUICK = {"limit": 3_000, "n": 300, "test_size": 500}
NAMES = {
    "unweighted": "biased, no weights",
    "cluster": "biased, weights of clusters",
    "covariate": "biased, ratio of mixture densities",
    "length": "biased, weights of lengths",
    "unbiased": "sample without bias",
}
STYLES = {"unweighted": "a", "cluster": "b", "covariate": "b", "length": "b", "unbiased": "a"}
MEASURES = {"phoneme_error": ("phoneme error", percent), "word_error": ("word error", percent),
            "log_loss": ("log-loss, nats per word", number)}  # fmt: skip


def cells(settings: Settings) -> list[Cell]:
    """Blocks of replications."""
    arguments = {"limit": LIMIT, "n": LABELLED, "test_size": TEST, "bias": BIAS, "k": CLUSTERS, "seed": SEED}
    blocks, each = (1, 2) if settings.quick else (BLOCKS, PER_BLOCK)
    arguments |= QUICK if settings.quick else {}
    return [Cell(f"block{b}", compared, arguments | {"first": b * each, "replications": each}) for b in range(blocks)]


def values(rows: list[dict], method: str, measure: str) -> np.ndarray:
    return np.array([row["methods"][method][measure] for row in rows])


def against_unweighted(rows: list[dict], method: str, measure: str) -> dict:
    """Mean difference on the same samples, with two standard errors around it."""
    s = spread(values(rows, method, measure) - values(rows, "unweighted", measure))
    return {"mean": s["mean"], "low": s["mean"] - 2 * s["standard_error"], "high": s["mean"] + 2 * s["standard_error"]}


def written(measure: str, value: float) -> str:
    return points(value) if MEASURES[measure][1] is percent else signed(value)


def told(rows: list[dict], method: str, measure: str) -> str:
    d = against_unweighted(rows, method, measure)
    return f"{written(measure, d['mean'])} ({written(measure, d['low'])} to {written(measure, d['high'])})"


def verdict(rows: list[dict], method: str, measure: str) -> str:
    d = against_unweighted(rows, method, measure)
    return "better" if d["high"] < 0 else "worse" if d["low"] > 0 else "no clear difference"


def comparisons(rows: list[dict]) -> list[Comparison]:
    found = []
    for method in METHODS[1:]:
        for measure, (name, write) in MEASURES.items():
            mean = write(float(values(rows, method, measure).mean()))
            base = write(float(values(rows, "unweighted", measure).mean()))
            found.append(Comparison("5.3", f"{name}: {NAMES[method]}", "open question",
                                    f"{mean} against {base} without weights: {told(rows, method, measure)}",
                                    verdict(rows, method, measure)))  # fmt: skip
    return found


def charts(rows: list[dict]):
    for measure, (name, write) in MEASURES.items():
        spreads = {method: spread(values(rows, method, measure)) for method in METHODS}
        boxes = [Box(method, STYLES[method], *s["percentiles"], s["mean"]) for method, s in spreads.items()]
        tick = (lambda value: f"{100 * value:g}%") if write is percent else number
        yield figure(name, box_chart(f"sequences-{measure}", name, "sample and weights", boxes, write, tick))


def report(results: dict[str, dict], settings: Settings) -> Report:
    rows = [row for cell in cells(settings) for row in results[cell.key]["replications"]]
    arguments = cells(settings)[0].arguments
    short = np.mean([row["mean_length_sample"] for row in rows])
    whole = np.mean([row["mean_length_all"] for row in rows])
    opening = (
        f"{number(arguments['n'])} labelled words of the pronouncing dictionary, drawn so that short ones are likelier "
        f"({short:.1f} letters on average, {whole:.1f} in the dictionary). Does the pool of all words, without labels, "
        f"mend that? {len(rows)} samples; the test holds words of all lengths. Weights of clusters: "
        f"{verdict(rows, 'cluster', 'phoneme_error')} in phoneme error, "
        f"{verdict(rows, 'cluster', 'log_loss')} in log-loss."
    )
    sizes = [[NAMES[m], number(float(values(rows, m, "effective_sample_size").mean()))] for m in METHODS]
    drawn = join([
        lead("Box: the middle half; whiskers: nine in ten; line: median; dot: mean. A lower value is better."),
        tag("div", *charts(rows), class_="panels"),
        table("How many equal weights would vary as little", ["sample", "effective sample size"], sizes, (1,)),
    ])  # fmt: skip
    return Report(
        "Sequences with weights from clusters", opening, comparisons(rows), [("errors", "Errors", drawn)], notes()
    )


def notes() -> list[str]:
    return [
        f"The labelled words are drawn without replacement, with probability proportional to exp(−{BIAS} · letters); "
        "test and pool are drawn at random from all words.",
        f"The CRF sees {len(TEMPLATES)} templates (the letter and its neighbours), with L1 penalty {RHO1}, the same "
        "for all ways; weights have the mean 1.",
        "Weights of lengths know what the bias was made of: they show how far weights can go. The sample without bias "
        "has the same number of words.",
        "Words with a phoneme that the sample lacks count as wrong, and are left out of the log-loss.",
        "Weights trade the bias of the sample for variance (the effective sample size in the table). The theory "
        "promises a gain only where the model is wrong and the sample is large.",
        "Intervals are two standard errors of the mean difference on the same samples, to both sides.",
    ]


EXPERIMENT = Experiment("semisup-sequences", "CRFs on a biased sample, weighted by clusters of a pool", cells, report)
