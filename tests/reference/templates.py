"""Feature templates token by token: no columns, no shifts, just look where the macro points."""

from collections import Counter


def pieces(line):
    """Literal texts and (row, column) pairs in turn."""
    first, *rest = line.split("%x[")
    found = [first]
    for text in rest:
        inside, after = text.split("]", 1)
        row, column = inside.split(",")
        found += [(int(row), int(column)), after]
    return found


def value(sequence, t, row, column):
    """The value `row` positions from t; before the first _B-1, _B-2, …, after the last _B+1, _B+2, …"""
    wanted = t + row
    if wanted < 0:
        return f"_B{wanted}"
    if wanted >= len(sequence):
        return f"_B+{wanted - len(sequence) + 1}"
    return sequence[wanted][column]


def observation(sequence, t, line):
    return "".join(piece if isinstance(piece, str) else value(sequence, t, *piece) for piece in pieces(line))


def expand(sequences, lines):
    """One row for each token of each sequence, one observation for each template."""
    return [[observation(s, t, line) for line in lines] for s in sequences for t in range(len(s))]


def vocabulary(sequences, lines, min_count=1):
    """(observation, first template that yields it, count): by template, then the frequent, then by name."""
    rows = expand(sequences, lines)
    counts = Counter(text for row in rows for text in row)
    first = {text: min(i for row in rows for i, other in enumerate(row) if other == text) for text in counts}
    kept = [(text, first[text], n) for text, n in counts.items() if n >= min_count]
    return sorted(kept, key=lambda entry: (entry[1], -entry[2], entry[0].encode()))
