"""Weights of declared features, compiled to functions that kernels call by address.

A kernel that contained a user's function would have to be recompiled for every choice of channels, in every process.
Instead, each weight is compiled separately into a small loop, and the cached kernels call it for all neighbours of an
agent at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import UInt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import carray, cfunc, njit, types  # type: ignore[attr-defined]
from numba.core.errors import NumbaError
from numba.extending import intrinsic
from numba.np.unsafe.ndarray import to_fixed_tuple
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock.features import Among, Channel, Feature, Senses, find_feature

MIN_DISTANCE = 1e-8
"""Lower bound of |r_ij| in weights: features of coincident agents are zero, and nothing overflows."""

# Values of `among` as integers for kernels.
AMONG_CODES: dict[Among, int] = {"all": 0, "same": 1, "others": 2, "obstacles": 3}
AMONG_ALL, AMONG_SAME, AMONG_OBSTACLES = AMONG_CODES["all"], AMONG_CODES["same"], AMONG_CODES["obstacles"]

# C signature of a loop: options; |r|^2, <r, v> and weights, one of each per neighbour; number of neighbours.
_FLOAT_POINTER = types.CPointer(types.float64)
_LOOP_SIGNATURE = types.void(_FLOAT_POINTER, _FLOAT_POINTER, _FLOAT_POINTER, _FLOAT_POINTER, types.intp)
# Number of distances at which a weight is checked to be finite.
_PROBE_COUNT = 2_000
_PROBE_RADIAL_SPEEDS = (-1.0, -1e-3, 0.0, 1e-3, 1.0)
"""Values of <r, v> / |r| at which a weight of two arguments is checked to be finite."""


LOOP_ADDRESS, OPTIONS_ADDRESS, IS_VELOCITY, AMONG_COLUMN, IS_MEAN = range(5)
"""Columns of a channel table: address of the loop that computes the weights, address of its option values, whether the
weight multiplies v_ij rather than r_ij, code of `among`, and whether the aggregation is the mean."""

ChannelTable: TypeAlias = UInt[np.ndarray, "C 5"]
"""Channels in the form that kernels read."""


def build_senses_table(senses: Senses, comm_radius: float) -> ChannelTable | None:
    """Return the table of the channels, or None if they are exactly the paper's three, which have a dedicated kernel.

    Raise InputError if a weight cannot be compiled or is not finite up to R.
    """
    return None if senses.paper_aggregation is not None else build_channel_table(senses.channels, comm_radius)


def build_channel_table(channels: tuple[Channel, ...], max_distance: float) -> ChannelTable:
    """Return the table of any channels, whose weights are compiled and checked at distances up to `max_distance`.

    Raise InputError if a weight cannot be compiled, or if it, or its product with |r|, is not finite at a sampled
    distance.
    """
    rows: list[tuple[int, ...]] = []
    for name, aggregation in channels:
        feature = find_feature(name)
        _check_finite(feature, max_distance)
        # The columns after the addresses, in their order.
        marks = feature.vector == "velocity", AMONG_CODES[feature.among], aggregation == "mean"
        rows.append((compile_loop(feature).address, _intern_options(feature.options).ctypes.data, *marks))
    return np.array(rows, np.uintp).reshape(-1, 5)


_interned_options: dict[tuple[float, ...], NDArray[np.float64]] = {}


def _intern_options(options: tuple[float, ...]) -> NDArray[np.float64]:
    """Return option values in an array that lives as long as the process, since tables hold its address."""
    # setdefault: concurrent threads all get the same array, whereas functools.cache would keep the last one.
    return _interned_options.setdefault(options, np.array(options, np.float64))


_compile_lock = threading.Lock()
"""Ensures that a weight is compiled once, since tables hold its address."""


def compile_loop(feature: Feature) -> Any:
    """Return the C function of the loop out[n] = weight(squares[n], <r, v>[n], *options); without <r, v> if unused.

    It lives as long as the process. One function serves all option values, so that a slider can change them. Raise
    InputError if the weight cannot be compiled.
    """
    with _compile_lock:
        try:
            return _compile_loop(feature.weight, feature.uses_velocity, len(feature.options))
        except (NumbaError, TypeError) as error:
            reason = _extract_reason(str(error))
            raise InputError(f"the weight of the feature {feature.name!r} cannot be compiled: {reason}") from None


@cache
def _compile_loop(function: Callable[..., float], uses_velocity: bool, count: int) -> Any:
    """Compile the loop of a weight function with `count` options, once per process; raise NumbaError if it fails."""
    # Division by zero gives infinity or NaN, as in NumPy, which `_check_finite` detects; Python would raise.
    weight: Any = njit(error_model="numpy")(function)
    if uses_velocity:

        def loop(options: Any, squares: Any, inners: Any, out: Any, entries: Any) -> None:
            values: Any = to_fixed_tuple(carray(options, count), count)  # type: ignore[call-arg]
            for n in range(entries):
                out[n] = weight(squares[n], inners[n], *values)

    else:

        def loop(options: Any, squares: Any, inners: Any, out: Any, entries: Any) -> None:
            values: Any = to_fixed_tuple(carray(options, count), count)  # type: ignore[call-arg]
            for n in range(entries):
                out[n] = weight(squares[n], *values)

    return cfunc(_LOOP_SIGNATURE, error_model="numpy")(loop)


def _extract_reason(text: str) -> str:
    """Return the first line of a compiler report that describes the error, without machine code."""
    lines = [line.strip(" -") for line in text.splitlines()]
    useful = (line for line in lines if line and not line.startswith(("Failed in", "Resolution failure", "During:")))
    return next(useful, "unknown").partition(': %"')[0]


@cache
def _check_finite(feature: Feature, max_distance: float) -> None:
    """Raise InputError if weight times |r| overflows float32 or is NaN at one of 2,000 |r| from 1e-8 to `max_distance`.

    A weight that depends on <r, v> is checked at several radial speeds. The check runs once per feature and distance.
    """
    # Logarithmic spacing, as weights may be steep near zero; the last distance is exact.
    distances = np.geomspace(MIN_DISTANCE, max(max_distance, MIN_DISTANCE), _PROBE_COUNT)
    distances[-1] = max_distance
    for inner in _PROBE_RADIAL_SPEEDS if feature.uses_velocity else (0.0,):
        # A weight that raises leaves NaN.
        squares, inners, values = distances**2, distances * inner, np.full(_PROBE_COUNT, np.nan)
        call = compile_loop(feature).ctypes
        pointer = call.argtypes[0]
        arrays = _intern_options(feature.options), squares, inners, values
        call(*(array.ctypes.data_as(pointer) for array in arrays), _PROBE_COUNT)
        # Observations are float32, so weight times |r|, the norm of the feature, must be finite in float32.
        with np.errstate(over="ignore"):
            bad = ~np.isfinite((values * distances).astype(np.float32))
        if bad.any():
            n = int(bad.argmax())
            velocity = f", <r, v> = {inners[n]:.3g}" if feature.uses_velocity else ""
            raise InputError(
                f"the weight of the feature {feature.name!r} must be finite, and its product with |r| below 3e38, "
                f"for |r| from {MIN_DISTANCE:g} to {max_distance:g}; "
                f"got {values[n]:g} at |r| = {distances[n]:.3g}{velocity}"
            )


@intrinsic
def call_loop(typing: Any, address: Any, options: Any, squares: Any, inners: Any, out: Any, count: Any) -> Any:
    """Call a loop of `compile_loop` from a kernel, by its address.

    `options`, `squares`, `inners` and `out` are addresses of float64 arrays, the last three of length `count`. Nothing
    is checked.
    """
    signature = types.void(types.uintp, types.uintp, types.intp, types.intp, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # Numba cannot call an address, so this emits LLVM: cast the address to a function pointer and call it.
        numbers, whole = ir.DoubleType().as_pointer(), ir.IntType(8 * np.intp(0).itemsize)
        function = ir.FunctionType(ir.VoidType(), [numbers, numbers, numbers, numbers, whole])
        target, *arrays, length = arguments
        pointers = [builder.inttoptr(array, numbers) for array in arrays]
        builder.call(builder.inttoptr(target, function.as_pointer()), [*pointers, length])
        return context.get_dummy_value()

    return signature, generate
