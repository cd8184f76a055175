"""Controllers with limits: `Safe` adds limits to any controller, which flights and exported agents keep."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock.controllers.loading import load
from equiflock.controllers.safety_limits import Corners, SafetyLimits, get_safety_limits
from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.controllers.wrapped import WrappedController
from equiflock.features import Senses
from equiflock.protocols import Controller


@dataclass(frozen=True, init=False, repr=False)
class Safe(WrappedController):
    """A controller, privileged or not, whose agents keep limits (see `SafetyLimits` for the rules and the options).

    >>> import equiflock as ef
    >>> controller = ef.Safe(ef.load("starling", comm_radius=3.0, time_scale=8.0), max_acceleration=4.0, max_speed=1.5)
    >>> controller
    Safe(starling, max_acceleration=4:max_speed=1.5)

    Limits are in the robots' units, so `Safe` comes after the scaling of `load`. The rules need the state of the agent:
    a flight and exported agents apply them, while a call returns the controller's own accelerations.
    """

    safety_limits: SafetyLimits

    def __init__(
        self,
        controller: Controller | str | os.PathLike[str],
        *,
        max_acceleration: float,
        max_speed: float | None = None,
        min_separation: float | None = None,
        max_silence: float | None = None,
        fence: Corners | None = None,
        braking_time: float | None = None,
    ) -> None:
        loaded = load(controller) if isinstance(controller, (str, os.PathLike)) else controller
        if get_safety_limits(loaded) is not None:
            raise InputError(f"{loaded!r} has limits already: give all limits at once")
        limits = SafetyLimits(max_acceleration, max_speed, min_separation, max_silence, fence, braking_time)
        # The dataclass is frozen.
        object.__setattr__(self, "controller", loaded)
        object.__setattr__(self, "safety_limits", limits)

    def __repr__(self) -> str:
        return f"Safe({self.name}, {self.safety_limits})"

    @property
    def senses(self) -> Senses:
        """The controller's senses."""
        return self.controller.senses

    def __call__(self, *inputs: Any) -> Any:
        """Return the controller's accelerations (B, N, D), before the limits."""
        return self.controller(*inputs)

    def compiled_form(self) -> Callable[..., NDArray[Any]]:
        """Return the controller as a function of NumPy arrays, before the limits."""
        return as_numpy_function(self.controller)


def unwrap_safe(controller: Any) -> Any:
    """Return the controller without its limits."""
    return controller.controller if isinstance(controller, Safe) else controller


def apply_limits(controller: Any, limits: SafetyLimits | None) -> Any:
    """Return the controller with these limits; the controller itself if they are None."""
    return controller if limits is None else Safe(controller, **vars(limits))
