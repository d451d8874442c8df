"""Where each artefact lies, which stage makes it, and what is said when one is missing or damaged."""

from pathlib import Path

from espalier.engine.errors import EspalierError, brief

SPLITS = ("train", "dev", "test", "unlabelled")
TOKENS = "data/tokens/{}.arrow"
PROFILE = "data/tokens/profile.json"
FEATURES = "data/features"
MANIFEST = "data/features/manifest.json"
VOCABULARY = "data/features/vocabulary.arrow"
WEIGHTS = "data/weights/train.arrow"
CLUSTERS = "data/weights/clusters.json"
CANDIDATE = "models/candidate.model"
TRACE = "models/trace.jsonl"
TIMING = "models/timing.jsonl"
RHO1_PATH = "models/path.json"
CHAMPION = "models/champion.model"
START = "models/start.model"
DECISIONS = "models/decisions.jsonl"
HISTORY = "models/history.jsonl"
ARCHIVE = "models/archive"
METRICS = "reports/metrics.json"
PREDICTIONS = "reports/predictions.arrow"
CURVES = "reports/curves"
REPORT = "reports/report.html"
DECISION = "reports/decision.html"
NEWS = "reports/news.json"
KNOWN = ".espalier/known/version.json"
MARKER = ".espalier/run.json"

MADE_BY = {"data/tokens": "ingest", "data/features": "template", "data/weights": "weigh", "models": "train",
           "reports": "evaluate"}  # fmt: skip
# What helps where no stage makes the file again.
RECORD = "restore it with `dvc checkout` or `git checkout`, or mend it by hand: nothing makes it again"
REMEDIES = {HISTORY: RECORD, DECISIONS: RECORD, NEWS: "`espalier run` writes it again",
            "decision.json": "remove its folder from the archive, or restore it with `dvc checkout`"}  # fmt: skip


def _stage_of(path: Path) -> str | None:
    """The stage that makes a file; the last folder counts, whatever those above the project are called."""
    text = f"/{path.as_posix()}"
    found = {text.rfind(f"/{place}/"): stage for place, stage in MADE_BY.items()}
    return found[max(found)] if max(found) >= 0 else None


def missing(path: Path) -> EspalierError:
    """The error for a file that is not there: it names the stage to run first."""
    stage = _stage_of(path)
    remedy = f"; run `espalier stage {stage}` first" if stage else ""
    return EspalierError(f"{path}: there is no such file{remedy}")


def _remedy(path: Path) -> str:
    """What to do about a damaged file."""
    for end, words in REMEDIES.items():
        if path.as_posix().endswith(end):
            return words
    stage = _stage_of(path)
    return f"{f'run `espalier stage {stage}` again' if stage else 'make it again'} or restore it with `dvc checkout`"


def damaged(path: Path, error: Exception) -> EspalierError:
    """The error for a file that cannot be used because of `error`: it names file, fault and remedy."""
    text = brief((str(error) or type(error).__name__).splitlines()[0])
    text = "brackets too deep inside each other" if isinstance(error, RecursionError) else text
    return EspalierError(f"{path}: damaged or not what it should be ({text}); {_remedy(path)}")
