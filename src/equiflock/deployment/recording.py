"""What one agent of a flock measured and heard in a flight of the package, step by step, and what it was told to do.

Exported controllers are checked against it: given the same states and the same bytes, they must do the same.
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
        number: of the agent.
        group: of the agent.
        positions: (T, D) float32, and so are velocities.
        velocities: (T, D) float32.
        messages: for every step, those that reached it.
        observations: (T, K, C, D) float32, what the package makes of them.
        accelerations: (T, D), what the package tells it to do.
        magnitudes: (T, D), relative to which errors are: see `Program.compute_magnitude`.
    """

    number: int
    group: int
    positions: NDArray[np.float32]
    velocities: NDArray[np.float32]
    messages: tuple[tuple[bytes, ...], ...]
    observations: NDArray[np.float32]
    accelerations: NDArray[np.float64]
    magnitudes: NDArray[np.float64]

    def worst(self, answers: Any) -> float:
        """The largest error of accelerations (T, D), relative to magnitudes."""
        return float((np.abs(np.asarray(answers, np.float64) - self.accelerations) / self.magnitudes).max())


def round_to_float32(flock: Flock) -> Flock:
    """The flock with a state that float32 holds exactly: then a message says all of it."""
    state = (array.astype(np.float32).astype(np.float64) for array in (flock.positions, flock.velocities))
    return Flock(*state, *flock.arrays[2:], comm_radius=flock.comm_radius)


def record_agent(
    controller: Any, start: Flock, agent: int, steps: int, *, orbit: Orbit | None = None, time_step: float = 0.01
) -> Recording:
    """Fly a flock, a batch of one, under a controller by a perfect radio, and record a follower of it."""
    flock = round_to_float32(start[0])
    roles, groups = flock.roles[0], flock.groups[0]
    if roles[agent] != FOLLOWER:
        raise InputError(f"agent {agent} is no follower: only followers hear others")
    senses, think = DelayedAggregation(controller.senses, orbit=orbit), as_numpy_function(controller)
    program, K = read_program(controller, flock.shape[2], orbit), controller.senses.hops
    before = np.stack([make_zero_hops(controller.senses, flock.shape[2])] * len(roles))
    rows: list[tuple[Any, ...]] = []
    for step in range(steps):
        known = senses.observe(flock)[0].copy()
        told = np.asarray(think(known[None]), np.float64)
        positions, velocities = (array[0].astype(np.float32) for array in flock.arrays[:2])
        said = tuple(
            encode_message(
                Message(int(j), step, positions[j], velocities[j], before[j], _get_message_group(roles[j], groups[j]))
            )
            for j in senses.compute_message_graph(flock).neighbours(0, agent)
        )
        rows.append((positions[agent], velocities[agent], said, known[agent], told[0, agent]))
        before = known[:, : K - 1]
        flock = _advance(flock, told, time_step)
    columns = [*zip(*rows, strict=True)]
    observations = np.array(columns[3], np.float32)
    state = np.array(columns[0]), np.array(columns[1])
    answers = np.array(columns[4]), program.compute_magnitude(observations)
    return Recording(agent, int(groups[agent]), *state, tuple(columns[2]), observations, *answers)


def _get_message_group(role: int, group: int) -> int:
    return OBSTACLE_GROUP if role == OBSTACLE else int(group)


def _advance(flock: Flock, accelerations: NDArray[np.float64], time_step: float) -> Flock:
    """The flock a step later, in float32."""
    positions, velocities = flock.positions.copy(), flock.velocities.copy()
    commanded = np.where((flock.roles == FOLLOWER)[..., None], accelerations, 0.0)
    DoubleIntegrator().advance(positions, velocities, flock.roles, commanded, time_step, np.arange(1))
    return round_to_float32(Flock(positions, velocities, *flock.arrays[2:], comm_radius=flock.comm_radius))
