"""Slow, obvious twins of the kernels: dense arrays and plain loops, straight from the paper's equations."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, currently_in_test_context
from numpy.typing import NDArray

from equiflock.features import Among, Channel, Feature, Senses, find_feature
from equiflock.flock import Condition, Flock, Role
from equiflock.observations.orbit import Orbit

Array = NDArray[Any]
MIN_DISTANCE = 1e-8


def adjacency(positions: Array, roles: Array, radius: float) -> Array:
    """Return the mask (N, N) of neighbours: entry (i, j) is whether agent i receives from j, all agents working."""
    N = len(positions)
    is_neighbour = np.zeros((N, N), bool)
    for i in range(N):
        for j in range(N):
            offset = positions[i] - positions[j]
            near = sum(c * c for c in offset.tolist()) <= radius * radius
            is_neighbour[i, j] = i != j and near and roles[i] == Role.FOLLOWER
    return is_neighbour


def find_neighbours(flock: Flock, b: int, radius: float) -> Array:
    """Return the mask (N, N) of neighbours in flock b: failed agents send or receive nothing."""
    is_neighbour = adjacency(flock.positions[b], flock.roles[b], radius)
    for agent, condition in enumerate(flock.conditions[b].tolist()):
        if condition in (Condition.STOPPED, Condition.DRIFTING):
            is_neighbour[agent, :] = False
        if condition in (Condition.SILENT, Condition.STOPPED):
            is_neighbour[:, agent] = False
    return is_neighbour


def square_distance(one: Array, other: Array) -> float:
    """|r|^2, where |r| counts as at least MIN_DISTANCE."""
    return max(float(((one - other) ** 2).sum()), MIN_DISTANCE**2)


def feature_vector(feature: Feature, offset: Array, relative_velocity: Array) -> Array:
    """weight(|r|^2), or weight(|r|^2, <r, v>), times r or v; |r| counts as at least MIN_DISTANCE in the weight."""
    square = square_distance(offset, np.zeros_like(offset))
    inner = float((offset * relative_velocity).sum())
    known = (square, inner) if feature.uses_velocity else (square,)
    weight = feature.weight(*known, *feature.options)
    return weight * (relative_velocity if feature.vector == "velocity" else offset)


def orbit_velocity(way: Array, mean_velocity: Array, orbit: Orbit) -> Array:
    """v_ij that a follower takes an obstacle agent to have, in the words of the paper.

    Where rounding decides between two cases, there is no right answer: hypothesis draws another example.
    """
    distance, speed = np.linalg.norm(way), np.linalg.norm(mean_velocity)
    if distance == 0:
        return np.zeros(2)

    def turn(angle: float) -> Array:
        return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])

    def discriminant(angle: float) -> float:
        return float(way / distance @ turn(angle) @ mean_velocity / speed) if speed > 0 else 0.0

    ahead, left = discriminant(0.0), discriminant(np.pi / 2)
    if currently_in_test_context():
        assume(all(margin == 0.0 or abs(margin) > 1e-12 for margin in (ahead, ahead + orbit.gravity_break, left)))
    size = orbit.near * np.exp(-distance) + orbit.slow * np.exp(-speed)
    if -orbit.gravity_break <= ahead <= 0:
        return -size * way / distance
    side = 1.0 if left >= 0 else -1.0
    return side * size * turn(orbit.dodge_angle) @ way / distance


def count_neighbours(is_neighbour: Array, roles: Array, obstacles: str = "nearest") -> Array:
    """|N_i| of each agent; obstacle agents count once all together if only the nearest of them is is_neighbour."""
    rims = (is_neighbour & (roles == Role.OBSTACLE)).sum(axis=1)
    mates = (is_neighbour & (roles != Role.OBSTACLE)).sum(axis=1)
    counted: Array = mates + (np.minimum(rims, 1) if obstacles == "nearest" else rims)
    return counted


def aggregate(
    flock: Flock,
    b: int,
    before: Array,
    is_neighbour: Array,
    senses: Senses,
    orbit: Orbit | None = None,
    obstacles: str = "nearest",
) -> Array:
    """Return Z of one flock, (N, K, C, D), from the observations of the step before and the mask of neighbours."""
    positions, velocities, roles, groups = (array[b] for array in (*flock.arrays[:3], flock.groups))
    degrees = count_neighbours(is_neighbour, roles, obstacles)
    now = np.zeros_like(before)
    for i in range(len(positions)):
        senders = np.flatnonzero(is_neighbour[i])
        if len(senders) == 0:
            continue
        relative = {j: velocities[i] - velocities[j] for j in senders}
        rims = [j for j in senders if roles[j] == Role.OBSTACLE]
        mates = [j for j in senders if roles[j] != Role.OBSTACLE]
        if rims:
            offsets = [sum(c * c for c in (positions[j] - positions[i]).tolist()) for j in rims]
            nearest = rims[int(np.argmin(offsets))]
            senders = np.array([*mates, nearest]) if obstacles == "nearest" else senders
            if orbit is not None:
                relative |= {j: np.zeros(2) for j in rims}
                mean_velocity = np.mean([velocities[j] for j in (*mates, i)], axis=0)
                relative[nearest] = orbit_velocity(positions[nearest] - positions[i], mean_velocity, orbit)
        for c, (feature, (_, aggregation)) in enumerate(zip(senses.features, senses.channels, strict=True)):
            counted = [
                j for j in senders if _is_meant(feature.among, roles[j] == Role.OBSTACLE, groups[j] == groups[i])
            ]
            vectors = [feature_vector(feature, positions[i] - positions[j], relative[j]) for j in counted]
            if vectors:
                now[i, 0, c] = sum(vectors) / (len(vectors) if aggregation == "mean" else 1)
        for k in range(1, before.shape[1]):
            if senses.hop_mean == "receiver":
                now[i, k] = np.mean([before[j, k - 1] for j in senders], axis=0)
            else:
                now[i, k] = sum(before[j, k - 1] / degrees[j] for j in senders if degrees[j] > 0)
    return now


def _is_meant(among: Among, obstacle: bool, same: bool) -> bool:
    """Whether a feature among these is made of an agent."""
    if among in ("all", "obstacles"):
        return among == "all" or obstacle
    return not obstacle and same == (among == "same")


def over_everyone(flock: Flock, b: int, channels: tuple[Channel, ...], exclusion_radius: float = -1.0) -> Array:
    """Return each channel over all agents that send and are farther than `exclusion_radius`, (N, C, D), for followers.

    A mean is over these and the agent itself, if it sends and is of the kind that the channel is made of.
    """
    positions, velocities, roles, groups = (array[b] for array in (*flock.arrays[:3], flock.groups))
    member = (roles != Role.OBSTACLE) & ~flock.muted[b]
    result = np.zeros((len(positions), len(channels), positions.shape[1]))
    for i in np.flatnonzero(roles == Role.FOLLOWER):
        for c, (name, aggregation) in enumerate(channels):
            feature, counted = find_feature(name), 0
            for j in np.flatnonzero(member):
                kin = _is_meant(feature.among, False, groups[j] == groups[i])
                offset = positions[i] - positions[j]
                far = exclusion_radius < 0 or sum(x * x for x in offset.tolist()) > exclusion_radius * exclusion_radius
                if kin and i == j:
                    counted += 1
                elif kin and far:
                    counted += 1
                    result[i, c] += feature_vector(feature, offset, velocities[i] - velocities[j])
            if aggregation == "mean":
                result[i, c] /= max(counted, 1)
    return result


def gradients_beyond(flock: Flock, b: int) -> Array:
    """(N, D), the sum of grad U over those that send out of a follower's reach, U = 1/r^2 + ln r^2."""
    positions, roles, R = flock.positions[b], flock.roles[b], flock.comm_radius
    is_neighbour = adjacency(positions, roles, R)
    result = np.zeros_like(positions)
    for i in np.flatnonzero(roles == Role.FOLLOWER):
        for j in np.flatnonzero((roles != Role.OBSTACLE) & ~flock.muted[b]):
            if i != j and not is_neighbour[i, j]:
                offset, square = positions[i] - positions[j], square_distance(positions[i], positions[j])
                result[i] += 2 * (offset / square - offset / square**2)
    return result


def components(flock: Flock, b: int, radius: float) -> Array:
    """Component labels, numbered by first agents; -1 for obstacle agents and those that have failed."""
    roles = flock.roles[b]
    is_neighbour = adjacency(flock.positions[b], roles, radius)
    member = (roles != Role.OBSTACLE) & (flock.conditions[b] == Condition.WORKING)
    joined = (is_neighbour | is_neighbour.T) & member[:, None] & member[None, :]
    labels = np.full(len(roles), -1)
    following = 0
    for i in range(len(roles)):
        if labels[i] >= 0 or not member[i]:
            continue
        frontier = [i]
        while frontier:
            agent = frontier.pop()
            if labels[agent] < 0:
                labels[agent] = following
                frontier += np.flatnonzero(joined[agent]).tolist()
        following += 1
    return labels


def distances(points: Array) -> Array:
    """All distances between different points."""
    N = len(points)
    return np.array([np.sqrt(((points[i] - points[j]) ** 2).sum()) for i in range(N) for j in range(i)])


def rms_norm(vectors: Array) -> float:
    """Root of the mean square norm; 0 without any vector."""
    squares = [sum(float(entry) ** 2 for entry in vector) for vector in vectors]
    return float(np.sqrt(sum(squares) / max(len(squares), 1)))


def mix(h: int) -> int:
    """SplitMix64's finalizer, in plain integers."""
    h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    h = (h ^ (h >> 27)) * 0x94D049BB133111EB % 2**64
    return h ^ (h >> 31)


def hashed_on(h: int, number: int) -> int:
    """The hash of whatever h is of, and a further number."""
    return mix(h ^ (number + 1) * 0x9E3779B97F4A7C15 % 2**64)


def hashed(seed: int, *numbers: int) -> int:
    """The hash of a seed and further numbers."""
    h = mix((seed + 0x9E3779B97F4A7C15) % 2**64)
    for number in numbers:
        h = hashed_on(h, number)
    return h
