"""prefect.yaml as README says to use it: a work pool, a deployment, a worker that runs it, on a real server."""

import shutil

import pytest
import yaml
from small_project import ROOT, Background, ask, eventually, own_port, run_python, write_project
from test_serve import DASHBOARD

from espalier.flows.pipeline import STEPS
from espalier.tasks.keeping import history

FILE = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))


def test_the_file_and_the_readme_speak_of_the_same_pool_and_deployment():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (deployment,) = FILE["deployments"]
    assert f"prefect work-pool create {deployment['work_pool']['name']} --type process" in text
    assert f"prefect worker start --pool {deployment['work_pool']['name']}" in text
    assert f"prefect deployment run retrain/{deployment['name']}" in text
    assert "prefect --no-prompt deploy --all" in text and "espalier serve --cron" in text
    assert 'eval "$(espalier dashboard --env)"' in text


def test_the_parameters_of_the_deployment_are_those_of_the_flow():
    from prefect.utilities.callables import parameter_schema

    from espalier.flows.retrain import retrain

    (deployment,) = FILE["deployments"]
    assert set(deployment["parameters"]) <= set(parameter_schema(retrain).properties)
    assert deployment["entrypoint"] == "espalier.flows.retrain.retrain"


@pytest.mark.server
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_deployment_is_run_by_a_process_worker(tmp_path):
    project = write_project(tmp_path / "project")
    shutil.copy(ROOT / "prefect.yaml", project)
    port = own_port()
    with Background("-c", DASHBOARD, str(port), cwd=project) as server:
        server.wait_for("dashboard:", 300)
        told = run_python("-m", "espalier.flows.cli", "dashboard", "--env", cwd=project, timeout=400).stdout
        exported = dict(line.removeprefix("export ").split("=", 1) for line in told.splitlines())
        more = exported | {"PWD": str(project), "PREFECT_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}
        for command in (
            ["work-pool", "create", "espalier", "--type", "process"],
            ["--no-prompt", "deploy", "--all"],
            ["deployment", "run", "retrain/nightly"],
        ):
            done = run_python("-m", "prefect", *command, cwd=project, timeout=400, **more)
            assert done.returncode == 0, done.stdout + done.stderr
        found = ask(project, "/deployments/name/retrain/nightly")
        assert found["parameters"]["root"] == str(project)
        assert found["schedules"][0]["schedule"]["cron"] == "0 3 * * *"
        assert found["global_concurrency_limit"]["limit"] == 1, "one run at a time"
        completed = {"state": {"type": {"any_": ["COMPLETED"]}}}
        of_it = {"deployments": {"name": {"any_": ["nightly"]}}, "flow_runs": completed}
        worker = ["-m", "prefect", "worker", "start", "--pool", "espalier", "--name", "tested"]
        with Background(*worker, cwd=tmp_path, **more, PREFECT_WORKER_QUERY_SECONDS="2") as working:
            (run,) = eventually(lambda: ask(project, "/flow_runs/filter", of_it), 300)
            assert run["work_pool_name"] == "espalier" and run["parameters"]["root"] == str(project), working.output
        tasks = {
            task["name"] for task in ask(project, "/task_runs/filter", {"flow_runs": {"id": {"any_": [run["id"]]}}})
        }
        assert tasks == set(STEPS)
    (entry,) = history.read(project)
    assert entry["outcome"] == "promoted" and set(entry["seconds"]) == set(STEPS)
    assert (project / "models" / "champion.model").is_file()
