"""Runs stages as another machine would: `python other_machine.py FOLDER SOLVER [PROCESSOR]`.

PROCESSOR is what the compiler is told that it runs on; numpy, BLAS and the C library are told by the environment.
"""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS)]

import llvmlite.binding as llvm  # noqa: E402

BEYOND = ("amx", "avx10", "avx512", "avxifma", "avxvnni", "evex512", "vaes", "vpclmulqdq")


def pretend(processor: str) -> None:
    """A processor without anything beyond AVX2."""
    features = llvm.get_host_cpu_features()
    for name in features:
        features[name] = features[name] and not name.startswith(BEYOND)
    llvm.get_host_cpu_name, llvm.get_host_cpu_features = lambda: processor, lambda: features


if __name__ == "__main__":
    folder, solver, *processor = sys.argv[1:]
    if processor:
        pretend(*processor)
    from stage_runs import run_stages, small_params

    params = small_params()
    params.crf.solver = solver
    params.weigh.method = "covariate"
    run_stages(Path(folder), params, "ingest", "template", "weigh", "train", "evaluate")
