"""The k likeliest trees, lazily and exactly (after Jimenez and Marzal 2000): a node makes its next one when asked.

The next best derivation of a node is either one by another rule, or by the rule of the last one with the next best of a
child. All that is waiting lies in a pairing heap of the node. Heaps and lists share pools that grow.
"""

import math
from typing import NamedTuple

import numpy as np

from espalier.engine.errors import EspalierError
from espalier.engine.grammar.best import NONE, Climber, TreeRoom, best_rule
from espalier.engine.grammar.charts import cell, check_length
from espalier.engine.grammar.expected import pieces_of
from espalier.engine.grammar.strings import Strings
from espalier.engine.runtime import threads, vectors
from espalier.engine.runtime.inner_loops import put
from espalier.engine.runtime.jit import apart, kernel

POOL = 1 << 10
RULE, MIDDLE, LEFT, RIGHT, CHILD, NEXT = range(6)  # an item: its rule, where the left half ends, ranks of both halves
PLACE, FOUND, SIZE, HEAP, STATE, BEST, SPLIT = range(7)  # a node: its list in the pool, its heap, its best rule
FRESH, OPENED, DONE = range(3)
TO_RIGHT, TO_LEFT = range(2)  # what a node that is asked does next


@apart
def merge(one, other, items, scores):
    """Two heaps as one; 0 is no heap."""
    if one == 0 or other == 0:
        return one + other
    if scores[other] > scores[one]:
        one, other = other, one
    items[other, NEXT] = items[one, CHILD]
    items[one, CHILD] = other
    return one


@apart
def without_top(heap, items, scores):
    """The heap without its best item: its children in pairs, and these together."""
    child, pairs = items[heap, CHILD], 0
    while child != 0:
        second = items[child, NEXT]
        others = items[second, NEXT] if second != 0 else 0
        items[child, NEXT] = 0
        items[second, NEXT] = 0
        both = merge(child, second, items, scores)
        items[both, NEXT] = pairs
        pairs, child = both, others
    whole = 0
    while pairs != 0:
        others = items[pairs, NEXT]
        items[pairs, NEXT] = 0
        whole = merge(whole, pairs, items, scores)
        pairs = others
    return whole


@apart
def set_item(n, rule, middle, left, right, score, items, scores):
    items[n, RULE], items[n, MIDDLE], items[n, LEFT], items[n, RIGHT] = rule, middle, left, right
    items[n, CHILD] = items[n, NEXT] = 0
    scores[n] = score


@kernel
def know_best(node, a, i, j, words, tables, lists, chart, nodes):
    """The best rule of a node, looked for once."""
    if nodes[node, BEST] < 0:
        nodes[node, BEST], nodes[node, SPLIT] = best_rule(a, i, j, words, tables, lists, chart)


@kernel
def open_node(node, a, i, j, free, words, tables, lists, chart, nodes, items, scores):
    """All rules of a node but the best one into its heap; the number of the next free item."""
    length, n_binary, heap = len(words), len(tables.binary), 0
    best, split = nodes[node, BEST], nodes[node, SPLIT]
    for n in range(lists.binary_at[a], lists.binary_at[a + 1] if j > i + 1 else lists.binary_at[a]):
        r = lists.binary_rule[n]
        for k in range(i + 1, j):
            score = chart[cell(i, k, length), lists.left[r]] + chart[cell(k, j, length), lists.right[r]]
            score += lists.log_binary[r]
            if score > NONE and (r != best or k != split):
                set_item(free, r, k, 0, 0, score, items, scores)
                heap = merge(heap, free, items, scores)
                free += 1
    lexical = j == i + 1
    for r in range(tables.word_at[words[i]] if lexical else 0, tables.word_at[words[i] + 1] if lexical else 0):
        if tables.tag[r] == a and lists.log_lexical[r] > NONE and n_binary + r != best:
            set_item(free, n_binary + r, -1, 0, 0, lists.log_lexical[r], items, scores)
            heap = merge(heap, free, items, scores)
            free += 1
    for u in range(lists.unary_at[a], lists.unary_at[a + 1]):
        score = chart[cell(i, j, length), lists.below[u]] + lists.log_unary[u]
        rule = n_binary + len(tables.lexical) + u
        if score > NONE and rule != best:
            set_item(free, rule, -1, 0, 0, score, items, scores)
            heap = merge(heap, free, items, scores)
            free += 1
    nodes[node, HEAP], nodes[node, STATE] = heap, OPENED
    return free


@apart
def value_of(node, c, a, rank, chart, nodes, pool, scores):
    """The log-probability of the derivation of that rank."""
    return chart[c, a] if rank == 0 else scores[pool[nodes[node, PLACE] + rank]]


@apart
def longer(rows, least):
    grown = np.zeros((max(2 * len(rows), least), rows.shape[1]), rows.dtype)
    for i in range(len(rows)):
        put(rows[i], grown[i])
    return grown


@apart
def longer_line(line, least):
    grown = np.zeros(max(2 * len(line), least), line.dtype)
    put(line, grown)
    return grown


# One long kernel: what it calls could not give back pools that have grown.
@kernel
def derive(words, tables, lists, chart, k):
    """(nodes, pool of lists, items, their log-probabilities) once the root has its k best derivations, or all."""
    length, symbols = len(words), len(lists.binary_at) - 1
    n_binary, n_lexical = len(tables.binary), len(tables.lexical)
    nodes = np.zeros((length * (length + 1) // 2 * symbols, 7), np.int32)
    nodes[:, BEST] = -1
    pool, used = np.zeros(POOL, np.int32), 0
    items, scores, free = np.zeros((POOL, 6), np.int32), np.zeros(POOL), 1
    stack = np.zeros((POOL, 4), np.int32)  # symbol, from, to, what to do next
    root = cell(0, length, length) * symbols + tables.start
    while nodes[root, FOUND] < k and nodes[root, STATE] != DONE:
        depth = 1
        stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = tables.start, 0, length, TO_RIGHT
        while depth > 0:
            a, i, j, task = stack[depth - 1, 0], stack[depth - 1, 1], stack[depth - 1, 2], stack[depth - 1, 3]
            node = cell(i, j, length) * symbols + a
            if depth + 1 > len(stack):
                stack = longer(stack, 0)
            possible = (lists.binary_at[a + 1] - lists.binary_at[a]) * (j - i) + 2
            possible += lists.unary_at[a + 1] - lists.unary_at[a]
            if free + possible + 2 > len(items):
                items = longer(items, free + possible + 2)
                scores = longer_line(scores, len(items))
            if nodes[node, FOUND] > 0:
                if nodes[node, STATE] == FRESH:
                    free = open_node(node, a, i, j, free, words, tables, lists, chart, nodes, items, scores)
                last = pool[nodes[node, PLACE] + nodes[node, FOUND] - 1]
                rule, middle = items[last, RULE], items[last, MIDDLE]
                left, right = items[last, LEFT], items[last, RIGHT]
                is_binary, is_unary = rule < n_binary, rule >= n_binary + n_lexical
                if task == TO_RIGHT and is_binary:
                    b, c = lists.left[rule], lists.right[rule]
                    one, two = cell(i, middle, length), cell(middle, j, length)
                    child = two * symbols + c
                    if nodes[child, FOUND] <= right + 1 and nodes[child, STATE] != DONE:
                        stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = c, middle, j, TO_RIGHT
                        depth += 1
                        continue
                    if nodes[child, FOUND] > right + 1:
                        score = lists.log_binary[rule] + value_of(
                            one * symbols + b, one, b, left, chart, nodes, pool, scores
                        )
                        score += value_of(child, two, c, right + 1, chart, nodes, pool, scores)
                        set_item(free, rule, middle, left, right + 1, score, items, scores)
                        nodes[node, HEAP] = merge(nodes[node, HEAP], free, items, scores)
                        free += 1
                if task == TO_RIGHT:
                    task = stack[depth - 1, 3] = TO_LEFT
                if task == TO_LEFT and right == 0 and (is_binary or is_unary):
                    b = lists.left[rule] if is_binary else lists.below[rule - n_binary - n_lexical]
                    end = middle if is_binary else j
                    one = cell(i, end, length)
                    child = one * symbols + b
                    if nodes[child, FOUND] <= left + 1 and nodes[child, STATE] != DONE:
                        stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = b, i, end, TO_RIGHT
                        depth += 1
                        continue
                    if nodes[child, FOUND] > left + 1:
                        score = value_of(child, one, b, left + 1, chart, nodes, pool, scores)
                        if is_binary:
                            two = cell(middle, j, length)
                            score += lists.log_binary[rule] + chart[two, lists.right[rule]]
                        else:
                            score += lists.log_unary[rule - n_binary - n_lexical]
                        set_item(free, rule, middle, left + 1, 0, score, items, scores)
                        nodes[node, HEAP] = merge(nodes[node, HEAP], free, items, scores)
                        free += 1
                item = nodes[node, HEAP]
                if item != 0:
                    nodes[node, HEAP] = without_top(item, items, scores)
            else:
                know_best(node, a, i, j, words, tables, lists, chart, nodes)
                item = free
                set_item(item, nodes[node, BEST], nodes[node, SPLIT], 0, 0, chart[node // symbols, a], items, scores)
                free += 1
            if item == 0:
                nodes[node, STATE] = DONE
            else:
                if nodes[node, FOUND] == nodes[node, SIZE]:
                    room = max(4, 2 * nodes[node, SIZE])
                    if used + room > len(pool):
                        pool = longer_line(pool, used + room)
                    for n in range(nodes[node, FOUND]):
                        pool[used + n] = pool[nodes[node, PLACE] + n]
                    nodes[node, PLACE], nodes[node, SIZE] = used, room
                    used += room
                pool[nodes[node, PLACE] + nodes[node, FOUND]] = item
                nodes[node, FOUND] += 1
            depth -= 1
    return nodes, pool, items, scores


@kernel
def count_trees(
    words, tables, lists, chart, nodes, pool, items, first, weights, counts, rule, start, end, middle, todo
):
    """Adds the rules of the trees from the first rank on by their weights; the last one's nodes and their number."""
    length, symbols = len(words), len(lists.binary_at) - 1
    n_binary, n_lexical, found = len(tables.binary), len(tables.lexical), 0
    for n in range(len(weights)):
        found, depth = 0, 1
        todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3] = tables.start, 0, length, first + n
        while depth > 0:
            depth -= 1
            a, i, j, rank = todo[depth, 0], todo[depth, 1], todo[depth, 2], todo[depth, 3]
            node = cell(i, j, length) * symbols + a
            if nodes[node, FOUND] == 0:
                know_best(node, a, i, j, words, tables, lists, chart, nodes)
                r, k, left, right = nodes[node, BEST], nodes[node, SPLIT], 0, 0
            else:
                item = pool[nodes[node, PLACE] + rank]
                r, k, left, right = items[item, RULE], items[item, MIDDLE], items[item, LEFT], items[item, RIGHT]
            counts[r] += weights[n]
            rule[found], start[found], end[found], middle[found] = r, i, j, k
            found += 1
            if r < n_binary:
                todo[depth, 0], todo[depth, 1], todo[depth, 2], todo[depth, 3] = lists.right[r], k, j, right
                depth += 1
                todo[depth, 0], todo[depth, 1], todo[depth, 2], todo[depth, 3] = lists.left[r], i, k, left
                depth += 1
            elif r >= n_binary + n_lexical:
                todo[depth, 0], todo[depth, 3] = lists.below[r - n_binary - n_lexical], left
                depth += 1
    return found


class Several(NamedTuple):
    """The likeliest trees of a string, best first."""

    log_p: np.ndarray
    nodes: list[np.ndarray]  # int32 [4, .] each: rule, from, to, where the left half ends, in preorder


def shares_of(scores: np.ndarray) -> np.ndarray:
    """P(t) over the sum of them, from logarithms."""
    relative = vectors.exp(scores - scores[0])
    return relative / relative.sum()


class Chooser(Climber):
    """The k likeliest trees of a grammar."""

    def _derived(self, words: np.ndarray, brackets: np.ndarray, k: int, room: TreeRoom) -> tuple | None:
        if self.fill(words, brackets, room) == NONE:
            return None
        nodes, pool, items, scores = derive(words, self.tables, self.lists, room.chart, k)
        place, found = nodes[self._root(words), :2]
        return nodes, pool, items, scores[pool[place : place + min(found, k)]]

    def check_several(self, k: int, length: int) -> None:
        """Refuse what cannot be counted: no tree, or strings whose nodes do not fit the memory."""
        check_k(k)
        check_length(length, self.tables.wide, self.memory, 1, several=True)

    def _root(self, words: np.ndarray) -> int:
        return (len(words) - 1) * len(self.grammar.symbols) + self.grammar.start

    def _tree_room(self, length: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        size = (2 * length + (k if self.depth > 1 else 0)) * self.depth + 2
        return np.empty((4, size), np.int32), np.empty((size, 4), np.int64)

    def several(self, words: np.ndarray, brackets: np.ndarray, k: int) -> Several:
        """The k likeliest trees of a string, or all where there are fewer."""
        self.check_several(k, len(words))
        room, (trees, todo) = self.room(len(words)), self._tree_room(len(words), k)
        derived = self._derived(words, brackets, k, room)
        if derived is None:
            return Several(np.zeros(0), [])
        nodes, pool, items, scores = derived
        made, counts = [], np.zeros(self.grammar.size)
        for rank in range(len(scores)):
            count = count_trees(words, self.tables, self.lists, room.chart, nodes, pool, items, rank, np.zeros(1),
                                counts, *trees, todo)  # fmt: skip
            made.append(trees[:, :count].copy())
        return Several(scores, made)

    def piece_of_several(self, data: Strings, lo: int, hi: int, k: int, log_p: np.ndarray) -> np.ndarray:
        """Counts of the rules of the k likeliest trees of some strings; writes down the log of the sum of P of each."""
        longest, counts = int(data.lengths[lo:hi].max()), np.zeros(self.grammar.size)
        room, (trees, todo) = self.room(longest), self._tree_room(longest, k)
        for n in range(lo, hi):
            words, brackets = data.row(n)
            derived = self._derived(words, brackets, k, room)
            if derived is not None:
                nodes, pool, items, scores = derived
                shares = shares_of(scores)
                log_p[n] = scores[0] - math.log(shares[0])
                count_trees(words, self.tables, self.lists, room.chart, nodes, pool, items, 0, data.weights[n] * shares,
                            counts, *trees, todo)  # fmt: skip
        return counts

    def counted(self, data: Strings, k: int) -> tuple[np.ndarray, np.ndarray]:
        """(counts of rules over the k likeliest trees by P(t) / sum P (COURSE 8), log of that sum for each string)."""
        self.check_several(k, int(data.lengths.max()))
        log_p = np.full(data.total, NONE)
        counts = np.zeros(self.grammar.size)
        for part in threads.run(lambda piece: self.piece_of_several(data, *piece, k, log_p), pieces_of(data)):
            counts += part
        return counts, log_p


def check_k(k: int) -> None:
    if k < 1:
        raise EspalierError(f"k is {k}: expected at least one tree")
