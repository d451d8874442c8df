"""Bracket scores the obvious way, as evalb's usual settings say: lists of brackets, each right one matched once.

A tree is (label, child, …); a tag is (label, word).
"""

DELETED = {",", ":", "``", "''", ".", "TOP"}
SAME = {"PRT": "ADVP"}


def words(tree):
    """[(tag, word)]"""
    if len(tree) == 2 and isinstance(tree[1], str):
        return [tree]
    return [pair for child in tree[1:] for pair in words(child)]


def brackets(tree, begin=0):
    """([(label, from, to)], where the tree ends) over all words, punctuation included."""
    if len(tree) == 2 and isinstance(tree[1], str):
        return [], begin + 1
    found, end = [], begin
    for child in tree[1:]:
        inner, end = brackets(child, end)
        found += inner
    return [(tree[0], begin, end), *found], end


def counted(tree):
    """Brackets over words without punctuation; those that hold nothing else are gone."""
    kept = [tag not in DELETED for tag, _ in words(tree)]
    named = [one for one in brackets(tree)[0] if one[0] != "TOP"]
    made = [(SAME.get(label, label), sum(kept[:i]), sum(kept[:j])) for label, i, j in named]
    return [one for one in made if one[1] < one[2]]


def matches(right, found):
    """Each right bracket is matched with one that is found, if there is one left."""
    left, n = list(right), 0
    for one in found:
        if one in left:
            left.remove(one)
            n += 1
    return n


def scores(gold, predicted):
    """(right, found, labelled matches, unlabelled ones, crossing ones, words, right tags)"""
    right, found = counted(gold), counted(predicted)
    bare = [[one[1:] for one in brackets] for brackets in (right, found)]
    crossing = sum(any(a < i < b < j or i < a < j < b for a, b in bare[0]) for i, j in bare[1])
    tags = [(a[0], b[0]) for a, b in zip(words(gold), words(predicted), strict=True) if a[0] not in DELETED]
    return (len(right), len(found), matches(right, found), matches(*bare), crossing, len(tags),
            sum(a == b for a, b in tags))  # fmt: skip
