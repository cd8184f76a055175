"""Numbers that describe a flock, a moment or a trajectory (section 5 of the paper, "Metrics", and Definition 1).

Each function takes a `Flock` or `Moment` and returns one number per flock, (B,), or a `Trajectory` and returns
(F, B), one per frame and flock. Metrics are taken over the flock: leaders included, obstacle agents not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float64

from equiflock import geometry
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
    """var(v) = (1/N) sum_i |v_i - mean(v)|^2: 0 when all agents fly with the same velocity."""
    velocities, member = _velocities(subject), _member(subject)
    deviations = velocities - _mean_vector(velocities, member)
    return _mean(np.square(deviations).sum(axis=-1), member)


def mean_acceleration_norm(subject: Moment | Trajectory) -> Numbers:
    """(1/N) sum_i |a_i|, the effort; (F - 1, B) for a trajectory, as no step follows its last frame."""
    return _mean(_acceleration_norms(subject), _member(subject))


def peak_acceleration_norm(subject: Moment | Trajectory) -> Numbers:
    """Max over i of |a_i|, which a body must be able to do; (F - 1, B) for a trajectory."""
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
    return _over_frames(_minimum_separations, subject, "positions")


def diameter(subject: Subject) -> Numbers:
    """Max over i, j of |r_ij|, whose boundedness is the cohesion of Definition 1."""
    return _over_frames(_diameters, subject, "positions")


def largest_velocity_difference(subject: Subject) -> Numbers:
    """Max over i, j of |v_ij|, whose limit zero is the alignment of Definition 1."""
    return _over_frames(_diameters, subject, "velocities")


@renamed_arguments(radius="comm_radius")
def component_count(subject: Subject, comm_radius: float | None = None) -> Numbers:
    """The number of connected components of the communication graph, taken without directions.

    Args:
        subject: a moment or trajectory, or a flock.
        comm_radius: R; that of the flock or flight if left out.
    """
    # Labels are numbered from 0, so the largest is one less than their number.
    stacked = _stacked(subject)
    counts: Numbers = components(stacked, comm_radius).max(axis=1) + 1.0
    return counts.reshape(_velocities(subject).shape[:-2])


def _acceleration_norms(subject: Moment | Trajectory) -> Array:
    """|a_i|, (.., B, N)."""
    if not isinstance(subject, (Moment, Trajectory)):
        raise InputError(f"accelerations are those of a Moment or a Trajectory; got {short(subject)}")
    return np.asarray(np.sqrt(np.square(subject.accelerations).sum(axis=-1)))


def _flock(subject: Subject) -> Flock:
    """The flock of any subject; the first frame of a trajectory."""
    if isinstance(subject, Moment):
        return subject.flock
    if isinstance(subject, Trajectory):
        return subject.flock()
    if not isinstance(subject, Flock):
        raise InputError(f"a metric is of a Flock, a Moment or a Trajectory; got {short(subject)}")
    return subject


def _velocities(subject: Subject) -> Array:
    """(B, N, D), or all frames of a trajectory, (F, B, N, D)."""
    return subject.velocities if isinstance(subject, Trajectory) else _flock(subject).velocities


def _member(subject: Subject) -> Bool[np.ndarray, "B N"]:
    """Which agents belong to the flock: all but obstacle agents."""
    return np.asarray(_flock(subject).roles != Role.OBSTACLE)


def _mean(values: Array, member: Bool[np.ndarray, "B N"]) -> Array:
    """The mean over those agents of (.., B, N) numbers: (.., B)."""
    return np.asarray(values.mean(axis=-1, where=np.broadcast_to(member, values.shape)))


def _mean_vector(vectors: Array, member: Bool[np.ndarray, "B N"]) -> Array:
    """The mean over those agents of (.., B, N, D) vectors: (.., B, 1, D)."""
    where = np.broadcast_to(member[..., None], vectors.shape)
    return np.asarray(vectors.mean(axis=-2, where=where, keepdims=True))


def _integral(run: Trajectory, name: str) -> Float64[np.ndarray, " B"]:
    """The sum of dt times a metric over the steps that each flock flew, from its recorded series if there is one."""
    if not isinstance(run, Trajectory):
        raise InputError(f"an integral is of a Trajectory; got a {type(run).__name__}")
    # The recorded series has every step, even if few frames were kept.
    if name in run.series:
        values = run.series[name][:-1]
    elif run.every_step:
        values = {"velocity_variance": velocity_variance, "mean_acceleration_norm": mean_acceleration_norm}[name](run)
        values = values[: len(run.accelerations)]
    else:
        raise InputError(f"the run kept too few frames for this integral: simulate with record=[metrics.{name}]")
    # A flock that ended early adds nothing after its last step.
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
    """Apply a kernel for points to every frame and flock: (F, B) for a trajectory, else (B,)."""
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
def _minimum_separations(vectors: Array, member: Array, result: Array, first: Index, last: Index) -> bool:
    """The least distance in each of the flocks first .. last."""
    for b in range(first, last):
        result[b] = geometry.minimum_separation(_members(vectors[b], member[b]))
    return True


@kernel
def _diameters(vectors: Array, member: Array, result: Array, first: Index, last: Index) -> bool:
    """The largest distance in each of the flocks first .. last."""
    for b in range(first, last):
        result[b] = geometry.diameter(_members(vectors[b], member[b]))
    return True
