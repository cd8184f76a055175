"""Kernels that add up several numbers side by side, compiled for it.

LLVM has two vectorisers: one makes vector instructions of loops, the other of neighbouring statements, such as sums of
p0, p1, p2 .. over records in which these are neighbours in memory. Numba leaves the second one out unless it is told
otherwise (NUMBA_SLP_VECTORIZE). Neither changes the order of a sum, so results are the same bits with it and without.
"""

from __future__ import annotations

from typing import Any, cast

from numba import config
from numba.core.compiler_lock import global_compiler_lock

from equiflock.runtime.jit import Function, kernel

SLP_SETTING = "SLP_VECTORIZE"
"""The name in `numba.config`; where a version of Numba has none, kernels are merely slower."""


def slp_kernel(function: Function) -> Function:
    """Compile `function` at its first call like any kernel, with both vectorisers."""
    compiled: Any = kernel(function)
    if not hasattr(compiled, "compile"):  # under NUMBA_DISABLE_JIT=1
        return cast(Function, compiled)
    compile_plainly = compiled.compile

    def compile_wide(signature: Any) -> Any:
        # Numba compiles one function at a time, so nobody else sees the setting.
        with global_compiler_lock:
            before = getattr(config, SLP_SETTING, 0)
            setattr(config, SLP_SETTING, 1)
            try:
                return compile_plainly(signature)
            finally:
                setattr(config, SLP_SETTING, before)

    compiled.compile = compile_wide
    return cast(Function, compiled)
