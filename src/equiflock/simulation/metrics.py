"""Numbers that describe a flock, a moment or a trajectory (section 5 of the paper, "Metrics", and Definition 1).

Each function takes a `Flock` or `Moment` and returns one number per flock, (B,), or a `Trajectory` and returns
(F, B), one per frame and flock. Metrics are taken over the flock: leaders included, obstacle agents not. They count
agents that work, at that moment; the separation and the peak acceleration also those that have failed, since they are
still there. Where nobody works they are 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float64

from equiflock import geometry
from equiflock.flock import Condition, Flock, Role
from equiflock.protocols import Moment
from equiflock.runtime import threads
from equiflock.runtime.arrays import as_read_only
from equiflock.runtime.checks import InputError, shorten_repr
from equiflock.runtime.jit import Array, Index, kernel
from equiflock.senses.graph import components, run_over_flocks
from equiflock.senses.message_graph import label_components
from equiflock.simulation.trajectory import STATIC_ARRAYS, Trajectory

Subject: TypeAlias = Flock | Moment | Trajectory
MetricValues: TypeAlias = Float64[np.ndarray, "*frames B"]


def velocity_variance(subject: Subject) -> MetricValues:
    """var(v) = (1/N) sum_i |v_i - mean(v)|^2: 0 when all agents fly with the same velocity."""
    return _apply_to_vectors(_compute_variances, _get_velocities(subject), _get_working_mask(subject))


def mean_acceleration_norm(subject: Moment | Trajectory) -> MetricValues:
    """(1/N) sum_i |a_i|, the effort commanded; (F - 1, B) for a trajectory, as no step follows its last frame."""
    return _apply_to_vectors(_compute_mean_norms, _get_accelerations(subject), _get_working_mask(subject))


def peak_acceleration_norm(subject: Moment | Trajectory) -> MetricValues:
    """Max over i of |a_i|, failed or not, the most that is commanded of a body; (F - 1, B) for a trajectory."""
    return _apply_to_vectors(
        _compute_largest_norms, _get_accelerations(subject), _get_flock(subject).roles != Role.OBSTACLE
    )


def ivv(run: Trajectory) -> Float64[np.ndarray, " B"]:
    """IVV, the integral of the velocity variance: dt sum_{n < T} var(v(t_n)), over the T steps a flock flew."""
    return _integrate_metric(run, "velocity_variance")


def iman(run: Trajectory) -> Float64[np.ndarray, " B"]:
    """IMAN, the integral of the mean acceleration norm: dt sum_{n < T} (1/N) sum_i |a_i(t_n)|."""
    return _integrate_metric(run, "mean_acceleration_norm")


def mean_leader_velocity_distance(subject: Subject) -> MetricValues:
    """MLVD = (1/N) sum_i |v_i - v_L| with v_L the leaders' velocity (their mean, should they differ)."""
    # v_L, then the mean over all agents of the distance of their velocity from it.
    velocities, working, roles = _get_velocities(subject), _get_working_mask(subject), _get_flock(subject).roles
    leaders = working.reshape(-1, *roles.shape) & (roles == Role.LEADER)
    if not leaders.any(axis=-1).all():
        raise InputError("mean_leader_velocity_distance needs a leader in every flock")
    frames = velocities.reshape(-1, *velocities.shape[-3:])
    distances = frames - frames.mean(axis=-2, where=leaders[..., None], keepdims=True)
    return _apply_to_vectors(_compute_mean_norms, distances.reshape(velocities.shape), working)


def minimum_separation(subject: Subject) -> MetricValues:
    """Min over i != j of |r_ij| (Definition 2), failed agents included; infinite for a single agent."""
    return _apply_to_points(
        _compute_minimum_separations, subject, "positions", geometry.BRUTE_FORCE_SEPARATION_POINTS, include_failed=True
    )


def diameter(subject: Subject) -> MetricValues:
    """Max over i, j of |r_ij|, whose boundedness is the cohesion of Definition 1."""
    return _apply_to_points(_compute_diameters, subject, "positions", geometry.BRUTE_FORCE_DIAMETER_POINTS)


def largest_velocity_difference(subject: Subject) -> MetricValues:
    """Max over i, j of |v_ij|, whose limit zero is the alignment of Definition 1."""
    return _apply_to_points(_compute_diameters, subject, "velocities", geometry.BRUTE_FORCE_DIAMETER_POINTS)


def component_count(subject: Subject, comm_radius: float | None = None) -> MetricValues:
    """The number of connected components of the graph of agents that work, within R, directions ignored.

    Args:
        subject: a moment or trajectory, or a flock.
        comm_radius: R; that of the flock or flight if left out.
    """
    # Labels are numbered from 0, so the largest is one less than their number.
    stacked = _stack_frames(subject)
    counts: MetricValues = components(stacked, comm_radius).max(axis=1) + 1.0
    return counts.reshape(_get_velocities(subject).shape[:-2])


def message_component_count(subject: Moment) -> MetricValues:
    """The number of connected components of agents that work, joined by messages that are used now, either way.

    `component_count` asks who could hear whom by where they are; this asks whose messages arrived, so a flock that is
    one by geometry may be in pieces for some steps.
    """
    if not isinstance(subject, Moment) or subject.compute_message_graph is None:
        raise InputError(f"messages are those of a Moment of a flight; got {shorten_repr(subject)}")
    counts: MetricValues = label_components(subject.compute_message_graph(), subject.flock.working).max(axis=1) + 1.0
    return counts


def _get_accelerations(subject: Moment | Trajectory) -> Array:
    """(B, N, D), or all steps of a trajectory, (F - 1, B, N, D)."""
    if not isinstance(subject, (Moment, Trajectory)):
        raise InputError(f"accelerations are those of a Moment or a Trajectory; got {shorten_repr(subject)}")
    return subject.accelerations


def _get_flock(subject: Subject) -> Flock:
    """The flock of any subject; that of the last frame for a trajectory, whose roles never change."""
    if isinstance(subject, Moment):
        return subject.flock
    if isinstance(subject, Trajectory):
        return subject.flock()
    if not isinstance(subject, Flock):
        raise InputError(f"a metric is of a Flock, a Moment or a Trajectory; got {shorten_repr(subject)}")
    return subject


def _get_velocities(subject: Subject) -> Array:
    """(B, N, D), or all frames of a trajectory, (F, B, N, D)."""
    return subject.velocities if isinstance(subject, Trajectory) else _get_flock(subject).velocities


def _get_working_mask(subject: Subject) -> Array:
    """Which agents of the flock work, (B, N); (F * B, N) for a trajectory in which somebody has failed."""
    if not isinstance(subject, Trajectory) or not np.count_nonzero(subject.conditions):
        return _get_flock(subject).working
    working: Array = (subject.roles != Role.OBSTACLE) & (subject.conditions == Condition.WORKING)
    return working.reshape(-1, working.shape[-1])


def _apply_to_vectors(measure: Callable[..., None], vectors: Array, mask: Array) -> MetricValues:
    """Apply a kernel for one vector per agent, (.., B, N, D), to every frame and flock: (.., B)."""
    *frames, N, D = vectors.shape
    result = np.empty(frames)
    stacked = as_read_only(np.ascontiguousarray(vectors).reshape(-1, N, D))
    parts = threads.split_flocks(len(stacked), N)
    threads.run_parallel(measure, [(stacked, mask, result.reshape(-1), *part) for part in parts])
    return result


def _integrate_metric(run: Trajectory, name: str) -> Float64[np.ndarray, " B"]:
    """The sum of dt times a metric over the steps that each flock flew, from its recorded series if there is one."""
    if not isinstance(run, Trajectory):
        raise InputError(f"an integral is of a Trajectory; got a {type(run).__name__}")
    # The recorded series has every step, even if few frames were kept.
    if name in run.series:
        values = run.series[name][:-1]
    elif run.has_every_step:
        values = {"velocity_variance": velocity_variance, "mean_acceleration_norm": mean_acceleration_norm}[name](run)
        # The variance has one value per frame, one more than steps: the sum runs over n < T.
        values = values[: len(run.accelerations)]
    else:
        raise InputError(f"the run kept too few frames for this integral: simulate with record=[metrics.{name}]")
    # A flock that ended early adds nothing after its last step.
    flown = np.arange(len(values))[:, None] < run.steps
    return np.asarray(run.time_step * values.sum(axis=0, where=flown))


def _stack_frames(subject: Subject) -> Flock:
    """All frames as one batch of F * B flocks."""
    if not isinstance(subject, Trajectory):
        return _get_flock(subject)
    # Roles, obstacles and groups are the same in every frame.
    frames, B, N, D = subject.positions.shape
    crew = (
        np.broadcast_to(getattr(subject, name), (frames, B, N)).reshape(-1, N)
        for name in (*STATIC_ARRAYS, "conditions")
    )
    vectors = (each.reshape(-1, N, D) for each in (subject.positions, subject.velocities))
    return Flock.view(*vectors, *crew, comm_radius=subject.comm_radius)


def _apply_to_points(
    measure: Callable[..., bool], subject: Subject, vectors: str, pairwise_limit: int, *, include_failed: bool = False
) -> MetricValues:
    """Apply a kernel for points to every frame and flock: (F, B) for a trajectory, else (B,).

    Up to `pairwise_limit` agents the kernel compares all pairs.
    """
    stacked = _stack_frames(subject)
    mask = stacked.roles != Role.OBSTACLE if include_failed else stacked.working
    result = np.empty(len(stacked))
    use_search = True if stacked.shape[1] > pairwise_limit else None
    run_over_flocks(measure, stacked, getattr(stacked, vectors), mask, result, use_search)
    return result.reshape(_get_velocities(subject).shape[:-2])


# Kernels over vectors (frames * B, N, D), of the flocks first .. last; `mask`, (B, N) for all frames alike or
# (frames * B, N), says who counts.


@kernel
def _compute_variances(vectors: Array, mask: Array, result: Array, first: Index, last: Index) -> None:
    """The mean over members of |v_i - mean(v)|^2."""
    _, N, D = vectors.shape
    mean = np.empty(D)
    for b in range(first, last):
        counts = mask[b % len(mask)]
        count = max(counts.sum(), 1)
        # The mean velocity, then the squares of what velocities differ from it by.
        mean[:] = 0.0
        for i in range(N):
            if counts[i]:
                for d in range(D):
                    mean[d] += vectors[b, i, d]
        mean /= count
        total = 0.0
        for i in range(N):
            if counts[i]:
                for d in range(D):
                    total += (vectors[b, i, d] - mean[d]) ** 2
        result[b] = total / count


@kernel
def _compute_mean_norms(vectors: Array, mask: Array, result: Array, first: Index, last: Index) -> None:
    """The mean over members of |v_i|."""
    for b in range(first, last):
        norms = _compute_norms(vectors[b], mask[b % len(mask)])
        total = 0.0
        for norm in norms:
            total += norm
        result[b] = total / max(len(norms), 1)


@kernel
def _compute_largest_norms(vectors: Array, mask: Array, result: Array, first: Index, last: Index) -> None:
    """The largest |v_i| of members, of whom there is always one."""
    for b in range(first, last):
        result[b] = _compute_norms(vectors[b], mask[b % len(mask)]).max()


@kernel
def _compute_norms(vectors: Array, mask: Array) -> Array:
    """|v_i| of (N, D) vectors of the members of one flock."""
    norms, count = np.empty(len(vectors)), 0
    for i in range(len(vectors)):
        if mask[i]:
            square = 0.0
            for d in range(vectors.shape[1]):
                square += vectors[i, d] * vectors[i, d]
            norms[count] = math.sqrt(square)
            count += 1
    return norms[:count]


@kernel
def _select_members(vectors: Array, mask: Array) -> Array:
    """The vectors, of (N, D), of the agents that count."""
    points = np.empty(vectors.shape)
    count = 0
    for i in range(len(vectors)):
        if mask[i]:
            for d in range(vectors.shape[1]):
                points[count, d] = vectors[i, d]
            count += 1
    return points[:count]


@kernel
def _compute_minimum_separations(
    vectors: Array, mask: Array, result: Array, use_search: Any, first: Index, last: Index
) -> bool:
    """The least distance in each of the flocks first .. last; all pairs are compared if `use_search` is None."""
    for b in range(first, last):
        points = _select_members(vectors[b], mask[b])
        # Numba leaves out the branch that is not taken.
        if use_search is None:
            result[b] = math.sqrt(geometry.squared_distance_range(points)[0])
        else:
            result[b] = geometry.minimum_separation(points)
    return True


@kernel
def _compute_diameters(vectors: Array, mask: Array, result: Array, use_search: Any, first: Index, last: Index) -> bool:
    """The largest distance in each of the flocks first .. last; all pairs are compared if `use_search` is None."""
    for b in range(first, last):
        points = _select_members(vectors[b], mask[b])
        if use_search is None:
            result[b] = math.sqrt(geometry.squared_distance_range(points)[1])
        else:
            result[b] = geometry.diameter(points)
    return True
