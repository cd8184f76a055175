"""Controllers scaled to the units of a robot.

A controller expects the lengths and times of its training, such as R = 1 and flocks that settle within two seconds. For
robots with another R that are slower, lengths are scaled by L and times by tau: inputs are r / L and v tau / L, outputs
are accelerations times L / tau^2. The trajectories are those of the training, L times as large and tau times as slow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, check_positive
from equiflock.controllers.gain_schedule import GainSchedule, multiply_output
from equiflock.controllers.safety_limits import get_safety_limits
from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.controllers.wrapped import WrappedController
from equiflock.features import Senses
from equiflock.flock import check_comm_radius, check_scale
from equiflock.protocols import Controller


@dataclass(frozen=True, repr=False)
class ScaledController(WrappedController):
    """A controller, privileged or not, whose units of length and time are L and tau in the flock's units."""

    length_scale: float
    """L."""
    time_scale: float
    """tau."""

    def __repr__(self) -> str:
        return f"Scaled({self.name}, length_scale={self.length_scale:g}, time_scale={self.time_scale:g})"

    @property
    def gain_schedule(self) -> GainSchedule | None:
        """The controller's gain schedule, in the robots' seconds; None for a constant gain."""
        own = super().gain_schedule
        return None if own is None else own.scale_time(self.time_scale)

    @property
    def longest_time_step(self) -> float | None:
        """Longest time step of the flights in the controller's training, in the robots' seconds; None if unknown."""
        own = super().longest_time_step
        return None if own is None else own * self.time_scale

    @cached_property
    def senses(self) -> Senses:
        """The controller's senses, in the controller's units."""
        own = self.controller.senses
        length, time = own.length_scale * self.length_scale, own.time_scale * self.time_scale
        return replace(own, length_scale=length, time_scale=time)

    @property
    def acceleration_scale(self) -> float:
        """L / tau^2."""
        return self.length_scale / self.time_scale**2

    def __call__(self, *inputs: Any) -> Any:
        """Return accelerations (B, N, D) from observations (B, N, K, C, D), or from the flock and observations."""
        return self._evaluate_unscaled(self.controller, inputs) * self.acceleration_scale

    def compiled_form(self) -> Callable[..., NDArray[Any]]:
        """Return a function of NumPy arrays with float64 results, which evaluates a network in its compiled form."""
        function = as_numpy_function(self.controller)

        def evaluate(*inputs: Any) -> Any:
            return self._evaluate_unscaled(function, inputs)

        # Scaling does not depend on the order of agents.
        evaluate.order_independent = getattr(function, "order_independent", False)  # type: ignore[attr-defined]
        return multiply_output(evaluate, self.acceleration_scale)

    def _evaluate_unscaled(self, controller: Any, inputs: tuple[Any, ...]) -> Any:
        """Return accelerations in the controller's units, which the observations, the last input, already have."""
        flocks = (flock.in_units(self.length_scale, self.time_scale) for flock in inputs[:-1])
        return controller(*flocks, inputs[-1])


def scale_controller(
    controller: Controller, training_radius: float, comm_radius: float | None = None, time_scale: float = 1.0
) -> Controller:
    """Return the controller scaled to a robot's units, or the controller itself if both scales are 1.

    R is `training_radius` in the controller's unit of length and `comm_radius`, by default the same, in the robots'.
    `time_scale` is the number of the robots' seconds per second of the controller. Raise InputError if a scale is
    invalid or the controller declares no senses.
    """
    radius = training_radius if comm_radius is None else check_comm_radius(comm_radius)
    length = check_scale("comm_radius / R of the controller", radius / training_radius)
    time = check_scale("time_scale", check_positive("time_scale", time_scale))
    if length == time == 1.0:
        return controller
    if get_safety_limits(controller) is not None:
        raise InputError("limits are in the robots' units: scale the controller first, and then add limits with Safe")
    if not isinstance(getattr(controller, "senses", None), Senses):
        raise InputError(f"{type(controller).__name__} must declare senses to be scaled to other units")
    return ScaledController(controller, length, time)
