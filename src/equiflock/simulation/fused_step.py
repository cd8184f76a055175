"""The fused step: move, observe and decide in one compiled call, for small flocks with a compiled network.

For a flock of a hundred agents each part takes some ten microseconds, and the Python between the parts would cost as
much again. The fused step calls the kernels of the parts without it, on each thread for some of the flocks, and for
many steps at once if the caller skips the moments between. Its results are bit-identical to those of the parts.

In DAgger's rollouts an expert, Tanner's law, observes and decides in the same call, and either the network or the
expert acts.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from equiflock._runtime import threads
from equiflock._runtime.jit import Array, Index, as_read_only_array, kernel
from equiflock._runtime.threads import AGENTS_PER_THREAD, MAX_SMALL_FLOCK
from equiflock.bodies import DoubleIntegrator
from equiflock.bodies.double_integrator import advance_agents
from equiflock.controllers.classical.tanner import EMPTY, Tanner, compute_tanner
from equiflock.controllers.networks.compiled import CompiledNetwork, evaluate_network
from equiflock.flock import FOLLOWER, Flock, Observations
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.observations.aggregation_kernels import aggregate_flocks
from equiflock.protocols import AnyBody, BodyStep, Sensing

AGENTS_PER_GROUP = 1_536
"""Agents that make all steps of a call before the next ones begin: their observations stay in a core's cache."""


class ExpertPart(Protocol):
    """An expert that takes part in the fused steps of a network; `equiflock.learning.mixture.Mixture` is one."""

    expert: Any
    sensing: DelayedAggregation
    """Computes the expert's observations."""

    def draw(self) -> bool:
        """Return whether the expert acts in this step; the same at every call until `end_step`."""
        ...

    def end_step(self, target: NDArray[Any]) -> None:
        """Store the expert's accelerations (B, N, D) of this step."""
        ...


def make_fused_step(
    sensing: object, network: object, body: object, expert: ExpertPart | None = None
) -> CompiledStep | None:
    """Return the fused step of these parts, or None if this combination is unsupported."""
    if not can_fuse(sensing, network, body) or (expert is not None and not can_fuse_expert(expert)):
        return None
    return CompiledStep(sensing, network, body, expert)  # type: ignore[arg-type]


def can_fuse(sensing: object, network: object, body: object) -> bool:
    """Return whether `CompiledStep` supports these parts.

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


def can_fuse_expert(part: ExpertPart) -> bool:
    """Return whether the expert is `Tanner` with a cut-off potential, and observes what it declares, without delay."""
    # A potential that is not cut off is a sum over all pairs, which is not fused.
    if type(part.expert) is not Tanner or not part.expert.cut_off:
        return False
    if type(part.sensing) is not DelayedAggregation:
        return False
    return part.sensing.senses == part.expert.senses and part.sensing.radio.memory == 0


class CompiledStep:
    """The step of a flight with a compiled network, an `equiflock.protocols.FusedStep`.

    Args:
        sensing: holds the observations, which this step fills in.
        network: the policy.
        body: the ideal body, which moves agents as `advance_agents` does.
        expert: takes part in every step; None: the network acts alone.
    """

    def __init__(
        self,
        sensing: DelayedAggregation,
        network: CompiledNetwork,
        body: DoubleIntegrator,
        expert: ExpertPart | None = None,
    ) -> None:
        self.sensing = sensing
        self.body = body
        self.dimensions = network.dimensions
        self._network = network.packed_args
        self._expert = expert
        self._tanner_args = () if expert is None else tuple(expert.expert.tanner_args)
        observers = [sensing] if expert is None else [sensing, expert.sensing]
        self._observers = [(each, each.senses, each.radio) for each in observers]

    def fits(self, flock: Flock, sensing: Sensing, body: AnyBody) -> bool:
        """Return whether these are the parts it was made for, with the same senses and radio, and the flock is small.

        Small is up to MAX_SMALL_FLOCK agents.
        """
        _, N, D = flock.positions.shape
        for observer, senses, radio in self._observers:
            if observer.senses is not senses or observer.radio is not radio:
                return False
        same_parts = sensing is self.sensing and body is self.body
        return same_parts and N <= MAX_SMALL_FLOCK and self.dimensions in (None, D)

    def step(self, flock: Flock, body_step: BodyStep, move_first: bool) -> Observations | None:
        """Move the active flocks if `move_first`, then observe and decide; return observations (B, N, K, C, D).

        Observations and accelerations of other flocks become zero. Return None if a value is out of range: the move is
        done, but the senses are as before.
        """
        if len(body_step.active) < len(flock):
            body_step.accelerations[np.delete(np.arange(len(flock)), body_step.active)] = 0.0
        return self.sensing.observations if self._run_kernel(flock, body_step, move_first, 1) else None

    def skip(self, flock: Flock, body_step: BodyStep, move_first: bool, steps: int) -> bool:
        """Make `steps` steps of all flocks, the first with a move only if `move_first`.

        Return False, with state, accelerations and senses restored, if a step fails. With an expert, return False at
        once: its accelerations are needed at every step.
        """
        if self._expert is not None:
            return False
        # Flocks advance independently: if one fails, the others are further ahead, so all are restored.
        changed = body_step.positions, body_step.velocities, body_step.accelerations
        copies = [array.copy() for array in changed]
        fine = self._run_kernel(flock, body_step, move_first, steps)
        if not fine:
            for array, copy in zip(changed, copies, strict=True):
                array[:] = copy
        return fine

    def _run_kernel(self, flock: Flock, body_step: BodyStep, move_first: bool, steps: int) -> bool:
        """Call the kernel; each thread makes all steps of some of the active flocks.

        Return False if a step fails: the senses are restored, other arrays are not.
        """
        positions, velocities, roles, accelerations, time_step, active = body_step[:6]
        expert, expert_args = self._expert, None
        if expert is not None:
            target = np.zeros_like(accelerations)
            buffers = expert.sensing.begin_steps(flock, active)
            expert_args = *buffers, self._tanner_args, target, expert.draw()
        arrays = positions, velocities, roles, flock.groups, accelerations
        common = *arrays, *self.sensing.begin_steps(flock, active, steps), self._network, expert_args, time_step
        # One thread makes the step of a single flock, whatever its size.
        if len(active) == 1:
            fine = bool(step_flocks(*common, active, move_first, steps))
        else:
            least = math.ceil(AGENTS_PER_THREAD / (flock.shape[1] * steps))
            parts = threads.split_range(len(active), least)
            jobs = [(*common, active[first:last], move_first, steps) for first, last in parts]
            fine = all(threads.run_parallel(step_flocks, jobs))
        if not fine:
            for observer, _, _ in self._observers:
                observer.rollback()
        elif expert is not None:
            expert.end_step(target)
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
    expert: tuple[Any, ...] | None,
    time_step: float,
    active: Array,
    move_first: bool,
    steps: Index,
) -> bool:
    """Move, observe and decide for the active flocks; the first step begins with a move if `move_first`, others always.

    Positions, velocities and accelerations (B, N, D) are updated. `previous` to `packed_radio` are the `StepArgs` of
    the network's observations; `network` is `CompiledNetwork.packed_args`. `expert` are the `StepArgs` of the expert's
    observations, `Tanner.tanner_args` as a plain tuple, memory (B, N, D) for its accelerations, and whether they are
    executed; None without an expert. With an expert there is one step.

    Return False if a flock is out of range, or an executed acceleration is not finite; arrays may be changed in part.
    """
    B, N, D = positions.shape
    # The aggregation is compiled for read-only arrays, those of a `Flock`.
    state = as_read_only_array(positions), as_read_only_array(velocities), as_read_only_array(roles), groups
    # Flocks advance independently, so some make all steps before the next ones begin.
    size = max(AGENTS_PER_GROUP // N, 1)
    for begin in range(0, len(active), size):
        group, before, now = active[begin : begin + size], previous, observations
        for step in range(steps):
            if step > 0:
                before, now = now, before
            # Move: r and v by the accelerations of the step before.
            if move_first or step > 0:
                advance_agents(positions, velocities, roles, accelerations, time_step, group, 0, N)
            # Observe Z(t).
            if not aggregate_flocks(*state, before, now, packed_args, packed_radio, group, step):
                return False
            # The expert's observations and accelerations.
            expert_acts = False
            if expert is not None:
                expert_previous, expert_observations, expert_args, expert_radio, tanner_args, target, expert_acts = (
                    expert
                )
                if not aggregate_flocks(
                    *state, expert_previous, expert_observations, expert_args, expert_radio, group, step
                ):
                    return False
                blocks = expert_observations.reshape(B, N, 1, expert_observations.shape[2] // D, D)
                for b in group:
                    compute_tanner(state[1], state[2], EMPTY, blocks, tanner_args, target, b, b + 1)
                    if expert_acts:
                        accelerations[b] = target[b]
            # Decide a(t).
            if not expert_acts:
                decide(now, network, accelerations, group)
            if not zero_non_followers(accelerations, roles, group):
                return False
    return True


@kernel
def decide(observations: Array, network: Any, accelerations: Array, active: Array) -> None:
    """Write the network's accelerations (B, N, D) of the active flocks from observations (B, N, K * C * D)."""
    _, N, D = accelerations.shape
    inputs, outputs = observations.reshape(-1, observations.shape[2]), accelerations.reshape(-1, D)
    # Flocks that are adjacent in memory go through the network as one.
    first = 0
    for end in range(1, len(active) + 1):
        if end == len(active) or active[end] != active[end - 1] + 1:
            evaluate_network(inputs, network, outputs, active[first] * N, (active[end - 1] + 1) * N)
            first = end


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
