"""The unicycle: a body that moves along its heading, with limited turn rate, acceleration and speed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock._runtime.jit import Array, Index, inline_kernel, kernel
from equiflock.bodies.limits import check_limits, resolve_limit, run_over_agents
from equiflock.bodies.registry import body
from equiflock.flock import FOLLOWER, OBSTACLE, Flock
from equiflock.protocols import BodyStep


@body("unicycle")
@dataclass(frozen=True)
class Unicycle:
    """A unicycle in the plane, with a heading h, |h| = 1, and a speed s >= 0, so that v = s h.

    The desired velocity is w = v + a dt. The heading turns towards w by at most max_turn_rate dt. The speed becomes the
    component of w along the new heading, clamped to [0, max_speed], but changes by at most max_acceleration dt: an
    agent that starts faster than max_speed slows down as fast as possible. The position changes by the mean velocity,

    r(t + dt) = r(t) + (v(t) + v(t + dt)) dt / 2.

    The state "heading" (B, N) is the angle of h in radians, from -pi to pi, which is that of v wherever v is not zero;
    an agent that never moved points along the first axis.
    """

    max_turn_rate: float | None = None
    """Largest turn rate, in radians per second. None: no limit."""
    max_acceleration: float | None = None
    """Largest change of speed per second. None: no limit."""
    max_speed: float | None = None
    """Largest speed. None: no limit."""

    def __post_init__(self) -> None:
        check_limits(self, "max_turn_rate", "max_acceleration", "max_speed")

    def init_state(self, flock: Flock) -> dict[str, NDArray[Any]]:
        """Return the state beyond position and velocity: the angles of the velocities, 0 where an agent stands.

        Raise InputError if D is not 2.
        """
        _check_plane(flock.shape[2])
        return {"heading": np.arctan2(flock.velocities[..., 1], flock.velocities[..., 0])}

    def advance(self, step: BodyStep) -> None:
        """Move the active flocks by one time step, in place.

        Followers obey commands, leaders keep their velocity, obstacle agents stand still. Raise InputError if D is not
        2.
        """
        time_step = step.time_step
        _check_plane(step.positions.shape[2])
        limits = (
            resolve_limit(self.max_turn_rate) * time_step,
            resolve_limit(self.max_acceleration) * time_step,
            resolve_limit(self.max_speed),
        )
        run_over_agents(steer_agents, step, (step.state["heading"], time_step, *limits))


def _check_plane(dimensions: int) -> None:
    """Raise InputError if D is not 2."""
    if dimensions != 2:
        raise InputError(f"a unicycle needs a flock with D = 2; got D = {dimensions}")


@inline_kernel
def wrap_angle(angle: float) -> float:
    """Return the angle of the same direction in [-pi, pi)."""
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
    """Move agents first .. last - 1 of the active flocks by one step of `Unicycle`, in place.

    `max_turn` (radians) and `max_speed_change` are per step. Leaders keep their velocity, obstacle agents stand still.
    The heading of a moving leader or follower is first set to that of its velocity.
    """
    for b in active:
        for i in range(first, last):
            # Obstacle agents stand still.
            if roles[b, i] == OBSTACLE:
                continue
            # Present heading and speed. The heading follows v, which may have been set from outside.
            x, y = velocities[b, i, 0], velocities[b, i, 1]
            speed = math.hypot(x, y)
            if speed > 0.0:
                headings[b, i] = math.atan2(y, x)
            # Leaders keep their velocity.
            if roles[b, i] == FOLLOWER:
                # The desired velocity w, with no turn if w = 0.
                w_x, w_y = x + accelerations[b, i, 0] * time_step, y + accelerations[b, i, 1] * time_step
                w = math.hypot(w_x, w_y)
                turn = wrap_angle(math.atan2(w_y, w_x) - headings[b, i]) if w > 0.0 else 0.0
                # Turn towards w, within the limit; `rest` is the remaining angle.
                rest = turn - min(max(turn, -max_turn), max_turn)
                headings[b, i] = wrap_angle(headings[b, i] + (turn - rest))
                # Change the speed to the component of w along the new heading, within the limit.
                desired = min(max(w * math.cos(rest), 0.0), max_speed)
                speed = min(max(desired, speed - max_speed_change), speed + max_speed_change)
                velocities[b, i, 0] = speed * math.cos(headings[b, i])
                velocities[b, i, 1] = speed * math.sin(headings[b, i])
            # Move by the mean of the velocities before and after.
            positions[b, i, 0] += 0.5 * (x + velocities[b, i, 0]) * time_step
            positions[b, i, 1] += 0.5 * (y + velocities[b, i, 1]) * time_step
