"""Versions and parameters: what it takes to train this model again."""

from typing import Any

from tasks.page import MISSING, Html, escape, facts, join, lead, message, short, tag
from tasks.report.words import code

NOT_SHOWN = {"promote", "memory", "train.threads"}  # what can change neither the model nor this page


def provenance(meta: dict[str, Any], manifest: dict[str, Any], settings: dict[str, dict[str, Any]]) -> Html:
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
    return join([opening, facts(versions, "facts long"), *templates, *shown])


def parameters(sections: dict[str, dict[str, Any]]) -> Html:
    """All that can have shaped the model and this page, section by section."""
    blocks = []
    for name, values in sections.items():
        kept = ((key, value) for key, value in values.items() if not NOT_SHOWN & {name, f"{name}.{key}"})
        shown = [(key, plain(value)) for key, value in kept]
        if shown:
            blocks.append(tag("div", tag("h4", name), facts(shown, "parameters")))
    return tag("div", *blocks, class_="sections") if blocks else message("No parameters were recorded.")


def plain(value: Any) -> Html:
    """A parameter as a person would write it; a long list by its length."""
    if isinstance(value, list | tuple):
        return join(map(plain, value), ", ") if len(value) <= 3 else escape(f"{len(value)} entries")
    if value is None or isinstance(value, bool):
        return code({True: "yes", False: "no", None: "not set"}[value])
    return code(f"{value:g}" if isinstance(value, float) else str(value))


def footer(meta: dict[str, Any]) -> Html:
    versions = f"Data {short(meta.get('data_version'))}, code {short(meta.get('code_version'))}."
    alone = "This page stands alone: it loads nothing and works offline."
    return tag("p", f"Espalier training report. {versions} {alone}")
