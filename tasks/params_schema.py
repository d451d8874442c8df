"""The parameters as a JSON schema, so that an editor knows keys, values and help of params.yaml.

Made of the declarations in `tasks.params`, which alone decide what is taken.
"""

from dataclasses import MISSING, Field, fields
from typing import Any

from espalier.tasks.params import Params

DIALECT = "http://json-schema.org/draft-07/schema#"  # the one that editors know best; a name, not fetched
TYPES: dict[str, dict] = {
    "text": {"type": "string", "minLength": 1},
    "int": {"type": "integer"},
    "number": {"type": "number"},
    "bool": {"type": "boolean"},
    "lines": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    "margin": {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1},
                         {"type": "string", "pattern": r"^[0-9]{1,6}(\.[0-9]{1,6})?%$"}]},
}  # fmt: skip


def schema() -> dict[str, Any]:
    """The schema of a parameter file: sections, each with its keys and nothing else."""
    sections = {section.name: _section(section.name) for section in fields(Params)}
    return {"$schema": DIALECT, "title": "Parameters of Espalier", "type": "object", "properties": sections,
            "additionalProperties": False}  # fmt: skip


def _section(name: str) -> dict[str, Any]:
    """An object of keys; an empty section is null."""
    keys = {item.name: _parameter(item) for item in fields(getattr(Params(), name))}
    return {"type": ["object", "null"], "properties": keys, "additionalProperties": False}


def _parameter(item: Field) -> dict[str, Any]:
    meta = item.metadata
    default = item.default if item.default is not MISSING else item.default_factory()
    return _value(meta) | {"description": meta["help"], "default": default}


def _value(meta: dict) -> dict[str, Any]:
    """What a parameter may be: a value of its kind within its limits, its word, or null."""
    limits = {"enum": list(meta["choices"]) or None, "minimum": meta["least"], "maximum": meta["most"]}
    value = TYPES[meta["kind"].rstrip("?")] | {key: limit for key, limit in limits.items() if limit is not None}
    others = [{"const": meta["word"]}] if meta["word"] else []
    others += [{"type": "null"}] if meta["kind"].endswith("?") else []
    return {"anyOf": [value, *others]} if others else value
