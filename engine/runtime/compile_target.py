"""For which processor kernels are compiled.

The compiler would compile for the processor at hand. One with wider vectors adds up in another order, so the last bits
of a model would tell on which machine it was made. On x86-64 we compile for what all such processors with AVX2 have
in common; the same versions of the packages and of the C library then make the same bytes on all of them.
Other processors, and whoever sets NUMBA_CPU_NAME, get code of their own: the same bytes on machines of that kind.
"""

import os
import platform

import llvmlite.binding as llvm

COMMON = "x86-64-v3"
# What the x86-64 psABI asks of it.
NEEDED = (
    "cmov", "cx8", "fxsr", "mmx", "sse", "sse2", "cx16", "sahf", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2",
    "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave",
)  # fmt: skip


def common_target() -> str | None:
    """The target that machines have in common; None where this one is of another kind."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return None
    features = llvm.get_host_cpu_features()
    return COMMON if all(features.get(name) for name in NEEDED) else None


def compile_target() -> str:
    """The processor that kernels are compiled for, in words."""
    chosen = os.environ.get("NUMBA_CPU_NAME")
    if chosen:
        return f"{chosen} (NUMBA_CPU_NAME)"
    return common_target() or f"{llvm.get_host_cpu_name()}, this processor alone"


def pin(config) -> None:
    """Set the target in numba's configuration, unless the environment names one."""
    target = common_target()
    if config.CPU_NAME is None and config.CPU_FEATURES is None and target:
        # No more features than the target's own: without this the host's would be added.
        config.CPU_NAME, config.CPU_FEATURES = target, ""
