"""An experiment of three sums, for the tests of the frame."""

from espalier.tasks.experiments import Cell, Comparison, Experiment, Report, Settings, Statement

CALLS: list[int] = []
OFFSET = {"value": 0}


def add(number: int, offset: int) -> dict:
    CALLS.append(number)
    if number == 13:
        raise OSError(5, "Input/output error")
    return {"sum": number + offset}


def cells(settings: Settings) -> list[Cell]:
    count = 2 if settings.quick else 3
    return [Cell(f"cell{n}", add, {"number": n, "offset": OFFSET["value"]}) for n in range(count)]


def report(results: dict[str, dict], settings: Settings) -> Report:
    total = sum(found["sum"] for found in results.values())
    rows = [Comparison("table 1", "a sum | with a bar", "3", str(total), "<b>")]
    checks = [Statement("the sum is above <2>", total > 2, str(total), "more than 2")]
    return Report("Sums <script>", "A lead.", rows, [("sums", "Sums", "<p>drawn</p>")], ["A note."], checks)


EXPERIMENT = Experiment("tiny", "three sums", cells, report)
NEEDY = EXPERIMENT._replace(name="needy", corpora=("nowhere/data.gz",))
