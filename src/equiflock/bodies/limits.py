"""Limits of bodies: checks of their values, and the clamping of vectors."""

from __future__ import annotations

import math

from equiflock.runtime.checks import InputError, check_positive, is_finite, shorten_repr
from equiflock.runtime.jit import Array, Index, kernel

NO_LIMIT = math.inf


def check_limits(body: object, *names: str) -> None:
    """Raise InputError if one of these fields is neither None, for no limit, nor a finite number above 0."""
    for name in names:
        if getattr(body, name) is not None:
            check_positive(name, getattr(body, name))


def check_not_negative(body: object, *names: str) -> None:
    """Raise InputError if one of these fields is not a finite number, or is below 0."""
    for name in names:
        value = getattr(body, name)
        if not is_finite(value) or value < 0:
            raise InputError(f"{name} must be a finite number of at least 0; got {shorten_repr(value)}")


def resolve_limit(limit: float | None) -> float:
    """Return a limit as kernels take it: infinity for None."""
    return NO_LIMIT if limit is None else float(limit)


@kernel
def compute_clamp_factor(vectors: Array, b: Index, i: Index, max_norm: float) -> float:
    """Return the factor that scales vectors[b, i] down to the 2-norm `max_norm`; exactly 1 if it is not longer."""
    # Most vectors are well within the limit, which needs no division.
    largest, square = 0.0, 0.0
    for d in range(vectors.shape[2]):
        largest = max(largest, abs(vectors[b, i, d]))
        square += vectors[b, i, d] * vectors[b, i, d]
    if square < max_norm * max_norm or largest == 0.0:
        return 1.0
    # The norm relative to the largest entry, whose squares do not overflow.
    square = 0.0
    for d in range(vectors.shape[2]):
        square += (vectors[b, i, d] / largest) ** 2
    norm = math.sqrt(square)
    return 1.0 if largest * norm <= max_norm else max_norm / largest / norm
