"""Shared by bodies: checks and clamping of limits, and the distribution of agents over threads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Int64

from equiflock._runtime import threads
from equiflock._runtime.checks import InputError, check_positive, is_finite, shorten_repr
from equiflock._runtime.jit import Array, Index, kernel
from equiflock._runtime.threads import AGENTS_PER_THREAD

# Limits of bodies: checks of their values, and the clamping of vectors.

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


# Distribution of the agents that a body moves over threads.


def run_over_agents(
    kernel: Callable[..., Any], arguments: tuple[Any, ...], agents: int, active: Int64[np.ndarray, " active"]
) -> None:
    """Call kernel(*arguments, flocks, first, last) so that it moves all agents of the active flocks exactly once.

    A large batch is distributed over threads: several flocks by flock, a single flock by agents. Otherwise there is one
    call on this thread.

    Args:
        kernel: function that moves agents first .. last - 1 of `flocks`, an array of indices.
        arguments: its leading arguments.
        agents: N.
        active: indices of the flocks to move.
    """
    # Threads share the flocks, or the agents of a single flock. A step of the body is cheap, so a thread pays only for
    # ten times the usual number of agents.
    least = 10 * AGENTS_PER_THREAD
    if len(active) * agents < 2 * least:
        parts = [(active, 0, agents)]
    elif len(active) > 1:
        parts = [(active[first:last], 0, agents) for first, last in threads.split_range(len(active), least // agents)]
    else:
        parts = [(active, first, last) for first, last in threads.split_range(agents, least)]
    threads.run_parallel(kernel, [(*arguments, *part) for part in parts])
