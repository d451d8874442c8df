"""Objects of JSON lines and the tokens in them, one line at a time; without Polars, because tagging reads, too."""

import json
from typing import Any, NamedTuple

from espalier.engine.errors import EspalierError, brief, quoted

TOKENS = "tokens"
EXAMPLE = '{"tokens": ["a", "b"], "labels": ["X", "Y"]}'


class Shape(NamedTuple):
    """What the tokens of a file look like: names of their parts (numbers for lists), or None for plain texts."""

    parts: tuple | None


def sequence_of(
    line: str, place: str, names: tuple[str, ...] | None, shapes: dict[str, Shape]
) -> tuple[dict, list[list[str]]]:
    """The object of one line, and the columns of its tokens: for those who read a stream."""
    record, columns = object_of(line, place), []
    for name in names or (TOKENS,):
        tokens = listed(record, name, place)
        if not tokens:
            raise EspalierError(f"{place} has no token: {name} is empty, expected at least one")
        columns += [list(column) for column in zip(*(parts_of(t, name, shapes, place) for t in tokens), strict=True)]
    if len({len(column) for column in columns}) > 1:
        raise EspalierError(f"{place}: its input columns are of different lengths, expected as many texts in each")
    return record, columns


def object_of(line: str, place: str) -> dict:
    try:
        record = load(line)
    except RecursionError:
        raise EspalierError(f"{place} is not JSON that we read: too many brackets inside each other") from None
    except ValueError as error:
        raise EspalierError(
            f"{place} is not JSON ({brief(str(error))}); expected one object a line such as {EXAMPLE}"
        ) from None
    if not isinstance(record, dict):
        raise EspalierError(f"{place} holds {_brief(record)}; expected an object such as {EXAMPLE}")
    return record


def listed(record: dict, name: str, place: str) -> list:
    if record.get(name) is None:
        known = brief(", ".join(quoted(key) for key in record) or "nothing")
        raise EspalierError(
            f"{place} has no {name}: it has {known}; expected an object such as {EXAMPLE}, or name the fields "
            "in ingest.columns and ingest.label"
        )
    if not isinstance(record[name], list):
        raise EspalierError(f"{place}: {name} is {_brief(record[name])}, expected a list of texts")
    return record[name]


def parts_of(token: Any, name: str, shapes: dict[str, Shape], place: str) -> list[str]:
    """The columns of a token, checked against those before it."""
    try:
        shape = shape_of(token)
    except ValueError:
        raise EspalierError(
            f"{place}: {name} holds {_brief(token)}, expected texts or numbers, or lists or records of them"
        ) from None
    expected = shapes.setdefault(name, shape)
    same = shape == expected or (isinstance(token, dict) and set(token) == set(expected.parts or ()))
    if not same:
        raise EspalierError(f"{place}: {name} holds {_brief(token)}, the tokens before it have {_words(expected)}")
    if shape.parts is None:
        return [_input(token, name, place)]
    return [_input(token[part], name, place) for part in expected.parts]


def _input(value: Any, name: str, place: str) -> str:
    """A text, or the text that says a number."""
    return repr(value) if _is_number(value) else text_of(value, name, place)


def _words(shape: Shape) -> str:
    if shape.parts is None:
        return "plain texts: expected the same"
    if isinstance(shape.parts[0], int):
        return f"{len(shape.parts)} columns: expected the same"
    return f"the keys {', '.join(shape.parts)}: expected the same"


def text_of(value: Any, name: str, place: str) -> str:
    if not isinstance(value, str):
        raise EspalierError(f"{place}: {name} holds {_brief(value)} where a text is expected; put it in quotes")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise EspalierError(f"{place}: {name} holds half a character ({quoted(value)}); expected whole pairs") from None
    return value


def _brief(value: Any) -> str:
    if value is ...:
        return "something given twice"
    try:
        text = json.dumps(value, default=lambda _: "something given twice")
    except RecursionError:
        return "many brackets inside each other"
    return text if len(text) <= 40 else text[:37] + "..."


def load(line: str) -> Any:
    """As JSON, without NaN; a key that is there twice has the value ..., which is never what is expected."""

    def pairs(items: list[tuple[str, Any]]) -> dict:
        found: dict = {}
        for key, value in items:
            found[key] = ... if key in found else value
        return found

    def constant(name: str):
        raise ValueError(f"{name} is no JSON")

    def whole(text: str) -> int | float:
        return int(text) if len(text) < 20 else float(text)  # Python refuses thousands of digits

    return json.loads(line, object_pairs_hook=pairs, parse_constant=constant, parse_int=whole)


def shape_of(token: Any) -> Shape:
    """What the first token of a file looks like."""
    if isinstance(token, str) or _is_number(token):
        return Shape(None)
    if isinstance(token, list) and token:
        return Shape(tuple(range(len(token))))
    if isinstance(token, dict) and token:
        return Shape(tuple(token))
    raise ValueError("neither a text or number nor a list or record of them")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
