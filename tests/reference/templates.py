"""Feature templates token by token: no columns, no shifts, just look where the macro points."""

from collections import Counter

ASCII_LETTERS = "abcdefghijklmnopqrstuvwxyz"
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
CLASSES = {
    "a": ASCII_LETTERS + ASCII_LETTERS.upper(), "d": "0123456789", "l": ASCII_LETTERS, "u": ASCII_LETTERS.upper(),
    "p": PUNCTUATION, "s": " \t\n\v\f\r", "w": ASCII_LETTERS + ASCII_LETTERS.upper() + "0123456789",
}  # fmt: skip


# ---- lines


def pieces(line):
    """Literal texts and (letter, at, row, column, arguments) in turn; `at` says whether the row had an @."""
    found, rest = [], line.strip()
    literal = ""
    while rest:
        if rest[0] == "#" and literal[-1:] in (" ", "\t"):
            break
        if rest[0] != "%":
            literal, rest = literal + rest[0], rest[1:]
            continue
        inside, quoted, end = "", False, 3
        while quoted or rest[end] != "]":
            if rest[end] == '"':
                quoted = not quoted
            if rest[end] == "\\":
                inside, end = inside + rest[end], end + 1
            inside, end = inside + rest[end], end + 1
        found += [literal, macro(rest[1], inside)]
        literal, rest = "", rest[end + 1 :]
    return [*found, literal.rstrip(" \t")]


def macro(letter, inside):
    row, column, *arguments = inside.split(",", 2)
    arguments = arguments[0].strip() if arguments else ""
    if arguments.startswith('"'):
        arguments = arguments[1:-1]
    elif arguments:
        arguments = [int(n) for n in arguments.split(",")]
    row = row.strip()
    return letter, row.startswith("@"), int(row.lstrip("@")), int(column), arguments


# ---- Wapiti's regular expressions


def matches(one, byte):
    """Whether the first character of an expression matches a byte; `one` is that character, with its backslash."""
    character = chr(byte)
    if one == b".":
        return True
    if one[:1] != b"\\":
        return one[0] == byte
    name = one[1:].decode("latin-1")
    if name in CLASSES:
        return character in CLASSES[name]
    if name.lower() in CLASSES and name.isascii():
        return character not in CLASSES[name.lower()]
    return one[1] == byte


def match_here(regexp, data, at):
    """Where the match of an expression that begins at `at` ends, or None."""
    if not regexp:
        return at
    if regexp == b"$":
        return at if at == len(data) else None
    one = regexp[:2] if regexp[:1] == b"\\" else regexp[:1]
    rest = regexp[len(one) :]
    if rest[:1] == b"*":
        while True:  # as few as possible
            end = match_here(rest[1:], data, at)
            if end is not None or at == len(data) or not matches(one, data[at]):
                return end
            at += 1
    if rest[:1] == b"?":
        if at < len(data) and matches(one, data[at]):
            end = match_here(rest[1:], data, at + 1)
            if end is not None:
                return end
        return match_here(rest[1:], data, at)
    return match_here(rest, data, at + 1) if at < len(data) and matches(one, data[at]) else None


def first_match(regexp, text):
    """The first match as bytes, or None."""
    regexp, data = regexp.encode(), text.encode()
    if regexp[:1] == b"^":
        end = match_here(regexp[1:], data, 0)
        return None if end is None else data[:end]
    for begin in range(len(data) + 1):
        end = match_here(regexp, data, begin)
        if end is not None:
            return data[begin:end]
    return None


# ---- values


def lower(text):
    return "".join(c.lower() if c in CLASSES["u"] else c for c in text)


def shape(text, most):
    out = ""
    for c in text:
        mark = ("X" if c.isupper() else "x") if c.isalpha() else "d" if c.isdigit() else c
        if not most or len(out) < most[0] or set(out[-most[0] :]) != {mark}:
            out += mark
    return out


def grams(text, n, most=32):
    """Those nearest to an end first."""
    text = f"<{text}>"
    last = max(0, len(text) - n)
    out = []
    for i in sorted(range(last + 1), key=lambda i: (min(i, last - i), i)):
        if text[i : i + n] not in out:
            out.append(text[i : i + n])
    return out[:most]


def tag_names(words, lines, without_case):
    """B, I, O of each word: at each free place the longest entry that fits."""
    entries = {}
    for line in lines:
        entry, _, kind = (line.lower() if without_case else line).partition("\t")
        kind = line.partition("\t")[2].strip()
        if entry.split():
            entries.setdefault(tuple(entry.split()), kind)
    words = [word.lower() for word in words] if without_case else words
    out, at = [], 0
    while at < len(words):
        lengths = [n for n in range(1, len(words) - at + 1) if tuple(words[at : at + n]) in entries]
        if not lengths:
            out.append("O")
            at += 1
            continue
        kind = entries[tuple(words[at : at + max(lengths)])]
        tail = "-" + kind if kind else ""
        out += ["B" + tail] + ["I" + tail] * (max(lengths) - 1)
        at += max(lengths)
    return out


def bin_of(text, edges):
    try:
        number = float(text)
    except ValueError:
        return "nan"
    if text != text.strip() or "_" in text or not text.isascii() or abs(number) == float("inf") or number != number:
        return "nan"
    return str(sum(edge <= number for edge in map(float, edges.split())))


def values(sequence, t, letter, at, row, column, arguments, lists):
    """What a macro stands for at token t: mostly one text."""
    wanted = t + row if not at else row - 1 if row >= 0 else len(sequence) + row
    outside = wanted < 0 or wanted >= len(sequence)
    if wanted < 0:
        text = f"_x{wanted}"
    elif outside:
        text = f"_x+{wanted - len(sequence) + 1}"
    else:
        text = sequence[wanted][column]
    kind = letter.lower()
    if kind == "x":
        found = text
    elif kind == "t":
        found = "false" if first_match(arguments, text) is None else "true"
    elif kind == "m":
        found = (first_match(arguments, text) or b"").decode(errors="backslashreplace")
    elif outside:
        return [text]
    else:
        return ours(sequence, wanted, column, letter, arguments, lists)
    return [lower(found) if letter.isupper() else found]


def ours(sequence, wanted, column, letter, arguments, lists):
    """The macros that are not Wapiti's; capitals look at the token in lower case."""
    text, kind = sequence[wanted][column], letter.lower()
    text = text.lower() if letter.isupper() else text
    if kind == "l":
        return [tag_names([row[column] for row in sequence], lists[arguments], letter == "L")[wanted]]
    if kind == "p":
        return ["".join(text[i] for i in range(min(arguments[0], len(text))))]
    if kind == "s":
        return ["".join(text[i] for i in range(max(0, len(text) - arguments[0]), len(text)))]
    if kind == "w":
        return [shape(text, arguments)]
    if kind == "a":
        return (text.split("\t") if text else [])[: (*arguments, None)[0]]
    return grams(text, *arguments) if kind == "g" else [bin_of(text, arguments)]


def observations(sequence, t, line, lists=None):
    """All that a template yields at token t."""
    texts = [""]
    for piece in pieces(line):
        found = [piece] if isinstance(piece, str) else values(sequence, t, *piece, lists)
        texts = [text + more for text in texts for more in found]
    return texts


def observation(sequence, t, line):
    (text,) = observations(sequence, t, line)
    return text


def expand(sequences, lines, lists=None):
    """One row for each token of each sequence, the observations of all templates."""
    return [
        [text for line in lines for text in observations(s, t, line, lists)] for s in sequences for t in range(len(s))
    ]


def vocabulary(sequences, lines, min_count=1, lists=None):
    """(observation, first template that yields it, count): by template, then the frequent, then by name."""
    seen = [(text, i) for s in sequences for t in range(len(s)) for i, line in enumerate(lines)
            for text in observations(s, t, line, lists)]  # fmt: skip
    counts = Counter(text for text, _ in seen)
    first = {text: min(i for other, i in seen if other == text) for text in counts}
    kept = [(text, first[text], n) for text, n in counts.items() if n >= min_count]
    return sorted(kept, key=lambda entry: (entry[1], -entry[2], entry[0].encode()))
