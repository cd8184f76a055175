"""The obstacle rule for a batch: which obstacle agents each agent observes, and with which velocity."""

from __future__ import annotations

import numpy as np

from equiflock.runtime.jit import Array, Index, kernel
from equiflock.senses.batch_types import Records, RuleResult
from equiflock.senses.cell_list import Numbering
from equiflock.senses.neighbour_lists import BATCH_AGENTS, NeighbourLists, compute_offsets
from equiflock.senses.orbit import ObstacleRule, select_obstacles


@kernel
def make_rule_buffers() -> RuleResult:
    """Allocate the result for a batch, filled with zeros."""
    return RuleResult(np.zeros((BATCH_AGENTS, 2)), np.zeros(BATCH_AGENTS, np.uintp), np.zeros(BATCH_AGENTS, np.int64))


@kernel
def apply_obstacle_rule(
    first: Index,
    agents: Index,
    lists: NeighbourLists,
    records: Records,
    roles: Array,
    numbering: Numbering,
    obstacle_rule: ObstacleRule,
    rule_result: RuleResult,
) -> None:
    """Apply the obstacle rule to the lists of a batch of agents, whose records begin with `first`.

    This shortens the lists in place if only the nearest obstacle agent counts, recomputes their offsets, and writes
    `rule_result`.
    """
    record_positions, record_velocities = records.positions, records.velocities
    senders, ends = lists.senders, lists.ends
    virtual_velocities, nearest, obstacle_counts = rule_result
    begin, kept = np.uintp(0), np.uintp(0)
    for a in range(agents):
        # Which obstacle agents count, and with which velocity.
        selection = select_obstacles(
            first + a, begin, ends[a], senders, record_positions, record_velocities, roles, numbering, obstacle_rule
        )
        end, nearest[a], obstacle_counts[a] = selection.end, selection.nearest, selection.count
        virtual_velocities[a, 0], virtual_velocities[a, 1] = selection.vx, selection.vy
        # Lists become shorter; close the gaps between them.
        head = kept
        for e in range(begin, end):
            senders[kept] = senders[e]
            kept += np.uintp(1)
        compute_offsets(2, first + a, record_positions, lists, head, kept)
        begin, ends[a] = ends[a], kept
