"""CoNLL columns line by line: a line feed ends a line and nothing else does."""


def fields_of(line, separator):
    if separator:
        return line.split(separator)
    return [field for field in line.replace("\t", " ").split(" ") if field]


def parse(data, separator=None, comment=None, docstart=None):
    """Sequences as lists of (line number, fields); a sequence ends at a blank line or at the end of the file."""
    sequences, current = [], []
    for number, line in enumerate(data.decode("utf-8-sig").split("\n"), 1):
        line = line.rstrip("\r")
        if comment and line.startswith(comment):
            continue
        if line.strip(" \t") and not (docstart and fields_of(line, separator)[0] == docstart):
            current.append((number, fields_of(line, separator)))
        elif current:
            sequences.append(current)
            current = []
    return [*sequences, current] if current else sequences


def ragged_line(sequences):
    """The first line that has another number of fields than the first, or None."""
    rows = [row for sequence in sequences for row in sequence]
    return next((number for number, fields in rows if len(fields) != len(rows[0][1])), None)
