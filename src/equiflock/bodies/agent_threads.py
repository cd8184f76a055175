"""Distribution of the agents that a body moves over threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Int64

from equiflock.runtime import threads
from equiflock.runtime.threads import AGENTS_PER_THREAD


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
