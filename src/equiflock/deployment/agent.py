"""One robot's controller, whoever computes it: messages in, an acceleration and the next message out."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray


@runtime_checkable
class Agent(Protocol):
    """The controller of one robot. A step is `begin`, `hear` for each message that comes, and `end`.

    The order is that of `equiflock.simulate`: everybody sends its state and what it knew a step before, then hears what
    others sent, and then acts on it. What an agent is not told by one of these calls it does not know.
    """

    def begin(self, position: ArrayLike, velocity: ArrayLike) -> bytes:
        """Begin a step with what the robot measures of itself, D numbers each; the message to send now."""
        ...

    def hear(self, message: bytes) -> str | None:
        """Take in a message of this step; None, or why it was dropped."""
        ...

    def end(self) -> NDArray[np.float32]:
        """Act on what was heard since `begin`: the acceleration (D,), in the robot's units."""
        ...
