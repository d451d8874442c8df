"""A parameter file changed in one place: every other byte of it, comments among them, stays as it was."""

import json
from typing import Any

import yaml

from espalier.engine.errors import EspalierError
from espalier.tasks.params import BoundedLoader, from_yaml


def with_value(text: str, section: str, key: str, value: Any) -> str:
    """The text with `section.key` set; a list that only grows in block style gets new lines below the old ones."""
    wanted = from_yaml(text) or {}
    wanted[section] = (wanted.get(section) or {}) | {key: value}
    changed = _changed(text, section, key, value)
    if from_yaml(changed) != wanted:
        raise EspalierError(f"{section}.{key} cannot be written into this file as it stands: set it to "
                            f"{_written(value)} by hand")  # fmt: skip
    return changed


def _changed(text: str, section: str, key: str, value: Any) -> str:
    end = "\r\n" if "\r\n" in text else "\n"
    whole = yaml.compose(text, BoundedLoader)
    name, values = _entry(whole, section)
    if name is None:
        if whole is not None and whole.flow_style:
            return _in_braces(text, whole, f"{section}: {{{key}: {_written(value)}}}")
        gap = "" if not text or text.endswith("\n") else end
        return f"{text}{gap}{section}:{end}  {key}: {_written(value)}{end}"
    if not isinstance(values, yaml.MappingNode):  # an empty section
        at = name.end_mark.index + 1
        return f"{text[:at]}{end}  {key}: {_written(value)}{text[at:]}"
    if values.flow_style:
        _, old = _entry(values, key)
        return _replaced(text, old, value) if old else _in_braces(text, values, f"{key}: {_written(value)}")
    _, old = _entry(values, key)
    if old is None:
        return _below(text, _last(values), [f"{key}: {_written(value)}"], values.start_mark.column, end)
    if added := _added(old, value):
        return _below(text, _last(old), [f"- {_written(item)}" for item in added], old.start_mark.column, end)
    return _replaced(text, old, value)


def _entry(mapping: yaml.Node | None, key: str) -> tuple[yaml.Node | None, yaml.Node | None]:
    """The nodes of a key and of its value; None where it is not there."""
    pairs = mapping.value if isinstance(mapping, yaml.MappingNode) else ()
    return next(((name, value) for name, value in pairs if name.value == key), (None, None))


def _added(old: yaml.Node, value: Any) -> list:
    """What a list in block style gains; nothing where it does not only grow."""
    if not (isinstance(old, yaml.SequenceNode) and not old.flow_style and isinstance(value, list)):
        return []
    before = [item.value for item in old.value]
    return value[len(before) :] if value[: len(before)] == before else []


def _last(node: yaml.Node) -> int:
    """Where the text of a node ends; that of a block ends with its last value, not with comments below it."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return node.end_mark.index
    last = node.value[-1]
    return _last(last[1] if isinstance(last, tuple) else last)


def _below(text: str, at: int, lines: list[str], column: int, end: str) -> str:
    """Lines set in behind the line of a place."""
    stop = text.find("\n", at)
    head, tail = (text + end, "") if stop < 0 else (text[: stop + 1], text[stop + 1 :])
    return head + "".join(f"{' ' * column}{line}{end}" for line in lines) + tail


def _in_braces(text: str, mapping: yaml.Node, entry: str) -> str:
    at = mapping.end_mark.index - 1
    return f"{text[:at].rstrip()}{', ' if mapping.value else ''}{entry}{text[at:]}"


def _replaced(text: str, old: yaml.Node, value: Any) -> str:
    begin, end = old.start_mark.index, _last(old)
    gap = "" if text[begin - 1 : begin].isspace() else " "  # an empty value stands right behind its colon
    return f"{text[:begin]}{gap}{_written(value)}{text[end:]}"


def _written(value: Any) -> str:
    """A value on one line; JSON is YAML."""
    return json.dumps(value, ensure_ascii=False)
