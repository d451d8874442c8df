"""Earlier models: kept whole, put back by a step or a hash, brought out again, and cleared away in time."""

import shutil

import pytest
from stage_runs import small_params, tree
from test_promote import decide, spoil

from espalier.engine.errors import EspalierError
from espalier.engine.families import load as load_model
from espalier.tasks import report, store
from espalier.tasks.keeping import archive, history
from espalier.tasks.progress import Progress


@pytest.fixture
def reported(project):
    report.main(project, small_params(), Progress())
    return project


def model(number):
    """A hash."""
    return f"{number:x}" * 64


def promoted(number, **more):
    return {"model_sha256": model(number), "promoted": True, "reason": f"r{number}", "time": "2026-01-02"} | more


def back(number):
    return promoted(number, kind=history.ROLLBACK)


def variant(project, factor):
    """Another candidate that says the same: all weights larger."""
    path = project / store.CANDIDATE
    changed = load_model(path)
    changed.theta = changed.theta * factor
    changed.save(path)
    return store.file_hash(path)


# ---- reigns


@pytest.mark.parametrize(
    ("decisions", "line", "away"),
    [
        ([], [], []),
        ([promoted(1), promoted(2) | {"promoted": False}, promoted(3)], [1, 3], []),
        ([promoted(1), promoted(1)], [1], []),
        ([promoted(1), promoted(2), back(1)], [1], [2]),
        ([promoted(1), promoted(2), promoted(3), back(1)], [1], [2, 3]),
        ([promoted(1), promoted(2), back(1), promoted(3), back(1)], [1], [2, 3]),
        ([promoted(1), promoted(2), back(1), promoted(2)], [1, 2], []),
        ([promoted(1), promoted(2), back(1), back(2)], [1, 2], []),
        ([promoted(1), promoted(2), promoted(1), back(2)], [1, 2], [1]),
    ],
)
def test_reigns_and_what_was_rolled_back(decisions, line, away):
    assert archive.reigns(decisions) == [model(n) for n in line]
    assert sorted(archive.rolled_back(decisions)) == [model(n) for n in away]


# ---- what is kept


def test_a_decision_keeps_model_report_figures_and_parameters(reported):
    decision = decide(reported)
    kept = archive.folder(reported, decision["id"])
    for name, path in archive.FILES.items():
        if name != "dvc.lock":
            assert (kept / name).read_bytes() == (reported / path).read_bytes(), name
    assert store.read_json(kept / "decision.json") == decision
    used = (kept / "params.yaml").read_text()
    assert "max_iterations: 15" in used and "notify" not in used
    assert archive.names(reported) == [decision["id"]] and decision["id"].endswith(decision["model_sha256"][:12])


def test_a_report_of_another_model_is_not_kept_with_it(reported):
    spoil(reported / store.CANDIDATE)
    model_of = load_model(reported / store.CANDIDATE)
    model_of.info["objective"] += 1
    model_of.save(reported / store.CANDIDATE)
    kept = archive.folder(reported, decide(reported)["id"])
    assert sorted(path.name for path in kept.iterdir()) == ["candidate.model", "decision.json", "params.yaml"]


def test_the_newest_runs_and_champions_are_kept_and_others_cleared_away(project):
    first = decide(project, keep=2)
    spoil(project / store.CANDIDATE)
    refused = [decide(project, keep=2)["id"] for _ in range(4)]
    assert archive.names(project) == [first["id"], *refused[-2:]], "the champion stays however old"
    assert len(store.read_jsonl(project / store.DECISIONS)) == 5
    decide(project, keep=None)
    assert len(archive.names(project)) == 4


def test_a_champion_of_which_nothing_is_kept_is_kept_when_it_goes(project):
    """As in a project of an earlier version, or after someone has removed the archive."""
    before = decide(project)["model_sha256"]
    shutil.rmtree(project / store.ARCHIVE)
    variant(project, 1.5)
    assert decide(project)["promoted"]
    assert archive.kept_as(project, before) is not None
    archive.roll_back(project, archive.earlier_champion(project, "1"), "anna", None)
    assert store.file_hash(project / store.CHAMPION) == before


# ---- roll back


def test_rolling_back_puts_the_earlier_champion_in_its_place_and_records_it(reported):
    first = decide(reported)
    second = variant(reported, 1.5)
    assert decide(reported)["model_sha256"] == second
    candidate = (reported / store.CANDIDATE).read_bytes()
    record = archive.roll_back(reported, archive.earlier_champion(reported, "1"), "anna@laptop", "it stammers")
    assert store.file_hash(reported / store.CHAMPION) == first["model_sha256"] == record["model_sha256"]
    assert record["from_sha256"] == second and record["restored_from"] == first["id"]
    assert record["reason"] == "rolled back by anna@laptop: it stammers"
    assert store.read_jsonl(reported / store.DECISIONS)[-1] == record
    assert "it stammers" in (reported / store.DECISION).read_text(encoding="utf-8")
    assert (reported / store.CANDIDATE).read_bytes() == candidate
    with pytest.raises(EspalierError, match="cannot go back by 1: the number of earlier champions on record is 0"):
        archive.earlier_champion(reported, "1")


def test_what_was_rolled_back_does_not_come_back_by_itself(project):
    decide(project)
    digest = variant(project, 1.5)
    decide(project)
    archive.roll_back(project, archive.earlier_champion(project, "1"), "anna", "it stammers")
    decision = decide(project)
    assert not decision["promoted"] and decision["model_sha256"] == digest
    assert decision["reasons"][-1].startswith("this very model was rolled back by anna: it stammers (20")
    assert decide(project, force=True)["promoted"]
    assert decide(project)["promoted"], "forced once, it is a champion as any other"


def test_a_champion_is_named_by_steps_or_by_its_hash(project):
    hashes = [decide(project)["model_sha256"]]
    for factor in (1.5, 1.1, 1.2):
        variant(project, factor)
        hashes.append(decide(project)["model_sha256"])
    assert [archive.earlier_champion(project, str(n)) for n in (1, 2, 3)] == hashes[2::-1]
    assert archive.earlier_champion(project, hashes[1][:16]) == hashes[1]
    archive.roll_back(project, hashes[1], "anna", None)
    assert archive.earlier_champion(project, "1") == hashes[0]
    assert archive.earlier_champion(project, hashes[3]) == hashes[3], "forward, too"
    for text, what in (("4", "cannot go back by 4"), ("0", "cannot go back by 0"), ("f00d", "no champion 'f00d'"),
                       (hashes[1], "is the champion already"), ("", "no champion ''")):  # fmt: skip
        with pytest.raises(EspalierError, match=what):
            archive.earlier_champion(project, text)


def test_a_champion_that_was_lost_or_put_there_by_hand(project):
    """Steps count from what is there; what is missing can be put back by its hash."""
    digest = decide(project)["model_sha256"]
    (project / store.CHAMPION).unlink()
    assert archive.earlier_champion(project, digest[:10]) == digest
    variant(project, 1.5)
    shutil.copy(project / store.CANDIDATE, project / store.CHAMPION)
    assert archive.earlier_champion(project, "1") == digest


def test_a_damaged_record_in_the_archive_stands_in_nobodys_way(project):
    first = decide(project)
    (archive.folder(project, first["id"]) / "decision.json").write_text("{")
    variant(project, 1.5)
    assert decide(project)["promoted"]
    assert archive.kept_as(project, first["model_sha256"]) not in (None, first["id"]), "kept once more when it went"


def test_a_damaged_or_missing_copy_is_an_error_that_changes_nothing(project):
    first = decide(project)
    variant(project, 1.5)
    decide(project)
    path = archive.folder(project, first["id"]) / "candidate.model"
    path.write_bytes(path.read_bytes()[:-1])
    before = tree(project)
    with pytest.raises(EspalierError, match="candidate.model: damaged, its hash is not"):
        archive.roll_back(project, first["model_sha256"], "anna", None)
    assert tree(project) == before
    shutil.rmtree(path.parent)
    with pytest.raises(EspalierError, match="is not in .*archive: only the newest champions are kept"):
        archive.roll_back(project, first["model_sha256"], "anna", None)


# ---- restore


def test_any_retraining_is_restored_into_a_folder_or_in_place(reported, tmp_path):
    first = decide(reported)
    files = {name: (reported / path).read_bytes() for name, path in archive.FILES.items() if (reported / path).exists()}
    spoil(reported / store.CANDIDATE)
    second = decide(reported)
    assert not second["promoted"]
    (reported / store.REPORT).write_text("another", encoding="utf-8")
    made = archive.restore(reported, second["id"], tmp_path / "out")
    assert (tmp_path / "out" / "candidate.model").read_bytes() == (reported / store.CANDIDATE).read_bytes()
    assert store.read_json(tmp_path / "out" / "decision.json") == second and tmp_path / "out" / "params.yaml" in made
    archive.restore(reported, first["id"], None)
    for name in archive.IN_PLACE:
        assert (reported / archive.FILES[name]).read_bytes() == files[name]


def test_nothing_is_restored_over_what_is_there(project, tmp_path):
    decision = decide(project)
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(EspalierError, match="is there already and not an empty folder; choose another with --to"):
        archive.restore(project, decision["id"], tmp_path)
    with pytest.raises(EspalierError, match="nothing is kept of this retraining"):
        archive.restore(project, "20260101-000000-abc", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "/", "../archive", "*"])
def test_what_names_no_retraining_restores_nothing(project, tmp_path, name):
    """Not even where there is only one, whose name begins with nothing, too."""
    decide(project)
    with pytest.raises(EspalierError, match="nothing is kept of this retraining"):
        archive.restore(project, name, tmp_path / "out")
    with pytest.raises(EspalierError, match="no champion"):
        archive.earlier_champion(project, name)
    assert not (tmp_path / "out").exists()
