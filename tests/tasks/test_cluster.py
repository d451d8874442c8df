"""Parts of the data on Dask workers: the same bytes as in one process, also when workers, shards or schedulers go."""

import fcntl
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from small_project import Background, eventually
from stage_runs import run_stages, small_params

from espalier.engine.errors import EspalierError
from espalier.engine.optimise.penalty import ElasticNet
from espalier.engine.optimise.solvers import minimise
from espalier.engine.parts.sharded_objective import InProcess, Part, ShardedObjective, cover, cut
from espalier.engine.semisup import mixture
from espalier.engine.weights.layout import dense_layout, observation_kinds
from espalier.tasks import store, train
from espalier.tasks.cluster import blocks, sharing, training, worker, workers
from espalier.tasks.progress import Progress
from espalier.tasks.training import plan
from espalier.tasks.training.checkpoint import FOLDER

BLOCK = 150  # positions of a block: the 900 of the project are six
RESULT = (store.CANDIDATE, store.TRACE)


def dask_is_here():
    try:
        import distributed  # noqa: F401
    except ImportError:
        return False
    return True


needs_dask = pytest.mark.skipif(not dask_is_here(), reason="Dask is not installed: pip install 'espalier-crf[cluster]'")


class Data:
    """The training data of a project, and the bytes of the objective over them in one process."""

    def __init__(self, root, block_tokens=BLOCK):
        self.root, manifest = root, store.read_manifest(root)
        self.shards = store.Shards(root, "train", manifest)
        self.bounds = cut(self.shards.offsets(), block_tokens)
        kinds = observation_kinds(store.read_vocabulary(root)["observation"].to_list())
        self.layout = dense_layout(len(manifest["labels"]), kinds)
        weights = store.read_weights(root)
        part = Part((self.shards.read(*b, weights) for b in self.bounds), 0, len(self.bounds), self.layout)
        self.here = ShardedObjective(InProcess([part]), self.layout)
        rng = np.random.default_rng(0)
        self.thetas = [rng.normal(size=self.layout.size) for _ in range(2)]
        self.thetas.append(self.thetas[1] * (rng.random(self.layout.size) < 0.9))

    def pool(self, where="local:2", **options):
        return training.pool(where, self.root, self.shards, self.bounds, self.layout, "auto", **options)

    def expected(self):
        return [bytes_at(self.here, theta) for theta in self.thetas]


def bytes_at(objective, theta):
    value, gradient = objective.value_and_gradient(theta)
    return value, gradient.tobytes(), objective.value(theta), objective.observed.tobytes()


def result_of(project, params, block_tokens=BLOCK, progress=None):
    train.main(project, params, progress or Progress(), block_tokens)
    return [(project / path).read_bytes() for path in RESULT]


def nothing_left(project):
    jobs = project / sharing.JOBS
    return not jobs.exists() or not list(jobs.iterdir())


# ---- without a cluster


@pytest.mark.parametrize("text", ["local", "local:0", "local:x", "localhost:8786", "tcp:/x", "LOCAL:2", "local:-1"])
def test_a_cluster_that_is_none_is_refused(text):
    with pytest.raises(EspalierError, match=f"compute.cluster is '{text}': expected null, local:N .* tcp://host:8786"):
        workers.parse(text)


def test_what_a_cluster_may_be():
    assert workers.parse("local:4") == 4 and workers.parse("tcp://10.0.0.1:8786") == "tcp://10.0.0.1:8786"


@pytest.mark.parametrize("blocks", [1, 2, 3, 7, 64, 2000])
@pytest.mark.parametrize("count", [1, 2, 5, 64])
def test_workers_get_about_equal_runs_with_few_nodes(blocks, count):
    found = workers.ranges(blocks, count)
    assert [b for lo, hi in found for b in range(lo, hi)] == list(range(blocks))
    sizes = [hi - lo for lo, hi in found]
    assert len(found) == min(blocks, count) and max(sizes) <= 1.15 * blocks / len(found) + 1
    assert max(len(cover(lo, hi, blocks)) for lo, hi in found) <= 8


@pytest.mark.parametrize("solver", ["cd", "iis", "gis", "sgd"])
def test_solvers_that_need_all_sequences_say_so(project, solver):
    params = small_params()
    params.crf.solver, params.compute.cluster = solver, "local:2"
    able = "lbfgs, owlqn, pqn, hybrid, sbcd, cg-fr"
    text = f"{solver} needs all sequences in one process .* compute.cluster = local:2: .* {able}"
    with pytest.raises(EspalierError, match=text):
        result_of(project, params)


@pytest.mark.parametrize("block_tokens", [BLOCK, 10**6])
@pytest.mark.parametrize("pairs", ["all", "seen"])
def test_shards_and_threads_leave_the_same_bytes_with_many_blocks(project, pairs, block_tokens):
    found = set()
    for shard_tokens, threads in ((10**6, None), (50, 1), (333, 2), (120, 4)):
        params = small_params()
        params.template.shard_tokens, params.compute.threads, params.crf.pairs = shard_tokens, threads, pairs
        run_stages(project, params, "template")
        found.add(tuple(result_of(project, params, block_tokens)))
    assert len(found) == 1


def test_any_run_of_sequences_is_read_across_shards(project):
    params = small_params()
    params.template.shard_tokens = 100
    run_stages(project, params, "template")
    shards = store.Shards(project, "train", store.read_manifest(project))
    assert len(shards.names) > 5
    whole, weights = shards.read_all(), np.arange(180.0)
    for lo, hi in ((0, 180), (0, 1), (17, 23), (19, 20), (20, 60), (179, 180)):
        part = shards.read(lo, hi, weights)
        first, last = whole.offsets[lo], whole.offsets[hi]
        assert np.array_equal(part.observations, whole.observations[first:last])
        assert np.array_equal(part.labels, whole.labels[first:last])
        assert np.array_equal(part.offsets, whole.offsets[lo : hi + 1] - first)
        assert np.array_equal(part.weights, weights[lo:hi])


def job_of(data, tmp_path):
    """The folder of a job as a driver leaves it for workers."""
    folder = tmp_path / "job"
    folder.mkdir()
    store.write_json(folder / "job.json", {
        "root": str(data.root), "manifest": data.shards.manifest, "known": data.shards.described(),
        "bounds": data.bounds, "weights": store.file_hash(data.root / store.WEIGHTS), "sparse": "auto", "threads": 1,
    })  # fmt: skip
    sharing.write_layout(folder, data.layout)
    return str(folder)


@pytest.fixture
def as_worker():
    """What a worker holds is forgotten afterwards."""
    from espalier.engine.runtime import threads

    yield
    worker._held.clear()
    threads.set_threads(None)


def test_a_layout_that_is_mapped_is_of_the_type_that_kernels_are_compiled_for(project, tmp_path):
    """Kernels would be compiled once more for arrays that are read-only; what a worker wrote would be its own."""
    folder = Path(job_of(Data(project), tmp_path))
    mapped, whole = (sharing.read_layout(folder, mapped) for mapped in (True, False))
    assert {field.flags.writeable for field in mapped if isinstance(field, np.ndarray)} == {True}
    mapped.unigram_code[:] = 0
    np.testing.assert_array_equal(sharing.read_layout(folder, True).unigram_code, whole.unigram_code)


def test_a_worker_sums_what_the_part_does(project, tmp_path, as_worker):
    data = Data(project)
    folder, theta = job_of(data, tmp_path), data.thetas[0]
    runs, nodes = blocks.prepare(folder, 1, 4)
    assert nodes == [(0, 1), (1, 1)]
    own = runs.take(theta)
    _, found = blocks.evaluate(folder, 1, 4, "gradient", ("whole", 1, own), None)
    np.save(tmp_path / "x.npy", theta)
    shared = sharing.shared_array(tmp_path / "theta", (len(theta),))
    shared[:] = theta
    out = str(tmp_path / "sums")
    _, by_file = blocks.evaluate(folder, 1, 4, "gradient", ("file", str(tmp_path / "theta"), len(theta)), out)
    rows = sharing.shared_array(tmp_path / "sums", (2, runs.size))
    for a, b, row in zip(found, by_file, rows, strict=True):
        assert (a.node, a.value) == (b.node, b.value) and a.vector.tobytes() == row.tobytes() and b.vector is None


def test_changes_are_relative_to_what_the_worker_has(project, tmp_path, as_worker):
    data = Data(project)
    folder = job_of(data, tmp_path)
    runs, _ = blocks.prepare(folder, 0, 6)
    first, second = (runs.take(theta) for theta in data.thetas[1:])
    changed = np.flatnonzero(first != second)
    message = ("changes", 1, 2, changed, second[changed])
    with pytest.raises(worker.Stale):
        blocks.evaluate(folder, 0, 6, "value", message, None)
    blocks.evaluate(folder, 0, 6, "value", ("whole", 1, first), None)
    for _ in range(2):  # asked twice, because an answer was lost
        (found,) = blocks.evaluate(folder, 0, 6, "gradient", message, None)[1]
        assert found.value == data.here.value_and_gradient(data.thetas[2])[0]


@pytest.mark.parametrize("how", ["gone", "cut"])
def test_a_shard_that_cannot_be_read_for_a_moment_is_read_later(project, tmp_path, as_worker, how):
    data = Data(project)
    folder, path = job_of(data, tmp_path), data.root / store.FEATURES / data.shards.names[0]
    whole = path.read_bytes()
    path.unlink()
    if how == "cut":
        path.write_bytes(whole[:-30])

    def mend():
        (tmp_path / "mended").write_bytes(whole)
        os.replace(tmp_path / "mended", path)

    timer = threading.Timer(0.7, mend)
    timer.start()
    begin = time.monotonic()
    assert blocks.prepare(folder, 0, 6)[1] == [(3, 0)]
    assert time.monotonic() - begin >= 0.5
    timer.join()


@pytest.mark.parametrize(
    "how, text",
    [
        ("gone", "there is no such file; run `espalier stage template` first"),
        ("other", "it has changed since the training began.*run `espalier stage templ"),
    ],
)
def test_a_shard_that_stays_away_or_has_changed_is_an_error(project, tmp_path, as_worker, monkeypatch, how, text):
    monkeypatch.setattr(worker, "PAUSE", 0.01)
    data = Data(project)
    folder, path = job_of(data, tmp_path), data.root / store.FEATURES / data.shards.names[0]
    if how == "gone":
        path.unlink()
    else:
        store.write_arrow(path, store.read_arrow(path)[0], {"another": "file"})
    with pytest.raises(EspalierError, match=f"train/00000.arrow: .*{text}"):
        blocks.prepare(folder, 0, 6)


def test_other_weights_are_an_error(project, tmp_path, as_worker, monkeypatch):
    monkeypatch.setattr(worker, "PAUSE", 0.01)
    data = Data(project)
    folder = job_of(data, tmp_path)
    table, _ = store.read_arrow(project / store.WEIGHTS)
    store.write_arrow(project / store.WEIGHTS, table, {"another": "file"})
    with pytest.raises(EspalierError, match="train.arrow: it has changed since the training began"):
        blocks.prepare(folder, 0, 6)


MAKER = """
import sys, time
from pathlib import Path
from espalier.tasks.cluster import sharing
with sharing.own_folder(Path(sys.argv[1])) as folder:
    (folder / "theta").write_bytes(b"x")
    print(folder, flush=True)
    time.sleep(300)
"""


def made_elsewhere(place, then_killed: bool):
    """A shared folder and the process that has made it."""
    process = Background("-c", MAKER, str(place), cwd=place)
    folder = Path(process.wait_for(str(place), 60))
    if then_killed:
        process.end(signal.SIGKILL)
    return folder, process


def test_a_shared_folder_outlives_its_maker_only_until_the_next_start(tmp_path, project, monkeypatch):
    """Also where the next one has no use for such a folder itself; nobody waits until it is old."""
    monkeypatch.setattr(sharing, "memory_folder", lambda: tmp_path)
    alive, process = made_elsewhere(tmp_path, then_killed=False)
    dead, _ = made_elsewhere(tmp_path, then_killed=True)
    another = tmp_path / dead.name.replace("-shared-", "-other-")  # not one of ours
    another.mkdir()
    with process:
        assert dead.is_dir() and str(process.process.pid) in alive.name
        sharing.clear_dead(project)
        assert (dead.exists(), alive.is_dir(), another.is_dir()) == (False, True, True)
        # The number of a process that died is that of another one now, and a folder is locked though its maker is not
        # among the processes that are seen here.
        reused, unseen = (tmp_path / f"espalier-shared-{who}-x" for who in (f"{process.process.pid}-1", "4194304-1"))
        for folder in (reused, unseen):
            folder.mkdir()
        with (unseen / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            sharing.clear_dead(project)
            assert (reused.exists(), unseen.is_dir(), alive.is_dir()) == (False, True, True)


def test_the_next_training_clears_what_a_dead_driver_left(tmp_path, project, monkeypatch):
    monkeypatch.setattr(sharing, "memory_folder", lambda: tmp_path)
    dead, _ = made_elsewhere(tmp_path, then_killed=True)
    train.main(project, small_params(), Progress())
    assert not dead.exists()


def test_shared_folders_go_away_in_the_end(tmp_path):
    foreign = tmp_path / "espalier-cache"
    foreign.mkdir()
    left = made_elsewhere(tmp_path, then_killed=True)[0]
    with sharing.own_folder(tmp_path) as mine:
        with sharing.own_folder(tmp_path) as other:
            assert mine.exists() and other.exists() and mine != other and not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["espalier-cache"]


def test_no_room_for_a_shared_array_is_an_error_at_once(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(OSError):
            sharing.shared_array(tmp_path / "large", (10_000,))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_without_dask_the_error_says_what_to_install(project):
    """In a process in which it cannot be imported."""
    code = (
        "import sys; sys.modules['dask'] = sys.modules['distributed'] = None\n"
        "from espalier.tasks.cluster import workers\n"
        "from espalier.engine.errors import EspalierError\n"
        "try:\n    workers.make_client(2).__enter__()\n"
        "except EspalierError as error:\n    print(error)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert "compute.cluster needs Dask" in done.stdout and "pip install 'espalier-crf[cluster]'" in done.stdout, done


# ---- local clusters


@needs_dask
@pytest.mark.slow
@pytest.mark.parametrize("workers, block_tokens", [
    (2, BLOCK), *(pytest.param(*way, marks=pytest.mark.long) for way in ((1, 10**6), (1, BLOCK), (4, BLOCK)))
])  # fmt: skip
def test_local_workers_leave_the_bytes_of_one_process(project, workers, block_tokens):
    params = small_params()
    expected = result_of(project, params, block_tokens)
    params.template.shard_tokens = 40 * workers
    run_stages(project, params, "template")
    params.compute.cluster = f"local:{workers}"
    assert result_of(project, params, block_tokens) == expected
    assert nothing_left(project)


@needs_dask
@pytest.mark.slow
@pytest.mark.long
def test_messages_and_shared_memory_bring_the_same_bytes(project):
    data = Data(project)
    expected = data.expected()
    for shared in (True, False):
        with data.pool(shared=shared, n_threads=4) as pool:
            assert pool.shared is shared and len(pool.ranges) == 2
            assert set(pool.client.run(budget).values()) == {2}  # the workers share the threads
            objective = ShardedObjective(pool, data.layout)
            assert [bytes_at(objective, theta) for theta in data.thetas] == expected
            objective.value(data.thetas[0])
            pool.moved = {"out": 0, "in": 0}
            objective.value_and_gradient(data.thetas[1])
            objective.value_and_gradient(data.thetas[2])
            if not shared:  # the second time only what has changed
                sizes = [runs.size for runs in pool.runs]
                assert 8 * sum(sizes) < pool.moved["out"] < 12 * sum(sizes)
                assert pool.moved["in"] == 2 * 8 * sum(
                    size * len(cover(*part, len(data.bounds))) for size, part in zip(sizes, pool.ranges, strict=True)
                )
    assert nothing_left(project)


def budget():
    from espalier.engine.runtime import threads

    return threads.threads()


@needs_dask
@pytest.mark.slow
@pytest.mark.long
def test_without_room_for_shared_memory_theta_goes_by_messages(project):
    data, said = Data(project), []
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with data.pool(shared=True, say=said.append) as pool:
        objective = ShardedObjective(pool, data.layout)
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, before[1]))
        try:
            assert [bytes_at(objective, theta) for theta in data.thetas] == data.expected()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert said == ["no shared memory (File too large): theta goes by messages"] and not pool.shared


@needs_dask
def test_another_cluster_on_this_machine_is_nothing_to_be_warned_of():
    """Warnings are errors here."""
    with socket.socket() as other:
        with suppress(OSError):  # it may be held by another already
            other.bind(("127.0.0.1", 8787))
            other.listen()
        with workers.make_client(0):
            pass


def worker_pids(pool):
    return pool.client.run(os.getpid)


@needs_dask
@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_worker_killed_in_the_middle_of_an_answer_changes_nothing(project, shared):
    """Stopped first, so that it surely has not answered when it is killed."""
    data, said = Data(project), []
    expected = data.expected()
    with data.pool(shared=shared, say=said.append) as pool:
        objective = ShardedObjective(pool, data.layout)
        assert bytes_at(objective, data.thetas[0]) == expected[0]
        pid = worker_pids(pool)[pool.place[1]]
        os.kill(pid, signal.SIGSTOP)
        timer = threading.Timer(1.0, os.kill, (pid, signal.SIGKILL))
        timer.start()
        assert bytes_at(objective, data.thetas[1]) == expected[1]
        timer.join()
        (words,) = said
        assert re.fullmatch(r"worker tcp://\S+ is lost; tcp://\S+ reads blocks \(3, 6\) again", words)
        # The cluster starts another worker, and the part moves there, so that the work is spread again.
        eventually(lambda: bytes_at(objective, data.thetas[2]) == expected[2] and len(set(pool.place)) == 2, 600)


@needs_dask
@pytest.mark.slow
@pytest.mark.long
def test_a_worker_that_hangs_is_given_up(project, monkeypatch):
    monkeypatch.setattr(workers, "PATIENCE", 3.0)
    monkeypatch.setattr(training, "SLOWER", 0)
    data = Data(project)
    with data.pool() as pool:
        objective = ShardedObjective(pool, data.layout)
        pid = worker_pids(pool)[pool.place[0]]
        os.kill(pid, signal.SIGSTOP)
        try:
            value, gradient = objective.value_and_gradient(data.thetas[0])
            assert (value, gradient.tobytes()) == data.expected()[0][:2]
        finally:
            os.kill(pid, signal.SIGKILL)


class Killing(Progress):
    """Kills a worker process of this one when an iteration ends."""

    def __init__(self, after):
        self.after, self.steps, self.said = after, 0, []

    def step(self, n=1, note=""):
        self.steps += 1
        if self.steps == self.after:
            children = psutil.Process().children(recursive=True)
            workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
            assert len(workers) >= 2
            workers[0].kill()

    def say(self, text):
        self.said.append(text)


@needs_dask
@pytest.mark.slow
def test_training_survives_the_loss_of_a_worker(project):
    params = small_params()
    expected = result_of(project, params)
    params.compute.cluster = "local:2"
    progress = Killing(3)
    assert result_of(project, params, progress=progress) == expected
    assert len(progress.said) == 1 and "is lost" in progress.said[0]
    assert nothing_left(project)


@needs_dask
@pytest.mark.slow
@pytest.mark.long
def test_blockwise_descent_survives_the_loss_of_a_worker_in_the_middle_of_a_sweep(project):
    """Stopped when a sweep is over, so that the next one must wait for it, and killed while that waits."""
    data, said, timers = Data(project), [], []
    options = {"max_iterations": 3, "tolerance": 0.0}
    expected = minimise("sbcd", data.here, ElasticNet(0.5, 0.001), **options)

    with data.pool(say=said.append) as pool:
        pid = worker_pids(pool)[pool.place[1]]

        def after(record, theta):
            if record["iteration"] == 1:
                os.kill(pid, signal.SIGSTOP)
                timers.append(threading.Timer(1.5, os.kill, (pid, signal.SIGKILL)))
                timers[0].start()

        found = minimise(
            "sbcd", ShardedObjective(pool, data.layout), ElasticNet(0.5, 0.001), on_iteration=after, **options
        )
    timers[0].join()
    assert found.theta.tobytes() == expected.theta.tobytes() and found.trace == expected.trace
    assert len(said) == 1 and "is lost" in said[0]


DRIVER = """
from pathlib import Path
from stage_runs import small_params
from espalier.tasks import train
from espalier.tasks.progress import Progress

class Lines(Progress):
    def step(self, n=1, note=""):
        print("step", flush=True)

params = small_params()
params.compute.cluster, params.train.checkpoint_seconds = "local:2", 0
train.main(Path("."), params, Lines(), {block})
"""


@needs_dask
@pytest.mark.slow
@pytest.mark.long
def test_a_driver_that_is_killed_takes_its_workers_along_and_the_next_one_goes_on(project):
    params = small_params()
    params.train.checkpoint_seconds = 0
    expected = result_of(project, params)
    path = os.pathsep.join(p for p in sys.path if p)
    with Background("-c", DRIVER.format(block=BLOCK), cwd=project, PYTHONPATH=path) as process:
        for _ in range(3):
            process.wait_for("step", 600)
        family = psutil.Process(process.process.pid).children(recursive=True)
        assert len(family) >= 2
        process.end(signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=60)
    assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []
    assert not nothing_left(project)
    params.compute.cluster = "local:2"
    progress = Killing(None)
    assert result_of(project, params, progress=progress) == expected
    assert "going on after iteration" in progress.said[0] and nothing_left(project)


# ---- a scheduler that runs elsewhere


@contextmanager
def scheduler(tmp_path, workers=2, path=None):
    """(address, process of the scheduler, processes of the workers)."""
    file = tmp_path / "scheduler.json"
    common = {"cwd": tmp_path, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p) if path is None else path}
    arguments = ("-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
                 "--scheduler-file", str(file))  # fmt: skip
    with Background(*arguments, **common) as process:
        eventually(file.exists, 600)
        address = eventually(lambda: re.search(r"tcp://[\d.:]+", file.read_text()), 600)[0]
        started = [
            Background("-m", "distributed.cli.dask_worker", address, "--nworkers", "1", "--nthreads", "1",
                       "--no-dashboard", "--no-nanny", "--host", "127.0.0.1", **common)
            for _ in range(workers)
        ]  # fmt: skip
        try:
            yield address, process, started
        finally:
            for one in started:
                one.end(signal.SIGKILL)


@pytest.fixture(scope="module")
def standing(tmp_path_factory):
    """The address of a scheduler with two workers, shared by the tests that leave them as they were."""
    with scheduler(tmp_path_factory.mktemp("scheduler")) as (address, _, started):
        for one in started:
            one.wait_for("Registered to", 600)
        yield address


@pytest.fixture
def asked(monkeypatch):
    """The names of the questions that workers were asked."""
    names, ask = [], workers.Workers.ask
    monkeypatch.setattr(
        workers.Workers,
        "ask",
        lambda self, what, *rest, **more: names.append(what.__name__) or ask(self, what, *rest, **more),
    )
    return names


@needs_dask
@pytest.mark.slow
def test_a_scheduler_given_by_address_serves_one_training_after_the_other(project, standing):
    params = small_params()
    expected = result_of(project, params)
    params.compute.cluster = standing
    for _ in range(2):
        assert result_of(project, params) == expected
    from distributed import Client

    with Client(standing) as client:  # nothing is held for a training that is over
        assert set(client.run(lambda: len(worker._held)).values()) == {0}
    assert nothing_left(project)


@needs_dask
@pytest.mark.slow
@pytest.mark.parametrize("block_tokens", [BLOCK, pytest.param(10**6, marks=pytest.mark.long)])
def test_blockwise_descent_by_workers_leaves_the_bytes_of_one_process(project, standing, block_tokens):
    params = small_params()
    params.crf.solver, params.train.max_iterations = "sbcd", 4
    expected = result_of(project, params, block_tokens)
    params.compute.cluster = standing
    assert result_of(project, params, block_tokens) == expected


@needs_dask
@pytest.mark.slow
@pytest.mark.parametrize(
    "method, choose", [pytest.param("cluster", False, marks=pytest.mark.long), ("covariate", True)]
)
def test_clusters_by_workers_are_the_bytes_of_one_process(project, standing, asked, monkeypatch, method, choose):
    monkeypatch.setattr(mixture, "GROUP", 70)  # bags of a group: the project has several hundred
    params = small_params()
    params.template.shard_tokens, params.weigh.method, params.weigh.choose_clusters = 200, method, choose
    run_stages(project, params, "template", "weigh")
    expected = [(project / path).read_bytes() for path in (store.WEIGHTS, store.CLUSTERS)]
    for path in (store.WEIGHTS, store.CLUSTERS):
        (project / path).unlink()
    params.compute.cluster = standing
    run_stages(project, params, "weigh")
    assert [(project / path).read_bytes() for path in (store.WEIGHTS, store.CLUSTERS)] == expected
    assert {"count_bags", "rows_of_bags"} == set(asked) and nothing_left(project)


@needs_dask
@pytest.mark.slow
def test_workers_that_compile_for_another_processor_are_refused(project, standing, monkeypatch):
    monkeypatch.setenv("NUMBA_CPU_NAME", "another")
    params = small_params()
    params.compute.cluster = standing
    with pytest.raises(EspalierError, match=r"compiles for .*, this process for another \(NUMBA_CPU_NAME\)"):
        result_of(project, params)


@needs_dask
@pytest.mark.slow
def test_evaluation_by_workers_is_the_bytes_of_one_process(project, standing, asked):
    params, made = small_params(), (store.METRICS, store.PREDICTIONS)
    params.template.shard_tokens = 100
    run_stages(project, params, "template", "evaluate")
    expected = [(project / path).read_bytes() for path in made]
    for path in made:
        (project / path).unlink()
    params.compute.cluster = standing
    run_stages(project, params, "evaluate")
    assert [(project / path).read_bytes() for path in made] == expected
    assert asked == ["measure_shards"] and nothing_left(project)


@needs_dask
@pytest.mark.slow
def test_the_plan_asks_the_scheduler_for_its_workers(project, standing):
    params = small_params()
    params.compute.cluster = standing
    found = plan.main(project, params, BLOCK)
    assert found["cluster"]["workers"] == 2 and not found["cluster"]["here"] and len(found["cluster"]["memory"]) == 2
    assert "workers" not in found["bytes"]
    plan.check(found)


@needs_dask
@pytest.mark.slow
@pytest.mark.long
def test_a_scheduler_that_goes_away_ends_the_training_and_loses_nothing(project, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "AWAY", 2.0)
    params = small_params()
    expected = result_of(project, params)
    before = [(project / path).read_bytes() for path in RESULT]
    with scheduler(tmp_path) as (address, process, _):

        class Ending(Progress):
            steps = 0

            def step(self, n=1, note=""):
                self.steps += 1
                if self.steps == 5:
                    process.end(signal.SIGKILL)

        params.compute.cluster = address
        with pytest.raises(EspalierError, match=f"scheduler of {address} does not answer any more") as caught:
            result_of(project, params, progress=Ending())
    assert re.search(r"interrupted after iteration \d; the same command goes on from there", caught.value.__notes__[0])
    assert [(project / path).read_bytes() for path in RESULT] == before
    assert len(list((project / FOLDER).iterdir())) == 1
    params.compute.cluster = None  # goes on here, to the same bytes
    assert result_of(project, params) == expected and nothing_left(project)


@needs_dask
@pytest.mark.slow
def test_no_scheduler_is_a_clear_error(project, monkeypatch):
    monkeypatch.setattr(workers, "AWAY", 1.0)
    params = small_params()
    params.compute.cluster = "tcp://127.0.0.1:9"
    with pytest.raises(EspalierError, match="no scheduler answers at tcp://127.0.0.1:9 .*: start one with `dask sched"):
        result_of(project, params)
    assert nothing_left(project)
