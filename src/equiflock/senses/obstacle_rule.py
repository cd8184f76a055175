"""The obstacle rule over lists: which obstacle agents each agent of a batch hears, and with which velocity."""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.runtime.jit import Array, Index, kernel
from equiflock.senses.listing import BATCH, take_offsets
from equiflock.senses.orbit import sort_out_obstacles


@kernel
def rule_memory() -> tuple[Array, Array, Array]:
    """Memory for what `sort_out_obstacles` finds for each agent of a batch: nothing, so far.

    That is the velocity that the nearest obstacle agent is taken to have, its record, and how many obstacle agents have
    another velocity than their own.
    """
    return np.zeros((BATCH, 2)), np.zeros(BATCH, np.uintp), np.zeros(BATCH, np.int64)


@kernel
def apply_rule(
    first: Index, agents: Index, lists: Any, records: Any, roles: Array, numbering: Any, rules: Any, rule: Any
) -> None:
    """Apply the obstacle rule to the lists of a batch of agents, whose records begin with `first`."""
    place, motion, _ = records
    senders, _, ends = lists
    taken, nearest, rims = rule
    begin, kept = np.uintp(0), np.uintp(0)
    for a in range(agents):
        # Which obstacle agents count, and with which velocity.
        end, nearest[a], rims[a], taken[a, 0], taken[a, 1] = sort_out_obstacles(
            first + a, begin, ends[a], senders, place, motion, roles, numbering, rules
        )
        # Lists become shorter by it, and move together.
        head = kept
        for e in range(begin, end):
            senders[kept] = senders[e]
            kept += np.uintp(1)
        take_offsets(2, first + a, place, lists, head, kept)
        begin, ends[a] = ends[a], kept
