"""How kernels are compiled: by Numba, without Python's lock, and cached on disk between runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from numba import config, njit, types
from numba.extending import intrinsic
from numpy import float32
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Index: TypeAlias = Any
"""In a kernel: an integer, signed or not. Unsigned ones are faster to index with, as no test for a sign is needed."""

Function = TypeVar("Function", bound=Callable[..., Any])

PARTS_WITH_KERNELS = ("runtime", "pairs", "senses", "bodies", "controllers", "scenarios", "simulation", "learning")
"""Kernels, and the constants in them, are in these parts of the package and in the modules at its top."""


def _stamp() -> tuple[float, int]:
    """Newest change and total size of all source files that kernels may depend on."""
    package = Path(__file__).parent.parent
    sources = [*package.glob("*.py"), *(path for part in PARTS_WITH_KERNELS for path in (package / part).rglob("*.py"))]
    files = [path.stat() for path in sources]
    return max(file.st_mtime for file in files), sum(file.st_size for file in files)


_STAMP = _stamp()


def kernel(function: Function) -> Function:
    """Compile `function` at its first call.

    Numba compiles a cached kernel anew only when its own file changes, though kernels of other files may be compiled
    into it; here a change of any file in the parts that have kernels does it.
    """
    # error_model="numpy": a division by zero gives infinity or NaN, without a test and a branch for it.
    compiled: Any = njit(nogil=True, cache=True, error_model="numpy")(function)
    if hasattr(compiled, "_cache"):  # not under NUMBA_DISABLE_JIT=1
        compiled._cache._cache_file._source_stamp = _STAMP
    return cast(Function, compiled)


def inlined(function: Function) -> Function:
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


def _build_fma(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.fma(*arguments)


# Two kernels for benchmarks, which measure the most that a machine can do.

PEAK_LANES = 128
"""Numbers that fit into a core's registers."""


@kernel
def copy(source: Array, target: Array) -> None:
    """Copy an array: as fast as memory can be read and written."""
    for i in range(source.size):
        target[i] = source[i]


@njit(nogil=True, cache=True, fastmath=True)
def multiply_add(lanes: Array, rounds: Index) -> None:
    """X <- 0.99 x + 0.01 so many times for all lanes: as fast as a core can compute."""
    for _ in range(rounds):
        for lane in range(PEAK_LANES):
            lanes[lane] = lanes[lane] * float32(0.99) + float32(0.01)
