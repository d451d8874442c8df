"""One system in one process of its own, so that peak memory and warm-up are its own.

`python -m benchmarks.job MODULE:FUNCTION RESULT` reads the arguments as JSON from standard
input and writes what the function returns, with the peak memory of the process, to RESULT.
"""

import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from engine.errors import EspalierError

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 900.0  # seconds that a job may take


class Skip(Exception):
    """A case or a system that cannot run here; the text says why."""


def run(function: str, threads: int = 1, environment: dict | None = None, **arguments) -> dict:
    """Call MODULE:FUNCTION(**arguments) in a process with that many threads; raises Skip if it does."""
    limits = {name: str(threads) for name in ("ESPALIER_THREADS", "POLARS_MAX_THREADS", "OMP_NUM_THREADS")}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = os.environ | limits | {"PYTHONPATH": path} | (environment or {})
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, "-m", "benchmarks.job", function, str(result)]
        try:
            done = subprocess.run(
                command, input=json.dumps(arguments), text=True, env=env, capture_output=True, timeout=PATIENCE
            )
        except subprocess.TimeoutExpired:
            raise Skip(f"not done after {PATIENCE:.0f} seconds") from None
        if not result.exists():
            last = "\n".join(done.stderr.strip().splitlines()[-8:])
            raise EspalierError(f"{function} failed with code {done.returncode}:\n{last}")
        found = json.loads(result.read_text())
    if "skip" in found:
        raise Skip(found["skip"])
    return found | {"threads": threads}


def peak_mib() -> float:
    """Largest resident size of this process so far.

    Linux lets ru_maxrss start from the size of the process that started this one, VmHWM does not.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return (
            next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 2**10
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def main(function: str, result: str) -> None:
    module, _, name = function.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)(**json.load(sys.stdin))
        found.setdefault("peak_mib", round(peak_mib(), 1))
    except Skip as reason:
        found = {"skip": str(reason)}
    Path(result).write_text(json.dumps(found, allow_nan=False))


if __name__ == "__main__":
    from benchmarks.job import main as of_the_package  # one Skip, not a second one of __main__

    of_the_package(*sys.argv[1:])
