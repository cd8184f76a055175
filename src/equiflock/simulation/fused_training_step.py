"""The fused training step: move, observe and decide in one compiled call, for an expert and a student.

The expert, Tanner's law, and the student both observe and decide; the accelerations of one of them are executed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from equiflock.bodies import DoubleIntegrator
from equiflock.bodies.double_integrator import advance_agents
from equiflock.controllers.classical.tanner import EMPTY, Tanner, compute_tanner
from equiflock.controllers.networks.compiled import CompiledNetwork, evaluate_network
from equiflock.flock import Flock, Observations, Vectors
from equiflock.protocols import AnyBody, Sensing
from equiflock.runtime.jit import Array, as_read_only_array, kernel
from equiflock.runtime.threads import MAX_SMALL_FLOCK
from equiflock.senses.aggregation import DelayedAggregation
from equiflock.senses.aggregation_kernels import aggregate_flocks
from equiflock.simulation.fused_network_step import FlockArrays, can_fuse, zero_non_followers


def make_fused_training_step(
    expert: object, student: object, sensing_pair: tuple[object, object], body: object
) -> FusedTrainingStep | None:
    """Return the fused step of these parts, or None if this combination is unsupported.

    The expert must be `Tanner` with a cut-off potential, and its sensing must have the senses it declares; `can_fuse`
    must support the student, and the radio must be ideal.
    """
    expert_sensing, student_sensing = sensing_pair
    # A potential that is not cut off is a sum over all pairs, which is not fused.
    if type(expert) is not Tanner or not expert.cut_off:
        return None
    if type(expert_sensing) is not DelayedAggregation or expert_sensing.senses != expert.senses:
        return None
    if not can_fuse(student_sensing, student, body) or not student_sensing.radio.is_ideal:  # type: ignore[attr-defined]
        return None
    pair = SensingPair(expert_sensing, student_sensing)  # type: ignore[arg-type]
    return FusedTrainingStep(expert, student, pair, body)  # type: ignore[arg-type]


class SensingPair(NamedTuple):
    """The aggregations of the expert and of the student."""

    expert: DelayedAggregation
    student: DelayedAggregation


class FusedTrainingStep:
    """The step of one small flock with an expert and a student.

    Args:
        expert: Tanner's law.
        student: a compiled network.
        sensing_pair: the aggregations of the expert and of the student.
        body: the ideal body, which moves agents as `advance_agents` does.
    """

    def __init__(
        self,
        expert: Tanner,
        student: CompiledNetwork,
        sensing_pair: SensingPair,
        body: DoubleIntegrator,
    ) -> None:
        self.sensing_pair = sensing_pair
        self.senses = tuple(sensing.senses for sensing in sensing_pair)
        self.radio = sensing_pair.student.radio
        self.body = body
        self.dimensions = student.dimensions
        self._expert_args = tuple(expert.tanner_args)
        self._network = student.packed_args

    def fits(self, flock: Flock, sensing: Sensing, body: AnyBody) -> bool:
        """Return whether these are the parts it was made for, with the same senses and radio, and one small flock.

        Small is up to MAX_SMALL_FLOCK agents.
        """
        B, N, D = flock.shape
        student = self.sensing_pair.student
        same_parts = sensing is student and body is self.body and student.radio is self.radio
        same_senses = all(part.senses is senses for part, senses in zip(self.sensing_pair, self.senses, strict=True))
        return same_parts and same_senses and B == 1 and N <= MAX_SMALL_FLOCK and self.dimensions in (None, D)

    def __call__(
        self,
        flock: Flock,
        state: FlockArrays,
        accelerations: Vectors,
        target: Vectors,
        time_step: float,
        *,
        move_first: bool,
        student_acts: bool,
    ) -> Observations | None:
        """Make a step, write the expert's accelerations into `target`, and return the student's observations.

        Positions, velocities and accelerations are changed in place. Return None, with the observations of both as
        before but the move done, if the flock is out of range or an executed acceleration is not finite.
        """
        expert, student = self.sensing_pair
        expert_buffers, student_buffers = expert.swap_buffers(flock), student.swap_buffers(flock)
        positions, velocities, roles, *_ = state
        if step_training_flock(
            positions,
            velocities,
            roles,
            flock.groups,
            target,
            accelerations,
            *expert_buffers,
            expert.get_packed_args(flock),
            self._expert_args,
            *student_buffers,
            student.get_packed_args(flock),
            self._network,
            student_acts,
            time_step,
            move_first,
        ):
            senses = student.senses
            return student_buffers.current.reshape(*flock.shape[:2], senses.hops, senses.width, -1)
        for sensing in self.sensing_pair:
            sensing.swap_buffers(flock)
        return None


@kernel
def step_training_flock(
    positions: Array,
    velocities: Array,
    roles: Array,
    groups: Array,
    target: Array,
    accelerations: Array,
    expert_previous: Array,
    expert_observations: Array,
    expert_packed_args: tuple[Any, ...],
    tanner_args: Any,
    student_previous: Array,
    student_observations: Array,
    student_packed_args: tuple[Any, ...],
    network: Any,
    student_acts: bool,
    time_step: float,
    move_first: bool,
) -> bool:
    """Move, observe and decide for one flock.

    Args:
        positions: (1, N, D), updated.
        velocities: (1, N, D), updated.
        roles: (1, N).
        groups: (1, N).
        target: (1, N, D), the expert's accelerations.
        accelerations: (1, N, D), those executed: of the step before, and the result.
        expert_previous: (1, N, K * C * D), the expert's Z(t - dt).
        expert_observations: (1, N, K * C * D), memory for the expert's Z(t).
        expert_packed_args: `DelayedAggregation.get_packed_args` of the expert.
        tanner_args: `Tanner.tanner_args` as a plain tuple.
        student_previous: as for the expert.
        student_observations: as for the expert.
        student_packed_args: as for the expert.
        network: `CompiledNetwork.packed_args`.
        student_acts: whether the student's accelerations are executed, rather than the expert's.
        time_step: dt.
        move_first: whether the step begins with a move.

    Returns:
        False if the flock is out of range, or an executed acceleration is not finite; arrays may be changed in part.
    """
    _, N, D = positions.shape
    # Not literals: Numba compiles a kernel again for every constant argument.
    first, zero = np.zeros(1, np.int64), np.int64(0)
    # Move: r and v by the accelerations of the step before.
    if move_first:
        advance_agents(positions, velocities, roles, accelerations, time_step, first, 0, N)
    # Observe, both of them. The aggregation is compiled for read-only arrays, those of a `Flock`.
    read_positions, read_velocities = as_read_only_array(positions), as_read_only_array(velocities)
    read_roles = as_read_only_array(roles)
    if not aggregate_flocks(
        read_positions,
        read_velocities,
        read_roles,
        groups,
        expert_previous,
        expert_packed_args,
        expert_observations,
        first,
        None,
        zero,
    ):
        return False
    if not aggregate_flocks(
        read_positions,
        read_velocities,
        read_roles,
        groups,
        student_previous,
        student_packed_args,
        student_observations,
        first,
        None,
        zero,
    ):
        return False
    # The expert's accelerations are the training target, whichever policy acts.
    compute_tanner(
        read_velocities,
        read_roles,
        EMPTY,
        expert_observations.reshape(1, N, 1, expert_observations.shape[2] // D, D),
        tanner_args,
        target,
        zero,
        zero + 1,
    )
    if student_acts:
        inputs = student_observations.reshape(N, student_observations.shape[2])
        evaluate_network(inputs, network, accelerations.reshape(N, D), zero, N)
    else:
        accelerations[:] = target
    return zero_non_followers(accelerations, roles, first)
