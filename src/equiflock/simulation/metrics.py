"""Numbers of a flock, a moment or a trajectory (section 5 of the paper, "Metrics", and Definition 1).

Each function takes a `Flock` or `Moment` and returns one number per flock, (B,), or a `Trajectory` and returns
(F, B), one per frame and flock. Metrics are taken over the flock: leaders included, obstacle agents not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float64

from equiflock.flock import Flock, Role
from equiflock.protocols import Moment
from equiflock.runtime.checks import InputError, short
from equiflock.runtime.jit import Array, Index, kernel
from equiflock.runtime.renamed import renamed_arguments
from equiflock.senses.graph import components, over_flocks
from equiflock.simulation.trajectory import CREW, Trajectory

Subject: TypeAlias = Flock | Moment | Trajectory
Numbers: TypeAlias = Float64[np.ndarray, "*frames B"]


def velocity_variance(subject: Subject) -> Numbers:
    """var(v) = (1/N) sum_i |v_i - mean(v)|^2: how far the flock is from flying as one."""
    velocities, member = _velocities(subject), _member(subject)
    deviations = velocities - _mean_vector(velocities, member)
    return _mean(np.square(deviations).sum(axis=-1), member)


def mean_acceleration_norm(subject: Moment | Trajectory) -> Numbers:
    """(1/N) sum_i |a_i|: the effort. Of a trajectory (F - 1, B), as the last frame leads to no step."""
    return _mean(_acceleration_norms(subject), _member(subject))


def peak_acceleration_norm(subject: Moment | Trajectory) -> Numbers:
    """Max over i of |a_i|: what a body must be able to do. Of a trajectory (F - 1, B)."""
    norms = _acceleration_norms(subject)
    return np.asarray(norms.max(axis=-1, initial=0.0, where=np.broadcast_to(_member(subject), norms.shape)))


def ivv(run: Trajectory) -> Float64[np.ndarray, " B"]:
    """IVV, the integral of the velocity variance: dt sum_{n < T} var(v(t_n)), over the T steps a flock flew."""
    return _integral(run, "velocity_variance")


def iman(run: Trajectory) -> Float64[np.ndarray, " B"]:
    """IMAN, the integral of the mean acceleration norm: dt sum_{n < T} (1/N) sum_i |a_i(t_n)|."""
    return _integral(run, "mean_acceleration_norm")


def mean_leader_velocity_distance(subject: Subject) -> Numbers:
    """MLVD = (1/N) sum_i |v_i - v_L| with v_L the leaders' velocity (their mean, should they differ)."""
    leaders = _flock(subject).roles == Role.LEADER
    if not leaders.any(axis=1).all():
        raise InputError("mean_leader_velocity_distance needs a leader in every flock")
    velocities = _velocities(subject)
    distances = np.sqrt(np.square(velocities - _mean_vector(velocities, leaders)).sum(axis=-1))
    return _mean(distances, _member(subject))


def minimum_separation(subject: Subject) -> Numbers:
    """Min over i != j of |r_ij| (Definition 2); infinite for a single agent."""
    return _over_frames(_minimum_separation, subject, "positions")


def diameter(subject: Subject) -> Numbers:
    """Max over i, j of |r_ij|, whose boundedness is the cohesion of Definition 1."""
    return _over_frames(_diameter, subject, "positions")


def largest_velocity_difference(subject: Subject) -> Numbers:
    """Max over i, j of |v_ij|, whose limit zero is the alignment of Definition 1."""
    return _over_frames(_diameter, subject, "velocities")


@renamed_arguments(radius="comm_radius")
def component_count(subject: Subject, comm_radius: float | None = None) -> Numbers:
    """The number of connected components of the communication graph, taken without directions.

    Args:
        subject: a moment or trajectory, or a flock.
        comm_radius: R; that of the flock or flight if left out.
    """
    stacked = _stacked(subject)
    counts: Numbers = components(stacked, comm_radius).max(axis=1) + 1.0
    return counts.reshape(_velocities(subject).shape[:-2])


def _acceleration_norms(subject: Moment | Trajectory) -> Array:
    """|a_i|, (.., B, N)."""
    if not isinstance(subject, (Moment, Trajectory)):
        raise InputError(f"accelerations are those of a Moment or a Trajectory; got {short(subject)}")
    return np.asarray(np.sqrt(np.square(subject.accelerations).sum(axis=-1)))


def _flock(subject: Subject) -> Flock:
    if isinstance(subject, Moment):
        return subject.flock
    if isinstance(subject, Trajectory):
        return subject.flock()
    if not isinstance(subject, Flock):
        raise InputError(f"a metric is of a Flock, a Moment or a Trajectory; got {short(subject)}")
    return subject


def _velocities(subject: Subject) -> Array:
    return subject.velocities if isinstance(subject, Trajectory) else _flock(subject).velocities


def _member(subject: Subject) -> Bool[np.ndarray, "B N"]:
    return np.asarray(_flock(subject).roles != Role.OBSTACLE)


def _mean(values: Array, member: Bool[np.ndarray, "B N"]) -> Array:
    """The mean over those agents of (.., B, N) numbers: (.., B)."""
    return np.asarray(values.mean(axis=-1, where=np.broadcast_to(member, values.shape)))


def _mean_vector(vectors: Array, member: Bool[np.ndarray, "B N"]) -> Array:
    """The mean over those agents of (.., B, N, D) vectors: (.., B, 1, D)."""
    where = np.broadcast_to(member[..., None], vectors.shape)
    return np.asarray(vectors.mean(axis=-2, where=where, keepdims=True))


def _integral(run: Trajectory, name: str) -> Float64[np.ndarray, " B"]:
    if not isinstance(run, Trajectory):
        raise InputError(f"an integral is of a Trajectory; got a {type(run).__name__}")
    if name in run.series:
        values = run.series[name][:-1]
    elif run.every_step:
        values = {"velocity_variance": velocity_variance, "mean_acceleration_norm": mean_acceleration_norm}[name](run)
        values = values[: len(run.accelerations)]
    else:
        raise InputError(f"the run kept too few frames for this integral: simulate with record=[metrics.{name}]")
    flown = np.arange(len(values))[:, None] < run.steps
    return np.asarray(run.time_step * values.sum(axis=0, where=flown))


def _stacked(subject: Subject) -> Flock:
    """All frames as one batch of F * B flocks."""
    if not isinstance(subject, Trajectory):
        return _flock(subject)
    frames, B, N, D = subject.positions.shape
    crew = (np.broadcast_to(getattr(subject, name), (frames, B, N)).reshape(-1, N) for name in CREW)
    vectors = (each.reshape(-1, N, D) for each in (subject.positions, subject.velocities))
    return Flock.view(*vectors, *crew, comm_radius=subject.comm_radius)


def _over_frames(measure: Callable[..., bool], subject: Subject, vectors: str) -> Numbers:
    """Apply a kernel of points to every frame and flock; (F, B) of a trajectory, else (B,)."""
    stacked = _stacked(subject)
    result = np.empty(len(stacked))
    over_flocks(measure, stacked, getattr(stacked, vectors), stacked.roles != Role.OBSTACLE, result)
    return result.reshape(_velocities(subject).shape[:-2])


@kernel
def _members(vectors: Array, member: Array) -> Array:
    """The rows of (N, D) that belong to the flock."""
    points = np.empty(vectors.shape)
    count = 0
    for i in range(len(vectors)):
        if member[i]:
            for d in range(vectors.shape[1]):
                points[count, d] = vectors[i, d]
            count += 1
    return points[:count]


@kernel
def _box(points: Array) -> tuple[Array, Array]:
    """The least and the largest of each coordinate."""
    low, high = points[0].copy(), points[0].copy()
    for i in range(len(points)):
        for d in range(points.shape[1]):
            low[d], high[d] = min(low[d], points[i, d]), max(high[d], points[i, d])
    return low, high


@kernel
def _distance(points: Array, i: Index, j: Index) -> float:
    square = 0.0
    for d in range(points.shape[1]):
        square += (points[i, d] - points[j, d]) ** 2
    return math.sqrt(square)


@kernel
def _minimum_separation(vectors: Array, member: Array, result: Array, first: Index, last: Index) -> bool:
    """Sweep along the axis in which the flock is longest; a pair farther apart there than the best is skipped."""
    for b in range(first, last):
        points = _members(vectors[b], member[b])
        result[b] = math.inf
        if len(points) < 2:
            continue
        low, high = _box(points)
        axis = np.argmax(high - low)
        order = np.argsort(points[:, axis])
        for n in range(len(points)):
            for m in range(n + 1, len(points)):
                i, j = order[n], order[m]
                if points[j, axis] - points[i, axis] >= result[b]:
                    break
                result[b] = min(result[b], _distance(points, i, j))
    return True


@kernel
def _reach(low: Array, high: Array, other_low: Array, other_high: Array) -> float:
    """A little more than the largest distance between two boxes, so that rounding never hides a pair."""
    square = 0.0
    for d in range(len(low)):
        square += max(high[d] - other_low[d], other_high[d] - low[d]) ** 2
    return math.sqrt(square) * (1.0 + 1e-12)


@kernel
def _boxes(points: Array) -> tuple[Array, Array, Array, Array]:
    """Sort points into at most some hundred boxes of a grid.

    Returns:
        starts, order: box p holds the points order[starts[p] : starts[p + 1]].
        low, high: (boxes, D), drawn tightly around the points; empty boxes are left out.
    """
    N, D = points.shape
    across = 16 if D == 2 else 7
    low, high = _box(points)
    cell = np.zeros(N, np.int64)
    sizes = np.zeros(across**D + 1, np.int64)
    for i in range(N):
        for d in range(D):
            extent = high[d] - low[d]
            place = int((points[i, d] - low[d]) / extent * across) if extent > 0 else 0
            cell[i] = cell[i] * across + min(place, across - 1)
        sizes[cell[i] + 1] += 1
    order = np.argsort(cell, kind="mergesort")
    occupied = 0
    for c in range(across**D):
        occupied += sizes[c + 1] > 0
    starts = np.zeros(occupied + 1, np.int64)
    lows, highs = np.empty((occupied, D)), np.empty((occupied, D))
    box = 0
    for c in range(across**D):
        if sizes[c + 1] > 0:
            starts[box + 1] = starts[box] + sizes[c + 1]
            for d in range(D):
                lows[box, d], highs[box, d] = math.inf, -math.inf
            for n in range(starts[box], starts[box + 1]):
                for d in range(D):
                    lows[box, d] = min(lows[box, d], points[order[n], d])
                    highs[box, d] = max(highs[box, d], points[order[n], d])
            box += 1
    return starts, order, lows, highs


@kernel
def _diameter(vectors: Array, member: Array, result: Array, first: Index, last: Index) -> bool:
    """Sort many points into some hundred boxes, and compare boxes only while they may hold a farther pair.

    Time is quadratic only for points that all lie on one circle or sphere.
    """
    for b in range(first, last):
        points = _members(vectors[b], member[b])
        best = 0.0
        if len(points) <= 256:
            for i in range(len(points)):
                for j in range(i):
                    best = max(best, _distance(points, i, j))
            result[b] = best
            continue
        starts, order, low, high = _boxes(points)
        pairs = np.empty((len(low) * (len(low) + 1) // 2, 2), np.int64)
        bounds = np.empty(len(pairs))
        n = 0
        for p in range(len(low)):
            for q in range(p + 1):
                pairs[n, 0], pairs[n, 1] = p, q
                bounds[n] = -_reach(low[p], high[p], low[q], high[q])
                n += 1
        for n in np.argsort(bounds):
            if -bounds[n] <= best:
                break
            p, q = pairs[n, 0], pairs[n, 1]
            for i in order[starts[p] : starts[p + 1]]:
                if _reach(points[i], points[i], low[q], high[q]) > best:
                    for j in order[starts[q] : starts[q + 1]]:
                        best = max(best, _distance(points, i, j))
        result[b] = best
    return True
