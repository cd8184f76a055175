"""Flights in torch, through which gradients pass: the same graph, aggregation and double integrator as the kernels'.

For flocks of a few hundred agents without obstacle agents or failures, over an ideal radio. The graph is that of
`radius_graph`; gradients pass through positions and velocities, not through the choice of neighbours.
Sums are float64 here, in the kernels partly float32, so both agree to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from equiflock._runtime.checks import InputError, check_positive
from equiflock.bodies import DoubleIntegrator
from equiflock.controllers.gain_schedule import compute_gain
from equiflock.features import Senses
from equiflock.flock import FOLLOWER, OBSTACLE, Flock
from equiflock.graph.radius_graph import radius_graph
from equiflock.protocols import LocalController
from equiflock.simulation.environment import Environment

MIN_SQUARE = 1e-16
"""|r_ij|^2 counts as at least this in the weights of features."""
MIN_NORM = 1e-12
"""Keeps the gradient of a norm finite at 0."""

State = Float[Tensor, "B N D"]


class Edges(NamedTuple):
    """The messages of a step; agents are numbered through all flocks, b N + i."""

    receivers: Tensor
    """(E,) int64."""
    senders: Tensor
    """(E,) int64."""
    degrees: Tensor
    """(B N,), number of messages that each agent receives, at least 1."""


class TorchMoment(NamedTuple):
    """State of a flight before a step, through which gradients pass."""

    positions: State
    velocities: State
    observations: Tensor
    """(B, N, K, C, D), of the type of the network's weights."""
    accelerations: State
    """Commands for the next step, zero for leaders."""


def check_environment(environment: Environment) -> float | None:
    """Return the largest acceleration of the body; raise InputError unless gradients pass through the environment."""
    body = environment.body
    limit = body.max_acceleration if isinstance(body, DoubleIntegrator) else None
    plain = environment.radio.is_ideal and environment.failures.is_empty
    if not plain or body not in (DoubleIntegrator(), DoubleIntegrator(max_acceleration=limit)):
        raise InputError(
            "gradients pass only through an ideal radio and a double integrator without limits but max_acceleration: "
            f"got {environment!r}"
        )
    return limit


def check_senses(senses: Senses) -> None:
    """Raise InputError unless gradients pass through the observations of these senses."""
    if senses.is_scaled or senses.requires_ideal_radio or any(each.among != "all" for each in senses.features):
        raise InputError(
            "gradients pass only through senses in units of R = 1, whose features are of all agents and whose "
            f"hop_mean is 'receiver': got {senses}"
        )
    probe = torch.full((2,), 0.5)
    for feature in senses.features:
        known = (probe, probe) if feature.uses_velocity else (probe,)
        try:
            feature.weight(*known, *feature.options)
        except Exception:  # of a user's function, such as math.sqrt of a tensor of several numbers
            raise InputError(
                f"gradients do not pass through the feature {feature.name!r}: use arithmetic only"
            ) from None


def list_edges(positions: State, flock: Flock) -> Edges:
    """Return the messages between agents at these positions; the other arrays are those of the flock."""
    B, N, _ = flock.shape
    now = np.ascontiguousarray(positions.detach().numpy())
    graph = radius_graph(Flock.view(now, *flock.arrays[1:], comm_radius=flock.comm_radius))
    rows = np.asarray(graph.rows)
    degrees = np.maximum(np.bincount(rows, minlength=B * N), 1)
    senders = rows // N * N + graph.senders
    return Edges(*map(torch.from_numpy, (rows.astype(np.int64), senders.astype(np.int64), degrees)))


def aggregate(positions: State, velocities: State, previous: Tensor, edges: Edges, senses: Senses) -> Tensor:
    """Return the observations Z(t), (B, N, K, C, D) float64, from the state now and Z(t - dt)."""
    B, N, D = positions.shape
    r, v = positions.reshape(-1, D), velocities.reshape(-1, D)
    offsets = r[edges.receivers] - r[edges.senders]
    differences = v[edges.receivers] - v[edges.senders]
    squares = offsets.square().sum(1).clamp(min=MIN_SQUARE)
    inner = (offsets * differences).sum(1)

    def receive(messages: Tensor) -> Tensor:
        """Sum the messages of each receiver."""
        return torch.zeros((B * N, *messages.shape[1:]), dtype=messages.dtype).index_add(0, edges.receivers, messages)

    # z^1 from the neighbours now.
    channels = []
    for feature, (_, aggregation) in zip(senses.features, senses.channels, strict=True):
        known = (squares, inner) if feature.uses_velocity else (squares,)
        weights = torch.as_tensor(feature.weight(*known, *feature.options), dtype=torch.float64).expand_as(squares)
        total = receive(weights[:, None] * (differences if feature.vector == "velocity" else offsets))
        channels.append(total / edges.degrees[:, None] if aggregation == "mean" else total)
    hops = [torch.stack(channels, dim=1)]
    # z^k, the mean of the neighbours' z^(k - 1) one step before.
    if senses.hops > 1:
        before = previous.reshape(B * N, *previous.shape[2:])[edges.senders, : senses.hops - 1]
        means = receive(before) / edges.degrees[:, None, None, None]
        hops += list(means.unbind(1))
    return torch.stack(hops, dim=1).reshape(B, N, senses.hops, senses.width, D)


class TorchFlight(Iterator[TorchMoment]):
    """A flight of a torch module as an iterator over moments, one per step, endless.

    Args:
        start: the flocks at t = 0, without obstacle agents or failed ones.
        network: torch module with `senses`; its output is multiplied by the gain of its schedule.
        time_step: dt, in seconds.
        environment: an ideal radio and a double integrator, possibly with a largest acceleration.
    """

    def __init__(
        self, start: Flock, network: nn.Module, *, time_step: float = 0.01, environment: Environment | None = None
    ) -> None:
        self.senses = cast(LocalController, network).senses
        check_senses(self.senses)
        if (start.roles == OBSTACLE).any() or not start.all_working:
            raise InputError("gradients pass only through flocks without obstacle agents and failed ones")
        self.time_step = check_positive("time_step", time_step)
        self._max_acceleration = check_environment(Environment() if environment is None else environment)
        self.start = start
        self._network = cast(Callable[[Tensor], Tensor], network)
        self._gain = compute_gain(network, time_step)
        self._dtype = next(network.parameters()).dtype
        self._obeys = torch.from_numpy(np.asarray(start.roles == FOLLOWER))[..., None]
        self.positions, self.velocities = (torch.from_numpy(array.copy()) for array in start.arrays[:2])
        B, N, D = start.shape
        self._memory = torch.zeros((B, N, self.senses.hops, self.senses.width, D), dtype=torch.float64)
        self._edges: Edges | None = None
        self._commands: Tensor | None = None

    def detach(self) -> None:
        """Let the next steps pass no gradients to the steps so far."""
        self.positions, self.velocities, self._memory = (
            each.detach() for each in (self.positions, self.velocities, self._memory)
        )
        self._commands = None if self._commands is None else self._commands.detach()

    def __next__(self) -> TorchMoment:
        """Execute the step that the last moment commands, if any, and return the next moment."""
        if self._commands is not None:
            dt, executed = self.time_step, self._limit(self._commands)
            self.positions = self.positions + dt * self.velocities + 0.5 * dt * dt * executed
            self.velocities = self.velocities + dt * executed
        if self._edges is None or self.senses.topology == "dynamic":
            self._edges = list_edges(self.positions, self.start)
        self._memory = aggregate(self.positions, self.velocities, self._memory, self._edges, self.senses)
        observations = self._memory.to(self._dtype)
        commands = self._network(observations).double() * self._gain
        self._commands = torch.where(self._obeys, commands, torch.zeros_like(commands))
        return TorchMoment(self.positions, self.velocities, observations, self._commands)

    def _limit(self, accelerations: Tensor) -> Tensor:
        """Return the accelerations that the body executes."""
        if self._max_acceleration is None:
            return accelerations
        norms = accelerations.square().sum(-1, keepdim=True).clamp(min=MIN_NORM**2).sqrt()
        return accelerations * (self._max_acceleration / norms).clamp(max=1.0)
