"""The fused step: move, observe and decide in one compiled call, for small flocks with a compiled network.

For a flock of a hundred agents each part takes some ten microseconds, and the Python between the parts would cost as
much again. The fused step calls the kernels of the parts without it, on each thread for some of the flocks, and for
many steps at once if the caller skips the moments between. Its results are bit-identical to those of the parts.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from equiflock._runtime import threads
from equiflock._runtime.jit import Array, Index, as_read_only_array, kernel
from equiflock._runtime.threads import AGENTS_PER_THREAD, MAX_SMALL_FLOCK
from equiflock.bodies import DoubleIntegrator
from equiflock.bodies.double_integrator import advance_agents
from equiflock.controllers.classical.tanner import EMPTY, Tanner, compute_tanner
from equiflock.controllers.networks.compiled import CompiledNetwork, evaluate_network
from equiflock.flock import FOLLOWER, Flock, Observations, Vectors
from equiflock.observations.aggregation import DelayedAggregation, ObservationBuffers
from equiflock.observations.aggregation_kernels import aggregate_flocks
from equiflock.observations.radio_kernels import pack_radio_args
from equiflock.protocols import AnyBody, Sensing

FlockArrays = tuple[NDArray[Any], ...]
"""The writable arrays of a flock, in the order of `Flock.arrays`."""


def make_fused_step(sensing: object, network: object, body: object) -> FusedNetworkStep | None:
    """Return the fused step of these parts, or None if this combination is unsupported."""
    return FusedNetworkStep(sensing, network, body) if can_fuse(sensing, network, body) else None  # type: ignore[arg-type]


def can_fuse(sensing: object, network: object, body: object) -> bool:
    """Return whether `FusedNetworkStep` supports these parts.

    It needs exactly a `DelayedAggregation` with a dynamic topology, unscaled units, the hop mean of receivers and a
    radio without memory; a `CompiledNetwork` for its hops and channels; and an ideal `DoubleIntegrator`.
    """
    # Exactly these classes: a subclass may do something else.
    if type(sensing) is not DelayedAggregation or type(network) is not CompiledNetwork:
        return False
    # The network's kernel does not check that the weights match the observations.
    senses, expected = sensing.senses, network.senses
    matches = (senses.hops, senses.width) == (expected.hops, expected.width)
    # The kernel averages over the receiver's degree, over all agents within R now, in the units of the flock.
    is_supported = senses.topology == "dynamic" and senses.hop_mean == "receiver" and not senses.is_scaled
    # Messages that arrive later would have to be stored between the steps of a call.
    return matches and is_supported and sensing.radio.memory == 0 and type(body) is DoubleIntegrator and body.is_ideal


class FusedNetworkStep:
    """The step of a flight with a compiled network, an `equiflock.protocols.FusedStep`.

    Args:
        sensing: holds the observations, which this step fills in.
        network: the policy.
        body: the ideal body, which moves agents as `advance_agents` does.
    """

    def __init__(self, sensing: DelayedAggregation, network: CompiledNetwork, body: DoubleIntegrator) -> None:
        self.sensing = sensing
        self.body = body
        self.senses = sensing.senses
        self.radio = sensing.radio
        self.dimensions = network.dimensions
        self._network = network.packed_args

    def fits(self, flock: Flock, sensing: Sensing, body: AnyBody) -> bool:
        """Return whether these are the parts it was made for, with the same senses and radio, and the flock is small.

        Small is up to MAX_SMALL_FLOCK agents.
        """
        _, N, D = flock.shape
        return (
            sensing is self.sensing
            and body is self.body
            and N <= MAX_SMALL_FLOCK
            and self.dimensions in (None, D)
            and self.sensing.senses is self.senses
            and self.sensing.radio is self.radio
        )

    def step(
        self,
        flock: Flock,
        state: FlockArrays,
        accelerations: Vectors,
        time_step: float,
        active: Int64[np.ndarray, " active"],
        move_first: bool,
    ) -> Observations | None:
        """Move the active flocks if `move_first`, then observe and decide; return observations (B, N, K, C, D).

        Observations and accelerations of other flocks become zero. Return None if a value is out of range: the move is
        done, but the senses are as before.
        """
        buffers = self.sensing.swap_buffers(flock)
        if len(active) < len(flock):
            ended = np.delete(np.arange(len(flock)), active)
            buffers.current[ended] = 0.0
            accelerations[ended] = 0.0
        if self._run_kernel(flock, state, accelerations, buffers, time_step, active, move_first, 1):
            return buffers.current.reshape(*flock.shape[:2], self.senses.hops, self.senses.width, -1)
        self.sensing.swap_buffers(flock)
        return None

    def skip(
        self,
        flock: Flock,
        state: FlockArrays,
        accelerations: Vectors,
        time_step: float,
        move_first: bool,
        steps: int,
    ) -> bool:
        """Make `steps` steps of all flocks, the first with a move only if `move_first`.

        Return False, with state, accelerations and senses restored, if a step fails.
        """
        buffers = self.sensing.swap_buffers(flock)
        # Flocks advance independently: if one fails, the others are further ahead, so all are restored.
        positions, velocities, *_ = state
        changed = positions, velocities, accelerations, buffers.previous
        copies = [array.copy() for array in changed]
        all_flocks = np.arange(len(flock))
        fine = self._run_kernel(flock, state, accelerations, buffers, time_step, all_flocks, move_first, steps)
        if not fine:
            for array, copy in zip(changed, copies, strict=True):
                array[:] = copy
        # The kernel swaps Z(t) and Z(t - dt) at every step after the first, for which `swap_buffers` was called above.
        if not fine or steps % 2 == 0:
            self.sensing.swap_buffers(flock)
        return fine

    def _run_kernel(
        self,
        flock: Flock,
        state: FlockArrays,
        accelerations: Vectors,
        buffers: ObservationBuffers,
        time_step: float,
        active: Int64[np.ndarray, " active"],
        move_first: bool,
        steps: int,
    ) -> bool:
        """Call the kernel; each thread makes all steps of some of the active flocks.

        Return False if a step fails: the radio's count of steps is restored, other arrays are not.
        """
        positions, velocities, roles, *_ = state
        radio_args = self.sensing.radio_state.begin_steps(flock, buffers.previous, steps)
        packed_args = self.sensing.get_packed_args(flock)
        packed_radio = None if radio_args is None else pack_radio_args(radio_args)
        arrays = positions, velocities, roles, flock.groups, accelerations, *buffers
        common = *arrays, packed_args, packed_radio, self._network, time_step
        # One thread makes the step of a single flock, whatever its size.
        if len(active) == 1:
            fine = bool(step_flocks(*common, active, move_first, steps))
        else:
            least = math.ceil(AGENTS_PER_THREAD / (flock.shape[1] * steps))
            parts = threads.split_range(len(active), least)
            fine = all(
                threads.run_parallel(
                    step_flocks, [(*common, active[first:last], move_first, steps) for first, last in parts]
                )
            )
        # A step that fails does not count for the radio.
        if not fine:
            self.sensing.radio_state.rollback(steps)
        return fine


@kernel
def step_flocks(
    positions: Array,
    velocities: Array,
    roles: Array,
    groups: Array,
    accelerations: Array,
    previous: Array,
    observations: Array,
    packed_args: tuple[Any, ...],
    packed_radio: tuple[Any, ...] | None,
    network: Any,
    time_step: float,
    active: Array,
    move_first: bool,
    steps: Index,
) -> bool:
    """Move, observe and decide for the active flocks.

    Args:
        positions: (B, N, D), updated.
        velocities: (B, N, D), updated.
        roles: (B, N).
        groups: (B, N).
        accelerations: (B, N, D), those of the step before, and the result.
        previous: (B, N, K * C * D), Z(t - dt). It swaps with `observations` at every further step.
        observations: (B, N, K * C * D), memory for Z(t).
        packed_args: `DelayedAggregation.get_packed_args`.
        packed_radio: the `RadioArgs` of the first step, packed; None if all messages arrive.
        network: `CompiledNetwork.packed_args`.
        time_step: dt.
        active: indices of the flocks that fly.
        move_first: whether the first step begins with a move; all further ones do.
        steps: the number of steps.

    Returns:
        False if a flock is out of range, or an acceleration is not finite; arrays may be changed in part.
    """
    _, N, D = positions.shape
    V = observations.shape[2]
    # The aggregation is compiled for read-only arrays, those of a `Flock`.
    read_positions, read_velocities = as_read_only_array(positions), as_read_only_array(velocities)
    read_roles = as_read_only_array(roles)
    for step in range(steps):
        if step > 0:
            previous, observations = observations, previous
        # Move: r and v by the accelerations of the step before.
        if move_first or step > 0:
            advance_agents(positions, velocities, roles, accelerations, time_step, active, 0, N)
        # Observe Z(t).
        if not aggregate_flocks(
            read_positions,
            read_velocities,
            read_roles,
            groups,
            previous,
            packed_args,
            observations,
            active,
            packed_radio,
            step,
        ):
            return False
        # Decide a(t). Flocks that are adjacent in memory go through the network as one.
        first = 0
        for end in range(1, len(active) + 1):
            if end == len(active) or active[end] != active[end - 1] + 1:
                inputs, outputs = observations.reshape(-1, V), accelerations.reshape(-1, D)
                evaluate_network(inputs, network, outputs, active[first] * N, (active[end - 1] + 1) * N)
                first = end
        if not zero_non_followers(accelerations, roles, active):
            return False
    return True


@kernel
def zero_non_followers(accelerations: Array, roles: Array, active: Array) -> bool:
    """Set the accelerations of all but followers of the active flocks to zero.

    Return False if one of any agent of these flocks was not finite.
    """
    fine = True
    for b in active:
        for i in range(roles.shape[1]):
            for d in range(accelerations.shape[2]):
                fine &= math.isfinite(accelerations[b, i, d])
                if roles[b, i] != FOLLOWER:
                    accelerations[b, i, d] = 0.0
    return fine


# The fused training step: move, observe and decide in one compiled call, for an expert and a student.
#
# The expert, Tanner's law, and the student both observe and decide; the accelerations of one of them are executed.


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
