"""Structures that several kernels of the aggregation share."""

from __future__ import annotations

from typing import NamedTuple

from equiflock.runtime.jit import Array


class Records(NamedTuple):
    """The messages of all agents of one flock.

    If messages are delayed, rows 0 .. N - 1 are the state at the send step, and rows N .. 2 N - 1 that of the receivers
    now, in the same order. In `delayed_messages` a row stands for (slot, flock, agent).
    """

    positions: Array
    """(D, rows + COPY_CHUNK) float64."""
    velocities: Array
    """(rows, D) float64."""
    older_hops: Array
    """(N, padded) float32: z^1 .. z^(K-1) of the step before sending, padded by zeros to whole cache lines."""


class RolesGroups(NamedTuple):
    """Roles and groups of agents: of one flock, (N,), or in `delayed_messages` of all flocks, (B N,)."""

    roles: Array
    """int8."""
    groups: Array
    """int32."""


class RuleResult(NamedTuple):
    """The fields of `ObstacleSelection` for each agent of a batch; all zero if the flock has no obstacle agents."""

    virtual_velocities: Array
    """(BATCH_AGENTS, 2) float64: v_ij of the nearest obstacle agent by the orbit technique."""
    nearest: Array
    """(BATCH_AGENTS,) uintp: the record of the nearest obstacle agent."""
    obstacle_counts: Array
    """(BATCH_AGENTS,) int64: obstacle agents whose relative velocity is replaced."""
