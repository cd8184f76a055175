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


def wide_kernel(function: Function) -> Function:
    """Compile `function` at its first call like any kernel, with both vectorisers."""
    compiled: Any = kernel(function)
    compile_plainly: Any = getattr(compiled, "compile", None)  # not under NUMBA_DISABLE_JIT=1

    def compile_wide(signature: Any) -> Any:
        # Numba compiles one function at a time, so nobody else sees the setting.
        with global_compiler_lock:
            before = config.SLP_VECTORIZE  # type: ignore[attr-defined]
            config.SLP_VECTORIZE = 1  # type: ignore[attr-defined]
            try:
                return compile_plainly(signature)
            finally:
                config.SLP_VECTORIZE = before  # type: ignore[attr-defined]

    if compile_plainly is not None:
        compiled.compile = compile_wide
    return cast(Function, compiled)
