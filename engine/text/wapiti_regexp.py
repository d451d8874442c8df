"""The regular expressions of Wapiti's patterns, matched in linear time.

A small language over bytes: `.` is any byte, `\\d \\a \\w \\l \\u \\p \\s` are digits, letters, both, lower-case,
upper-case, punctuation and white space of ASCII, their capitals the complements, `\\` before anything else
takes it literally. `*` repeats what is before it as seldom as possible, `?` takes it if it can; `^` at the very
beginning and `$` at the very end are anchors and plain characters elsewhere. The leftmost match counts.

Wapiti measures a match too long after a `?` whose character had to be given back (`a?ab` on `ab`); here it is
as long as it is.

An expression is a row of m atoms, each matching one byte, perhaps optional or repeated. Instead of trying one
way after the other, which takes for ever on many `.*`, all ways are followed at once, from the end of the text: bit
k of an integer says that the last k atoms match from here on. Forward again, at each place the way that comes first
by the rules above is taken if the bits say that it leads to the end. Short texts, where the worst case of
trying is harmless, are left to Python's `re`, which is faster.
"""

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from espalier.engine.errors import EspalierError

CLASSES = {
    "a": rb"A-Za-z", "d": rb"0-9", "l": rb"a-z", "p": rb"!-/:-@\[-`{-~", "s": rb"\t-\r ", "u": rb"A-Z",
    "w": rb"A-Za-z0-9",
}  # fmt: skip
LONGEST = 500  # bytes of an expression
HARMLESS = 100_000  # steps that `re` may take in the worst case before the work is done in linear time


@dataclass(frozen=True)
class Expression:
    """Atoms as classes of Python's `re`, with "", "*" or "?" behind each, and whether the ends are anchored."""

    atoms: tuple[bytes, ...]
    repeats: tuple[bytes, ...]
    at_start: bool
    at_end: bool

    @cached_property
    def _backtracking(self) -> re.Pattern[bytes]:
        marks = {b"": b"", b"*": b"*?", b"?": b"?"}
        body = b"".join(atom + marks[repeat] for atom, repeat in zip(self.atoms, self.repeats, strict=True))
        return re.compile((rb"\A" if self.at_start else b"") + body + (rb"\Z" if self.at_end else b""), re.DOTALL)

    @cached_property
    def _bits(self) -> tuple[list[int], int, int]:
        """(atoms that match a byte [256], repeated atoms, optional atoms); bit k is the k-th atom from the end."""
        matching, repeated, optional = [0] * 256, 0, 0
        for k, (atom, repeat) in enumerate(zip(reversed(self.atoms), reversed(self.repeats), strict=True), 1):
            for byte in _members(atom):
                matching[byte] |= 1 << k
            repeated |= (repeat == b"*") << k
            optional |= (repeat != b"") << k
        return matching, repeated, optional

    def search(self, data: bytes) -> bytes | None:
        """The first match."""
        stars, choices = self.repeats.count(b"*"), self.repeats.count(b"?")
        if (len(data) + 1) ** (stars + 1) * 2**choices <= HARMLESS:
            found = self._backtracking.search(data)
            return None if found is None else found[0]
        return self.search_linearly(data)

    def search_linearly(self, data: bytes) -> bytes | None:
        """The same in a time and memory that grow with the text alone."""
        matching, repeated, optional = self._bits
        whole = 1 << len(self.atoms)
        ways = _closed(1, optional)
        possible = [ways]  # by what is left of the text: the numbers of atoms that match from there on
        for byte in reversed(data):
            ways = _closed(((ways << 1) | (ways & repeated)) & matching[byte] | (not self.at_end), optional)
            possible.append(ways)
        possible.reverse()
        begin = next((i for i in range(1 if self.at_start else len(possible)) if possible[i] & whole), None)
        if begin is None:
            return None
        at, left = begin, whole
        while left > 1:
            skip = left >> 1
            if left & repeated:
                if possible[at] & skip:  # as seldom as possible
                    left = skip
                else:
                    at += 1
            elif not left & optional or (at < len(data) and matching[data[at]] & left and possible[at + 1] & skip):
                at, left = at + 1, skip  # a `?` takes what it can
            else:
                left = skip
        return data[begin:at]


def _closed(ways: int, optional: int) -> int:
    """With each k the k + 1 as well where that atom may be left out, and so on: a carry runs through such atoms."""
    begin = (ways << 1) & optional
    return ways | begin | (((begin + optional) ^ optional) & optional)


@lru_cache(maxsize=4096)
def _members(atom: bytes) -> tuple[int, ...]:
    """The bytes that an atom matches."""
    pattern = re.compile(atom, re.DOTALL)
    return tuple(byte for byte in range(256) if pattern.fullmatch(bytes([byte])))


@lru_cache(maxsize=1024)
def compiled(text: str) -> Expression:
    """The expression that a text is; an error names what is wrong with it."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > LONGEST:
        raise EspalierError(f"the expression has {len(data):,} bytes, expected at most {LONGEST}")
    at_start, at, atoms, repeats = data[:1] == b"^", int(data[:1] == b"^"), [], []
    while at < len(data) and data[at:] != b"$":
        atom, at = _atom(data, at)
        repeat = data[at : at + 1] if data[at : at + 1] in (b"*", b"?") else b""
        atoms.append(atom)
        repeats.append(repeat)
        at += len(repeat)
    return Expression(tuple(atoms), tuple(repeats), at_start, at < len(data))


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


def first_match(expression: Expression, text: str) -> str | None:
    """The first match in a text; one that cuts a character is still a text, its bytes written as \\xNN."""
    found = expression.search(text.encode("utf-8", "surrogatepass"))
    return None if found is None else found.decode("utf-8", "backslashreplace")
