"""The error that a user can mend: its text says what was found, what was expected and what to do."""

LONGEST_VALUE = 80  # characters of a value in a message


class EspalierError(ValueError):
    """Raised for bad input, parameters or files; never for a bug of our own."""


def brief(value: object) -> str:
    """A value as a message shows it: a text as it is, anything else by its repr, cut in the middle when it is long.

    What stands in a file may be megabytes long; so every message that quotes one says it through this.
    """
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, bytes):
        return _cut(repr(value[: 2 * LONGEST_VALUE]), len(value))
    if isinstance(value, list | tuple | set | frozenset | dict) and len(value) > LONGEST_VALUE:
        return f"a {type(value).__name__} of {len(value):,} values"
    try:
        return _cut(repr(value))
    except (RecursionError, ValueError):  # too deep; or a number of more digits than Python writes
        return f"a {type(value).__name__} too large to show"


def quoted(value: object) -> str:
    """The same for texts that stand in quotes, with escapes for what cannot be seen."""
    return brief(repr(_cut(value)) if isinstance(value, str) else value)


def _cut(text: str, length: int | None = None) -> str:
    """At most `LONGEST_VALUE` characters of the beginning and a few of the end, with the length of the whole."""
    if len(text) <= LONGEST_VALUE + 40:
        return text
    return f"{text[:LONGEST_VALUE]}… ({length or len(text):,} characters) …{text[-10:]}"
