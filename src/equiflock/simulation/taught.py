"""The fused step of a lesson: a pupil that flies beside Tanner's expert, who says at every step what it would do.

One call moves the flock, makes the observations of both, asks both, and lets one of them decide.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.bodies import DoubleIntegrator
from equiflock.bodies.double_integrator import advance_agents
from equiflock.controllers.classical.tanner import NOBODY, Tanner, tanner_flocks
from equiflock.controllers.networks.compiled import CompiledNetwork, decide
from equiflock.flock import Flock, Observations, Vectors
from equiflock.protocols import AnyBody, Sensing
from equiflock.runtime.jit import kernel
from equiflock.runtime.threads import SMALL_FLOCK
from equiflock.senses.aggregation import DelayedAggregation
from equiflock.senses.hearing import hear_flocks
from equiflock.simulation.fused import State, can_fuse, obeyed_by_followers


def taught_step(expert: object, pupil: object, sensings: tuple[object, object], body: object) -> TaughtStep | None:
    """The step that fuses these parts, or None if they are not those that it knows."""
    theirs, ours = sensings
    # A potential that is not cut off is a sum over all pairs, which is not fused.
    if type(expert) is not Tanner or not expert.cut_off:
        return None
    if type(theirs) is not DelayedAggregation or theirs.senses != expert.senses:
        return None
    if not can_fuse(ours, pupil, body) or not ours.radio.is_perfect:  # type: ignore[attr-defined]
        return None
    return TaughtStep(expert, pupil, (theirs, ours), body)  # type: ignore[arg-type]


class TaughtStep:
    """Moves, senses and decides for one small flock of a pupil and an expert.

    Args:
        expert: Tanner's law.
        pupil: a compiled network.
        sensings: the senses of the expert and of the pupil.
        body: the ideal one, which advances agents as `advance_agents` does.
    """

    def __init__(
        self,
        expert: Tanner,
        pupil: CompiledNetwork,
        sensings: tuple[DelayedAggregation, DelayedAggregation],
        body: DoubleIntegrator,
    ) -> None:
        self.sensings = sensings
        self.senses = tuple(sensing.senses for sensing in sensings)
        self.radio = sensings[1].radio
        self.body = body
        self.dimensions = pupil.dimensions
        self._rule = expert.rule
        self._network = pupil.program

    def fits(self, flock: Flock, sensing: Sensing, body: AnyBody) -> bool:
        """Whether it does what a flight of this flock with these parts would do."""
        B, N, D = flock.shape
        same = sensing is self.sensings[1] and body is self.body and self.sensings[1].radio is self.radio
        kept = all(each.senses is senses for each, senses in zip(self.sensings, self.senses, strict=True))
        return same and kept and B == 1 and N <= SMALL_FLOCK and self.dimensions in (None, D)

    def __call__(
        self,
        flock: Flock,
        state: State,
        accelerations: Vectors,
        target: Vectors,
        time_step: float,
        *,
        moves: bool,
        pupil_flies: bool,
    ) -> Observations | None:
        """Make a step; the expert's accelerations go to `target`, and the pupil's observations are returned.

        None, with what both remember as before, if the flock is off the scale or a decision is no finite number.
        """
        known = [sensing.turn(flock) for sensing in self.sensings]
        terms = [sensing.terms(flock) for sensing in self.sensings]
        seen = flock.positions, flock.velocities, flock.roles, flock.groups
        expert, pupil = ((*memory, *told) for memory, told in zip(known, terms, strict=True))
        answers = target, accelerations
        said = self._rule, self._network, pupil_flies
        if fly_taught(state[:3], seen, expert, pupil, answers, said, time_step, moves):
            senses = self.senses[1]
            return known[1][1].reshape(*flock.shape[:2], senses.hops, senses.width, -1)
        for sensing in self.sensings:
            sensing.turn(flock)
        return None


@kernel
def fly_taught(
    state: Any, seen: Any, expert: Any, pupil: Any, answers: Any, said: Any, time_step: float, moves: bool
) -> bool:
    """Move, sense and decide for one flock; False if it is off the scale, or the answer obeyed is no number.

    Args:
        state: positions (1, N, D), velocities (1, N, D) and roles (1, N), which are moved.
        seen: positions, velocities, roles and groups as the senses see them: the same memory, read-only.
        expert: Z(t - dt), memory for Z(t), and `DelayedAggregation.terms`, of the expert's senses.
        pupil: the same of the pupil's.
        answers: the expert's accelerations, and those that are obeyed, (1, N, D).
        said: the rule of the expert, the pupil's weights, and whether the pupil decides.
        time_step: dt.
        moves: whether the step begins with a move.
    """
    positions, velocities, roles = state
    target, accelerations = answers
    rule, network, pupil_flies = said
    _, N, D = positions.shape
    first = np.zeros(1, np.int64)
    # Move: r and v by the accelerations that were decided a step before.
    if moves:
        advance_agents(positions, velocities, roles, accelerations, time_step, first, 0, N)
    # Sense, both of them.
    before, now, rules, comm_radius, table = expert
    if not hear_flocks(seen[0], seen[1], seen[2], seen[3], before, rules, comm_radius, table, now, first, None):
        return False
    ahead, known, others, reach, features = pupil
    if not hear_flocks(seen[0], seen[1], seen[2], seen[3], ahead, others, reach, features, known, first, None):
        return False
    # The expert's accelerations are wanted whoever decides. Numba compiles a kernel anew for every constant that it is
    # called with, so the first flock and agent are variables.
    zero = np.int64(0)
    tanner_flocks(seen[1], seen[2], NOBODY, now.reshape(1, N, 1, now.shape[2] // D, D), rule, target, zero, zero + 1)
    if pupil_flies:
        decide(known.reshape(N, known.shape[2]), network, accelerations.reshape(N, D), zero, N)
    else:
        accelerations[:] = target
    return obeyed_by_followers(accelerations, roles, first)
