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

from espalier.engine.errors import EspalierError

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 900.0  # seconds that a job may take


class Skip(Exception):
    """A case or a system that cannot run here; the text says why."""


def run(function: str, threads: int = 1, /, **arguments) -> dict:
    """Call MODULE:FUNCTION(**arguments) in a process with that many threads; raises Skip if it does."""
    limits = {name: str(threads) for name in ("ESPALIER_THREADS", "POLARS_MAX_THREADS", "OMP_NUM_THREADS")}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = os.environ | limits | {"PYTHONPATH": path}
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


def largest_mib(who: int) -> float:
    """Largest resident size by getrusage, which counts in bytes on macOS and in KiB elsewhere."""
    return resource.getrusage(who).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def peak_mib() -> float:
    """Largest resident size of this process so far.

    On Linux ru_maxrss may be that of the process which started this one, VmHWM is not.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return largest_mib(resource.RUSAGE_SELF)
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 2**10


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
