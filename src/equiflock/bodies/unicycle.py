"""A body that flies where it points: it turns and speeds up towards what its controller commands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from equiflock.bodies.limits import check_limits
from equiflock.flock import Roles, Vectors


@dataclass(frozen=True)
class Unicycle:
    """A unicycle in the plane, with a heading h, |h| = 1, and a speed s >= 0, so that v = s h.

    The command asks for the velocity w = v + a dt. The heading turns towards w by at most max_turn_rate dt, and the
    speed becomes that of w along the new heading, but changes by at most max_acceleration dt.
    """

    max_turn_rate: float | None = None
    """The most that it can turn, in radians per second. None: no limit."""
    max_acceleration: float | None = None
    """The most that its speed can change per second. None: no limit."""
    max_speed: float | None = None
    """The most that it can fly. None: no limit."""

    def __post_init__(self) -> None:
        check_limits(self, "max_turn_rate", "max_acceleration", "max_speed")

    def advance(
        self,
        positions: Vectors,
        velocities: Vectors,
        roles: Roles,
        accelerations: Vectors,
        time_step: float,
        active: Int64[np.ndarray, " active"],
    ) -> None:
        """Move the active flocks by one time step, in place (see `equiflock.protocols.Body`)."""
