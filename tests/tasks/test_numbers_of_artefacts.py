"""What ends in an artefact does not pass through functions that numpy and BLAS choose by the processor."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BY_PROCESSOR = {"exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logaddexp", "power", "sin", "cos", "tanh",
                "dot", "vdot", "inner", "matmul", "tensordot", "linalg"}  # fmt: skip
COMPILED = {"kernel", "apart", "ordered"}  # in a kernel these are the C library's
THEORY = {
    "engine/semisup/asymptotics.py",
    "engine/semisup/finite_samples.py",
}  # figures of experiments, no artefact of a stage
WHOLE_NUMBERS = {"engine/labels/measures.py"}  # products of counts are exact in any order


def sources():
    found = [*ROOT.glob("engine/**/*.py"), *ROOT.glob("tasks/**/*.py")]
    names = {path.relative_to(ROOT).as_posix() for path in found}
    return sorted(name for name in names - THEORY - WHOLE_NUMBERS if not name.startswith("tasks/experiments/"))


def by_processor(tree):
    """(line, what) outside kernels."""
    if isinstance(tree, ast.FunctionDef) and {getattr(one, "id", "") for one in tree.decorator_list} & COMPILED:
        return
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.MatMult):
        yield tree.lineno, "@"
    if isinstance(tree, ast.Attribute) and getattr(tree.value, "id", "") == "np" and tree.attr in BY_PROCESSOR:
        yield tree.lineno, f"np.{tree.attr}"
    for child in ast.iter_child_nodes(tree):
        yield from by_processor(child)


@pytest.mark.parametrize("name", sources())
def test_exp_log_and_products_come_from_our_kernels(name):
    found = list(by_processor(ast.parse((ROOT / name).read_text(encoding="utf-8"))))
    assert found == [], "use engine.runtime.vectors, or math for single numbers"


def test_they_are_seen():
    text = "def f(a):\n    return np.log(a @ a)\n@kernel\ndef g(a):\n    return np.exp(a)\n"
    assert list(by_processor(ast.parse(text))) == [(2, "np.log"), (2, "@")]
