"""The message graph: whose messages each agent uses at a step, for connectivity by messages and for pictures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool

from equiflock.runtime.jit import Array, Index, kernel
from equiflock.senses.delayed_messages import MessageWindow, is_message_usable
from equiflock.senses.graph import Graph, find_root, unite
from equiflock.senses.radio_kernels import RadioArgs


def build_message_graph(
    can_receive: Bool[np.ndarray, "B N"],
    steps: range,
    get_reach_graph: Callable[[int], Graph],
    radio_args: RadioArgs,
    window: MessageWindow,
    agent_ids: Array,
) -> Graph:
    """Return the graph of the messages used now; an edge counts once, whatever the number of its messages.

    Args:
        can_receive: (B, N), which agents receive at all.
        steps: the send steps of messages that can be used now, a half-open range.
        get_reach_graph: returns the graph of a step if all messages arrived.
        radio_args: the radio; its step is the step now.
        window: when messages are used.
        agent_ids: (N,), as in `Numbering`.
    """
    edges, (B, N) = np.empty(0, np.int64), can_receive.shape
    for step in steps:
        graph = get_reach_graph(step)
        receivers = np.repeat(np.arange(B * N), graph.degrees.ravel())
        used = np.empty(len(receivers), np.bool_)
        _mark_usable(receivers, graph.senders, N, step, radio_args, window, agent_ids, used)
        used &= can_receive.ravel()[receivers]
        # An edge is one number, receiver * N + sender; with several messages it counts once.
        edges = np.union1d(edges, receivers[used] * N + graph.senders[used])
    starts = np.zeros(B * N + 1, np.int64)
    np.cumsum(np.bincount(edges // N, minlength=B * N), out=starts[1:])
    return Graph(starts, edges % N, (B, N))


@kernel
def _mark_usable(
    receivers: Array,
    senders: Array,
    N: Index,
    step: Index,
    radio_args: RadioArgs,
    window: MessageWindow,
    agent_ids: Array,
    used: Array,
) -> None:
    """Write into used (edges,) whether the message of a step along each edge is usable now.

    receivers[e] is b N + i for agent i of flock b; senders[e] is an index within that flock.
    """
    for e in range(len(receivers)):
        b, i = divmod(receivers[e], N)
        used[e] = is_message_usable(b, i, senders[e], step, radio_args, window, agent_ids)


def label_components(graph: Graph, member: Bool[np.ndarray, "B N"]) -> Array:
    """Return the component labels (B, N) of members, joined by edges of either direction between members.

    Labels are 0, 1, .. in the order of the first agents of components; -1 for other agents.
    """
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
        # Number the sets by their smallest agents, which represent them and so come before the others of their sets.
        next_label = 0
        for i in range(N):
            root = find_root(parent, i)
            if not member[b, i]:
                labels[b, i] = -1
            elif root == i:
                labels[b, i] = next_label
                next_label += 1
            else:
                labels[b, i] = labels[b, root]
