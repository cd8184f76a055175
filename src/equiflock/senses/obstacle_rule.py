"""The obstacle rule over lists: which obstacle agents each agent of a batch hears, and with which velocity."""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.runtime.jit import Array, Index, kernel
from equiflock.senses.neighbour_lists import BATCH_AGENTS, compute_offsets
from equiflock.senses.orbit import select_obstacles


@kernel
def make_rule_buffers() -> tuple[Array, Array, Array]:
    """Memory for what `select_obstacles` finds for each agent of a batch: nothing, so far.

    That is the velocity that the nearest obstacle agent is taken to have, its record, and how many obstacle agents have
    another velocity than their own.
    """
    return np.zeros((BATCH_AGENTS, 2)), np.zeros(BATCH_AGENTS, np.uintp), np.zeros(BATCH_AGENTS, np.int64)


@kernel
def apply_obstacle_rule(
    first: Index,
    agents: Index,
    lists: Any,
    records: Any,
    roles: Array,
    numbering: Any,
    obstacle_rule: Any,
    rule_result: Any,
) -> None:
    """Apply the obstacle rule to the lists of a batch of agents, whose records begin with `first`."""
    record_positions, record_velocities, _ = records
    senders, _, ends = lists
    taken, nearest, obstacle_counts = rule_result
    begin, kept = np.uintp(0), np.uintp(0)
    for a in range(agents):
        # Which obstacle agents count, and with which velocity.
        end, nearest[a], obstacle_counts[a], taken[a, 0], taken[a, 1] = select_obstacles(
            first + a, begin, ends[a], senders, record_positions, record_velocities, roles, numbering, obstacle_rule
        )
        # Lists become shorter by it, and move together.
        head = kept
        for e in range(begin, end):
            senders[kept] = senders[e]
            kept += np.uintp(1)
        compute_offsets(2, first + a, record_positions, lists, head, kept)
        begin, ends[a] = ends[a], kept
