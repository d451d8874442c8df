"""A path of rho1 for people: a table in the terminal, a page, a section of the report."""

from pathlib import Path
from typing import Any

from espalier.engine.labels.measures import EDIT_ERROR
from espalier.engine.optimise.monitor import STOP_REASONS
from espalier.tasks import store
from espalier.tasks.judging import headline
from espalier.tasks.pages import charts
from espalier.tasks.pages.page import (
    Html,
    capital,
    card,
    cards,
    facts,
    figure,
    join,
    lead,
    message,
    number,
    page,
    percent,
    table,
    tag,
    when,
)
from espalier.tasks.pages.page import section as page_section

PAGE = "reports/sweep.html"


def chosen_point(figures: dict) -> dict:
    return next(point for point in figures["points"] if is_chosen(point, figures))


def is_chosen(point: dict, figures: dict) -> bool:
    return (point["rho1"], point["rho2"]) == (figures["chosen"], figures["chosen_rho2"])


def as_text(figures: dict, root: Path) -> str:
    """A table of the points, the chosen one marked."""
    first = judged_by(figures)
    head = f" {'dev ' + headline.HEADS[first]:>14}" if first else ""
    lines = [f"{'rho1':>10} {'active':>10}{head} {'dev error':>10} {'train error':>12} "
             f"{'dev loss':>9} {'train loss':>11}  iterations"]  # fmt: skip
    for p in figures["points"]:
        mark = "→" if is_chosen(p, figures) else " "
        value = f" {p[f'dev_{first}']:>14.2%}" if first else ""
        loss = f"{p['dev_log_loss']:>9.4f}" if p["dev_log_loss"] is not None else f"{'–':>9}"
        train = f"{p['train_log_loss']:>11.4f}" if p["train_log_loss"] is not None else f"{'–':>11}"
        lines.append(
            f"{mark}{p['rho1']:>9.4g} {p['active']:>10,}{value} {p['dev_token_error']:>10.2%} "
            f"{p['train_token_error']:>12.2%} {loss} {train}  {p['iterations']}"
        )
    lines += [f"{_verdict(figures)}; `{_command(figures)}` trains with it", f"page {root / PAGE}"]
    return "\n".join(lines)


def judged_by(figures: dict) -> str | None:
    """What the choice goes by, where it is not the error of tokens, which is always shown."""
    return None if figures["measure"] == headline.TOKEN else figures["measure"]


def _verdict(figures: dict) -> str:
    best, how = chosen_point(figures), headline.HEADS[figures["measure"]]
    why = f"the smallest model within a standard error of the best {how}" if figures["sparser"] else f"the best {how}"
    return (f"chosen rho1 {best['rho1']:.4g} by {why} on the development data: {best['active']:,} active weights; "
            f"{figures['where']}")  # fmt: skip


def _command(figures: dict) -> str:
    """What trains with the chosen rho1."""
    return f"espalier run --set crf.rho1={chosen_point(figures)['rho1']:.4g}"


def section(root: Path) -> str:
    """A section of the report, id `rho1-path`: the path of a training with `crf.rho1: auto`; else nothing."""
    figures = store.read_path(root)
    if figures is None:
        return ""
    best, name = chosen_point(figures), headline.HEADS[figures["measure"]]
    text = (f"ρ₁ = {number(best['rho1'])} and ρ₂ = {number(best['rho2'])} were chosen, of {len(figures['points'])} "
            f"pairs of values, by the best {name} on the development data; {figures['where']}. The search took "
            f"{number(figures['iterations'])} iterations; the model of the report starts from that point.")  # fmt: skip
    panels = _curves([p for p in figures["points"] if p["rho2"] == best["rho2"]], best, figures["measure"], "rho1-")
    return page_section("rho1-path", "Size against quality", lead(text), *panels, _table(figures))


def as_page(figures: dict, project: str, time: str) -> str:
    """The path as curves and as a table; `time` is when it was followed."""
    best, points, title = chosen_point(figures), figures["points"], "Models along a path of ρ₁"
    trained = tag("p", tag("code", _command(figures)), " trains with it.")
    told = facts([("Project", project), ("When (UTC)", when(time)), ("Points", number(len(points)))])
    top = join([tag("p", "Espalier sweep", class_="eyebrow"), tag("h1", title), told])
    body = (
        page_section("choice", "The choice", lead(f"{capital(_verdict(figures))}."), trained,
                     cards(_cards(figures, best))),
        page_section("path", "Size against quality", *_curves(points, best, figures["measure"])),
        page_section("points", "All points", _table(figures)),
    )  # fmt: skip
    contents = (("choice", "The choice"), ("path", "Size against quality"), ("points", "All points"))
    return page(f"{title}: {project}", join(body), header_html=top, contents=contents)


def _cards(figures: dict, best: dict) -> list[Html]:
    spread = f"standard error {percent(best['standard_error'], 2)}"
    found = [card("ρ₁", number(best["rho1"]), f"ρ₂ {number(best['rho2'])}", figures["solver"]),
             card("Active weights", number(best["active"]), f"{number(best['iterations'])} iterations")]  # fmt: skip
    for name in headline.shown(figures["measure"])[:2]:
        note = spread if name == figures["measure"] else None
        if name in headline.HEADS:
            title = f"{capital(headline.HEADS[name])} on the development data"
            found.append(card(title, percent(best[f"dev_{name}"], 2), note))
    return found


def _curves(points: list[dict], best: dict, measure: str, prefix: str = "") -> list[Html]:
    """Curves over the number of active weights, and that number over rho1; models without a weight are left out.

    A band around `measure`, which the choice goes by, is its standard error. `prefix` keeps the ids apart from those
    of other drawings of a page.
    """
    by_size = {p["active"]: p for p in points if p["active"]}
    rows = [by_size[size] for size in sorted(by_size)]
    if not rows:
        return [message("No model of this path has an active weight: go on to smaller ρ₁ (--to).")]
    if len(rows) < 2:
        return [message("One model with active weights makes no curve: ask for more points (--points).")]
    share = {"write": lambda v: percent(v, 2), "tick": lambda v: f"{100 * v:g}%"}
    panels = [
        _panel(prefix + "error", "Token error", rows, "token_error", best, "share of labels that are wrong", measure,
               **share),
        _panel(prefix + "loss", "Log-loss", rows, "log_loss", best, "nats for each token", measure),
        _one(prefix + "cost", "Objective", "Active weights", rows, "active", "objective", best, "loss plus penalty"),
    ]  # fmt: skip
    for name in (headline.ENTITIES, EDIT_ERROR):
        if any(p.get(f"dev_{name}") is not None for p in rows):
            title, note = capital(headline.HEADS[name]), "of the development data"
            key = prefix + name.replace("_", "-")
            spread = _spread(rows) if name == measure else None
            panels.insert(0, _one(key, title, "Active weights", rows, "active", f"dev_{name}", best, note, spread,
                                  **share))  # fmt: skip
    by_rho1 = sorted((p for p in points), key=lambda p: p["rho1"])
    panels.append(_one(prefix + "active", "Size", "ρ₁", by_rho1, "rho1", "active", best, "active weights"))
    what = f"Each point is a model of its own ρ₁ with ρ₂ = {number(best['rho2'])}; the dot marks the chosen one."
    what += f" The band is a standard error of the {headline.HEADS[measure]} to either side."
    return [lead(what), tag("div", *panels, class_="panels")]


def _spread(rows: list[dict]) -> list[float]:
    return [p["standard_error"] for p in rows]


def _panel(
    key: str, title: str, rows: list[dict], name: str, best: dict, note: str, measure: str, **ways: Any
) -> Html:  # fmt: skip
    """The same figure of the training and the development data."""
    spread = _spread(rows) if name == measure else None
    series = [charts.Series("development", "b", [p[f"dev_{name}"] for p in rows], spread),
              charts.Series("training", "a", [p[f"train_{name}"] for p in rows])]  # fmt: skip
    series = [s for s in series if any(v is not None for v in s.values)]
    sizes = [p["active"] for p in rows]
    drawn = charts.line_chart(key, title, "Active weights", sizes, series, best=best["active"], log_x=True, **ways)
    return figure(title, join([charts.line_legend(series), drawn]), note)


def _one(
    key: str, title: str, x_name: str, rows: list[dict], x: str, y: str, best: dict, note: str,
    spread: list[float] | None = None, **ways: Any,
) -> Html:  # fmt: skip
    series = [charts.Series(title.lower(), "a", [p[y] for p in rows], spread)]
    drawn = charts.line_chart(key, title, x_name, [p[x] for p in rows], series, best=best[x], log_x=True, **ways)
    return figure(title, drawn, note)


def _table(figures: dict) -> Html:
    first = judged_by(figures)
    with_error = any(p["train_token_error"] is not None for p in figures["points"])
    rows = [
        (number(p["rho1"]), number(p["rho2"]), number(p["active"]),
         *((percent(p[f"dev_{first}"], 2),) if first else ()), percent(p["dev_token_error"], 2),
         *((percent(p["train_token_error"], 2),) if with_error else ()),
         number(p["dev_log_loss"]), number(p["train_log_loss"]), number(p["objective"], 6), number(p["iterations"]),
         STOP_REASONS.get(p["stop_reason"], p["stop_reason"]))
        for p in figures["points"]
    ]  # fmt: skip
    judged, error = [f"Dev {headline.HEADS[first]}"] if first else [], ["Train error"] if with_error else []
    headings = ["ρ₁", "ρ₂", "Active", *judged, "Dev error", *error, "Dev loss", "Train loss", "Objective", "Iterations",
                "Why it stopped"]  # fmt: skip
    return table("In the order in which they were solved", headings, rows, range(len(headings) - 1), "stack")
