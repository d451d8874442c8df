"""From a .bib file to labelled sequences, from plain references to tokens, from tagged tokens back to bib entries.

    python bib.py sequences refs.bib > references.conll                # a token and its field on each line
    python bib.py sequences refs.bib --punctuation remove > bare.conll
    python bib.py tokens plain.txt > plain.conll                       # references as they are found, one a line
    python bib.py entries tagged.conll > found.bib                     # a tagged token on each line
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

# How references are written: fields in their order, and what stands around each.
STYLES = [
    ["author {}.", "title {}.", "journal {},", "volume {}:", "booktitle In {},", "pages {},", "publisher {},",
     "year {}."],
    ["author {}", "year ({}).", "title {}.", "booktitle In {},", "journal {}", "volume {},", "publisher {}.",
     "pages pp. {}."],
]  # fmt: skip
AROUND = ".,:;()"
ENTRY = re.compile(r"@(\w+)\s*\{\s*([^,\s]+)\s*,(.*?)\n\}", re.DOTALL)
FIELD = re.compile(r"(\w+)\s*=\s*(?:\{([^{}]*)\}|\"([^\"]*)\"|(\d+))\s*,?\s*$", re.MULTILINE)
Rows = list[tuple[str, str]]


def entries_of(text: str) -> Iterator[dict[str, str]]:
    """The fields of each entry; braces inside of values are not understood."""
    for _, _, body in ENTRY.findall(text):
        yield {name.lower(): " ".join((braces or quotes or number).split())
               for name, braces, quotes, number in FIELD.findall(body)}  # fmt: skip


def sequence(entry: dict[str, str], style: list[str], punctuation: str = "keep") -> Rows:
    """An entry as a reference: (token, field) in the order of the style; fields that it does not name are left out."""
    rows = []
    for line in style:
        field, _, form = line.partition(" ")
        if field in entry:
            value = entry[field].replace("--", "-")
            rows += [(token, field) for token in form.format(value).split()]
    return rows if punctuation == "keep" else bare(rows)


def bare(rows: Iterable[tuple[str, str]]) -> Rows:
    """Tokens without the punctuation around them; those of nothing else go."""
    stripped = ((token.strip(AROUND), field) for token, field in rows)
    return [(token, field) for token, field in stripped if token]


def conll(sequences: Iterable[Rows]) -> str:
    return "".join("".join(" ".join(filter(None, row)) + "\n" for row in rows) + "\n" for rows in sequences)


def labelled(text: str, punctuation: str = "keep") -> str:
    """All entries of a .bib file as sequences, in styles that take turns."""
    return conll(sequence(entry, STYLES[n % len(STYLES)], punctuation) for n, entry in enumerate(entries_of(text)))


def tokens(text: str, punctuation: str = "keep") -> str:
    """References, one a line, as tokens without labels."""
    lines = ([(token, "") for token in line.split()] for line in text.splitlines() if line.strip())
    return conll(rows if punctuation == "keep" else bare(rows) for rows in lines)


def bib(text: str) -> str:
    """Tagged tokens as bib entries; a field that comes twice is joined."""
    blocks = [block.splitlines() for block in text.strip().split("\n\n") if block.strip()]
    return "\n".join(entry(n, [tuple(line.split()) for line in block]) for n, block in enumerate(blocks, 1))


def entry(number: int, rows: list[tuple[str, ...]]) -> str:
    fields: dict[str, list[str]] = {}
    for token, *_, field in rows:
        fields.setdefault(field, []).append(token)
    values = {field: cleaned(field, " ".join(words)) for field, words in fields.items()}
    kind = "article" if "journal" in values else "inproceedings" if "booktitle" in values else "book"
    name = re.sub(r"\W", "", values.get("author", "").replace(",", " ").split(" and ")[0].split(" ")[-1]) or "anon"
    body = "".join(f"  {field} = {{{value}}},\n" for field, value in values.items())
    return f"@{kind}{{{name}{values.get('year', '')}-{number},\n{body}}}\n"


def cleaned(field: str, value: str) -> str:
    """A value without the words and punctuation that only a reference has."""
    value = re.sub(r"^(In|pp\.?|pages?|vol\.?)\s+", "", value)
    value = value.strip(" ,:;()") if field == "author" else value.strip(" .,:;()")
    value = value.removesuffix(".") if field == "author" and not re.search(r"\b[A-Z]\.$", value) else value
    return re.sub(r"(\d)-(\d)", r"\1--\2", value) if field == "pages" else value


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["sequences", "tokens", "entries"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--punctuation", choices=["keep", "remove"], default="keep")
    options = parser.parse_args(arguments)
    text = options.file.read_text(encoding="utf-8")
    made = {"sequences": labelled, "tokens": tokens}.get(options.what)
    sys.stdout.write(made(text, options.punctuation) if made else bib(text))


if __name__ == "__main__":
    main()
