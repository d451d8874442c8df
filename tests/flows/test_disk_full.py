"""Real full disks: small file systems in memory, mounted for one process where the machine allows it."""

import subprocess
import sys

import pytest
from small_project import PARAMS, environment

# A file system of a given size at a given place, filled by the project and a run in it.
RUN = """
set -e
mount -t tmpfs -o size="$1" none "$2"
cd "$2"
printf %s "$PARAMS" > params.yaml
exec "$PYTHON" -m espalier.flows.cli run --quiet
"""


def run_on_a_disk_of(size: str, place, **more: str) -> subprocess.CompletedProcess:
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    try:
        subprocess.run([*command, 'mount -t tmpfs none "$0"', str(place)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nobody may mount a file system here")
    return subprocess.run([*command, RUN, "sh", size, str(place)], capture_output=True, text=True, timeout=1000,
                          env=environment(PARAMS=PARAMS, PYTHON=sys.executable, **more))  # fmt: skip


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestFullDisk:
    def test_prefect_cannot_make_its_database(self, tmp_path):
        done = run_on_a_disk_of("600k", tmp_path)
        assert done.returncode == 1
        assert f"no space is left on the disk of {tmp_path / '.espalier'} (0 bytes free)" in done.stderr
        assert "imed out" not in done.stderr and "Traceback" not in done.stderr

    @pytest.mark.long
    def test_a_stage_meets_it_once_and_names_the_file(self, tmp_path):
        disk, home = tmp_path / "disk", tmp_path / "home"
        disk.mkdir()
        done = run_on_a_disk_of("120k", disk, PREFECT_HOME=str(home))
        assert done.returncode == 1
        told = [line for line in done.stderr.splitlines() if "No space left on device" in line]
        assert len(told) == 2, "a warning of the step, and the last words"
        assert told[-1].startswith(f"espalier: {disk}/data/") and "Traceback" not in done.stderr
