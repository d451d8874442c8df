"""The flow on the embedded server, and the parts of it that need no server."""

import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress

import polars as pl
import psutil
import pytest
from small_project import ROOT, Background, environment, eventually, run_python, write_project

from espalier.engine.errors import EspalierError
from espalier.flows import findings
from espalier.flows.pipeline import STEPS
from espalier.tasks import store
from espalier.tasks.params import SOLVERS

SCRIPT = ROOT / "tests" / "flows" / "embedded_runs.py"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = write_project(tmp_path_factory.mktemp("embedded") / "project", with_dvc=True)
    (folder / "ragged.conll").write_text("a b X\nc X\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def told(project):
    """What six runs on an embedded server with a fresh home left."""
    done = run_python(str(SCRIPT), str(project), cwd=project, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1]) | {"stderr": done.stderr}


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestEmbedded:
    def test_every_step_is_a_task_that_completes(self, told):
        assert (told["good"]["state"], told["good"]["name"]) == ("COMPLETED", "Completed")
        assert told["good"]["tasks"] == [[name, "COMPLETED", 1] for name in STEPS]

    def test_a_run_is_called_after_its_project_and_when_it_began(self, told, project):
        names = [told[run]["called"] for run in ("good", "bad", "refused", "typed", "again")]
        assert all(re.fullmatch(rf"{project.name} \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d", name) for name in names)
        assert names == sorted(set(names))

    def test_each_task_waits_for_the_one_before_it_and_for_nothing_else(self, told):
        assert told["good"]["waits"] == [True] * (len(STEPS) - 1)

    def test_the_caller_gets_the_figures_and_hears_the_progress(self, told):
        assert list(told["figures"]) == list(STEPS)
        assert told["figures"]["ingest"]["train"] > 0
        assert told["figures"]["promote"]["promoted"] is True
        assert told["heard"] == ["prefect", *STEPS]

    def test_a_tournament_has_a_task_for_each_entrant_and_one_that_fails_harms_no_other(self, told):
        found, figures = told["tournament"], told["tournament_figures"]
        assert (found["state"], sorted(found["tasks"])) == ("COMPLETED", [
            ["hmm", "FAILED", 1], ["perceptron", "COMPLETED", 1], ["perceptron update=pa", "COMPLETED", 1],
            ["standings", "COMPLETED", 1],
        ])  # fmt: skip
        assert set(found["artefacts"]) == {"tournament"}, "the bar is gone"
        rows = json.loads(found["artefacts"]["tournament"]["data"])
        assert [row["entrant"] for row in rows][2:] == ["hmm"] and "no such luck" in rows[2]["against the winner"]
        assert figures["winner"] == rows[0]["entrant"] and figures["others"][0]["how"] == "failed"

    def test_artefacts_show_progress_metrics_report_and_decision(self, told, project):
        artefacts = told["good"]["artefacts"]
        found = {"corpus-profile", "cost-plan", "training", "metrics", "report", "decision"}
        assert set(artefacts) == found, "bars of a run that is over are gone"
        assert not any(key.startswith("progress-") for key in told["bad"]["artefacts"]), "also of one that failed"
        rows = {row["measure"]: row["value"] for row in json.loads(artefacts["metrics"]["data"])}
        assert re.fullmatch(r"[0-9.]+% \([0-9.]+% to [0-9.]+%\)", rows["state error"])
        assert int(rows["iterations"]) <= 15 and rows["family of models"] == "sparse conditional random field"
        assert (project / "reports" / "report.html").resolve().as_uri() in artefacts["report"]["data"]
        assert artefacts["decision"]["data"].startswith("## Promoted")

    def test_the_cost_is_planned_and_the_training_is_a_table_of_all_iterations(self, told):
        artefacts = told["good"]["artefacts"]
        plan = {row["what"]: row["value"] for row in json.loads(artefacts["cost-plan"]["data"])}
        assert plan["memory"].endswith("MiB") and "s an iteration" in plan["time"]
        rows = json.loads(artefacts["training"]["data"])
        assert [row["iteration"] for row in rows] == [str(i) for i in range(told["figures"]["train"]["iterations"] + 1)]
        assert rows[-1]["objective"] == f"{told['figures']['train']['objective']:,.2f}"
        assert rows[-1]["active weights"] == f"{told['figures']['train']['active']:,}"
        assert all(row["development error"].endswith("%") for row in rows)
        assert "active weights of" in artefacts["training"]["description"], "the last words of the training"

    def test_from_the_second_run_on_metrics_stand_beside_those_of_the_champion_and_news_are_told(self, told):
        artefacts, figures = told["again"]["artefacts"], told["typed_figures"]
        rows = {row["measure"]: row for row in json.loads(artefacts["metrics"]["data"])}
        assert rows["state error"]["champion"].startswith(f"{figures['evaluate']['token_error']:.2%} (")
        assert rows["log-loss, nats per symbol"]["champion"] == f"{figures['evaluate']['log_loss']:.4f}"
        assert rows["iterations"]["champion"] == str(figures["train"]["iterations"])
        news = {row["what"]: row["how many"] for row in json.loads(artefacts["news"]["data"])}
        assert news["new sequences"] == news["lost labels"] == "0"

    def test_a_refused_run_is_complete_and_says_so_in_its_state(self, told):
        refused, decision = told["refused"], told["refused_figures"]["promote"]
        assert (refused["state"], refused["name"]) == ("COMPLETED", "Refused") and decision["promoted"] is False
        assert refused["message"].startswith("refused: the pool has drifted: ")
        assert refused["tasks"] == [[name, "COMPLETED", 1] for name in STEPS]
        assert refused["artefacts"]["decision"]["data"].startswith("## Refused\n\nThe pool has drifted: ")

    def test_parameters_of_the_page_are_those_of_the_parameter_file(self, told):
        typed, figures = told["typed"], told["typed_figures"]
        assert typed["state"] == "COMPLETED" and typed["parameters"]["rho1"] == "auto"
        assert figures["train"]["rho1"] != 0.5 and figures["train"]["warm"] is False, "a path begins with nothing"
        assert figures["promote"]["promoted"] is True and figures["promote"]["forced"] is True

    def test_nothing_of_prefect_is_seen_on_the_terminal(self, told):
        seen = [line for line in told["stderr"].splitlines() if "Input/output error" not in line]
        assert seen == []

    def test_dvc_has_recorded_the_run(self, told, project):
        command = [sys.executable, "-m", "dvc", "status"]
        done = subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True, check=True)
        assert "up to date" in done.stdout, done.stdout
        assert (project / "models" / "champion.model.dvc").is_file()

    def test_an_error_reaches_the_caller_as_it_was_raised(self, told, project):
        text = f"line 2 of {project / 'ragged.conll'} has 2 columns, the lines before it 3: check for a missing tab"
        assert told["error"] == {"type": "EspalierError", "text": text}

    def test_a_failing_step_fails_the_run_and_stops_it(self, told):
        assert told["bad"]["state"] == "FAILED"
        assert told["bad"]["tasks"] == [["ingest", "FAILED", 1]], "an error that a user must mend is not tried again"
        assert "missing tab" in told["bad"]["message"]

    def test_an_io_error_is_tried_again(self, told):
        tried = {name: count for name, _, count in told["again"]["tasks"]}
        assert told["again"]["state"] == "COMPLETED"
        assert tried == dict.fromkeys(STEPS, 1) | {"weigh": 2}


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_failing_run_leaves_earlier_artefacts_as_they_were(told, project):
    """`told` has run, failed, and run again: the same data give the same bytes, so nothing was harmed."""
    lock = (project / "dvc.lock").read_text(encoding="utf-8")
    digest = hashlib.md5((project / "models" / "candidate.model").read_bytes()).hexdigest()
    assert digest in lock
    assert len((project / "models" / "decisions.jsonl").read_text().splitlines()) == 4


LONG_RUN = """
import signal
from pathlib import Path
from espalier.flows.run import run_flow
from espalier.tasks.progress import Progress
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run in the background are deaf to it
class Telling(Progress):
    def step(self, n=1, note=""):
        print("step", note)
run_flow(Path("."), None, ["ingest.limit=40000", "weigh.clusters=0", "train.max_iterations=5000", "train.tolerance=0"],
         lambda name: Telling() if name == "train" else Progress())
"""


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ctrl_c_at_a_terminal_ends_a_run_and_the_embedded_server(told, project, tmp_path):
    """A terminal sends the signal to the whole group: the server must live until the run has reported its end."""
    home = str(project / ".espalier" / "prefect")
    with Background("-c", LONG_RUN, cwd=write_project(tmp_path), PREFECT_HOME=home) as process:
        process.wait_for("step objective", 300)
        family = psutil.Process(process.process.pid).children(recursive=True)
        assert family, "there is no embedded server"
        begin = time.monotonic()
        os.killpg(process.process.pid, signal.SIGINT)
        code = process.process.wait(300)
    assert time.monotonic() - begin < 30, "it waited for a server that was gone"
    assert code == -signal.SIGINT and "KeyboardInterrupt" in process.output
    assert "Connect" not in process.output
    _, alive = psutil.wait_procs(family, timeout=60)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []


def test_mistakes_in_parameters_are_found_before_prefect_is_started(tmp_path):
    from espalier.flows.run import run_flow

    project = write_project(tmp_path)
    with pytest.raises(EspalierError, match="ingest.path is 'none.conll': there is no such file"):
        run_flow(project, None, ["ingest.source=conll", "ingest.path=none.conll"])
    with pytest.raises(EspalierError, match="unknown parameter 'crf.rho3'"):
        run_flow(project, None, ["crf.rho3=1"])
    assert not (project / ".espalier").exists()


def test_a_named_server_that_is_not_there_is_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    from espalier.flows.run import run_flow

    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with pytest.raises(EspalierError, match="127.0.0.1:9/api: no Prefect server answers there.*--direct"):
        run_flow(write_project(tmp_path))


class TestBar:
    """The dashboard's progress bar, with the calls to the server replaced."""

    @pytest.fixture
    def bar(self, monkeypatch):
        from prefect.logging import disable_run_logger

        from espalier.flows import retrain

        self.calls, self.now, self.broken = [], 0.0, False

        def call(kind):
            def record(*arguments):
                if self.broken:
                    raise ConnectionError("gone")
                self.calls.append((kind, *arguments[-2:]))
                return "id"

            return record

        monkeypatch.setattr(retrain, "create_progress_artifact", lambda percent, *_: call("create")(percent, ""))
        monkeypatch.setattr(retrain, "update_progress_artifact", call("update"))
        with disable_run_logger():
            yield retrain.Bar("train", clock=lambda: self.now)

    def test_it_is_updated_every_two_seconds_at_most(self, bar):
        bar.begin(100, "iteration")
        for second in range(10):
            self.now = second / 2
            bar.step(note="n")
        bar.end("fine")
        assert [call[0] for call in self.calls] == ["create", "update", "update", "update"]
        assert [call[1] for call in self.calls] == [0.0, 5.0, 9.0, 100.0]
        assert self.calls[1][2] == "train: 5 of 100, iteration: n"
        assert self.calls[-1][2] == "train: fine"

    def test_without_a_total_the_text_counts(self, bar):
        bar.begin(None, "token")
        self.now = 3.0
        bar.step(1200, note="train")
        bar.end()
        texts = [("create", 0.0, ""), ("update", 0.0, "train: 1,200, token: train"), ("update", 100.0, "train: done")]
        assert self.calls == texts

    def test_more_steps_than_announced_stay_within_the_bar(self, bar):
        bar.begin(2, "part")
        self.now = 9.0
        bar.step(5)
        assert self.calls[-1][1] == 100.0

    def test_a_failure_harms_nothing_and_is_not_repeated(self, bar):
        bar.begin(10, "iteration")
        self.broken, self.now = True, 5.0
        bar.step()
        self.broken, self.now = False, 10.0
        bar.step()
        bar.end()
        assert [call[0] for call in self.calls] == ["create"]


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (OSError(5, "Input/output error"), True),
        (ConnectionError("gone"), True),
        (TimeoutError(), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), False),
        (FileNotFoundError("none"), False),
        (PermissionError("no"), False),
        (EspalierError("mend it"), False),
        (ZeroDivisionError(), False),
    ],
)
def test_only_io_errors_that_may_pass_are_tried_again(error, again):
    from prefect.states import Failed

    from espalier.flows.retrain import may_pass

    assert may_pass(None, None, Failed(data=error)) is again


def test_the_parameters_of_the_flow_have_types_and_help():
    from prefect.utilities.callables import parameter_schema

    from espalier.flows.retrain import retrain

    properties = parameter_schema(retrain).properties
    assert list(properties) == [
        "root", "overrides", "add", "source", "family", "rho1", "solver", "max_iterations", "warm", "force"
    ]  # fmt: skip
    assert all(entry["description"] for entry in properties.values())
    assert properties["root"]["default"] == "."
    assert properties["rho1"]["anyOf"] == [
        {"minimum": 0, "type": "number"}, {"const": "auto", "type": "string"}, {"type": "null"}
    ]  # fmt: skip
    assert properties["solver"]["anyOf"][0]["enum"] == list(SOLVERS)
    assert properties["force"] | {"position": 0} == properties["force"] | {"position": 0, "type": "boolean"}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"rho1": "often"}, "rho1.*Input should be 'auto'"),
        ({"rho1": -1}, "rho1.*greater than or equal to 0"),
        ({"solver": "simplex"}, "solver: Input should be 'auto', 'lbfgs', 'owlqn'"),
        ({"max_iterations": 0}, "max_iterations.*greater than or equal to 1"),
        ({"force": "perhaps"}, "force: Input should be a valid boolean"),
    ],
)
def test_a_parameter_of_the_wrong_kind_is_refused_by_its_name(parameters, expected):
    from prefect.exceptions import ParameterTypeError

    from espalier.flows.retrain import retrain

    with pytest.raises(ParameterTypeError) as refusal:
        retrain.validate_parameters(parameters)
    assert re.search(expected, str(refusal.value).replace("\n", " "))


def test_fields_of_the_page_become_overrides():
    from espalier.flows.retrain import named_overrides

    nothing = dict.fromkeys(("source", "family", "rho1", "solver", "max_iterations", "warm"))
    assert named_overrides("crf", **nothing) == []
    given = nothing | {"source": "a: b*.conll", "rho1": "auto", "solver": "pqn", "max_iterations": 7, "warm": False}
    assert named_overrides("crf", **given) == [
        'ingest.path="a: b*.conll"', 'crf.rho1="auto"', 'crf.solver="pqn"', "train.max_iterations=7",
        "train.initial=null",
    ]  # fmt: skip
    warm = named_overrides("crf", **nothing | {"warm": True, "rho1": 0.0})
    assert warm == ["crf.rho1=0.0", "train.initial=champion"]
    other = named_overrides("memm", **nothing | {"family": "memm", "rho1": 2.0})
    assert other == ['model.family="memm"', "memm.rho1=2.0"]


class TestLive:
    """The table of a training, with the calls to the server replaced."""

    @pytest.fixture
    def live(self, monkeypatch):
        from prefect.logging import disable_run_logger

        from espalier.flows import live

        self.calls, self.now, self.broken = [], 0.0, False
        test = self

        def create(table, key, title):
            if test.broken:
                raise ConnectionError("gone")
            test.calls.append(("create", len(table), title))
            return "id"

        class Client:
            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def update_artifact(self, artefact, update):
                test.calls.append(("update", len(json.loads(update.data)), update.description))

        monkeypatch.setattr(live, "create_table_artifact", create)
        monkeypatch.setattr(live, "get_client", lambda sync_client: Client())
        with disable_run_logger():
            yield live.Live(clock=lambda: self.now)

    def test_one_table_is_updated_now_and_then_and_at_the_end(self, live):
        for i in range(12):
            self.now = float(i)
            live.record(record(i))
        live.end("converged")
        assert [(kind, rows) for kind, rows, _ in self.calls] == [
            ("create", 1), ("update", 6), ("update", 11), ("update", 12)
        ]  # fmt: skip
        assert self.calls[-1][2] == "Training, iteration by iteration: converged"

    def test_another_try_begins_anew_and_a_failure_harms_nothing(self, live):
        self.broken = True
        for i in (0, 1, 2):
            live.record(record(i))
        self.broken = False
        for i in (0, 1):
            live.record(record(i))
        live.end()
        assert [(kind, rows) for kind, rows, _ in self.calls] == [("create", 2)]


def record(iteration, error=0.1):
    return {"iteration": iteration, "objective": 1234.567, "active_unigram": 900, "active_start": 90,
            "active_bigram": 200, "dev_token_error": error, "seconds": 1.25}  # fmt: skip


def test_a_long_training_is_thinned_and_keeps_its_last_iteration():
    rows = findings.training_table([record(i) for i in range(251)])
    assert len(rows) == 84 and rows[-1]["iteration"] == "250" and rows[0]["iteration"] == "1"
    assert findings.training_table([record(3, None)]) == [{
        "iteration": "3", "objective": "1,234.57", "active weights": "1,190", "development error": "", "seconds": "1.2"
    }]  # fmt: skip


def test_the_points_of_a_sweep_are_told_in_words_by_what_they_are_judged_by():
    point = {"rho1": 1.0, "rho2": 0.0, "active": 5000, "dev_token_error": 0.2, "dev_f1": 0.75,
             "train_token_error": 0.125, "objective": 7000.5, "iterations": 3}  # fmt: skip
    figures = {"measure": "f1", "chosen": 0.5, "chosen_rho2": 0.0, "points": [point, point | {"rho1": 0.5}]}
    first, second = findings.sweep_table(figures)
    assert first == {
        "chosen": "", "rho1": "1", "active weights": "5,000", "development F1": "75.00%",
        "development token error": "20.00%", "training token error": "12.50%", "objective": "7,000.50",
        "iterations": "3",
    }  # fmt: skip
    assert second["chosen"] == "→" and second["rho1"] == "0.5"
    by_tokens = findings.sweep_table(figures | {"measure": "token_error"})
    assert [name for name in by_tokens[0] if name.startswith("development")] == ["development token error"]


def test_the_champion_is_measured_on_the_same_data_by_its_own_labels(project_with_champion):
    """The table has what the metrics of its own run had; a label that it does not know has no log-loss."""
    root = project_with_champion
    metrics = json.loads((root / "reports" / "metrics.json").read_text())
    found = findings.champion_metrics(root)
    assert all(found[name] == pytest.approx(metrics[name]) for name in found)
    assert {"log_loss", "token_error", "sequence_error", "iterations", "active_unigram"} <= set(found)
    tokens, info = store.read_tokens(root, "test")
    labels = tokens["label"].to_list()
    labels[0] = "never seen"
    store.write_tokens(root, "test", tokens.with_columns(label=pl.Series(labels)), info)
    found = findings.champion_metrics(root)
    assert "log_loss" not in found and found["token_error"] >= metrics["token_error"]
    rows = findings.metrics_table(root, found)
    assert [row["champion"] for row in rows if row["measure"].startswith("log-loss")] == ["", ""]
    assert "champion" not in findings.metrics_table(root)[0]


@pytest.fixture
def project_with_champion(finished_project, tmp_path):
    root = tmp_path / "project"
    shutil.copytree(finished_project, root)
    shutil.copy(root / store.CANDIDATE, root / store.CHAMPION)
    return root


def test_a_line_of_figures_is_short_and_readable():
    figures = {"train": 2400, "token_error": 0.123456789, "promoted": True, "low": None, "model_sha256": "ab" * 32}
    assert findings.line(figures) == "train 2,400, token error 0.123457, promoted yes"


DECISION = {
    "promoted": False, "reason": "may be worse than the champion", "difference": 0.01, "low": -0.001, "high": 0.02,
    "champion_error": 0.1, "challenger_error": 0.11, "model_sha256": "abcdef" * 10,
}  # fmt: skip


def test_a_refusal_is_told_with_both_errors_and_the_interval():
    text = findings.decision_text(DECISION)
    assert text.startswith("## Refused\n\nMay be worse than the champion.")
    assert "| challenger | 11.00% |" in text and "| champion | 10.00% |" in text
    assert "+1.00 points (−0.10 to +2.00 points)" in text


def test_reasons_are_told_once_and_by_what_the_task_is_judged_by():
    judged = DECISION | {"measure": "f1", "measure_name": "F1 of entities", "champion_value": 0.9,
                         "challenger_value": 0.8, "reason": "one; two", "reasons": ["one", "two"]}  # fmt: skip
    text = findings.decision_text(judged)
    assert text.startswith("## Refused\n\n2 reasons against it:\n\n- One\n- Two\n")
    assert "one; two" not in text and "|  | F1 of entities |" in text and "| champion | 90.00% |" in text


def test_a_first_decision_has_no_champion():
    alone = DECISION | {"promoted": True, "champion_error": None, "difference": None, "low": None, "high": None}
    assert "champion |" not in findings.decision_text(alone)


def test_a_second_run_in_the_same_project_is_refused(tmp_path):
    from espalier.flows.locks import alone

    with alone(tmp_path / "run.lock", "another run is under way"):
        with pytest.raises(EspalierError, match=r"another run is under way \(process \d+ on \S+ since \d{4}-\S+\)"):
            with alone(tmp_path / "run.lock", "another run is under way"):
                pass
    with alone(tmp_path / "run.lock", "another run is under way"):
        pass


HOLD = """
import sys, time
from pathlib import Path
from espalier.flows.locks import alone
with alone(Path(sys.argv[1]), "taken"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_lock_says_who_holds_it_and_is_free_when_the_holder_is_killed(tmp_path):
    import socket

    from espalier.flows.locks import alone

    lock = tmp_path / "run.lock"
    with Background("-c", HOLD, str(lock), cwd=tmp_path) as holder:
        holder.wait_for("held", 300)
        who = rf"taken \(process {holder.process.pid} on {socket.gethostname()} since \d{{4}}-\d\d-\d\dT[\d:+]+\); wait"
        with pytest.raises(EspalierError, match=who), alone(lock, "taken"):
            pass
        holder.end(signal.SIGKILL)
    with alone(lock, "taken"):
        assert json.loads(lock.read_text())["pid"] == os.getpid()
    assert lock.read_text() == ""


def processes_of(home):
    """Processes that have this home of Prefect's and are not yet over."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("PREFECT_HOME") == home and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


KILLED = """
import json, os, signal, sys, time
from pathlib import Path
from espalier.flows.run import run_flow
from espalier.tasks.progress import Progress
class Dying(Progress):
    def step(self, n=1, note=""):
        if sys.argv[1] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
run_flow(Path(".").resolve(), None, [], lambda name: Dying() if name == "train" else Progress())
from prefect import get_client
with get_client(sync_client=True) as client:
    for _ in range(60):  # the server writes the states of tasks down a little later
        runs = [*client.read_flow_runs(), *client.read_task_runs()]
        if all(run.state.is_final() for run in runs):
            break
        time.sleep(0.5)
    print("\\n" + json.dumps([[run.name, run.state.type.value, run.state.message] for run in runs]))
"""


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.long
def test_a_run_whose_process_was_killed_is_not_left_running(tmp_path):
    """Its embedded server ends by itself; the next run of the project finds it, and ends well itself."""
    home, folder = str(tmp_path / "prefect"), write_project(tmp_path / "killed")
    with Background("-c", KILLED, "die", cwd=folder, PREFECT_HOME=home) as killed:
        assert killed.process.wait(400) == -signal.SIGKILL, killed.output
        eventually(lambda: not processes_of(home), 300)
    done = run_python("-c", KILLED, "live", cwd=folder, timeout=400, PREFECT_HOME=home)
    assert done.returncode == 0, done.stderr
    states = json.loads(done.stdout.splitlines()[-1])
    crashed = [name for name, state, text in states if (state, text) == ("CRASHED", "Its process ended without a word")]
    assert len(crashed) == 2 and "train" in crashed, "the run, and the task that it was in the middle of"
    assert "RUNNING" not in [state for _, state, _ in states]
