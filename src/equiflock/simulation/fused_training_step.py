"""The fused step of a lesson: a pupil that flies beside Tanner's expert, who says at every step what it would do.

One call moves the flock, makes the observations of both, asks both, and lets one of them decide.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.bodies import DoubleIntegrator
from equiflock.bodies.double_integrator import advance_agents
from equiflock.controllers.classical.tanner import EMPTY, Tanner, compute_tanner
from equiflock.controllers.networks.compiled import CompiledNetwork, evaluate_network
from equiflock.flock import Flock, Observations, Vectors
from equiflock.protocols import AnyBody, Sensing
from equiflock.runtime.jit import kernel
from equiflock.runtime.threads import MAX_SMALL_FLOCK
from equiflock.senses.aggregation import DelayedAggregation
from equiflock.senses.aggregation_kernels import aggregate_flocks
from equiflock.simulation.fused_network_step import FlockArrays, can_fuse, zero_non_followers


def make_fused_training_step(
    expert: object, student: object, sensing_pair: tuple[object, object], body: object
) -> FusedTrainingStep | None:
    """The step that fuses these parts, or None if they are not those that it knows."""
    theirs, ours = sensing_pair
    # A potential that is not cut off is a sum over all pairs, which is not fused.
    if type(expert) is not Tanner or not expert.cut_off:
        return None
    if type(theirs) is not DelayedAggregation or theirs.senses != expert.senses:
        return None
    if not can_fuse(ours, student, body) or not ours.radio.is_ideal:  # type: ignore[attr-defined]
        return None
    return FusedTrainingStep(expert, student, (theirs, ours), body)  # type: ignore[arg-type]


class FusedTrainingStep:
    """Moves, senses and decides for one small flock of a pupil and an expert.

    Args:
        expert: Tanner's law.
        student: a compiled network.
        sensing_pair: the senses of the expert and of the pupil.
        body: the ideal one, which advances agents as `advance_agents` does.
    """

    def __init__(
        self,
        expert: Tanner,
        student: CompiledNetwork,
        sensing_pair: tuple[DelayedAggregation, DelayedAggregation],
        body: DoubleIntegrator,
    ) -> None:
        self.sensing_pair = sensing_pair
        self.senses = tuple(sensing.senses for sensing in sensing_pair)
        self.radio = sensing_pair[1].radio
        self.body = body
        self.dimensions = student.dimensions
        self._expert_args = expert.tanner_args
        self._network = student.network_args

    def fits(self, flock: Flock, sensing: Sensing, body: AnyBody) -> bool:
        """Whether it does what a flight of this flock with these parts would do."""
        B, N, D = flock.shape
        same = sensing is self.sensing_pair[1] and body is self.body and self.sensing_pair[1].radio is self.radio
        kept = all(each.senses is senses for each, senses in zip(self.sensing_pair, self.senses, strict=True))
        return same and kept and B == 1 and N <= MAX_SMALL_FLOCK and self.dimensions in (None, D)

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
        """Make a step; the expert's accelerations go to `target`, and the pupil's observations are returned.

        None, with what both remember as before, if the flock is off the scale or a decision is no finite number.
        """
        known = [sensing.swap_buffers(flock) for sensing in self.sensing_pair]
        kernel_args = [sensing.kernel_args(flock) for sensing in self.sensing_pair]
        flock_views = flock.positions, flock.velocities, flock.roles, flock.groups
        expert, student = ((*memory, *told) for memory, told in zip(known, kernel_args, strict=True))
        outputs = target, accelerations
        policies = self._expert_args, self._network, student_acts
        if step_training_flock(state[:3], flock_views, expert, student, outputs, policies, time_step, move_first):
            senses = self.senses[1]
            return known[1][1].reshape(*flock.shape[:2], senses.hops, senses.width, -1)
        for sensing in self.sensing_pair:
            sensing.swap_buffers(flock)
        return None


@kernel
def step_training_flock(
    state: Any,
    flock_views: Any,
    expert: Any,
    student: Any,
    outputs: Any,
    policies: Any,
    time_step: float,
    move_first: bool,
) -> bool:
    """Move, sense and decide for one flock; False if it is off the scale, or the answer obeyed is no number.

    Args:
        state: positions (1, N, D), velocities (1, N, D) and roles (1, N), which are moved.
        flock_views: positions, velocities, roles and groups as the senses see them: the same memory, read-only.
        expert: Z(t - dt), memory for Z(t), and `DelayedAggregation.kernel_args`, of the expert's senses.
        student: the same of the pupil's.
        outputs: the expert's accelerations, and those that are obeyed, (1, N, D).
        policies: the rule of the expert, the pupil's weights, and whether the pupil decides.
        time_step: dt.
        move_first: whether the step begins with a move.
    """
    positions, velocities, roles = state
    target, accelerations = outputs
    tanner_args, network, student_acts = policies
    _, N, D = positions.shape
    first = np.zeros(1, np.int64)
    # Move: r and v by the accelerations that were decided a step before.
    if move_first:
        advance_agents(positions, velocities, roles, accelerations, time_step, first, 0, N)
    # Sense, both of them.
    before, now, obstacle_rule, comm_radius, table = expert
    if not aggregate_flocks(
        flock_views[0],
        flock_views[1],
        flock_views[2],
        flock_views[3],
        before,
        obstacle_rule,
        comm_radius,
        table,
        now,
        first,
        None,
    ):
        return False
    ahead, known, others, reach, features = student
    if not aggregate_flocks(
        flock_views[0],
        flock_views[1],
        flock_views[2],
        flock_views[3],
        ahead,
        others,
        reach,
        features,
        known,
        first,
        None,
    ):
        return False
    # The expert's accelerations are wanted whoever decides. Numba compiles a kernel anew for every constant that it is
    # called with, so the first flock and agent are variables.
    zero = np.int64(0)
    compute_tanner(
        flock_views[1],
        flock_views[2],
        EMPTY,
        now.reshape(1, N, 1, now.shape[2] // D, D),
        tanner_args,
        target,
        zero,
        zero + 1,
    )
    if student_acts:
        evaluate_network(known.reshape(N, known.shape[2]), network, accelerations.reshape(N, D), zero, N)
    else:
        accelerations[:] = target
    return zero_non_followers(accelerations, roles, first)
