"""Shared by bodies: checks and clamping of limits, and the distribution of agents over threads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from equiflock._runtime import threads
from equiflock._runtime.checks import InputError, check_positive, is_finite, shorten_repr
from equiflock._runtime.jit import Array, Index, kernel
from equiflock._runtime.threads import AGENTS_PER_THREAD
from equiflock.protocols import BodyStep

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


def run_over_agents(
    kernel: Callable[..., Any],
    step: BodyStep,
    arguments: tuple[Any, ...],
    agents_per_thread: int = 10 * AGENTS_PER_THREAD,
) -> None:
    """Move all agents of the active flocks of a step, each once, by calls of a kernel on one or several threads.

    A call is kernel(positions, velocities, roles, accelerations, *arguments, flocks, first, last); it moves agents
    first .. last - 1 of `flocks`, an array of indices. Threads share the flocks of a large batch, or the agents of a
    single large flock.

    A thread pays only for at least `agents_per_thread` agents; by default ten times the usual number, as a step of most
    bodies is cheap.
    """
    active, agents, least = step.active, step.positions.shape[1], agents_per_thread
    if len(active) * agents < 2 * least:
        kernel(*step[:4], *arguments, active, 0, agents)
        return
    if len(active) > 1:
        parts = [(active[first:last], 0, agents) for first, last in threads.split_range(len(active), least // agents)]
    else:
        parts = [(active, first, last) for first, last in threads.split_range(agents, least)]
    threads.run_parallel(kernel, [(*step[:4], *arguments, *part) for part in parts])
