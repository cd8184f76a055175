"""Compilation of kernels by Numba, without the GIL and cached on disk (`kernel_cache`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

from numba import config, njit, types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numpy import float32
from numpy.typing import NDArray

from equiflock._runtime import compile_progress
from equiflock._runtime.kernel_cache import KernelCache

Array: TypeAlias = NDArray[Any]
Index: TypeAlias = Any
"""Signed or unsigned integer in a kernel. Unsigned indices are faster, as Numba need not check their sign."""

Function = TypeVar("Function", bound=Callable[..., Any])

compile_progress.register_listener()


def kernel(function: Function, fastmath: bool = False) -> Function:
    """Compile `function` at its first call, or load it from the cache; it releases the GIL.

    Only kernels of this package are cached, since its sources are the key of the cache.
    """
    # error_model="numpy": a division by zero gives infinity or NaN, without a test and a branch for it.
    compiled: Any = njit(nogil=True, error_model="numpy", fastmath=fastmath)(function)
    if hasattr(compiled, "_cache") and function.__module__.startswith("equiflock."):  # not under NUMBA_DISABLE_JIT=1
        compiled._cache = KernelCache(function)
    return cast(Function, compiled)


def inline_kernel(function: Function) -> Function:
    """Compile `function` inline into every kernel that calls it, for use in inner loops."""
    return cast(Function, njit(inline="always", nogil=True, error_model="numpy")(function))


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def fma(a: Any, b: Any, c: Any) -> Any:
        """Return a b + c."""
        return a * b + c

    def as_read_only_array(array: Any) -> Any:
        """Return the array."""
        return array

else:

    @intrinsic
    def fma(context: Any, a: Any, b: Any, c: Any) -> Any:
        """Return a b + c of three float32, rounded once.

        With fastmath the compiler would choose where to fuse, differently for a kernel alone and inlined into another;
        explicit calls keep the bits the same.
        """
        return types.float32(types.float32, types.float32, types.float32), _build_fma

    @intrinsic
    def as_read_only_array(context: Any, array: Any) -> Any:
        """Return a read-only view inside a kernel, so that callees are compiled once for both kinds of arrays."""
        return array.copy(readonly=True)(array), _build_view


def _build_view(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return impl_ret_borrowed(context, builder, signature.return_type, arguments[0])


def _build_fma(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.fma(*arguments)


PEAK_LANES = 128
"""Number of float32 that fit into the vector registers of a core."""


@kernel
def copy_array(source: Array, target: Array) -> None:
    """Copy an array, limited by memory bandwidth."""
    for i in range(source.size):
        target[i] = source[i]


@partial(kernel, fastmath=True)
def multiply_add(lanes: Array, rounds: Index) -> None:
    """Compute x <- 0.99 x + 0.01 `rounds` times for all lanes, limited by arithmetic throughput."""
    for _ in range(rounds):
        for lane in range(PEAK_LANES):
            lanes[lane] = lanes[lane] * float32(0.99) + float32(0.01)
