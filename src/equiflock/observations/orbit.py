"""The obstacle rule: which obstacle agents a follower observes, and with which velocity.

By the orbit technique (section 5 of the paper, "Obstacle avoidance") the nearest has a virtual velocity. With
r = r_j - r_i the vector from follower i to the obstacle agent j, w the mean velocity of i and its neighbours in the
flock, R(.) a rotation, and the discriminant gamma(r, w, angle) = (r / |r|) . R(angle) (w / |w|), the follower uses as
relative velocity of the obstacle agent

    -v_ij = alpha_1(|r|, |w|) r / |r|                                           if -alpha_2 <= gamma(r, w, 0) <= 0
    -v_ij = -sgn(gamma(r, w, pi/2)) alpha_1(|r|, |w|) R(alpha_theta) r / |r|    else

so that a follower that heads for the obstacle dodges it, and one that passes it bends around it. sgn(0) is 1; the
discriminant is 0 if w is, and the relative velocity is 0 if r is. The last functions are degrees and edges of the
communication graph after the rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from equiflock._runtime import threads
from equiflock._runtime.checks import InputError, is_finite, shorten_repr
from equiflock._runtime.jit import Array, Index, inline_kernel, kernel
from equiflock._runtime.threads import split_flocks
from equiflock.flock import FOLLOWER, OBSTACLE, Flock, Roles, Vectors
from equiflock.graph.cell_list import (
    list_nearby_runs,
    make_flock_buffers,
    make_out_of_range_error,
    select_neighbours,
    sort_flock,
)
from equiflock.graph.radius_graph import Graph, radius_graph
from equiflock.observations.neighbour_lists import Batch, Records, compute_offsets


class OrbitCoefficients(NamedTuple):
    """The parameters of an `Orbit` as kernels take them."""

    gravity_break: float
    """alpha_2."""
    cosine: float
    """cos(alpha_theta)."""
    sine: float
    """sin(alpha_theta)."""
    near: float
    """The weight of e^(-|r|) in alpha_1."""
    slow: float
    """The weight of e^(-|w|) in alpha_1."""


@dataclass(frozen=True)
class Orbit:
    """Parameters of the orbit technique; the defaults are the paper's.

    Weights tuned with other parameters store these in their metadata.
    """

    gravity_break: float = 0.5
    """alpha_2 in [0, 1]: a follower leaves its orbit the sooner, the smaller it is."""
    dodge_angle: float = math.pi / 2
    """alpha_theta in (0, pi/2], the dodge angle in radians. Only pi/2 is symmetric between left and right."""
    near: float = 1.0
    """Weight of e^(-|r|) in alpha_1(|r|, |w|) = near e^(-|r|) + slow e^(-|w|)."""
    slow: float = 1.0
    """Weight of e^(-|w|) in alpha_1(|r|, |w|) = near e^(-|r|) + slow e^(-|w|)."""

    def __post_init__(self) -> None:
        if not (is_finite(self.gravity_break) and 0.0 <= self.gravity_break <= 1.0):
            raise InputError(f"gravity_break must be from 0 to 1; got {shorten_repr(self.gravity_break)}")
        if not (is_finite(self.dodge_angle) and 0.0 < self.dodge_angle <= math.pi / 2):
            raise InputError(f"dodge_angle must be above 0 and at most pi/2; got {shorten_repr(self.dodge_angle)}")
        for name in ("near", "slow"):
            if not (is_finite(getattr(self, name)) and getattr(self, name) >= 0.0):
                raise InputError(
                    f"{name} must be a finite number of at least 0; got {shorten_repr(getattr(self, name))}"
                )

    @property
    def coefficients(self) -> OrbitCoefficients:
        """The parameters as kernels take them."""
        cosine, sine = math.cos(self.dodge_angle), math.sin(self.dodge_angle)
        return OrbitCoefficients(self.gravity_break, cosine, sine, self.near, self.slow)


NO_ORBIT = OrbitCoefficients(0.0, 0.0, 0.0, 0.0, 0.0)
"""The coefficients without the orbit technique, where obstacle agents stand still."""


class ObstacleRule(NamedTuple):
    """Which obstacle agents a follower observes, and with which velocity."""

    nearest_only: bool
    """Whether only the nearest obstacle agent is observed, rather than all."""
    is_orbiting: bool
    """Whether followers use the orbit technique."""
    orbit: OrbitCoefficients


class ObstacleSelection(NamedTuple):
    """The result of `select_obstacles` for one agent."""

    end: Index
    """Where the agent's list ends now."""
    nearest: Index
    """The record of the nearest obstacle agent; the agent's own if there is none."""
    count: Index
    """Obstacle agents whose relative velocity is replaced; 0 without the orbit technique."""
    vx: float
    """The virtual v_ij of the nearest obstacle agent along x; that of the others is 0."""
    vy: float
    """The same along y."""


@inline_kernel
def virtual_velocity(x: float, y: float, u: float, v: float, coefficients: OrbitCoefficients) -> tuple[float, float]:
    """Return the virtual v_ij, for r = (x, y) to the obstacle agent and the mean velocity w = (u, v); zero if r is."""
    gravity_break, cosine, sine, near, slow = coefficients
    # |r| and |w|; (x, y) becomes r / |r|.
    distance, speed = math.sqrt(x * x + y * y), math.sqrt(u * u + v * v)
    if distance == 0.0:
        return 0.0, 0.0
    x, y = x / distance, y / distance
    # gamma(r, w, 0) and gamma(r, w, pi/2).
    ahead, left = 0.0, 0.0
    if speed > 0.0:
        ahead, left = (x * u + y * v) / speed, (y * u - x * v) / speed
    # alpha_1(|r|, |w|).
    size = near * math.exp(-distance) + slow * math.exp(-speed)
    # The first case: v_ij = -alpha_1 r / |r|.
    if -gravity_break <= ahead <= 0.0:
        return -size * x, -size * y
    # The second case: sgn(gamma(r, w, pi/2)) alpha_1, times r / |r| rotated by alpha_theta.
    side = size if left >= 0.0 else -size
    return side * (cosine * x - sine * y), side * (sine * x + cosine * y)


@inline_kernel
def select_obstacles(
    s: Index, begin: Index, end: Index, senders: Array, records: Records, obstacle_rule: ObstacleRule
) -> ObstacleSelection:
    """Apply the obstacle rule to the obstacle agents among senders[begin : end] of the agent with record s.

    With `nearest_only` the list becomes the senders other than obstacle agents, then the nearest obstacle agent.
    """
    record_positions, record_velocities = records.positions, records.velocities
    order, agent_ids, roles = records.order, records.agent_ids, records.roles
    nearest_only = obstacle_rule.nearest_only
    # The sum of velocities begins with the follower's; `flock` counts the others.
    u, v, flock, obstacle_count = record_velocities[s, 0], record_velocities[s, 1], 0, 0
    nearest, least, nearest_id = s, math.inf, np.int64(0)
    kept = begin
    # Find the nearest obstacle agent, sum the velocities of flock agents, and close the gaps in the list.
    for e in range(begin, end):
        j = np.uintp(senders[e])
        if roles[order[j]] == OBSTACLE:
            obstacle_count += 1
            x, y = record_positions[0, j] - record_positions[0, s], record_positions[1, j] - record_positions[1, s]
            square = x**2 + y**2
            # Of several equally near, the one with the smallest id, whatever its cell.
            agent_id = agent_ids[order[j]] if agent_ids.size > 0 else np.int64(order[j])
            if square < least or (square == least and agent_id < nearest_id):
                nearest, least, nearest_id = j, square, agent_id
        else:
            u, v, flock = u + record_velocities[j, 0], v + record_velocities[j, 1], flock + 1
            if nearest_only:
                senders[kept] = j
                kept += np.uintp(1)
    # Without an obstacle agent nothing changes.
    if least == math.inf:
        return ObstacleSelection(end, s, 0, 0.0, 0.0)
    # The nearest obstacle agent comes last, and counts once in |N_i|.
    if nearest_only:
        senders[kept] = nearest
        end, obstacle_count = kept + np.uintp(1), 1
    if not obstacle_rule.is_orbiting:
        return ObstacleSelection(end, nearest, 0, 0.0, 0.0)
    # The mean velocity of the follower and its neighbours in the flock decides which way to dodge.
    x, y = record_positions[0, nearest] - record_positions[0, s], record_positions[1, nearest] - record_positions[1, s]
    vx, vy = virtual_velocity(x, y, u / (flock + 1), v / (flock + 1), obstacle_rule.orbit)
    return ObstacleSelection(end, nearest, obstacle_count, vx, vy)


@kernel
def apply_obstacle_rule(batch: Batch, shift: Index, records: Records, obstacle_rule: ObstacleRule) -> None:
    """Apply the obstacle rule to the lists of a batch in the plane; the record of its agents now is `shift` further on.

    This shortens the lists in place if only the nearest obstacle agent counts, recomputes their offsets, and writes
    `batch.rule_result`.
    """
    lists = batch.lists
    senders, ends = lists.senders, lists.ends
    virtual_velocities, nearest, obstacle_counts = batch.rule_result
    first = batch.first + shift
    begin, kept = np.uintp(0), np.uintp(0)
    for a in range(batch.agents):
        # Which obstacle agents count, and with which velocity.
        selection = select_obstacles(first + a, begin, ends[a], senders, records, obstacle_rule)
        end, nearest[a], obstacle_counts[a] = selection.end, selection.nearest, selection.count
        virtual_velocities[a, 0], virtual_velocities[a, 1] = selection.vx, selection.vy
        # Lists become shorter; close the gaps between them.
        head = kept
        for e in range(begin, end):
            senders[kept] = senders[e]
            kept += np.uintp(1)
        compute_offsets(2, first + a, records.positions, lists, head, kept)
        begin, ends[a] = ends[a], kept


def count_neighbours(
    flock: Flock,
    active: Int64[np.ndarray, " active"],
    comm_radius: float,
    graph: Graph | None = None,
    nearest_only: bool = True,
) -> Int64[np.ndarray, "B N"]:
    """Return |N_i| of the followers of the active flocks, (B, N), as the observations count it; 0 for all others.

    Neighbours are those in `graph`, at any distance, by default all agents within R. Conditions of agents are ignored.
    Memory is O(N). Raise NumericRangeError if a position is out of range.
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
    buffers = make_flock_buffers(positions.shape[1])
    (order, starts, _), sorted_positions, runs, neighbours = buffers
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


def find_observed_edges(flock: Flock, graph: Graph | None = None) -> Int64[np.ndarray, "edges 2"]:
    """Return the edges of a single flock as rows (receiver, sender), after the obstacle rule.

    Of several obstacle agents that a receiver has as neighbours, only the edge from the nearest is kept. `graph` is the
    graph before the rule, by default of all agents within R.
    """
    graph = radius_graph(flock) if graph is None else graph
    starts, senders = graph.starts.astype(np.uintp), graph.senders.astype(np.uintp)
    is_observed = np.zeros(len(senders), np.bool_)
    _keep_nearest_obstacle_agent(flock.positions[0], flock.roles[0], starts, senders, is_observed)
    return np.stack([graph.rows[is_observed], senders[is_observed].astype(np.int64)], axis=1)


@kernel
def _keep_nearest_obstacle_agent(
    positions: Array, roles: Array, starts: Array, senders: Array, is_observed: Array
) -> None:
    """Of the obstacle agents among senders[starts[i] : starts[i + 1]] of each agent i, keep only the nearest.

    This reorders the senders, in place, and sets `is_observed`, which must be False at first, to True for those kept;
    read only these.
    """
    # Here record i is agent i. Only the orbit technique needs velocities, and it does not change the list.
    N = positions.shape[0]
    order, no_ids, no_hops = np.arange(N).astype(np.uintp), np.empty(0, np.int64), np.empty((0, 0), np.float32)
    records = Records(positions.T.copy(), positions, no_hops, order, no_ids, roles, no_ids, True)
    for i in range(np.uintp(N)):
        first, last = starts[i], starts[i + np.uintp(1)]
        selection = select_obstacles(i, first, last, senders, records, ObstacleRule(True, False, NO_ORBIT))
        is_observed[first : selection.end] = True
