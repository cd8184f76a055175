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
from equiflock.controllers.networks.compiled import CompiledNetwork, evaluate_network
from equiflock.flock import FOLLOWER, Flock, Observations, Vectors
from equiflock.protocols import AnyBody, Sensing
from equiflock.runtime import threads
from equiflock.runtime.jit import Array, Index, kernel
from equiflock.runtime.threads import AGENTS_PER_THREAD, MAX_SMALL_FLOCK
from equiflock.senses.aggregation import DelayedAggregation
from equiflock.senses.aggregation_kernels import aggregate_flocks

FlockArrays = tuple[NDArray[Any], ...]
"""The arrays of a flock, in the order of `Flock.arrays`, which may be written to."""


def make_fused_step(sensing: object, network: object, body: object) -> FusedNetworkStep | None:
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
    known = senses.topology == "dynamic" and senses.hop_mean == "receiver" and not senses.is_scaled
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
        self._network = network.network_args

    def fits(self, flock: Flock, sensing: Sensing, body: AnyBody) -> bool:
        """Whether it does what these parts would do with this flock."""
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
        """Move the active flocks, if they move at all, and let them sense and decide."""
        previous, observations = self.sensing.swap_buffers(flock)
        if len(active) < len(flock):
            ended = np.delete(np.arange(len(flock)), active)
            observations[ended] = 0.0
            accelerations[ended] = 0.0
        buffers = previous, observations
        if self._run_kernel(flock, state, accelerations, buffers, time_step, active, move_first, 1):
            return observations.reshape(*flock.shape[:2], self.senses.hops, self.senses.width, -1)
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
        """Make so many steps of all flocks."""
        buffers = self.sensing.swap_buffers(flock)
        # Flocks fly on by themselves, so when one fails the others have flown farther: all go back to the beginning.
        changed = state[0], state[1], accelerations, buffers[0]
        copies = [array.copy() for array in changed]
        everyone = np.arange(len(flock))
        fine = self._run_kernel(flock, state, accelerations, buffers, time_step, everyone, move_first, steps)
        if not fine:
            for array, copy in zip(changed, copies, strict=True):
                array[:] = copy
        # Z(t) and Z(t - dt) have changed places at every step; the first turn was for the first of them.
        if not fine or steps % 2 == 0:
            self.sensing.swap_buffers(flock)
        return fine

    def _run_kernel(
        self,
        flock: Flock,
        state: FlockArrays,
        accelerations: Vectors,
        buffers: tuple[Array, Array],
        time_step: float,
        active: Int64[np.ndarray, " active"],
        move_first: bool,
        steps: int,
    ) -> bool:
        """Call the kernel; each thread takes some of the active flocks, for all steps."""
        flock_views = flock.positions, flock.velocities, flock.roles, flock.groups
        kernel_args, flock_radio = (
            self.sensing.kernel_args(flock),
            self.sensing.radio_state.begin_steps(flock, buffers[0], steps),
        )
        common = state[:3], accelerations, flock_views, buffers, kernel_args, flock_radio, self._network, time_step
        # A single flock is one thread's work, whatever its size.
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
        # Where a step fails nobody has heard by the radio, either.
        if not fine:
            self.sensing.radio_state.rollback(steps)
        return fine


@kernel
def step_flocks(
    state: Any,
    accelerations: Array,
    flock_views: Any,
    buffers: Any,
    kernel_args: Any,
    flock_radio: Any,
    network: Any,
    time_step: float,
    active: Array,
    move_first: bool,
    steps: Index,
) -> bool:
    """Move, sense and decide for the active flocks; False if one of them is off the scale, or an answer is no number.

    Args:
        state: positions (B, N, D), velocities (B, N, D) and roles (B, N), which are moved.
        accelerations: (B, N, D), read and written.
        flock_views: positions, velocities, roles and groups as the senses see them: the same memory, read-only.
        buffers: Z(t - dt) and memory for Z(t), each (B, N, K * C * D). They change places at every further step.
        kernel_args: `DelayedAggregation.kernel_args`.
        flock_radio: what becomes of messages of the first step, as in `equiflock.senses.flock_radio`; None if all arrive.
        network: `CompiledNetwork.network_args`.
        time_step: dt.
        active: the flocks that fly.
        move_first: whether the first step begins with a move; all further ones do.
        steps: how many steps to make.
    """
    positions, velocities, roles = state
    observations, previous = buffers
    _, N, D = positions.shape
    V = observations.shape[2]
    for step in range(steps):
        previous, observations = observations, previous
        # Move: r and v by the accelerations that were decided a step before.
        if move_first or step > 0:
            advance_agents(positions, velocities, roles, accelerations, time_step, active, 0, N)
        # Sense Z(t).
        obstacle_rule, comm_radius, channel_spec = kernel_args
        if flock_radio is None:
            if not aggregate_flocks(
                flock_views[0],
                flock_views[1],
                flock_views[2],
                flock_views[3],
                previous,
                obstacle_rule,
                comm_radius,
                channel_spec,
                observations,
                active,
                None,
            ):
                return False
        else:
            key, sent, slots, rows = flock_radio[0]
            later = (key, sent + step, slots, rows), flock_radio[1], flock_radio[2], flock_radio[3], flock_radio[4]
            if not aggregate_flocks(
                flock_views[0],
                flock_views[1],
                flock_views[2],
                flock_views[3],
                previous,
                obstacle_rule,
                comm_radius,
                channel_spec,
                observations,
                active,
                later,
            ):
                return False
        # Decide a(t). Flocks that lie side by side in memory go through the network as one.
        first = 0
        for each in range(1, len(active) + 1):
            if each == len(active) or active[each] != active[each - 1] + 1:
                rows, answers = observations.reshape(-1, V), accelerations.reshape(-1, D)
                evaluate_network(rows, network, answers, active[first] * N, (active[each - 1] + 1) * N)
                first = each
        if not zero_non_followers(accelerations, roles, active):
            return False
    return True


@kernel
def zero_non_followers(accelerations: Array, roles: Array, active: Array) -> bool:
    """Set the accelerations of all others to zero; False if an answer, even one that nobody obeys, is no number."""
    fine = True
    for b in active:
        for i in range(roles.shape[1]):
            for d in range(accelerations.shape[2]):
                fine &= math.isfinite(accelerations[b, i, d])
                if roles[b, i] != FOLLOWER:
                    accelerations[b, i, d] = 0.0
    return fine
