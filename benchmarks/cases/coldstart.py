"""How long a new process takes to its first result, with compiled kernels at hand and without."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from benchmarks.cases import Context
from benchmarks.job import ROOT, largest_mib
from benchmarks.rows import OURS

IMPORT = "import espalier"
FIT = """
from espalier import CRF
X = [["the", "dog", "barks"], ["a", "cat", "sleeps"], ["the", "cat", "barks"]] * 5
CRF().fit(X, [["D", "N", "V"]] * 15).predict(X)
"""


def rows(context: Context) -> Iterator[dict]:
    """Whole processes, from the start of Python to its end."""
    with tempfile.TemporaryDirectory() as folder:
        steps = (
            ("import espalier", IMPORT),
            ("first fit ever, empty compile cache", FIT),
            ("first fit, warm compile cache", FIT),
        )
        for setting, program in steps[:1] if context.quick else steps:
            found = context.job("coldstart:process", OURS, setting, 2, program=program, cache=folder)
            if found:
                yield context.row(OURS, setting, found)


def process(data: str, quick: bool, program: str, cache: str) -> dict:
    """Seconds and peak memory of a process that runs the program with this compile cache."""
    env = os.environ | {"NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)}
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], env=env, check=True, capture_output=True)
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "peak_mib": round(largest_mib(resource.RUSAGE_CHILDREN), 1)}
