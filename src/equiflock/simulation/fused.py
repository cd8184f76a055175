"""Move, sense and decide in one compiled call, for small flocks under a compiled network.

A flock of a hundred agents takes its parts some ten microseconds, so that the Python between them would cost as much
again. This step calls the kernels of the parts one after the other without it, on each thread for some of the flocks,
and for many steps at once where nobody looks in between. What it makes is what the parts make, to the bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from equiflock.bodies import DoubleIntegrator
from equiflock.bodies.double_integrator import advance_agents
from equiflock.controllers.networks.compiled import CompiledNetwork, decide
from equiflock.flock import FOLLOWER, Flock, Observations, Vectors
from equiflock.protocols import AnyBody, Sensing
from equiflock.runtime import threads
from equiflock.runtime.jit import Array, Index, kernel
from equiflock.runtime.threads import AGENTS_PER_THREAD, SMALL_FLOCK
from equiflock.senses.aggregation import DelayedAggregation
from equiflock.senses.hearing import hear_flocks

State = tuple[NDArray[Any], ...]
"""The arrays of a flock, in the order of `Flock.arrays`, which may be written to."""


def fused_step(sensing: object, network: object, body: object) -> FusedNetworkStep | None:
    """The step that fuses these parts, or None if they are not those that it knows."""
    return FusedNetworkStep(sensing, network, body) if can_fuse(sensing, network, body) else None  # type: ignore[arg-type]


def can_fuse(sensing: object, network: object, body: object) -> bool:
    """Whether these are parts whose kernels are called here, and fit each other."""
    # Exactly these classes: one that inherits from them may do something else.
    if type(sensing) is not DelayedAggregation or type(network) is not CompiledNetwork:
        return False
    # The kernel of a network does not look whether the weights fit the observations.
    senses, needed = sensing.senses, network.senses
    fit = (senses.hops, senses.width) == (needed.hops, needed.width)
    # Its kernel makes means by the receiver's degree, of all those within R now, in the units of the flock.
    known = senses.topology == "dynamic" and senses.hop_mean == "receiver" and not senses.scaled
    # Messages that arrive later would have to be remembered between the steps of a call.
    return fit and known and sensing.radio.memory == 0 and type(body) is DoubleIntegrator and body.is_ideal


class FusedNetworkStep:
    """The step of a flight under a compiled network, as `equiflock.protocols.FusedStep` describes it.

    Args:
        sensing: remembers what agents know; this step fills in what they learn.
        network: decides.
        body: the ideal one, which advances agents as `advance_agents` does.
    """

    def __init__(self, sensing: DelayedAggregation, network: CompiledNetwork, body: DoubleIntegrator) -> None:
        self.sensing = sensing
        self.body = body
        self.senses = sensing.senses
        self.radio = sensing.radio
        self.dimensions = network.dimensions
        self._network = network.program

    def fits(self, flock: Flock, sensing: Sensing, body: AnyBody) -> bool:
        """Whether it does what these parts would do with this flock."""
        _, N, D = flock.shape
        return (
            sensing is self.sensing
            and body is self.body
            and N <= SMALL_FLOCK
            and self.dimensions in (None, D)
            and self.sensing.senses is self.senses
            and self.sensing.radio is self.radio
        )

    def step(
        self,
        flock: Flock,
        state: State,
        accelerations: Vectors,
        time_step: float,
        active: Int64[np.ndarray, " active"],
        moves: bool,
    ) -> Observations | None:
        """Move the active flocks, if they move at all, and let them sense and decide."""
        before, now = self.sensing.turn(flock)
        if len(active) < len(flock):
            ended = np.delete(np.arange(len(flock)), active)
            now[ended] = 0.0
            accelerations[ended] = 0.0
        known = before, now
        if self._fly(flock, state, accelerations, known, time_step, active, moves, 1):
            return now.reshape(*flock.shape[:2], self.senses.hops, self.senses.width, -1)
        self.sensing.turn(flock)
        return None

    def skip(
        self,
        flock: Flock,
        state: State,
        accelerations: Vectors,
        time_step: float,
        moves: bool,
        steps: int,
    ) -> bool:
        """Make so many steps of all flocks."""
        known = self.sensing.turn(flock)
        # Flocks fly on by themselves, so when one fails the others have flown farther: all go back to the beginning.
        changed = state[0], state[1], accelerations, known[0]
        copies = [array.copy() for array in changed]
        everyone = np.arange(len(flock))
        fine = self._fly(flock, state, accelerations, known, time_step, everyone, moves, steps)
        if not fine:
            for array, copy in zip(changed, copies, strict=True):
                array[:] = copy
        # Z(t) and Z(t - dt) have changed places at every step; the first turn was for the first of them.
        if not fine or steps % 2 == 0:
            self.sensing.turn(flock)
        return fine

    def _fly(
        self,
        flock: Flock,
        state: State,
        accelerations: Vectors,
        known: tuple[Array, Array],
        time_step: float,
        active: Int64[np.ndarray, " active"],
        moves: bool,
        steps: int,
    ) -> bool:
        """Call the kernel; each thread takes some of the active flocks, for all steps."""
        seen = flock.positions, flock.velocities, flock.roles, flock.groups
        terms, air = self.sensing.terms(flock), self.sensing.receiver.begin_steps(flock, known[0], steps)
        common = state[:3], accelerations, seen, known, terms, air, self._network, time_step
        # A single flock is one thread's work, whatever its size.
        if len(active) == 1:
            fine = bool(fly(*common, active, moves, steps))
        else:
            least = math.ceil(AGENTS_PER_THREAD / (flock.shape[1] * steps))
            parts = threads.split(len(active), least)
            fine = all(threads.share(fly, [(*common, active[first:last], moves, steps) for first, last in parts]))
        # Where a step fails nobody has heard by the radio, either.
        if not fine:
            self.sensing.receiver.take_back(steps)
        return fine


@kernel
def fly(
    state: Any,
    accelerations: Array,
    seen: Any,
    known: Any,
    terms: Any,
    air: Any,
    network: Any,
    time_step: float,
    active: Array,
    moves: bool,
    steps: Index,
) -> bool:
    """Move, sense and decide for the active flocks; False if one of them is off the scale, or an answer is no number.

    Args:
        state: positions (B, N, D), velocities (B, N, D) and roles (B, N), which are moved.
        accelerations: (B, N, D), read and written.
        seen: positions, velocities, roles and groups as the senses see them: the same memory, read-only.
        known: Z(t - dt) and memory for Z(t), each (B, N, K * C * D). They change places at every further step.
        terms: `DelayedAggregation.terms`.
        air: what becomes of messages of the first step, as in `equiflock.senses.air`; None if all arrive.
        network: `CompiledNetwork.program`.
        time_step: dt.
        active: the flocks that fly.
        moves: whether the first step begins with a move; all further ones do.
        steps: how many steps to make.
    """
    positions, velocities, roles = state
    now, before = known
    _, N, D = positions.shape
    V = now.shape[2]
    for step in range(steps):
        before, now = now, before
        # Move: r and v by the accelerations that were decided a step before.
        if moves or step > 0:
            advance_agents(positions, velocities, roles, accelerations, time_step, active, 0, N)
        # Sense Z(t).
        rules, comm_radius, said = terms
        if air is None:
            if not hear_flocks(seen[0], seen[1], seen[2], seen[3], before, rules, comm_radius, said, now, active, None):
                return False
        else:
            key, sent, slots, rows = air[0]
            later = (key, sent + step, slots, rows), air[1], air[2], air[3], air[4]
            if not hear_flocks(
                seen[0], seen[1], seen[2], seen[3], before, rules, comm_radius, said, now, active, later
            ):
                return False
        # Decide a(t). Flocks that lie side by side in memory go through the network as one.
        first = 0
        for each in range(1, len(active) + 1):
            if each == len(active) or active[each] != active[each - 1] + 1:
                rows, answers = now.reshape(-1, V), accelerations.reshape(-1, D)
                decide(rows, network, answers, active[first] * N, (active[each - 1] + 1) * N)
                first = each
        if not obeyed_by_followers(accelerations, roles, active):
            return False
    return True


@kernel
def obeyed_by_followers(accelerations: Array, roles: Array, active: Array) -> bool:
    """Set the accelerations of all others to zero; False if an answer, even one that nobody obeys, is no number."""
    fine = True
    for b in active:
        for i in range(roles.shape[1]):
            for d in range(accelerations.shape[2]):
                fine &= math.isfinite(accelerations[b, i, d])
                if roles[b, i] != FOLLOWER:
                    accelerations[b, i, d] = 0.0
    return fine
