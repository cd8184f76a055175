"""Kernels compiled with LLVM's SLP vectoriser.

LLVM has two vectorisers: one turns loops into vector instructions, the other (SLP) adjacent statements, such as sums of
p0, p1, p2 .. over records in which these are adjacent in memory. Numba enables the second only with the setting
NUMBA_SLP_VECTORIZE. Neither changes the order of a sum, so results are bit-identical with and without it.
"""

from __future__ import annotations

from typing import Any, cast

from numba import config
from numba.core.compiler_lock import global_compiler_lock

from equiflock.runtime.jit import Function, kernel

SLP_SETTING = "SLP_VECTORIZE"
"""The name in `numba.config`; in versions of Numba without it, kernels are merely slower."""


def slp_kernel(function: Function) -> Function:
    """Compile `function` at its first call like any kernel, with both vectorisers."""
    compiled: Any = kernel(function)
    if not hasattr(compiled, "compile"):  # under NUMBA_DISABLE_JIT=1
        return cast(Function, compiled)
    compile_plainly = compiled.compile

    def compile_wide(signature: Any) -> Any:
        # Under this lock Numba compiles one function at a time, so no other function is compiled with the setting.
        with global_compiler_lock:
            before = getattr(config, SLP_SETTING, 0)
            setattr(config, SLP_SETTING, 1)
            try:
                return compile_plainly(signature)
            finally:
                setattr(config, SLP_SETTING, before)

    compiled.compile = compile_wide
    return cast(Function, compiled)
