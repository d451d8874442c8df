"""The experiment `nettalk-thresholds`: table 6.3 and figures 6.1, 6.2 and 7.7 of the thesis."""

from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement
from espalier.tasks.experiments.drawings import Curve, map_figure, percent_tick, rows_table, share, xy_chart
from espalier.tasks.experiments.nettalk import sparse_maps, thresholds
from espalier.tasks.experiments.problems import FILES, files_of
from espalier.tasks.pages.page import Html, figure, join, lead, number, percent, points, tag

RHO2, SPARSE = 0.02, (0.2, 0.05)  # of L2, and rho1 and rho2 of figure 7.7
ITERATIONS, SWEEPS = 150, 30
QUICK_ITERATIONS, QUICK_WORDS = 3, 150
CUTS = {"0": "nothing", "0.25": "[−0.25, 0.25]", "0.5": "[−0.5, 0.5]", "1": "[−1, 1]", "2": "[−2, 2]",
        "negative": "all negative ones"}  # fmt: skip
# the source's active weights and error in percent
SOURCE = {"0": (75_790, 13.98), "0.25": (5_446, 14.02), "0.5": (4_005, 14.11), "1": (2_585, 14.91), "2": (1_288, 17.08),
          "negative": (1_697, 17.49)}  # fmt: skip
DRAWN = {"0.25": (949, 4_497, 83), "2": (161, 1_127, 112)}  # active mu and lambda, and lambda without their mu
NOTES = [
    "Ours is another cut of the dictionary, harder by some points (see nettalk-sparsity); rows are to be compared "
    "with the first one of each side.",
    f"The L2 model has ρ2 = {RHO2:g}, the value that the source found by cross-validation. The map of the sparse "
    f"one has ρ1 = {SPARSE[0]:g} and ρ2 = {SPARSE[1]:g}, as in the source's figure.",
    "Weights of pairs include those of the start label.",
    "Orphans are weights of pairs whose letter and phoneme have no weight of their own left.",
]


def cells(settings: Settings) -> list[Cell]:
    files, limit = files_of("nettalk", settings.data), QUICK_WORDS if settings.quick else None
    cuts = [float(cut) for cut in CUTS if cut != "negative"]
    most, sweeps = (QUICK_ITERATIONS, 2) if settings.quick else (ITERATIONS, SWEEPS)
    return [
        Cell("smooth", thresholds, {"rho2": RHO2, "iterations": most, "cuts": cuts, "limit": limit}, files),
        Cell(
            "sparse", sparse_maps, {"rho1": SPARSE[0], "rho2": SPARSE[1], "iterations": sweeps, "limit": limit}, files
        ),
    ]


def big_table(smooth: dict) -> Html:
    rows = []
    for cut, said in CUTS.items():
        (active, error), row = SOURCE[cut], smooth["rows"][cut]
        rows.append([said, number(active), number(row["active"]), percent(active / SOURCE["0"][0]),
                     percent(row["active"] / smooth["weights"]), f"{error:g}%", share(row["error"])])  # fmt: skip
    heads = ["set to zero", "active: source", "ours", "share: source", "ours", "error: source", "ours"]
    return rows_table("Table 6.3 of the thesis", heads, rows)


def weight_maps(found: dict, key: str) -> Html:
    names = found["letters"], found["names"]
    return join([
        map_figure(f"{key}-mu", "|μ| of letter and phoneme", *names, found["mu_map"], "letter", "phoneme"),
        map_figure(f"{key}-lambda", "Sum of |λ| over the phoneme before", *names, found["lambda_map"], "letter",
                   "phoneme"),
    ])  # fmt: skip


def left_maps(smooth: dict) -> Html:
    """Figure 6.2: how many weights of pairs are left for each letter and phoneme."""
    return join([
        map_figure(f"left-{i}", f"Weights of pairs left by {CUTS[cut]}", smooth["letters"], smooth["names"],
                   smooth["rows"][cut]["pairs_by_letter_and_label"], "letter", "phoneme")
        for i, cut in enumerate(DRAWN)
    ])  # fmt: skip


def trade(smooth: dict, sparse: dict) -> Html:
    rows = [smooth["rows"][cut] for cut in CUTS if cut != "negative"]
    negative = smooth["rows"]["negative"]
    curves = [Curve("small weights set to zero", [(max(1, row["active"]), row["error"]) for row in rows]),
              Curve("L1 penalty", [(max(1, sparse["active"]), sparse["error"])]),
              Curve("negative weights set to zero", [(max(1, negative["active"]), negative["error"])])]  # fmt: skip
    chart = xy_chart(
        "trade", "Test error by active weights", "active weights", curves, percent, percent_tick, log_x=True
    )
    return figure("Test error by active weights", chart)


def comparisons(smooth: dict, sparse: dict) -> list[Comparison]:
    made = []
    for cut, said in CUTS.items():
        (active, error), row = SOURCE[cut], smooth["rows"][cut]
        worse = points(row["error"] - smooth["rows"]["0"]["error"])
        made.append(
            Comparison(
                "THESIS table 6.3",
                f"error when {said} is set to zero" if cut == "0" else f"error without {said}",
                f"{error:g}%",
                share(row["error"]),
                f"{worse} against all; active {number(active)} in the source, {number(row['active'])}",
            )
        )
    for cut, (mu, pairs, orphans) in DRAWN.items():
        row = smooth["rows"][cut]
        made.append(
            Comparison(
                "THESIS fig. 6.2",
                f"active μ + λ, and orphans, without {CUTS[cut]}",
                f"{number(mu)} + {number(pairs)}, {orphans}",
                f"{number(row['mu'])} + {number(row['lambda'])}, {number(row['orphans'])}",
            )
        )
    made.append(
        Comparison(
            "THESIS fig. 7.7",
            "active μ + λ with ρ1 = 0.2",
            "drawn",
            f"{number(sparse['mu'])} + {number(sparse['lambda'])}",
            f"error {share(sparse['error'])}",
        )
    )
    return made  # fmt: skip


def checks(smooth: dict, sparse: dict) -> list[Statement]:
    rows = smooth["rows"]
    first, negative = rows["0"]["error"], rows["negative"]["error"]
    return [
        Statement("small weights can go at little cost", rows["0.25"]["error"] - first <= 0.003,
              points(rows["0.25"]["error"] - first), "at most +0.3 points"),
        Statement("negative weights cannot", negative - first >= 0.01, points(negative - first), "at least +1 point"),
        Statement("an L1 penalty is better than cutting to as few weights",
              all(row["error"] >= sparse["error"] for row in rows.values() if row["active"] <= sparse["active"]),
              f"{share(sparse['error'])} with {number(sparse['active'])} weights",
              "no cut with as few weights has a smaller error"),
    ]  # fmt: skip


def report(results: dict[str, dict], settings: Settings) -> Report:
    smooth, sparse = results["smooth"], results["sparse"]
    opening = "An L2 model of letters and pairs of phonemes has 70,000 weights. How many of them does it need?"
    sections = [
        ("table", "What may be set to zero", join([lead("The source's figures beside ours."), big_table(smooth),
                                                   trade(smooth, sparse)])),
        ("smooth", "Weights with L2", join([lead("Figure 6.1."), weight_maps(smooth, "smooth")])),
        ("left", "What cuts leave", join([lead("Figure 6.2: the number of phonemes before."), left_maps(smooth)])),
        ("sparse", "Weights with L1", tag("div", lead("Figure 7.7."), weight_maps(sparse, "sparse"))),
    ]  # fmt: skip
    return Report("What an L2 model can do without", opening, comparisons(smooth, sparse), sections, NOTES,
                  checks(smooth, sparse))  # fmt: skip


EXPERIMENT = Experiment(
    "nettalk-thresholds", "an L2 model on Nettalk without its small or negative weights", cells, report,
    FILES["nettalk"], serial=True,
)  # fmt: skip
