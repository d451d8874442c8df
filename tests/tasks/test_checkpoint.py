"""Interrupted trainings: they go on to the same bytes, after an exception, a signal, a kill or a full disk."""

import json
import os
import resource
import signal
import sys

import numpy as np
import pytest
from small_project import Background
from stage_runs import set_options, small_params, tree

from espalier.engine.errors import EspalierError
from espalier.engine.optimise.solver_state import SolverState
from espalier.engine.optimise.solvers import SOLVERS
from espalier.engine.parts.sharded_objective import ShardedObjective
from espalier.tasks import store, train
from espalier.tasks.progress import Progress
from espalier.tasks.training import checkpoint
from espalier.tasks.training.checkpoint import FOLDER, Checkpoint, key_of
from espalier.tasks.training.job import Options

BLOCK = 150  # positions of a block: the 900 of the project are six
RESULT = (store.CANDIDATE, store.TRACE)


def params_of(solver="owlqn", **train):
    params = small_params()
    params.crf.solver, params.train.checkpoint_seconds = solver, 0
    if not SOLVERS[solver].accepts_l1:
        params.crf.rho1, params.crf.rho2 = 0.0, 0.1
    return set_options(params, **train)


class Interrupting(Progress):
    """Raises after some iterations; remembers what it was told."""

    def __init__(self, after=None, error=KeyboardInterrupt):
        self.after, self.error, self.heard, self.notes = after, error, [], []

    def step(self, n=1, note=""):
        self.notes.append((n, note))
        if self.after is not None and len(self.notes) > self.after:
            raise self.error

    def say(self, text):
        self.heard.append(text)


def result_of(project, params, progress=None, block_tokens=BLOCK):
    train.main(project, params, progress or Progress(), block_tokens)
    return [(project / path).read_bytes() for path in RESULT]


def states(project):
    return sorted((project / FOLDER).glob("*")) if (project / FOLDER).exists() else []


# ---- going on


WAYS = [(solver, BLOCK) for solver in ("lbfgs", "owlqn", "pqn", "hybrid", "cg-fr", "cg-pr", "sbcd")]
AGAIN = [(solver, 10**6) for solver in ("lbfgs", "owlqn", "pqn", "sbcd", "hybrid")]  # in one block
WAYS += AGAIN + [(solver, 10**6) for solver in ("sgd", "cd", "iis", "gis")]


def test_every_solver_is_interrupted():
    assert {solver for solver, _ in WAYS} == set(SOLVERS)


@pytest.mark.parametrize(
    "solver, block_tokens",
    [pytest.param(*way, marks=[pytest.mark.long] if way in AGAIN else []) for way in WAYS],
)
def test_interrupted_again_and_again_it_ends_with_the_same_bytes(project, solver, block_tokens):
    params = params_of(solver, tolerance=0.0, max_iterations=12)
    expected = result_of(project, params, block_tokens=block_tokens)
    for path in RESULT:
        (project / path).unlink()
    said = []
    for after in (0, 1, 5, 3):
        progress = Interrupting(after)
        with pytest.raises(KeyboardInterrupt):
            result_of(project, params, progress, block_tokens)
        said += progress.heard
    assert len(states(project)) == 1 and not (project / store.CANDIDATE).exists()
    progress = Interrupting()
    assert result_of(project, params, progress, block_tokens) == expected
    assert "where an earlier run was interrupted" in " ".join(said + progress.heard)
    assert sum(n for n, _ in progress.notes) == json.loads(expected[1].splitlines()[-1])["iteration"]
    assert states(project) == [] and not (project / FOLDER).exists()
    timing = store.read_jsonl(project / store.TIMING)
    assert all(a["seconds"] <= b["seconds"] for a, b in zip(timing, timing[1:], strict=False))


def test_it_does_go_on_and_not_begin_anew(project, monkeypatch):
    params = params_of()
    with pytest.raises(KeyboardInterrupt):
        result_of(project, params, Interrupting(8))
    state = Checkpoint(project, states(project)[0].stem, 0, print).earlier()
    assert state.iteration == 8 and len(state.pairs) == 8 and len(state.history) == 9
    begun = []
    original = ShardedObjective.value_and_gradient
    monkeypatch.setattr(
        ShardedObjective, "value_and_gradient", lambda self, theta: begun.append(theta) or original(self, theta)
    )
    result_of(project, params)
    assert not any(np.array_equal(theta, np.zeros_like(theta)) for theta in begun)
    assert len(begun) < 15


def test_the_last_state_is_enough_when_only_the_model_could_not_be_written(project, monkeypatch):
    expected, params = result_of(project, params_of()), params_of()
    monkeypatch.setattr(store, "write_model", lambda path, model: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space left") as caught:
        result_of(project, params)
    assert "interrupted after iteration 15; the same command goes on from there" in caught.value.__notes__[0]
    monkeypatch.undo()
    monkeypatch.setattr(ShardedObjective, "value_and_gradient", None)  # nothing is left to compute
    assert result_of(project, params) == expected


def test_a_state_is_written_at_most_every_so_many_seconds(tmp_path):
    now = [0.0]
    kept = Checkpoint(tmp_path, "key", 60, print, clock=lambda: now[0])
    for second, expected in ((10, None), (59, None), (61, 61), (100, 61), (122, 122)):
        now[0] = second
        kept.offer(SolverState(np.zeros(2), 1.0, np.zeros(2), second, 1, None))
        found = Checkpoint(tmp_path, "key", 60, lambda text: None).earlier()
        assert (found and found.iteration) == expected
    assert kept.save() and Checkpoint(tmp_path, "key", 60, lambda text: None).earlier().iteration == 122


def test_null_keeps_no_state(project):
    params = params_of(checkpoint_seconds=None)
    with pytest.raises(KeyboardInterrupt) as caught:
        result_of(project, params, Interrupting(5))
    assert states(project) == [] and not hasattr(caught.value, "__notes__")


def test_a_refusal_is_no_interruption(project):
    params = params_of("lbfgs", rho1=0.5)
    with pytest.raises(EspalierError, match="lbfgs cannot take rho1") as caught:
        result_of(project, params)
    assert not hasattr(caught.value, "__notes__")


# ---- the file


def test_a_state_is_the_same_after_it_was_written_and_read(tmp_path):
    rng = np.random.default_rng(0)
    vectors = [rng.normal(size=7) for _ in range(6)]
    vectors[0][:3] = [0.0, -0.0, 5e-324]
    pairs, history = (
        [tuple(vectors[2:4]), tuple(vectors[4:])],
        [{"iteration": 0, "objective": 1 / 3, "gradient_norm": 0.5}],
    )
    state = SolverState(vectors[0], 0.1 + 0.2, vectors[1], 4, 9, None, pairs, history)
    kept = Checkpoint(tmp_path, "key", 0, print, [0.25])
    kept.offer(state)
    times, heard = [], []
    found = Checkpoint(tmp_path, "key", 0, heard.append, times).earlier()
    assert found.theta.tobytes() == state.theta.tobytes() and found.gradient.tobytes() == state.gradient.tobytes()
    for mine, other in zip(found.pairs, state.pairs, strict=True):
        assert [v.tobytes() for v in mine] == [v.tobytes() for v in other]
    assert (found.loss, found.iteration, found.evaluations, found.reason, found.history) == (
        state.loss, 4, 9, None, state.history)  # fmt: skip
    assert times == [0.25] and heard == ["going on after iteration 4, where an earlier run was interrupted"]


@pytest.mark.parametrize("how", ["cut", "a byte changed", "empty", "something else"])
def test_a_damaged_state_is_told_of_and_left(project, how):
    expected, params = result_of(project, params_of()), params_of()
    with pytest.raises(KeyboardInterrupt):
        result_of(project, params, Interrupting(5))
    (path,) = states(project)
    data, middle = path.read_bytes(), path.stat().st_size // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    changed = {"cut": data[:-100], "empty": b"", "something else": b"hello", "a byte changed": flipped}
    path.write_bytes(changed[how])
    progress = Interrupting()
    assert result_of(project, params, progress) == expected
    assert f"{path} is damaged" in progress.heard[0] and progress.heard[0].endswith("training starts anew")
    assert states(project) == []


def rewrite(path, **changed):
    """The same file with other arrays in it, as a person or a program might leave it."""
    with np.load(path) as found:
        arrays = {name: found[name] for name in found.files}
    np.savez(path, **arrays | {name: change(arrays[name]) for name, change in changed.items()})


def with_nan(vector):
    return np.where(np.arange(len(vector)) == 1, np.nan, vector)


def with_meta(**changed):
    return lambda meta: np.frombuffer(json.dumps(json.loads(meta.tobytes()) | changed).encode(), np.uint8)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"theta": with_nan}, "theta[1] is not finite"),
        ({"gradient": lambda v: v + np.inf}, "gradient[0] is not finite"),
        ({"y0": with_nan}, "y0[1] is not finite"),
        ({"theta": lambda v: v[:-1], "gradient": lambda v: v[:-1]}, "weights, expected"),
        ({"s0": lambda v: v[:-1]}, "s0 has"),
        ({"theta": lambda v: v.astype(str)}, "theta is not a row of numbers"),
        ({"meta": with_meta(loss=float("nan"))}, "loss nan"),
        ({"meta": with_meta(reason="tired")}, "a reason to stop that is not known"),
        ({"meta": with_meta(history=[[]])}, ""),
        ({"meta": with_meta(times=[])}, "0 times of 6 iterations"),
        ({"meta": with_meta(pairs="many")}, ""),
        ({"meta": with_meta(extra=3)}, ""),
    ],
)  # fmt: skip
def test_a_state_that_no_solver_can_go_on_from_is_told_of_and_left(project, changed, why):
    expected, params = result_of(project, params_of()), params_of()
    with pytest.raises(KeyboardInterrupt):
        result_of(project, params, Interrupting(5))
    (path,) = states(project)
    rewrite(path, **changed)
    progress = Interrupting()
    assert result_of(project, params, progress) == expected
    assert f"{path} is damaged (" in progress.heard[0] and why in progress.heard[0]
    assert progress.heard[0].endswith("and will be replaced: training starts anew")


def test_a_state_of_something_else_is_not_found(project, monkeypatch):
    manifest, params = store.read_manifest(project), params_of()
    shards = store.Shards(project, "train", manifest).described()["hashes"]
    key = key_of(project, Options.of(params), manifest, shards, BLOCK)
    for name in ("threads", "cluster", "checkpoint_seconds"):
        assert key_of(project, Options.of(params_of(**{name: 3})), manifest, shards, BLOCK) == key
    others = {
        key_of(project, Options.of(params_of(**{name: value})), manifest, shards, BLOCK)
        for name, value in (("rho1", 0.25), ("max_iterations", 9), ("pairs", "seen"), ("solver", "pqn"))
    }
    others.add(key_of(project, Options.of(params), manifest | {"data_version": "0"}, shards, BLOCK))
    others.add(key_of(project, Options.of(params), manifest, shards | {"train/00000.arrow": "0"}, BLOCK))
    others.add(key_of(project, Options.of(params), manifest, shards, BLOCK + 1))
    weights, _ = store.read_arrow(project / store.WEIGHTS)
    store.write_arrow(project / store.WEIGHTS, weights, {"other": 1})
    others.add(key_of(project, Options.of(params), manifest, shards, BLOCK))
    (project / "pinned.model").write_bytes((project / store.CANDIDATE).read_bytes())
    others.add(key_of(project, Options.of(params_of(initial="pinned.model")), manifest, shards, BLOCK))
    before = key_of(project, Options.of(params), manifest, shards, BLOCK)
    monkeypatch.setenv("NUMBA_CPU_NAME", "another")
    after = key_of(project, Options.of(params), manifest, shards, BLOCK)
    assert after != before, "the bytes depend on the compile target"
    assert len(others | {key}) == 10


def test_few_states_are_kept(tmp_path):
    for i in range(6):
        kept = Checkpoint(tmp_path, f"key{i}", 0, print)
        kept.offer(SolverState(np.zeros(1), 0.0, np.zeros(1), 1, 1, None, [], []))
        os.utime(kept.path, (i, i))
    kept.last = SolverState(np.zeros(1), 0.0, np.zeros(1), 2, 1, None, [], [])
    kept.save()
    assert [path.stem for path in states(tmp_path)] == ["key3", "key4", "key5"]


def test_half_a_file_of_a_killed_process_goes_away(tmp_path):
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / ".key.npz.123.tmp").write_bytes(b"half")
    (tmp_path / FOLDER / ".other.npz.123.tmp").write_bytes(b"half")
    assert Checkpoint(tmp_path, "key", 0, print).earlier() is None
    assert [path.name for path in states(tmp_path)] == [".other.npz.123.tmp"]


# ---- a full disk


@pytest.fixture
def files_below():
    """Within it no file may become larger; writing more is the error of a full disk, with another number."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, before if size is None else (size, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_does_not_end_the_training(project, files_below):
    expected, params = result_of(project, params_of()), params_of()
    size = max((project / path).stat().st_size for path in RESULT)
    files_below(size + 4096)
    progress = Interrupting()
    assert result_of(project, params, progress) == expected
    told = [text for text in progress.heard if "could not be saved" in text]
    assert told and "after iteration" in told[0] and "File too large" in told[0]
    assert states(project) == [] and not list(project.rglob("*.tmp"))


def test_a_disk_that_is_full_at_the_end_loses_no_finished_iteration(project, files_below):
    expected = result_of(project, params_of())
    before = tree(project)
    params = params_of(checkpoint_seconds=0)
    with pytest.raises(KeyboardInterrupt):
        result_of(project, params, Interrupting(12))
    files_below(100)
    with pytest.raises(OSError):
        result_of(project, params)
    assert not list(project.rglob("*.tmp"))
    assert {name: data for name, data in tree(project).items() if FOLDER not in name} == before  # the model before it
    files_below(None)
    progress = Interrupting()
    assert result_of(project, params, progress) == expected
    assert "going on after iteration 12" in progress.heard[0]


# ---- signals and kills of a real process

SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_checkpoint import params_of
from espalier.flows.signals import ending_cleanly
from espalier.tasks import train
from espalier.tasks.progress import Progress

class Lines(Progress):
    def step(self, n=1, note=""):
        print("step", note, flush=True)
    def say(self, text):
        print("say", text, flush=True)

try:
    with ending_cleanly():
        train.main(Path({project!r}), params_of({solver!r}), Lines(), {block})
except SystemExit as error:
    print(*error.__notes__, flush=True)
    raise
print("done", flush=True)
"""


def background(project, solver="owlqn"):
    tests = os.path.dirname(os.path.abspath(__file__))
    code = SCRIPT.format(tests=tests, project=str(project), solver=solver, block=BLOCK)
    return Background("-c", code, cwd=project, PYTHONPATH=os.pathsep.join(p for p in sys.path if p))


@pytest.mark.slow
@pytest.mark.parametrize("solver", [pytest.param("owlqn", marks=pytest.mark.long), "pqn"])
def test_killed_at_any_time_it_goes_on_to_the_same_bytes(project, solver):
    expected = result_of(project, params_of(solver))
    for path in RESULT:
        (project / path).unlink()
    for steps in (1, 4, 2):
        with background(project, solver) as process:
            for _ in range(steps):
                process.wait_for("step", 600)
            assert process.end(signal.SIGKILL) == -signal.SIGKILL
        assert not (project / store.CANDIDATE).exists()
    with background(project, solver) as process:
        assert "going on after iteration" in process.wait_for("say", 600)
        process.wait_for("done", 600)
    assert [(project / path).read_bytes() for path in RESULT] == expected
    assert states(project) == []


@pytest.mark.slow
def test_asked_to_end_it_saves_and_says_so(project):
    expected, params = result_of(project, params_of()), params_of()
    before = tree(project)
    with background(project) as process:
        process.wait_for("step", 600)
        process.wait_for("step", 600)
        process.process.send_signal(signal.SIGTERM)
        words = process.wait_for("training was interrupted after iteration", 600)
        assert process.process.wait(600) == 143
    assert "the same command goes on from there" in words
    assert {name: data for name, data in tree(project).items() if FOLDER not in name} == before
    progress = Interrupting()
    assert result_of(project, params, progress) == expected
    assert progress.heard and checkpoint.FOLDER not in " ".join(tree(project))
