"""The weights of declared features as machine code that kernels call by its address.

A kernel that contained a user's function would have to be compiled anew for every choice of channels, in every process.
So each weight is a small loop of its own, compiled by itself, and the kernels, which are compiled once and kept on
disk, call it with all neighbours of an agent at once.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import UInt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import cfunc, njit, types
from numba.core.errors import NumbaError
from numba.extending import intrinsic

from equiflock.features import Among, Feature, Senses
from equiflock.runtime.checks import InputError

SHORTEST = 1e-8
"""In features, |r_ij| counts as at least this: coincident agents push each other nowhere, and nothing overflows."""

# What a feature is made of, as numbers for kernels.
AMONG: dict[Among, int] = {"all": 0, "same": 1, "others": 2}
ALL, SAME = AMONG["all"], AMONG["same"]

# The C signature of a loop: |r|^2, <r, v> and weights, one of each per neighbour, and how many there are.
_NUMBERS = types.CPointer(types.float64)
_LOOP = types.void(_NUMBERS, _NUMBERS, _NUMBERS, types.intp)
# So many distances, from the shortest to R, are tried.
_PROBES = 2_000
_INNER = (-1.0, -1e-3, 0.0, 1e-3, 1.0)
"""Values of <r, v> / |r| at which a weight of two arguments is checked to be finite."""


ADDRESS, OF_VELOCITY, WHOM, IS_MEAN = range(4)
"""Columns of a channel table: the address of the loop that computes the weights, whether they multiply v_ij rather than
r_ij, whom the channel is made of, and whether it is the mean rather than the sum."""

ChannelTable: TypeAlias = UInt[np.ndarray, "C 4"]
"""The channels of some senses as kernels read them; no rows for the paper's, which have a kernel of their own."""


def channel_table(senses: Senses, comm_radius: float) -> ChannelTable:
    """The table of these channels; a clear error if a weight cannot be compiled, or is not finite up to R."""
    rows: list[tuple[int, ...]] = []
    if senses.paper_aggregation is None:
        for feature, (_, aggregation) in zip(senses.features, senses.channels, strict=True):
            _check_finite(feature, comm_radius)
            # The columns after the address, in their order.
            marks = feature.vector == "velocity", AMONG[feature.among], aggregation == "mean"
            rows.append((compiled_loop(feature).address, *marks))
    return np.array(rows, np.uintp).reshape(-1, 4)


_compiling = threading.Lock()
"""Several threads may want the same weight at once; it must be compiled once, as tables keep its address."""


def compiled_loop(feature: Feature) -> Any:
    """The loop out[n] = weight(squares[n], <r, v>[n]) as a C function; it lives as long as the process."""
    with _compiling:
        return _compiled_loop(feature)


@cache
def _compiled_loop(feature: Feature) -> Any:
    # Division by zero gives infinity or NaN, as in NumPy, which the check below finds; Python would raise.
    weight: Any = njit(error_model="numpy")(feature.weight)
    if feature.uses_velocity:

        def loop(squares: Any, inners: Any, out: Any, count: Any) -> None:
            for n in range(count):
                out[n] = weight(squares[n], inners[n])

    else:

        def loop(squares: Any, inners: Any, out: Any, count: Any) -> None:
            for n in range(count):
                out[n] = weight(squares[n])

    try:
        return cfunc(_LOOP, error_model="numpy")(loop)
    except (NumbaError, TypeError) as error:
        reason = _reason(str(error))
        raise InputError(f"the weight of the feature {feature.name!r} cannot be compiled: {reason}") from None


def _reason(text: str) -> str:
    """The first line of a compiler's long report that says something about the function, without machine code."""
    lines = [line.strip(" -") for line in text.splitlines()]
    telling = (line for line in lines if line and not line.startswith(("Failed in", "Resolution failure", "During:")))
    return next(telling, "unknown").partition(': %"')[0]


@cache
def _check_finite(feature: Feature, comm_radius: float) -> None:
    """A clear error unless the weight is finite for |r| from 1e-8 to R."""
    # Distances by equal factors, as weights may be steep near zero; the last is exactly R.
    distances = np.geomspace(SHORTEST, max(comm_radius, SHORTEST), _PROBES)
    distances[-1] = comm_radius
    for inner in _INNER if feature.uses_velocity else (0.0,):
        # Where the weight raises an error it returns nothing, and NaN stays.
        squares, inners, found = distances**2, distances * inner, np.full(_PROBES, np.nan)
        call = compiled_loop(feature).ctypes
        pointer = call.argtypes[0]
        call(*(array.ctypes.data_as(pointer) for array in (squares, inners, found)), _PROBES)
        # The weight times |r|, the size of the feature, must be finite in float32 too, in which observations are kept.
        with np.errstate(over="ignore"):
            bad = ~np.isfinite((found * distances).astype(np.float32))
        if bad.any():
            n = int(bad.argmax())
            velocity = f", <r, v> = {inners[n]:.3g}" if feature.uses_velocity else ""
            raise InputError(
                f"the weight of the feature {feature.name!r} must be finite for |r| from {SHORTEST:g} to R = "
                f"{comm_radius:g}; it is {found[n]:g} at |r| = {distances[n]:.3g}{velocity}"
            )


@intrinsic
def call_loop(typing: Any, address: Any, squares: Any, inners: Any, out: Any, count: Any) -> Any:
    """In a kernel: call the loop at `address` with the addresses of three float64 arrays and their length."""
    signature = types.void(types.uintp, types.intp, types.intp, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # Numba cannot call an address, so the call is written in LLVM: cast the address to a function, and call it.
        numbers, whole = ir.DoubleType().as_pointer(), ir.IntType(8 * np.intp(0).itemsize)
        function = ir.FunctionType(ir.VoidType(), [numbers, numbers, numbers, whole])
        target, *arrays, length = arguments
        pointers = [builder.inttoptr(array, numbers) for array in arrays]
        builder.call(builder.inttoptr(target, function.as_pointer()), [*pointers, length])
        return context.get_dummy_value()

    return signature, generate
