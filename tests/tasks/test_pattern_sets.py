"""Templates that come along (LABELSEQ appendix B): what they see of ten words, written down by hand."""

import pytest

from espalier import CRF
from espalier.engine.errors import EspalierError
from espalier.engine.text.pattern_sets import NAMES, PREFIX, is_shipped, shipped_lines, shipped_text
from espalier.engine.text.templates import expand_rows, parse
from espalier.flows.stages import stage
from espalier.tasks.params import Params, TemplateParams
from espalier.tasks.templating.pattern_files import named_lists, read_templates

# The word; its last letter; the type of its first; then yes and no: first of the sentence, all capitals, a capital
# first, a digit in it, a dot at its end, a dot in it, a hyphen in it.
GOLDEN = [
    ("El", "l", "capital", "1 0 1 0 0 0 0"),
    ("B-52", "2", "capital", "0 0 1 1 0 0 1"),
    ("de", "e", "small", "0 0 0 0 0 0 0"),
    ("EE.UU.", ".", "capital", "0 0 1 0 1 1 0"),
    ("1.234", "4", "digit", "0 0 0 1 0 1 0"),
    ("EFE", "E", "capital", "0 1 1 0 0 0 0"),
    ("12-03", "3", "digit", "0 0 0 1 0 0 1"),
    ("-", "-", "other", "0 0 0 0 0 0 1"),
    ("art.3-b", "b", "small", "0 0 0 1 0 1 1"),
    (".", ".", "other", "0 0 0 0 1 1 0"),
]
WORDS = [row[0] for row in GOLDEN]
TYPES = {
    "capital": "true/false/false", "small": "false/true/false", "digit": "false/false/true",
    "other": "false/false/false",
}  # fmt: skip
TOGETHER = ["cap&first", "cap&end.", "cap&dot", "cap&hyphen", "cap&digit", "dot&digit", "dot&hyphen", "digit&hyphen"]
SIZES = {"S1": 1, "S2": 16, "S3": 48, "S3-5": 80}


def seen(name, words=WORDS):
    """What templates see at each place, without the label before."""
    rows = expand_rows(parse(shipped_lines(name)), [(word,) for word in words])
    assert all(row[-1] == "B" for row in rows)
    return [row[:-1] for row in rows]


def golden(place, row=0):
    """The 16 observations of a word as they are seen `row` words away."""
    word, ending, kind, said = GOLDEN[place]
    names = ("first", "caps", "cap", "digit", "end.", "dot", "hyphen")
    found = dict(zip(names, ("true" if bit == "1" else "false" for bit in said.split()), strict=True))
    values = {"word": word, "type": TYPES[kind], "ending": ending}
    values |= {name: found[name] for name in names[:5]}
    values |= {pair: "/".join(found[part] for part in pair.split("&")) for pair in TOGETHER}
    return {f"U{name}{row:+d}:{value}" if row else f"U{name}0:{value}" for name, value in values.items()}


def test_one_row_as_it_is_written():
    assert seen("S2")[3] == [
        "Uword0:EE.UU.", "Ufirst0:false", "Utype0:true/false/false", "Uending0:.", "Ucaps0:false", "Ucap0:true",
        "Udigit0:false", "Uend.0:true", "Ucap&first0:true/false", "Ucap&end.0:true/true", "Ucap&dot0:true/true",
        "Ucap&hyphen0:true/false", "Ucap&digit0:true/false", "Udot&digit0:true/false", "Udot&hyphen0:true/false",
        "Udigit&hyphen0:false/false",
    ]  # fmt: skip


def test_ten_words():
    assert seen("S1") == [[f"Uword0:{word}"] for word in WORDS]
    for place, row in enumerate(seen("S2")):
        assert set(row) == golden(place), WORDS[place]


@pytest.mark.parametrize(("name", "half"), [("S3", 1), ("S3-5", 2)])
def test_a_window_has_the_attributes_of_the_words_in_it(name, half):
    rows = seen(name)
    for place in range(half, len(WORDS) - half):
        expected = set().union(*(golden(place + r, r) for r in range(-half, half + 1)))
        assert set(rows[place]) == expected and len(rows[place]) == 16 * (2 * half + 1)


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name):
    """16 active values a word of the window, at the edges, too; and each conjunction has four values at most."""
    assert [len(row) for row in seen(name)] == [SIZES[name]] * len(WORDS)
    assert {word: len(set(row)) for word, row in zip(WORDS, seen(name), strict=True)} == dict.fromkeys(
        WORDS, SIZES[name]
    )
    values = {text for row in seen(name, [*WORDS, "X.1-", "x"]) for text in row if "&" in text}
    heads = [text.partition(":")[0] for text in values]
    assert all(heads.count(head) <= 4 for head in heads)


def test_words_of_a_grammar_come_with_wider_and_wider_classes():
    assert SIZES.keys() | {"letters", "trees"} == set(NAMES)
    rows = expand_rows(parse(shipped_lines("trees")), [("Walking",), ("B-52",)])
    assert rows == [["U:Walking", "Us3:Xx/ing", "Us2:Xx/ng", "Us:Xx", "U"], ["U:B-52", "Us3:X-d/-52", "Us2:X-d/52",
                                                                            "Us:X-d", "U"]]  # fmt: skip


def test_letters_are_seen_alone_and_in_every_run_that_has_a_name():
    lines = [line for line in shipped_lines("letters") if line and not line.startswith("#")]
    named = dict(line.split(":", 1) for line in lines if ".." in line)
    for name, macros in named.items():
        first, last = map(int, name[1:].split(".."))
        assert macros == "/".join(f"%x[{row},0]" for row in range(first, last + 1)), name
    runs = {tuple(map(int, name[1:].split(".."))) for name in named if name[0] == "U"}
    longer = {(first, last) for first, last in runs if first < last}
    assert longer == {(first, last) for first, last in longer if first <= 0 <= last <= 6 and first >= -6}
    assert {(0, n) for n in range(1, 7)} | {(-n, 0) for n in range(1, 7)} <= longer and (-1, 1) in longer
    rows = expand_rows(parse(lines), [(letter,) for letter in "cat"])
    assert {"U-1..1:c/a/t", "U-1..-1:c", "*0:a", "B-1..0:c/a", "U0..2:a/t/_x+1", "B", "U"} <= set(rows[1])


def test_the_first_word_is_told_from_others_in_the_window():
    assert [[text for text in row if text.startswith("Ufirst")] for row in seen("S3", ["a", "b", "c"])] == [
        ["Ufirst-1:false", "Ufirst0:true", "Ufirst+1:false"], ["Ufirst-1:true", "Ufirst0:false", "Ufirst+1:false"],
        ["Ufirst-1:false", "Ufirst0:false", "Ufirst+1:false"],
    ]  # fmt: skip


# ---- where they are named


def test_params_name_them(tmp_path):
    params = TemplateParams(lines=None, file="espalier:S3")
    templates, lists = read_templates(tmp_path, params)
    assert len(templates) == 49 and lists == {} and named_lists(tmp_path, params) == []
    whole = Params(template=params)
    assert [path for path in stage("template").inputs(whole, tmp_path) if "S3" in path] == []
    with pytest.raises(EspalierError) as refused:
        read_templates(tmp_path, TemplateParams(lines=None, file="espalier:s4"))
    assert str(refused.value) == (
        "template.file: there are no templates 'espalier:s4': did you mean espalier:S3? those that come along are "
        "espalier:S1, espalier:S2, espalier:S3, espalier:S3-5, espalier:letters, espalier:trees"
    )


def test_a_name_does_not_reach_other_files():
    with pytest.raises(EspalierError, match="there are no templates"):
        shipped_text("espalier:../../../tests/conftest")
    assert not is_shipped("S3") and not is_shipped(None) and is_shipped(f"{PREFIX}S3")


def test_from_python():
    model = CRF(templates="espalier:S2", max_iterations=3).fit([[["Ann"], ["saw"]]], [["B-PER", "O"]])
    assert len(model.model_.templates) == 17
