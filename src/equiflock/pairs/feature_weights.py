"""The weights of declared features as machine code that kernels call by its address.

A kernel that contained a user's function would have to be compiled anew for every choice of channels, in every process.
So each weight is a small loop of its own, compiled by itself, and the kernels, which are compiled once and kept on
disk, call it with all neighbours of an agent at once.
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

from equiflock.features import Among, Channel, Feature, Senses, find_feature
from equiflock.runtime.checks import InputError

MIN_DISTANCE = 1e-8
"""In features, |r_ij| counts as at least this: coincident agents push each other nowhere, and nothing overflows."""

# What a feature is made of, as numbers for kernels.
AMONG_CODES: dict[Among, int] = {"all": 0, "same": 1, "others": 2, "obstacles": 3}
AMONG_ALL, AMONG_SAME, AMONG_OBSTACLES = AMONG_CODES["all"], AMONG_CODES["same"], AMONG_CODES["obstacles"]

# The C signature of a loop: the options, |r|^2, <r, v> and weights, one of each per neighbour, and how many there are.
_FLOAT_POINTER = types.CPointer(types.float64)
_LOOP_SIGNATURE = types.void(_FLOAT_POINTER, _FLOAT_POINTER, _FLOAT_POINTER, _FLOAT_POINTER, types.intp)
# So many distances, from the shortest to the farthest, are tried.
_PROBE_COUNT = 2_000
_PROBE_RADIAL_SPEEDS = (-1.0, -1e-3, 0.0, 1e-3, 1.0)
"""Values of <r, v> / |r| at which a weight of two arguments is checked to be finite."""


LOOP_ADDRESS, OPTIONS_ADDRESS, IS_VELOCITY, AMONG_COLUMN, IS_MEAN = range(5)
"""Columns of a channel table: the address of the loop that computes the weights, that of the values of its options,
whether the weights multiply v_ij rather than r_ij, whom the channel is made of, and whether it is the mean rather than
the sum."""

ChannelTable: TypeAlias = UInt[np.ndarray, "C 5"]
"""The channels of some senses as kernels read them."""


def build_senses_table(senses: Senses, comm_radius: float) -> ChannelTable | None:
    """The table of these channels, None for the paper's, which have a kernel of their own.

    A clear error if a weight cannot be compiled, or is not finite up to R.
    """
    return None if senses.paper_aggregation is not None else build_channel_table(senses.channels, comm_radius)


def build_channel_table(channels: tuple[Channel, ...], max_distance: float) -> ChannelTable:
    """The table of any channels, whose weights must be finite up to a distance."""
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
    """The values of options where kernels find them, for as long as the process lives: tables hold their address."""
    # Of several threads that are here at once all get the array of the first, which stays; a cache keeps the last one.
    return _interned_options.setdefault(options, np.array(options, np.float64))


_compile_lock = threading.Lock()
"""Several threads may want the same weight at once; it must be compiled once, as tables keep its address."""


def compile_loop(feature: Feature) -> Any:
    """The loop out[n] = weight(squares[n], <r, v>[n], *options) as a C function; it lives as long as the process.

    It is the same for all values of the options, so that a slider may move them.
    """
    with _compile_lock:
        try:
            return _compile_loop(feature.weight, feature.uses_velocity, len(feature.options))
        except (NumbaError, TypeError) as error:
            reason = _extract_reason(str(error))
            raise InputError(f"the weight of the feature {feature.name!r} cannot be compiled: {reason}") from None


@cache
def _compile_loop(function: Callable[..., float], uses_velocity: bool, count: int) -> Any:
    # Division by zero gives infinity or NaN, as in NumPy, which the check below finds; Python would raise.
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
    """The first line of a compiler's long report that says something about the function, without machine code."""
    lines = [line.strip(" -") for line in text.splitlines()]
    telling = (line for line in lines if line and not line.startswith(("Failed in", "Resolution failure", "During:")))
    return next(telling, "unknown").partition(': %"')[0]


@cache
def _check_finite(feature: Feature, max_distance: float) -> None:
    """A clear error unless the weight is finite for |r| from 1e-8 to a distance, R for agents that hear."""
    # Distances by equal factors, as weights may be steep near zero; the last is exactly the farthest.
    distances = np.geomspace(MIN_DISTANCE, max(max_distance, MIN_DISTANCE), _PROBE_COUNT)
    distances[-1] = max_distance
    for inner in _PROBE_RADIAL_SPEEDS if feature.uses_velocity else (0.0,):
        # Where the weight raises an error it returns nothing, and NaN stays.
        squares, inners, found = distances**2, distances * inner, np.full(_PROBE_COUNT, np.nan)
        call = compile_loop(feature).ctypes
        pointer = call.argtypes[0]
        arrays = _intern_options(feature.options), squares, inners, found
        call(*(array.ctypes.data_as(pointer) for array in arrays), _PROBE_COUNT)
        # The weight times |r|, the size of the feature, must be finite in float32 too, in which observations are kept.
        with np.errstate(over="ignore"):
            bad = ~np.isfinite((found * distances).astype(np.float32))
        if bad.any():
            n = int(bad.argmax())
            velocity = f", <r, v> = {inners[n]:.3g}" if feature.uses_velocity else ""
            raise InputError(
                f"the weight of the feature {feature.name!r} must be finite, and its product with |r| below 3e38, "
                f"for |r| from {MIN_DISTANCE:g} to {max_distance:g}; it is {found[n]:g} at |r| = {distances[n]:.3g}{velocity}"
            )


@intrinsic
def call_loop(typing: Any, address: Any, options: Any, squares: Any, inners: Any, out: Any, count: Any) -> Any:
    """In a kernel: call the loop at `address` with the addresses of four float64 arrays and the length of three."""
    signature = types.void(types.uintp, types.uintp, types.intp, types.intp, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # Numba cannot call an address, so the call is written in LLVM: cast the address to a function, and call it.
        numbers, whole = ir.DoubleType().as_pointer(), ir.IntType(8 * np.intp(0).itemsize)
        function = ir.FunctionType(ir.VoidType(), [numbers, numbers, numbers, numbers, whole])
        target, *arrays, length = arguments
        pointers = [builder.inttoptr(array, numbers) for array in arrays]
        builder.call(builder.inttoptr(target, function.as_pointer()), [*pointers, length])
        return context.get_dummy_value()

    return signature, generate
