"""Trees made binary, with labels that remember what was around them, and whole again."""

from espalier.engine.errors import EspalierError
from espalier.engine.labels.trees import Tree

HALF, UP = "@", "^"  # in labels made here: what begins that of half a rule, what stands before a parent


def check_labels(tree: Tree) -> None:
    """Refuses labels that those made here could be taken for."""
    if tree.word is None:
        if tree.label.startswith(HALF) or UP in tree.label:
            raise EspalierError(f"the label {tree.label!r} has {HALF!r} or {UP!r}, as those of binary trees do")
        for child in tree.children:
            check_labels(child)


def binarised(
    tree: Tree, horizontal: int = 1, vertical: int = 1, right: bool = True, above: tuple[str, ...] = ()
) -> Tree:
    """At most two children for each node; `whole` undoes it.

    A node for half a rule says which rule it is of, and the last `horizontal` children that went before it; `right`
    cuts off one child after the other from the left. With `vertical` 2 or more a label names as many, less one, above.
    """
    if tree.word is not None:
        return tree
    label = UP.join((tree.label, *above[: vertical - 1]))
    children, names = [], []
    for child in tree.children:
        children.append(binarised(child, horizontal, vertical, right, (tree.label, *above)))
        names.append(child.label)
    return _halved(label, children, names, horizontal, right)


def _halved(label: str, children: list[Tree], names: list[str], horizontal: int, right: bool) -> Tree:
    if not right:
        children, names = children[::-1], names[::-1]
    made = children[-1]
    for k in range(len(children) - 2, -1, -1):
        before = names[max(0, k - horizontal) : k]
        name = f"{HALF}{label}|{'_'.join(before)}" if k else label
        made = Tree(name, (children[k], made) if right else (made, children[k]))
    return made if len(children) > 1 else Tree(label, (made,))


def plain(label: str) -> str:
    """A label without what it remembers of those above; that of half a rule stays."""
    return label if label.startswith(HALF) else label.split(UP)[0]


def joined(label: str, *children: Tree) -> Tree:
    """A node over others, all of them whole already: of half a rule its children take the place of it."""
    every: list[Tree] = []
    for child in children:
        every += child.children if child.label.startswith(HALF) else [child]
    return Tree(plain(label), tuple(every))


def whole(tree: Tree) -> Tree:
    """The tree before `binarised`."""
    return tree if tree.word is not None else joined(tree.label, *map(whole, tree.children))
