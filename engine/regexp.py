"""The regular expressions of Wapiti's patterns, as bytes patterns of Python's `re`.

A small language over bytes: `.` is any byte, `\\d \\a \\w \\l \\u \\p \\s` are digits, letters, both, lower-case,
upper-case, punctuation and white space of ASCII, their capitals the complements, `\\` before anything else
takes it literally. `*` repeats what is before it as seldom as possible, `?` takes it if it can; `^` at the very
beginning and `$` at the very end are anchors and plain characters elsewhere. The leftmost match counts.

Wapiti measures a match too long after a `?` whose character had to be given back (`a?ab` on `ab`); here it is
as long as it is.
"""

import re
from functools import lru_cache

from engine.errors import EspalierError

CLASSES = {
    "a": rb"A-Za-z", "d": rb"0-9", "l": rb"a-z", "p": rb"!-/:-@\[-`{-~", "s": rb"\t-\r ", "u": rb"A-Z",
    "w": rb"A-Za-z0-9",
}  # fmt: skip


@lru_cache(maxsize=1024)
def compiled(text: str) -> re.Pattern[bytes]:
    """The pattern of a regular expression; an error names what is wrong with it."""
    data = text.encode("utf-8", "surrogatepass")
    anchored, at, out = data[:1] == b"^", int(data[:1] == b"^"), []
    while at < len(data):
        if data[at:] == b"$":
            out.append(rb"\Z")
            break
        atom, at = _atom(data, at)
        repeat = data[at : at + 1]
        out.append(atom + {b"*": b"*?", b"?": b"?"}.get(repeat, b""))
        at += repeat in (b"*", b"?")
    return re.compile((rb"\A" if anchored else b"") + b"".join(out), re.DOTALL)


def _atom(data: bytes, at: int) -> tuple[bytes, int]:
    """What one character of the expression matches, and where the next begins."""
    here = data[at : at + 1]
    if here in (b"*", b"?"):
        raise EspalierError(f"a {here.decode()} with nothing to repeat before it; write \\{here.decode()} for itself")
    if here == b".":
        return b".", at + 1
    if here != b"\\":
        return re.escape(here), at + 1
    name = data[at + 1 : at + 2]
    if not name:
        raise EspalierError("a \\ at the end; write \\\\ for itself")
    known = CLASSES.get(name.decode("latin-1").lower()) if name.isalpha() else None
    if known is None:
        return re.escape(name), at + 2
    return b"[" + (b"" if name.islower() else b"^") + known + b"]", at + 2


def first_match(pattern: re.Pattern[bytes], text: str) -> str | None:
    """The first match in a text; one that cuts a character is still a text, its bytes written as \\xNN."""
    found = pattern.search(text.encode("utf-8", "surrogatepass"))
    return None if found is None else found[0].decode("utf-8", "backslashreplace")
