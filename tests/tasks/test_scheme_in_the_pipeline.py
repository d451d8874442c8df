"""`crf.scheme` through the stages: training without forbidden transitions, answers that keep to it, refusals."""

import pytest
from stage_runs import run_stages, set_options, small_params

from espalier.engine.errors import EspalierError
from espalier.engine.families import load
from espalier.tasks import store, train
from espalier.tasks.answering.asked import Asked
from espalier.tasks.answering.stream import tag_file
from espalier.tasks.progress import Progress
from espalier.tasks.training import plan

SENTENCES = "".join(
    f"{a} B-PER\n{b} I-PER\nsaw O\n{c} B-LOC\n\n{c} B-LOC\nfell O\n\n"
    for a, b, c in (("Ann", "Lee", "Rome"), ("Bob", "Poe", "Bonn"), ("Lee", "Ann", "Linz"), ("Eve", "Bob", "Graz"))
)


def params_of(**options):
    params = small_params()
    params.ingest.source, params.ingest.path, params.ingest.limit = "files", "all.conll", None
    params.ingest.dev_share, params.ingest.test_share = 0.2, 0.2
    params.template.lines, params.weigh.clusters = ["U:%x[0,0]", "B"], 0
    return set_options(params, **{"solver": "auto", "rho1": 0.01, "scheme": "auto"} | options)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "all.conll").write_text(SENTENCES, encoding="utf-8")
    run_stages(tmp_path, params_of(), "ingest", "template", "weigh")
    return tmp_path


def refusal(root, **options):
    with pytest.raises(EspalierError) as refused:
        train.main(root, params_of(**options), Progress())
    return str(refused.value)


def test_stages(folder):
    params = params_of()
    assert plan.main(folder, params)["features"] > 0
    figures = run_stages(folder, params, "train", "evaluate")
    model = load(folder / store.CANDIDATE)
    assert model.info["scheme"] == "iob2" and figures["train"]["features"] > 0
    (folder / "new.conll").write_text("Lee\nPoe\n\nPoe\n", encoding="utf-8")
    said = b"".join(tag_file(model, str(folder / "new.conll"), Asked())).decode().split()
    assert said[3::2][-1] != "I-PER"
    (folder / "known.conll").write_text("saw O\nPoe I-PER\n", encoding="utf-8")
    with pytest.raises(EspalierError, match=r"line 1 of .*known.conll on has no labelling .*\(iob2\) allows"):
        b"".join(tag_file(model, str(folder / "known.conll"), Asked(known=1)))


def test_what_cannot_train_so_is_refused(folder):
    assert refusal(folder, solver="sbcd").startswith(
        "crf.solver is sbcd, which moves weights by sequences or blocks, and with crf.scheme = auto training has a "
        "gradient alone: choose one of "
    )
    said = refusal(folder, cluster="local:2")
    assert said.startswith("crf.scheme is auto, which needs all sequences in one process")
    assert refusal(folder, scheme="bioes").startswith("training sequence 1 has O after B-LOC, which")
    assert refusal(folder, scheme="iob1").startswith("training sequence ")
    params = params_of()
    params.ingest.path = "broken.conll"
    (folder / "broken.conll").write_text(SENTENCES.replace("saw O\n", "saw I-LOC\n"), encoding="utf-8")
    run_stages(folder, params, "ingest", "template", "weigh")
    assert refusal(folder).endswith(
        "has I-LOC after I-PER, which the scheme forbids: mend its labels, convert them from another scheme, or set "
        "crf.scheme to null"
    )
