"""Edit distance by the whole table, and the strings that labels spell."""


def symbols(labels, silent, join):
    """The symbols that the labels of a sequence stand for, in order."""
    return [symbol for label in labels if label != silent for symbol in label.split(join)]


def distance(first, second):
    """Least number of insertions, deletions and replacements."""
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i in range(len(first) + 1):
        for j in range(len(second) + 1):
            if i == 0 or j == 0:
                table[i][j] = i + j
            else:
                table[i][j] = min(
                    table[i - 1][j] + 1,
                    table[i][j - 1] + 1,
                    table[i - 1][j - 1] + (first[i - 1] != second[j - 1]),
                )
    return table[-1][-1]
