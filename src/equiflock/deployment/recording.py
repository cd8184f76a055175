"""Recordings of one agent in a simulated flight: its states, received messages, observations and accelerations.

Exported controllers are tested against recordings: the same states and bytes must give the same accelerations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equiflock.bodies import DoubleIntegrator
from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.deployment.export.program import read_program
from equiflock.deployment.wire_format import OBSTACLE_GROUP, Message, encode_message, make_zero_hops
from equiflock.flock import FOLLOWER, OBSTACLE, Flock
from equiflock.orbit_technique import Orbit
from equiflock.runtime.checks import InputError
from equiflock.senses.aggregation import DelayedAggregation


@dataclass(frozen=True, eq=False)
class Recording:
    """T steps of one agent.

    Attributes:
        number: number of the agent.
        group: group of the agent.
        positions: (T, D) float32.
        velocities: (T, D) float32.
        messages: received messages of every step.
        observations: (T, K, C, D) float32, computed by the package.
        accelerations: (T, D), computed by the package.
        magnitudes: (T, D), scale of errors: see `Program.compute_magnitude`.
    """

    number: int
    group: int
    positions: NDArray[np.float32]
    velocities: NDArray[np.float32]
    messages: tuple[tuple[bytes, ...], ...]
    observations: NDArray[np.float32]
    accelerations: NDArray[np.float64]
    magnitudes: NDArray[np.float64]

    def compute_largest_error(self, accelerations: Any) -> float:
        """Return the largest error of other accelerations (T, D) in any component, relative to `magnitudes`."""
        return float((np.abs(np.asarray(accelerations, np.float64) - self.accelerations) / self.magnitudes).max())


def round_to_float32(flock: Flock) -> Flock:
    """Return the flock with its state rounded to float32, but still float64: messages represent it exactly."""
    positions, velocities = (array.astype(np.float32).astype(np.float64) for array in flock.arrays[:2])
    return Flock(positions, velocities, *flock.arrays[2:], comm_radius=flock.comm_radius)


def record_agent(
    controller: Any, start: Flock, agent: int, steps: int, *, orbit: Orbit | None = None, time_step: float = 0.01
) -> Recording:
    """Simulate the first flock of `start` with an ideal radio for `steps` steps and record one of its followers.

    The body is a double integrator; states are rounded to float32. Raise InputError if `agent` is not a follower.
    """
    flock = round_to_float32(start[0])
    roles, groups = flock.roles[0], flock.groups[0]
    if roles[agent] != FOLLOWER:
        raise InputError(f"agent must be a follower, which receives messages; agent {agent} is not one")
    sensing, decide = DelayedAggregation(controller.senses, orbit=orbit), as_numpy_function(controller)
    program, K = read_program(controller, flock.shape[2], orbit), controller.senses.hops
    relayed = np.stack([make_zero_hops(controller.senses, flock.shape[2])] * len(roles))
    rows: list[tuple[Any, ...]] = []
    for step in range(steps):
        observations = sensing.observe(flock)[0].copy()
        accelerations = np.asarray(decide(observations[None]), np.float64)
        positions, velocities = (array[0].astype(np.float32) for array in flock.arrays[:2])
        messages = tuple(
            encode_message(
                Message(int(j), step, positions[j], velocities[j], relayed[j], _get_message_group(roles[j], groups[j]))
            )
            for j in sensing.compute_message_graph(flock).neighbours(0, agent)
        )
        rows.append((positions[agent], velocities[agent], messages, observations[agent], accelerations[0, agent]))
        relayed = observations[:, : K - 1]
        flock = _advance(flock, accelerations, time_step)
    columns = [*zip(*rows, strict=True)]
    recorded = np.array(columns[3], np.float32)
    return Recording(
        number=agent,
        group=int(groups[agent]),
        positions=np.array(columns[0]),
        velocities=np.array(columns[1]),
        messages=tuple(columns[2]),
        observations=recorded,
        accelerations=np.array(columns[4]),
        magnitudes=program.compute_magnitude(recorded),
    )


def _get_message_group(role: int, group: int) -> int:
    return OBSTACLE_GROUP if role == OBSTACLE else int(group)


def _advance(flock: Flock, accelerations: NDArray[np.float64], time_step: float) -> Flock:
    """Return the flock one time step later, as double integrators, rounded to float32; only followers accelerate."""
    positions, velocities = flock.positions.copy(), flock.velocities.copy()
    commanded = np.where((flock.roles == FOLLOWER)[..., None], accelerations, 0.0)
    DoubleIntegrator().advance(positions, velocities, flock.roles, commanded, time_step, np.arange(1))
    return round_to_float32(Flock(positions, velocities, *flock.arrays[2:], comm_radius=flock.comm_radius))
