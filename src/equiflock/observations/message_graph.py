"""The message graph: whose messages each agent uses at a step, for connectivity by messages and for pictures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Int64

from equiflock._runtime import threads
from equiflock._runtime.jit import Array, Index, inline_kernel, kernel
from equiflock._runtime.threads import split_flocks
from equiflock.flock import FOLLOWER, OBSTACLE, Flock, Roles, Vectors
from equiflock.graph.cell_list import (
    Numbering,
    list_nearby_runs,
    make_flock_buffers,
    make_out_of_range_error,
    select_neighbours,
    sort_flock,
)
from equiflock.graph.radius_graph import Graph, find_root, radius_graph, unite
from equiflock.observations.delayed_messages import MessageWindow, is_message_usable
from equiflock.observations.orbit import NO_ORBIT, ObstacleRule, select_obstacles
from equiflock.observations.radio_kernels import RadioArgs


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


# The number of neighbours |N_i| after the obstacle rule, as the kernels of `aggregation_kernels` count it.


def count_neighbours(
    flock: Flock,
    active: Int64[np.ndarray, " active"],
    comm_radius: float,
    graph: Graph | None = None,
    nearest_only: bool = True,
) -> Int64[np.ndarray, "B N"]:
    """Return |N_i| of the followers of the active flocks, (B, N); 0 for all other agents and flocks. Memory is O(N).

    Conditions of agents are ignored. Raise NumericRangeError if a position is out of range.

    Args:
        flock: the agents now.
        active: indices of the flocks to count.
        comm_radius: R.
        graph: the neighbours of each agent, at any distance; default: all agents within R.
        nearest_only: whether only the nearest obstacle agent counts, rather than all.
    """
    degrees = np.zeros(flock.shape[:2], np.int64)
    parts = [active[first:last] for first, last in split_flocks(len(active), flock.shape[1])]
    if graph is not None:
        listed = flock.roles, graph.starts.view(np.uintp), graph.senders.view(np.uintp), nearest_only, degrees
        threads.run_parallel(_count_listed, [(*listed, part) for part in parts])
        return degrees
    around = flock.positions, flock.roles, comm_radius, nearest_only, degrees
    if not all(threads.run_parallel(_count_within_radius, [(*around, part) for part in parts])):
        raise make_out_of_range_error()
    return degrees


@kernel
def _count_within_radius(
    positions: Vectors, roles: Roles, comm_radius: float, nearest_only: bool, degrees: Array, active: Array
) -> bool:
    """Write degrees[b, i] of the followers of the active flocks; return False if positions are out of range."""
    # Once for all flocks of this thread.
    buffers = make_flock_buffers(positions.shape[1])
    order, starts, sorted_positions = buffers.cells.order, buffers.cells.starts, buffers.positions
    runs, neighbours = buffers.workspace.runs, buffers.workspace.neighbours
    for b in active:
        shape = sort_flock(positions[b], comm_radius, buffers)
        if shape[0] == 0:
            return False
        for c in range(shape[0] * shape[1] * shape[2]):
            count = list_nearby_runs(c, shape, starts, runs)
            for s in range(starts[c], starts[c + 1]):
                # Leaders and obstacle agents receive nothing.
                if roles[b, order[s]] != FOLLOWER:
                    continue
                degree = select_neighbours(s, sorted_positions, comm_radius * comm_radius, runs, count, neighbours)
                obstacle_count = np.uintp(0)
                for n in range(degree):
                    obstacle_count += np.uintp(roles[b, order[neighbours[n]]] == OBSTACLE)
                degrees[b, order[s]] = _count_after_rule(degree, obstacle_count, nearest_only)
    return True


@kernel
def _count_listed(
    roles: Roles, begins: Array, senders: Array, nearest_only: bool, degrees: Array, active: Array
) -> None:
    """Write degrees[b, i], the number of listed senders, of the followers of the active flocks."""
    N = np.uintp(roles.shape[1])
    for b in active:
        for i in range(N):
            # Leaders and obstacle agents receive nothing, even if they were followers when the list was built.
            if roles[b, i] != FOLLOWER:
                continue
            row, obstacle_count = np.uintp(b) * N + i, np.uintp(0)
            begin, end = begins[row], begins[row + np.uintp(1)]
            for e in range(begin, end):
                obstacle_count += np.uintp(roles[b, senders[e]] == OBSTACLE)
            degrees[b, i] = _count_after_rule(end - begin, obstacle_count, nearest_only)


@inline_kernel
def _count_after_rule(degree: Index, obstacle_count: Index, nearest_only: bool) -> Index:
    """Return |N_i| of an agent with `degree` others within reach, of which `obstacle_count` are obstacle agents."""
    # Of several obstacle agents only the nearest counts.
    return degree - obstacle_count + np.uintp(1) if nearest_only and obstacle_count > np.uintp(1) else degree


# The edges of the communication graph after the obstacle rule, for pictures.


def find_observed_edges(flock: Flock, graph: Graph | None = None) -> Int64[np.ndarray, "edges 2"]:
    """Return the edges of a single flock as rows (receiver, sender), after the obstacle rule.

    Of several obstacle agents that a receiver has as neighbours, only the edge from the nearest is kept.

    Args:
        flock: a batch of one.
        graph: the graph before the obstacle rule; default: all agents within R.
    """
    # Edges are sorted by receiver, so the senders of each receiver are contiguous.
    edges = (radius_graph(flock) if graph is None else graph).edges(0)
    N = flock.shape[1]
    starts = np.searchsorted(edges[:, 0], np.arange(N + 1)).astype(np.uintp)
    senders, is_observed = edges[:, 1].astype(np.uintp), np.zeros(len(edges), np.bool_)
    _keep_nearest_obstacles(flock.positions[0], flock.roles[0], starts, senders, is_observed)
    return np.stack([edges[is_observed, 0], senders[is_observed].astype(np.int64)], axis=1)


@kernel
def _keep_nearest_obstacles(positions: Array, roles: Array, starts: Array, senders: Array, is_observed: Array) -> None:
    """Apply the obstacle rule to each agent's senders[starts[i] : starts[i + 1]], in place, and mark those that remain.

    This reorders the senders of an agent, so read only those where `is_observed` is True.
    """
    # The rule works on records in cell order; here record i is agent i.
    N = positions.shape[0]
    numbering = Numbering(np.arange(N).astype(np.uintp), np.empty(0, np.int64))
    obstacle_rule = ObstacleRule(True, False, NO_ORBIT)
    record_positions = positions.T.copy()
    for i in range(np.uintp(N)):
        first, last = starts[i], starts[i + np.uintp(1)]
        # Only the orbit technique needs velocities, and it does not change the list: any array will do.
        selection = select_obstacles(
            i, first, last, senders, record_positions, positions, roles, numbering, obstacle_rule
        )
        is_observed[first : selection.end] = True
