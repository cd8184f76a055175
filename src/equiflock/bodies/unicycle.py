"""A body that flies where it points: it turns and speeds up towards what its controller commands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from equiflock.bodies.agent_threads import run_over_agents
from equiflock.bodies.limits import check_limits, resolve_limit
from equiflock.bodies.registry import body
from equiflock.flock import FOLLOWER, OBSTACLE, Flock, Roles, Vectors
from equiflock.runtime.checks import InputError
from equiflock.runtime.jit import Array, Index, inline_kernel, kernel


@body("unicycle")
@dataclass(frozen=True)
class Unicycle:
    """A unicycle in the plane, with a heading h, |h| = 1, and a speed s >= 0, so that v = s h.

    The command asks for the velocity w = v + a dt. The heading turns towards w by at most max_turn_rate dt, and the
    speed becomes that of w along the new heading, from 0 to max_speed, but changes by at most max_acceleration dt: an
    agent that begins faster than max_speed slows down as fast as it can. It flies by the mean of both velocities,

    r(t + dt) = r(t) + (v(t) + v(t + dt)) dt / 2.

    What it remembers: "heading", (B, N), the angle of h in radians, from -pi to pi, which is that of v wherever v is
    not zero; an agent that never moved points along the first axis.
    """

    max_turn_rate: float | None = None
    """The most that it can turn, in radians per second. None: no limit."""
    max_acceleration: float | None = None
    """The most that its speed can change per second. None: no limit."""
    max_speed: float | None = None
    """The most that it can fly. None: no limit."""

    def __post_init__(self) -> None:
        check_limits(self, "max_turn_rate", "max_acceleration", "max_speed")

    def init_state(self, flock: Flock) -> dict[str, NDArray[Any]]:
        """What it remembers beyond position and velocity: headings, those of the velocities."""
        _check_plane(flock.shape[2])
        return {"heading": np.arctan2(flock.velocities[..., 1], flock.velocities[..., 0])}

    def advance(
        self,
        positions: Vectors,
        velocities: Vectors,
        roles: Roles,
        accelerations: Vectors,
        time_step: float,
        active: Int64[np.ndarray, " active"],
        state: Mapping[str, NDArray[Any]],
        step: int,
        agent_ids: Int64[np.ndarray, " N"] | None = None,
    ) -> None:
        """Move the active flocks by one time step, in place (see `equiflock.protocols.StatefulBody`)."""
        _check_plane(positions.shape[2])
        # What is possible in one step.
        turn, change = resolve_limit(self.max_turn_rate) * time_step, resolve_limit(self.max_acceleration) * time_step
        arguments = positions, velocities, roles, accelerations, state["heading"]
        law = time_step, turn, change, resolve_limit(self.max_speed)
        run_over_agents(steer_agents, (*arguments, *law), positions.shape[1], active)


def _check_plane(dimensions: int) -> None:
    if dimensions != 2:
        raise InputError(f"a unicycle flies in the plane, D = 2; got a flock with D = {dimensions}")


@inline_kernel
def wrap_angle(angle: float) -> float:
    """The same direction as an angle from -pi to pi."""
    return angle - 2 * math.pi * math.floor((angle + math.pi) / (2 * math.pi))


@kernel
def steer_agents(
    positions: Array,
    velocities: Array,
    roles: Array,
    accelerations: Array,
    headings: Array,
    time_step: float,
    max_turn: float,
    max_speed_change: float,
    max_speed: float,
    active: Array,
    first: Index,
    last: Index,
) -> None:
    """Move agents first .. last of the active flocks; the limits are those of one step."""
    for b in active:
        for i in range(first, last):
            # Obstacle agents stand still.
            if roles[b, i] == OBSTACLE:
                continue
            # Heading and speed now. Whoever moves points where it flies, also after somebody else gave it a velocity.
            x, y = velocities[b, i, 0], velocities[b, i, 1]
            speed = math.hypot(x, y)
            if speed > 0.0:
                headings[b, i] = math.atan2(y, x)
            # A leader keeps its velocity.
            if roles[b, i] == FOLLOWER:
                # The velocity w that the command asks for; it asks for no turn where w = 0.
                asked_x, asked_y = x + accelerations[b, i, 0] * time_step, y + accelerations[b, i, 1] * time_step
                asked = math.hypot(asked_x, asked_y)
                turn = wrap_angle(math.atan2(asked_y, asked_x) - headings[b, i]) if asked > 0.0 else 0.0
                # Turn towards w, as far as possible.
                off = turn - min(max(turn, -max_turn), max_turn)
                headings[b, i] = wrap_angle(headings[b, i] + (turn - off))
                # Speed up or down to the component of w along the new heading, as far as possible.
                wanted = min(max(asked * math.cos(off), 0.0), max_speed)
                speed = min(max(wanted, speed - max_speed_change), speed + max_speed_change)
                velocities[b, i, 0] = speed * math.cos(headings[b, i])
                velocities[b, i, 1] = speed * math.sin(headings[b, i])
            # The way by the mean of the velocities before and after.
            positions[b, i, 0] += 0.5 * (x + velocities[b, i, 0]) * time_step
            positions[b, i, 1] += 0.5 * (y + velocities[b, i, 1]) * time_step
