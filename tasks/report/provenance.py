"""Where a model came from: versions, templates, parameters, and the environment of the run."""

from typing import Any

from espalier.engine.families import FAMILIES
from espalier.tasks.pages.page import MISSING, Html, facts, join, lead, message, number, percent, short, table, tag
from espalier.tasks.params import Params
from espalier.tasks.report.record import NOT_SHOWN, without_folders
from espalier.tasks.report.words import code, plain


def provenance(
    meta: dict[str, Any],
    manifest: dict[str, Any],
    settings: dict[str, dict[str, Any]],
    environment: dict[str, str],
    seconds: dict[str, float],
) -> Html:
    """Versions and parameters: what it takes to train this model again."""
    versions = (
        ("Data version", code(meta.get("data_version") or manifest.get("data_version") or MISSING)),
        ("Code version", code(meta.get("code_version") or MISSING)),
        ("Vocabulary", code(manifest.get("vocabulary_sha256") or MISSING)),
    )
    lines = "\n".join(meta.get("templates") or manifest.get("templates") or [])
    opening = lead("The same data, code and parameters give the same model, byte for byte.")
    templates = tag("h3", "Templates"), tag("pre", lines)
    shown = tag("h3", "Parameters"), parameters(settings)
    told = (tag("h3", "Environment"), facts(environment.items(), "facts")) if environment else ()
    return join([opening, facts(versions, "facts long"), *templates, *shown, *told, durations(seconds)])


def durations(seconds: dict[str, float]) -> Html | str:
    """How long each step took, as a table."""
    whole = sum(seconds.values())
    if not whole:
        return ""
    rows = [(name, number(value, 3), percent(value / whole)) for name, value in seconds.items()]
    return table("How long the steps took", ("Step", "Seconds", "Share"), rows, (1, 2), "durations")


def parameters(sections: dict[str, dict[str, Any]]) -> Html:
    """All that can have shaped the model and this page, section by section; what is not at its default says so."""
    usual, blocks, changed = Params().as_dict(), [], 0
    others = FAMILIES.keys() - {sections.get("model", {}).get("family")}
    for name, values in sections.items():
        if name in others:
            continue
        kept = ((key, value) for key, value in values.items() if not NOT_SHOWN & {name, f"{name}.{key}"})
        shown = []
        for key, value in kept:
            default = usual.get(name, {}).get(key, value)
            other = value != default
            changed += other
            note = tag("small", "default ", plain(without_folders(default))) if other else ""
            term = tag("strong", key) if other else key
            shown.append((term, join([plain(without_folders(value)), note])))
        if shown:
            blocks.append(tag("div", tag("h4", name), facts(shown, "parameters")))
    if not blocks:
        return message("No parameters were recorded.")
    told = f"{changed} in bold {'differs' if changed == 1 else 'differ'} from the default." if changed else ""
    told = told or "All have their default."
    return join([tag("p", told), tag("div", *blocks, class_="sections")])


def footer(meta: dict[str, Any]) -> Html:
    versions = f"Data {short(meta.get('data_version'))}, code {short(meta.get('code_version'))}."
    alone = "This page stands alone: it loads nothing and works offline."
    return tag("p", f"Espalier training report. {versions} {alone}")
