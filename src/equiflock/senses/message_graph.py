"""Which messages agents use at a step, as a graph: for connectivity by messages that arrived, and for pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool

from equiflock.runtime.jit import Array, Index, kernel
from equiflock.senses.delayed_messages import is_message_usable
from equiflock.senses.graph import Graph, find_root, unite


def build_message_graph(
    can_receive: Bool[np.ndarray, "B N"],
    steps: range,
    get_reach_graph: Callable[[int], Graph],
    flock_radio: Any,
    window: Any,
    agent_ids: Array,
) -> Graph:
    """Who uses a message of whom now, among those who were within reach of each other at one of these steps.

    Args:
        can_receive: (B, N), who hears anybody at all.
        steps: at which messages were sent that may be heard now.
        get_reach_graph: the graph of those who heard each other at a step if all messages arrived.
        flock_radio: what the kernels are told of the radio, as `equiflock.senses.flock_radio` has it.
        window: delay, jitter and last_known.
        agent_ids: the numbers of agents, if they do not stand in their order in memory; else empty.
    """
    found, (B, N) = np.empty(0, np.int64), can_receive.shape
    for step in steps:
        graph = get_reach_graph(step)
        receivers = np.repeat(np.arange(B * N), graph.degrees.ravel())
        used = np.empty(len(receivers), np.bool_)
        _mark_usable(receivers, graph.senders, N, step, flock_radio, window, agent_ids, used)
        used &= can_receive.ravel()[receivers]
        # An edge is one number; one that several messages went over counts once.
        found = np.union1d(found, receivers[used] * N + graph.senders[used])
    starts = np.zeros(B * N + 1, np.int64)
    np.cumsum(np.bincount(found // N, minlength=B * N), out=starts[1:])
    return Graph(starts, found % N, (B, N))


@kernel
def _mark_usable(
    receivers: Array,
    senders: Array,
    N: Index,
    step: Index,
    flock_radio: Any,
    window: Any,
    agent_ids: Array,
    used: Array,
) -> None:
    """Mark the edges (receiver of all flocks, sender of its flock) whose message of a step may be used now."""
    for e in range(len(receivers)):
        b, i = divmod(receivers[e], N)
        used[e] = is_message_usable(b, i, senders[e], step, flock_radio, window, agent_ids)


def label_components(graph: Graph, member: Bool[np.ndarray, "B N"]) -> Array:
    """Component labels (B, N) of a graph taken without directions, numbered by first agents; -1 for non-members."""
    labels = np.empty(graph.shape, np.int64)
    _label_components(graph.starts, graph.senders, member, labels)
    return labels


@kernel
def _label_components(starts: Array, senders: Array, member: Array, labels: Array) -> None:
    """Write the labels of all flocks."""
    B, N = member.shape
    for b in range(B):
        parent = np.arange(N)
        # Unite the sets of both ends of every edge between members.
        for i in range(N):
            for e in range(starts[b * N + i], starts[b * N + i + 1]):
                if member[b, i] and member[b, senders[e]]:
                    unite(parent, i, senders[e])
        # Number the sets by their smallest agents, which represent them, so they come before all others.
        following = 0
        for i in range(N):
            root = find_root(parent, i)
            if not member[b, i]:
                labels[b, i] = -1
            elif root == i:
                labels[b, i] = following
                following += 1
            else:
                labels[b, i] = labels[b, root]
