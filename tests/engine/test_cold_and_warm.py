"""A process that compiles its kernels and one that finds them in the cache give the same bytes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Enough labels for vectorised loops with a remainder; values and decoders, and if asked every path of a gradient
# and solvers.
PROGRAM = """
import hashlib
import sys
import numpy as np
from espalier import ElasticNet, minimise
from espalier.engine.losses.chain_objective import ChainObjective
from espalier.engine.weights.layout import dense_layout
from espalier.engine.decoding import decode
from espalier.engine.data.dataset import make_dataset

rng = np.random.default_rng(0)
data = make_dataset(rng.integers(-1, 30, (3000, 3)), rng.integers(0, 43, 3000), np.arange(0, 3001, 6))
layout = dense_layout(43, rng.integers(1, 4, 30))
theta = rng.normal(size=layout.size)
digest = hashlib.sha256()
objective = ChainObjective(data, layout)
digest.update(np.float64(objective.value(theta)).tobytes())
for scattered in (True, False) if sys.argv[1:] else ():
    objective = ChainObjective(data, layout)
    objective.scattered = scattered
    value, gradient = objective.value_and_gradient(theta)
    digest.update(gradient.tobytes() + np.float64(value).tobytes() + np.float64(objective.value(theta)).tobytes())
digest.update(decode.marginals(data, layout, theta).tobytes() + decode.viterbi(data, layout, theta).tobytes())
for solver in sys.argv[1:]:
    found = minimise(solver, objective, ElasticNet(0.5, 0.01), max_iterations=2)
    digest.update(found.theta.tobytes())
print(digest.hexdigest())
"""


@pytest.mark.long
@pytest.mark.timeout(3600)  # compiling, which a busy machine draws out
@pytest.mark.parametrize("solvers", [(), ("owlqn", "sbcd", "sgd")])
def test_the_same_bytes_compiled_and_from_the_cache(tmp_path, solvers):
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, *solvers]
    found = [subprocess.run(command, env=env, capture_output=True, text=True) for _ in range(2)]
    assert [done.returncode for done in found] == [0, 0], found[0].stderr + found[1].stderr
    assert list(tmp_path.rglob("*.nbc")), "nothing was cached: the second process proves nothing"
    assert found[0].stdout == found[1].stdout
