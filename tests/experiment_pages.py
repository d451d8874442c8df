"""An experiment run the short way, cell by cell through JSON as when cells are kept, and its page looked at."""

import json
from pathlib import Path

from espalier.tasks.experiments import Report, Settings, experiment
from espalier.tasks.experiments.writing import html, markdown


def shown(name: str, folder: Path) -> tuple[dict[str, dict], Report]:
    """(results of all cells, the report), behind a check that the page has a drawing, statements and no NaN."""
    settings, chosen = Settings(True, folder), experiment(name)
    results = {cell.key: json.loads(json.dumps(cell.function(**cell.arguments, **cell.files)))
               for cell in chosen.cells(settings)}  # fmt: skip
    report = chosen.report(results, settings)
    page, text = html(report, settings), markdown(report, settings)
    assert "<svg" in page and "What must hold" in page and "What must hold" in text
    assert "nan" not in page.partition("<script")[0].lower()
    return results, report
