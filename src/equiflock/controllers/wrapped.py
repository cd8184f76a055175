"""The base class of controllers that wrap another one, such as `Safe`, and pass on what it declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from equiflock.controllers.gain_schedule import GainSchedule, get_gain_schedule
from equiflock.protocols import Controller


@dataclass(frozen=True, repr=False)
class WrappedController:
    """Properties of a controller, privileged or not, that those who wrap it share."""

    controller: Controller

    @property
    def name(self) -> str:
        """Name of the controller."""
        return str(getattr(self.controller, "name", type(self.controller).__name__))

    @property
    def privileged(self) -> bool:
        """Whether the controller is an expert, which takes the flock as its first argument."""
        return bool(getattr(self.controller, "privileged", False))

    @property
    def orbit(self) -> Any:
        """Parameters of the orbit technique that the controller was tuned with, if any."""
        return getattr(self.controller, "orbit", None)

    @property
    def gain_schedule(self) -> GainSchedule | None:
        """The controller's gain schedule; None for a constant gain."""
        return get_gain_schedule(self.controller)

    @property
    def longest_time_step(self) -> float | None:
        """Longest time step of the flights in the controller's training; None if unknown."""
        return getattr(self.controller, "longest_time_step", None)
