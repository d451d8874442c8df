"""A pattern file of Wapiti gives the observations that Wapiti makes of it, read from a model that Wapiti saved."""

import importlib.util
import json
import re
import subprocess
import sys

import pytest
from reference import templates as reference
from test_templates import table_of

from espalier.tasks.templating.expansion import encode, parse

SENTENCES = [
    "Émile NNP B\nvécut VBD O\nà IN O\nParis-12e NNP B\n, , O\n1987 CD O\n! . O",
    "« “ O\nDÉJÀ RB O\nvu VBN O\n» ” O\n... : O",
    "No. NN O\n3.50 CD O\n$ $ O\nper IN O\nkilo-gramme NN O\n(approx.) JJ O",
    "OK UH O",
    "ASCII_art NN B\n\\o/ SYM O",
    '漢字 NN B\nと IN O\n😀 SYM O\na*b?c^d SYM O\n"quoted" NN O\nend$ NN O',
    "Ärger NN O\nüber IN O\nÖl NN O",
]
# Everything that the language has; rows reach four positions beyond an edge, further ones Wapiti does not tell apart.
PATTERNS = r"""
# a comment, then an empty line

U
*
B
b:lower
U00:%x[0,0]
u01:%x[-1,0]/%x[+1,0]      # the neighbours
*02:%X[ 0, 1]
U03:%x[-4,0]|%x[4,1]
U04:%x[@1,0]/%x[@-1,0]
U05:%x[@3,1]/%x[@-3,1]/%x[@0,0]
U06:%X[@2,0]
U10:%t[0,0,"^\u"]%t[-1,0,"\d"]%t[1,0,"\p$"]
U11:%T[0,0,"^\l*$"]
U12:%t[0,0,"^\a\A"]%t[0,0,"^\W"]%t[0,0,"\L\U"]%t[0,0,"\D\d\P"]%t[0,0,"\S\S\S"]%t[0,0,"\s"]
U13:%t[0,0,"^_x"]/%t[1,0,"^_x"]
U20:%m[0,0,"^.?.?.?"]
U21:%m[0,0,".?.?.?.?$"]
U22:%M[-1,0,"\a*\d"]
U23:%m[0,0,"\d*"]/%m[0,0,"\d\d*"]
U24:%m[0,0,"\p\p*$"]
U25:%m[1,0,"é"]%m[0,0,"É.*$"]%m[0,0,"a\*b\?c"]
U26:%m[0,0,"\"\w*\""]%m[0,0,"[a-z]"]%m[0,0,"(.*)"]
U27:%m[0,0,"d$"]%m[0,0,"$"]%m[0,0,"c^d"]%m[0,0,"^\$"]
U28:%m[0,0,"\\"]%m[0,0,"_x..?"]%m[2,0,"_x."]%m[-3,0,"x-\d"]
U29:%m[0,0,"."]%M[0,0,"^.*$"]
*30:%x[0,1]%x[0,0] literal ]["',
"""
READ = """
import json, sys
import wapiti
patterns, sentences, path = json.load(sys.stdin)
model = wapiti.Model(patterns=patterns, algo="l-bfgs", nthread=1, maxiter=1)
for sentence in sentences:
    model.add_training_sequence(sentence)
model.train()
model.save(path)
"""


def observations_of_wapiti(patterns, sentences, path):
    """The texts that a model saved by Wapiti lists after its labels, as bytes."""
    text = json.dumps([patterns, sentences, str(path)])
    done = subprocess.run([sys.executable, "-c", READ], input=text, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    data = path.read_bytes()
    head = list(re.finditer(rb"#qrk#(\d+)\n", data))[-1]
    at, found = head.end(), []
    for _ in range(int(head[1])):
        length, _, _ = data[at : at + 20].partition(b":")
        begin = at + len(length) + 1
        found.append(data[begin : begin + int(length)])
        at = begin + int(length) + 2
    return found


def rows_of(sentences):
    return [[line.split(" ")[:2] for line in sentence.split("\n")] for sentence in sentences]


def lowered(text):
    return text[0].lower() + text[1:]


def test_observations_are_those_of_wapiti(tmp_path):
    if importlib.util.find_spec("wapiti") is None:
        pytest.skip("libwapiti is not installed: `make bench` installs the peers")
    theirs = {text.decode(errors="backslashreplace") for text in
              observations_of_wapiti(PATTERNS, SENTENCES, tmp_path / "model.txt")}  # fmt: skip
    templates = parse(PATTERNS.split("\n"), "pattern.txt")
    tokens = table_of(rows_of(SENTENCES))
    ours = {lowered(text) for expansion in encode(tokens, templates) for text in expansion.texts}
    assert len(theirs) > 300
    assert ours == theirs


def test_observations_are_those_of_the_oracle():
    """The same patterns where there is no Wapiti."""
    lines = [line for line in PATTERNS.split("\n") if line and not line.startswith("#")]
    rows = rows_of(SENTENCES)
    ours = {text for expansion in encode(table_of(rows), parse(lines)) for text in expansion.texts}
    assert ours == {text for row in reference.expand(rows, lines) for text in row}
