"""Small treebanks for tests: sentences of a grammar that is written down here, drawn by a seed."""

import random

WORDS = {"DT": ["the", "a", "every"], "NN": ["dog", "cat", "man", "boat", "hill"], "VBZ": ["sees", "likes", "finds"],
         "IN": ["in", "near"], "JJ": ["old", "red"]}  # fmt: skip


def noun_phrase(draw, depth=0):
    words = [("DT", draw.choice(WORDS["DT"])), *([("JJ", draw.choice(WORDS["JJ"]))] if draw.random() < 0.3 else []),
             ("NN", draw.choice(WORDS["NN"]))]  # fmt: skip
    text = f"(NP {' '.join(f'({tag} {word})' for tag, word in words)})"
    if depth < 2 and draw.random() < 0.3:
        return f"(NP {text} (PP (IN {draw.choice(WORDS['IN'])}) {noun_phrase(draw, depth + 1)}))"
    return text


def sentence(draw):
    subject = noun_phrase(draw).replace("(NP", "(NP-SBJ", 1)
    place = f" (PP (IN {draw.choice(WORDS['IN'])}) {noun_phrase(draw, 1)})" if draw.random() < 0.3 else ""
    verb = f"(VP (VBZ {draw.choice(WORDS['VBZ'])}) {noun_phrase(draw)}{place})"
    return f"( (S {subject} {verb} (. .)) )"


def trees(count, seed=0):
    """So many trees, one a line."""
    draw = random.Random(seed)
    return [sentence(draw) for _ in range(count)]


def strings(count, seed=1):
    """The words of other trees."""
    parts = (tree.replace("(", " ( ").replace(")", " ) ").split() for tree in trees(count, seed))
    known = {word for some in WORDS.values() for word in some} | {"."}
    return [" ".join(p for a, p in zip(row, row[1:], strict=False) if p in known and a != "(") for row in parts]
