"""How kernels are compiled: by Numba, without Python's lock, and cached on disk (`runtime.kernel_cache`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

from numba import config, njit, types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numpy import float32
from numpy.typing import NDArray

from equiflock.runtime import compile_progress
from equiflock.runtime.kernel_cache import KernelCache

Array: TypeAlias = NDArray[Any]
Index: TypeAlias = Any
"""In a kernel: an integer, signed or not. Unsigned ones are faster to index with, as no test for a sign is needed."""

Function = TypeVar("Function", bound=Callable[..., Any])

compile_progress.register_listener()


def kernel(function: Function, fastmath: bool = False) -> Function:
    """Compile `function` at its first call, or take it from the cache.

    Only kernels of this package are cached, as the cache is keyed by its sources.
    """
    # error_model="numpy": a division by zero gives infinity or NaN, without a test and a branch for it.
    compiled: Any = njit(nogil=True, error_model="numpy", fastmath=fastmath)(function)
    if hasattr(compiled, "_cache") and function.__module__.startswith("equiflock."):  # not under NUMBA_DISABLE_JIT=1
        compiled._cache = KernelCache(function)
    return cast(Function, compiled)


def inline_kernel(function: Function) -> Function:
    """A part of a kernel's inner loop, compiled into each kernel that calls it, without the cost of a call."""
    return cast(Function, njit(inline="always", nogil=True, error_model="numpy")(function))


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def fma(a: Any, b: Any, c: Any) -> Any:
        """The sum a b + c."""
        return a * b + c

else:

    @intrinsic
    def fma(context: Any, a: Any, b: Any, c: Any) -> Any:
        """The sum a b + c of three float32, rounded once.

        Numba's fastmath would let the compiler choose where to fuse a product with a sum, and it chooses differently
        for a kernel by itself and for the same kernel inside another; so sums that shall be fused say so.
        """
        return types.float32(types.float32, types.float32, types.float32), _build_fma


if config.DISABLE_JIT:  # type: ignore[attr-defined]

    def as_read_only_array(array: Any) -> Any:
        """The array itself."""
        return array

else:

    @intrinsic
    def as_read_only_array(context: Any, array: Any) -> Any:
        """In a kernel: a read-only view of an array, so that a kernel is compiled once for both kinds of arrays."""
        return array.copy(readonly=True)(array), _build_view


def _build_view(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return impl_ret_borrowed(context, builder, signature.return_type, arguments[0])


def _build_fma(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.fma(*arguments)


# Two kernels for benchmarks, which measure the most that a machine can do.

PEAK_LANES = 128
"""Numbers that fit into a core's registers."""


@kernel
def copy_array(source: Array, target: Array) -> None:
    """Copy an array: as fast as memory can be read and written."""
    for i in range(source.size):
        target[i] = source[i]


@partial(kernel, fastmath=True)
def multiply_add(lanes: Array, rounds: Index) -> None:
    """X <- 0.99 x + 0.01 so many times for all lanes: as fast as a core can compute."""
    for _ in range(rounds):
        for lane in range(PEAK_LANES):
            lanes[lane] = lanes[lane] * float32(0.99) + float32(0.01)
