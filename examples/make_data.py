"""Writes the data of the examples: sequences and trees that nobody wrote, drawn from small lists and a grammar.

    python examples/make_data.py          # writes the files beside it again, the same bytes each time
"""

import importlib.util
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

SEQUENCES = 500

# ---- named entities: word, part of speech, label

FIRST = "Ana Luis Marta Pedro Lucía Javier Elena Andrés Clara Diego Inés Tomás Sara Hugo Irene Mateo Rosa Iván".split()
LAST = "Ruiz Vega Ortiz Campos Molina Serrano Prieto Herrera Lozano Castro Ibarra Medina Fuentes Salas Rojas".split()
PLACES = ["Lugo", "Soria", "Huelva", "Cuenca", "San Martín", "Villa Nueva", "Puerto Alto", "Teruel", "Río Seco"]
FIRMS = ["Aceros Norte", "Banco Lumen", "Grupo Sol", "Telecosta", "Editorial Faro", "Naviera Sur", "Cooperativa Olivar"]
EVENTS = ["Copa de Invierno", "Feria del Libro", "Semana Verde", "Vuelta al Norte"]
# In braces what is drawn; elsewhere word/part of speech.
SENTENCES = [
    "El/DA presidente/NC de/SP {ORG} ,/Fc {PER} ,/Fc visitó/VMI {LOC} ayer/RG ./Fp",
    "{PER} nació/VMI en/SP {LOC} y/CC trabaja/VMI para/SP {ORG} ./Fp",
    "La/DA {MISC} se/P0 celebra/VMI en/SP {LOC} desde/SP el/DA lunes/NC ./Fp",
    "{ORG} abrirá/VMI una/DI fábrica/NC cerca/RG de/SP {LOC} ./Fp",
    "Según/SP {PER} ,/Fc la/DA obra/NC no/RN terminará/VMI este/DD año/NC ./Fp",
    "{LOC} ,/Fc {DAY} mayo/NC (/Fpa {ORG} )/Fpt ./Fp",
    "Los/DA vecinos/NC de/SP {LOC} esperan/VMI a/SP {PER} en/SP la/DA {MISC} ./Fp",
    "El/DA director/NC ganó/VMI la/DA {MISC} con/SP {ORG} ./Fp",
    "Ayer/RG llovió/VMI mucho/RG en/SP el/DA campo/NC ./Fp",
    "El/DA presidente/NC dijo/VMI que/CS la/DA fábrica/NC cierra/VMI el/DA lunes/NC ./Fp",
]  # fmt: skip


def entity(draw: random.Random, kind: str) -> list[str]:
    if kind == "PER":
        return [draw.choice(FIRST), *([draw.choice(LAST)] if draw.random() < 0.8 else [])]
    return draw.choice({"LOC": PLACES, "ORG": FIRMS, "MISC": EVENTS}[kind]).split()


def sentence(draw: random.Random) -> list[tuple[str, ...]]:
    rows = []
    for piece in draw.choice(SENTENCES).split():
        if piece == "{DAY}":
            rows.append((str(draw.randint(1, 30)), "Z", "O"))
        elif piece.startswith("{"):
            kind = piece.strip("{}")
            words = entity(draw, kind)
            rows += [(word, "NP", f"{'I' if n else 'B'}-{kind}") for n, word in enumerate(words)]
        else:
            word, _, part = piece.rpartition("/")
            rows.append((word, part, "O"))
    return rows


# ---- addresses: token, field

STREETS = "Oak Maple Cedar Elm Mill Lake Hill River Park Church Spring Walnut Sunset Meadow Prairie".split()
KINDS = ["St", "Street", "Ave", "Avenue", "Rd", "Road", "Blvd", "Dr", "Lane", "Ct."]
TOWNS = ["Fairview", "Salem", "Clinton", "Green Bay", "Cedar Falls", "Georgetown", "Madison", "Oak Park", "Lake City"]
STATES = ["WI", "IL", "OH", "Ohio", "TX", "CA", "Iowa", "NY", "OR"]


def address(draw: random.Random) -> list[tuple[str, ...]]:
    rows = [(str(draw.randint(1, 9999)), "AddressNumber")]
    if draw.random() < 0.4:
        rows.append((draw.choice(["N", "S.", "East", "West"]), "StreetNamePreDirectional"))
    if draw.random() < 0.25:
        number = draw.randint(1, 120)
        end = "th" if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
        rows.append((f"{number}{end}", "StreetName"))
    else:
        rows.append((draw.choice(STREETS), "StreetName"))
    rows.append((draw.choice(KINDS), "StreetNamePostType"))
    if draw.random() < 0.4:
        kind, value = draw.choice([("Apt", str(draw.randint(1, 40))), ("#", draw.choice("ABCD")), ("Suite", "200")])
        rows += [(kind, "OccupancyType"), (value, "OccupancyIdentifier")]
    rows[-1] = rows[-1][0] + ("," if draw.random() < 0.7 else ""), rows[-1][1]
    rows += [(word, "PlaceName") for word in draw.choice(TOWNS).split()]
    rows[-1] = rows[-1][0] + ("," if draw.random() < 0.7 else ""), "PlaceName"
    rows.append((draw.choice(STATES), "StateName"))
    if draw.random() < 0.8:
        rows.append((f"{draw.randint(10000, 99999)}", "ZipCode"))
    return rows


# ---- references: token, field

AUTHORS = "Alder Birch Cole Dunn Ellis Frost Gray Hale Irwin Jonas Kerr Lowe Marsh Nolan Otto Quinn Reed Stone".split()
TOPICS = "pruned trees,sparse models,hidden chains,long sequences,small lattices,noisy labels,slow clocks".split(",")
WAYS = ["Learning", "A study of", "On the estimation of", "Fast search for", "Notes on", "Limits of"]
JOURNALS = ["Journal of Lattices", "Annals of Gardening", "Chain Letters", "Acta Sequentia"]
MEETINGS = ["Proc. of the Workshop on Hedges", "Proceedings of the Orchard Conference"]
HOUSES = ["Arbor Press", "Trellis Books"]


def reference(draw: random.Random) -> list[tuple[str, ...]]:
    def words(text: str, field: str) -> list[tuple[str, str]]:
        return [(word, field) for word in text.split()]

    names = [f"{draw.choice('ABCDEJKLMRST')}. {draw.choice(AUTHORS)}" for _ in range(draw.randint(1, 3))]
    title, year = f"{draw.choice(WAYS)} {draw.choice(TOPICS)}.", draw.randint(1975, 2009)
    rows = words(", ".join(names[:-1]) + (" and " if names[1:] else "") + names[-1] + ".", "author")
    early = draw.random() < 0.4
    rows += words(f"({year})." if early else "", "date") + words(title, "title")
    kind = draw.random()
    if kind < 0.5:
        first = draw.randint(1, 600)
        rows += words(f"{draw.choice(JOURNALS)},", "journal") + words(f"{draw.randint(1, 60)}:", "volume")
        rows += words(f"{first}-{first + draw.randint(3, 30)},", "pages")
    elif kind < 0.8:
        rows += words(f"In {draw.choice(MEETINGS)},", "booktitle") + words(f"pages {draw.randint(1, 400)},", "pages")
    else:
        rows += words(f"{draw.choice(HOUSES)},", "publisher")
    return rows + ([] if early else words(f"{year}.", "date"))


# ---- a bibliography, and references as they are found, for references-hmm


def bib_entry(draw: random.Random, number: int) -> dict[str, str]:
    names = [f"{draw.choice('ABCDEJKLMRST')}. {draw.choice(AUTHORS)}" for _ in range(draw.randint(1, 3))]
    made = {"author": " and ".join(names), "title": f"{draw.choice(WAYS)} {draw.choice(TOPICS)}"}
    first = draw.randint(1, 600)
    pages, kind = f"{first}--{first + draw.randint(3, 30)}", draw.random()
    if kind < 0.5:
        made |= {"journal": draw.choice(JOURNALS), "volume": str(draw.randint(1, 60)), "pages": pages}
    elif kind < 0.85:
        made |= {"booktitle": draw.choice(MEETINGS), "pages": pages}
    else:
        made |= {"publisher": draw.choice(HOUSES)}
    return made | {"year": str(draw.randint(1975, 2009))}


def bibliography(draw: random.Random, count: int) -> str:
    def text(number: int, entry: dict[str, str]) -> str:
        kind = "article" if "journal" in entry else "inproceedings" if "booktitle" in entry else "book"
        body = "".join(f"  {name} = {{{value}}},\n" for name, value in entry.items())
        return f"@{kind}{{ref{number:03d},\n{body}}}\n"

    return "\n".join(text(number, bib_entry(draw, number)) for number in range(1, count + 1))


def of_bibliography() -> dict[str, str]:
    """The .bib file, its sequences, and plain references of other entries, by the example's own script."""
    folder = "references-hmm"
    spec = importlib.util.spec_from_file_location("bib", Path(__file__).parent / folder / "bib.py")
    bib = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bib)
    entries, others = (bibliography(random.Random(f"{folder}/{name}"), n) for name, n in (("refs", 400), ("plain", 20)))
    plain = (bib.sequence(entry, bib.STYLES[n % 2]) for n, entry in enumerate(bib.entries_of(others)))
    return {
        f"{folder}/refs.bib": entries, f"{folder}/references.conll": bib.labelled(entries),
        f"{folder}/plain.txt": "".join(" ".join(token for token, _ in rows) + "\n" for rows in plain),
    }  # fmt: skip


# ---- trees, drawn by a grammar: probability and right-hand side of each rule; what has no rules is a tag

TREES, STRINGS, QUESTIONS = 400, 150, 12
RULES: dict[str, list[tuple[float, str]]] = {
    "S": [(0.9, "NP-SBJ VP"), (0.1, "PP-LOC , NP-SBJ VP")],
    "NP-SBJ": [(0.3, "PRP"), (0.25, "NNP"), (0.3, "DT NN"), (0.15, "NP PP")],
    "NP": [(0.45, "DT NN"), (0.2, "DT JJ NN"), (0.15, "NNP"), (0.12, "NP PP"), (0.08, "NP CC NP")],
    "VP": [(0.5, "VBZ NP"), (0.2, "VBZ NP PP-LOC"), (0.15, "VBZ-say SBAR"), (0.15, "VBZ ADVP")],
    "SBAR": [(1.0, "IN-that S")],
    "ADVP": [(1.0, "RB")],
    "PP": [(1.0, "IN-of NP")],
    "PP-LOC": [(1.0, "IN NP")],
}
TAGS = {
    "DT": "the a every this".split(), "PRP": "she he it".split(), "CC": ["and"], ",": [","], "IN-that": ["that"],
    "NNP": "Ana Luis Soria Teruel Marta Lugo".split(), "JJ": "old red small quiet young tall".split(),
    "NN": "garden tree river wall gardener apple ladder village neighbour orchard bridge pear fence hill".split(),
    "VBZ": "sees plants prunes finds likes paints waters".split(), "VBZ-say": "says knows thinks".split(),
    "RB": "slowly often here again".split(),
    "IN": "in near behind on".split(), "IN-of": ["of", "with"],
}  # fmt: skip


def subtree(draw: random.Random, symbol: str, depth: int = 0) -> str:
    """A tree in brackets below a symbol; deep down the first rule is taken, so that it ends."""
    if symbol in TAGS:
        tag = symbol if symbol == "," else symbol.split("-")[0]
        return f"({tag} {draw.choice(TAGS[symbol])})"
    rules = RULES[symbol]
    chosen = draw.choices(rules, [share for share, _ in rules])[0] if depth < 9 else rules[0]
    return f"({symbol} {' '.join(subtree(draw, part, depth + 1) for part in chosen[1].split())})"


def treebank(draw: random.Random, count: int) -> list[str]:
    return [f"( {subtree(draw, 'S')[:-1]} (. .)) )" for _ in range(count)]


def words_of(tree: str) -> str:
    return " ".join(re.findall(r"\(\S+ ([^\s()]+)\)", tree))


def of_trees() -> dict[str, str]:
    """A treebank, strings whose trees nobody knows, and a few more to parse."""
    folder, made = "trees", {}
    for name, count in (("trees.mrg", TREES), ("strings.txt", STRINGS), ("sentences.txt", QUESTIONS)):
        rows = treebank(random.Random(f"{folder}/{name}"), count)
        texts = rows if name.endswith(".mrg") else [words_of(tree) for tree in rows]
        made[f"{folder}/{name}"] = "".join(f"{text}\n" for text in texts)
    return made


FILES: dict[str, Callable[[random.Random], list[tuple[str, ...]]]] = {
    "ner/sentences.conll": sentence,
    "addresses/addresses.conll": address,
    "references/references.conll": reference,
}


def text_of(name: str) -> str:
    """One token a line, columns between blanks, an empty line after each sequence."""
    draw = random.Random(name)
    sequences = (FILES[name](draw) for _ in range(SEQUENCES))
    return "".join("".join(" ".join(row) + "\n" for row in rows) + "\n" for rows in sequences)


def main(folder: Path) -> None:
    for name, text in ({name: text_of(name) for name in FILES} | of_bibliography() | of_trees()).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent)
