"""The shell of our HTML pages: markup that escapes by default, numbers for readers, one self-contained file.

Text that comes from data is never markup: `tag` and all that is built on it escape what is not already
`Html`, so a label `<script>` is harmless without anybody remembering to escape it.
"""

import base64
import hashlib
import html
import math
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from numbers import Integral
from typing import Any

VOID = {"meta", "link", "input", "br"}
SELF_CLOSING = {"rect", "line", "circle", "path", "polyline", "polygon"}
SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
MISSING = "–"


class Html(str):
    """Text that is markup already and must not be escaped again."""


def escape(value: Any) -> Html:
    """`value` as markup: escaped unless it is `Html`."""
    return value if isinstance(value, Html) else Html(html.escape(str(value), quote=True))


def join(parts: Iterable[Any], between: str = "") -> Html:
    """Pieces one after the other, each escaped unless it is markup."""
    return Html(escape(between).join(escape(part) for part in parts))


def tag(name: str, *children: Any, **attributes: Any) -> Html:
    """An element. `class_` gives `class`, `data_tip` `data-tip`; None leaves one out, True needs no value."""
    head = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{head}>")
    if name in SELF_CLOSING and not children:
        return Html(f"<{head}/>")
    return Html(f"<{head}>{join(children)}</{name}>")


def _attribute(key: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if isinstance(value, float):
        value = f"{value:.2f}".rstrip("0").rstrip(".")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value), quote=True)}"'


# Numbers for readers --------------------------------------------------------------------------------


def missing(value: Any) -> bool:
    """True for what has no figure to show: None, NaN, an infinity."""
    return value is None or not math.isfinite(value)


def number(value: Any, digits: int = 3) -> str:
    """`18,012`, `0.489`, `−1.20`, `3.2 × 10⁻⁷`: whole numbers in full, others to `digits` digits."""
    if missing(value):
        return MISSING
    if isinstance(value, Integral):
        return f"{int(value):,}".replace("-", "−")
    size = math.floor(math.log10(abs(value))) if value else 0
    if not -5 <= size < 12:
        return _scientific(value, max(0, digits - 2))
    return f"{value:,.{max(0, digits - 1 - size)}f}".replace("-", "−")


def _scientific(value: float, decimals: int) -> str:
    mantissa, exponent = f"{value:.{decimals}e}".split("e")
    return f"{mantissa.replace('-', '−')} × 10{str(int(exponent)).translate(SUPERSCRIPT)}"


def percent(value: Any, digits: int = 1) -> str:
    """`14.2%`. What is not nothing reads `<0.1%`, what is not all `>99.9%`: never a wrong 0 or 100."""
    if missing(value):
        return MISSING
    step = 10.0**-digits
    if 0 < value < 1 and round(100 * value, digits) == 0:
        return f"<{step:.{digits}f}%"
    if 0 < value < 1 and round(100 * value, digits) == 100:
        return f">{100 - step:.{digits}f}%"
    return f"{100 * value:,.{digits}f}%".replace("-", "−")


def signed(value: Any, digits: int = 3) -> str:
    """A difference, which always shows its sign: `+0.012`, `−0.30`, and 0 without one."""
    return number(value, digits) if missing(value) or value <= 0 else "+" + number(value, digits)


def points(value: Any, digits: int = 2) -> str:
    """A difference of two shares in percentage points: `−0.31 points`."""
    if missing(value):
        return MISSING
    rounded = round(100 * value, digits) + 0.0  # adding zero turns −0.0 into 0.0
    return f"{'+' if rounded > 0 else ''}{rounded:.{digits}f} points".replace("-", "−")


def compact(value: float) -> str:
    """The text of an axis tick, short: `0.05`, `500`, `2.5k`, `1.2M`, `10⁻⁶`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}".replace("-", "−")
    if 0 < abs(value) < 1e-3:
        return _scientific(value, 0).replace("1 × ", "")
    return f"{value:g}".replace("-", "−")


def plural(noun: str) -> str:
    """The English plural of an ordinary noun: words, entities, addresses."""
    if noun.endswith("y") and noun[-2:-1] not in tuple("aeiou"):
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def count(amount: int, noun: str) -> str:
    """`1 word`, `2,000 words`."""
    return f"{number(amount)} {noun if amount == 1 else plural(noun)}"


def capital(text: str) -> str:
    """The first letter large, the rest untouched (`str.capitalize` would lower-case names)."""
    return text[:1].upper() + text[1:]


def when(time: Any) -> Html:
    """A moment of a record, `2026-11-17T03:15:02+00:00`, as date and time of day; a line may end between the two."""
    date, _, clock = str(time).removesuffix("+00:00").partition("T")
    words = [tag("span", part) for part in (date, clock) if part]
    return tag("time", join(words, " "), datetime=str(time))


def short(version: Any, length: int = 12) -> str:
    """The head of a hash, enough to compare by eye."""
    return str(version)[:length] if version else MISSING


# Parts of a page ------------------------------------------------------------------------------------


def section(key: str, title: str, *body: Any) -> Html:
    """A landmark with its heading."""
    heading = tag("h2", title, id=f"{key}-title")
    return tag("section", heading, *body, id=key, aria_labelledby=f"{key}-title")


def heading_of(section_html: str) -> tuple[str, str] | None:
    """Id and title, as markup, of a section that someone else made; None when it is none."""
    found = re.match(r'<section id="([^"]+)"[^>]*><h2[^>]*>(.*?)</h2>', section_html, re.DOTALL)
    return (html.unescape(found[1]), Html(found[2])) if found else None


def lead(text: Any) -> Html:
    """The opening sentence of a section."""
    return tag("p", text, class_="lead")


def prose(text: str) -> Html:
    """A sentence that a terminal shows, too: what stands between backticks is set as code."""
    parts = re.split(r"`([^`]+)`", text)
    return join(tag("code", part) if at % 2 else part for at, part in enumerate(parts))


def message(text: str) -> Html:
    """A plain sentence where there is nothing to draw."""
    return tag("p", prose(text), class_="message")


def listed(sentences: Iterable[str]) -> Html:
    """Sentences as a list, each with a capital and a full stop."""
    return tag("ul", *(tag("li", prose(f"{capital(text)}.")) for text in sentences))


def card(name: str, figure: Any, *notes: Any, broad: bool = False) -> Html:
    """One headline number with what it means underneath; a broad one is twice as wide where there is room."""
    below = (tag("dd", note) for note in notes if note)
    headline = tag("dd", figure, class_="figure" if len(str(figure)) <= 7 else "figure long")
    return tag("div", tag("dt", name), headline, *below, class_="card broad" if broad else "card")


def cards(items: Iterable[Html]) -> Html:
    return tag("dl", *items, class_="cards")


def facts(pairs: Iterable[tuple[str, Any]], class_: str = "facts") -> Html:
    """Names and values as a definition list."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs), class_=class_)


def table(
    caption: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[Any]],
    numeric: Iterable[int] = (),
    class_: str | None = None,
    notes: Sequence[Any] = (),
) -> Html:
    """A table whose first column names the row; `numeric` columns are set flush right.

    `notes`, one for each row, stand below it over the whole width; an empty one is left out.
    On a phone a table of class `stack` shows each row as a card. The script lets a reader sort one of class `sortable`.
    """
    right = set(numeric)
    head = (tag("th", text, scope="col", class_=_side(at, right)) for at, text in enumerate(headings))
    rows = list(rows)
    below = notes or [""] * len(rows)
    body = (_with_note(headings, cells, right, note) for cells, note in zip(rows, below, strict=True))
    inner = (tag("caption", caption), tag("thead", tag("tr", *head)), tag("tbody", *body))
    return tag("div", tag("table", *inner, class_=class_), class_="scroll")


def _with_note(headings: Sequence[str], cells: Sequence[Any], right: set[int], note: Any) -> Html:
    if not note:
        return _row(headings, cells, right)
    under = tag("tr", tag("td", note, colspan=len(cells)), class_="note")
    return join([_row(headings, cells, right, "noted"), under])


def _row(headings: Sequence[str], cells: Sequence[Any], right: set[int], class_: str | None = None) -> Html:
    first = tag("th", cells[0], scope="row", class_=_side(0, right))
    named = zip(range(1, len(cells)), headings[1:], cells[1:], strict=True)
    rest = (tag("td", cell, class_=_side(at, right), data_name=name) for at, name, cell in named)
    return tag("tr", first, *rest, class_=class_)


def _side(at: int, right: set[int]) -> str | None:
    return "num" if at in right else None


def figure(title: str, drawing: Html, note: Any = None) -> Html:
    caption = tag("figcaption", tag("strong", title), tag("span", note) if note else "")
    return tag("figure", caption, drawing)


# The document ---------------------------------------------------------------------------------------


def page(
    title: str,
    body_html: str,
    *,
    header_html: str = "",
    contents: Sequence[tuple[str, str]] = (),
    footer_html: str = "",
) -> str:
    """The whole document; same arguments, same bytes.

    The title is text; what ends in `_html` is markup, as `section` and `tag` make it. Without a header the
    title is the heading. `contents` are pairs of section id and name for the list of contents.
    """
    header = Html(header_html) or tag("h1", title)
    columns = _contents(contents), tag("main", Html(body_html), id="main")
    parts = (
        tag("a", "Skip to the content", href="#main", class_="skip"),
        tag("header", header, class_="top"),
        tag("div", *columns, class_="columns indexed" if contents else "columns"),
        tag("footer", Html(footer_html)),
        tag("script", Html(asset("page.js"))),
    )
    return "<!doctype html>\n" + tag("html", _head(title), tag("body", *parts), lang="en-GB") + "\n"


def asset(name: str) -> str:
    """The text of a file that ships beside this module."""
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _contents(entries: Sequence[tuple[str, str]]) -> Html:
    links = (tag("li", tag("a", name, href=f"#{key}")) for key, name in entries)
    return tag("nav", tag("ul", *links), aria_label="Contents") if entries else Html("")


def _head(title: str) -> Html:
    """The policy lets nothing in from outside and runs no style or script but ours, whatever the data say."""
    ours = f"style-src {_digest('page.css')}; script-src {_digest('page.js')}; img-src data:"
    policy = f"default-src 'none'; {ours}; base-uri 'none'; form-action 'none'"
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(asset("page.css"))),
    )


def _digest(name: str) -> str:
    """A file's hash as a content security policy writes it."""
    digest = hashlib.sha256(asset(name).encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
