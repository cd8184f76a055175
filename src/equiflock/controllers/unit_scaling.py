"""Controllers in the units of a robot.

A controller is a function of numbers that were lengths and times of its training: at R = 1, say, in flocks that settle
within two seconds. For robots whose R is another and that are slower, lengths are scaled by L and times by tau:
r / L and v tau / L go in, and accelerations times L / tau^2 come out. The flight of such a robot is that of the
training, L times as large and tau times as slow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.features import Senses, check_scale
from equiflock.protocols import Controller
from equiflock.runtime.checks import InputError, check_positive


@dataclass(frozen=True, repr=False)
class ScaledController:
    """A controller whose lengths are L, and whose times are tau, of the flock that it flies.

    Attributes:
        controller: any, privileged or not, in its own units.
        length_scale: L.
        time_scale: tau.
    """

    controller: Controller
    length_scale: float
    time_scale: float

    def __repr__(self) -> str:
        """One line, whatever the controller's own text."""
        return f"Scaled({self.name}, length_scale={self.length_scale:g}, time_scale={self.time_scale:g})"

    @property
    def name(self) -> str:
        """The controller's."""
        return str(getattr(self.controller, "name", type(self.controller).__name__))

    @property
    def privileged(self) -> bool:
        """Whether it is an expert, which is given the flock first."""
        return bool(getattr(self.controller, "privileged", False))

    @property
    def orbit(self) -> Any:
        """The numbers of the orbit technique that the controller was tuned with, if any."""
        return getattr(self.controller, "orbit", None)

    @cached_property
    def senses(self) -> Senses:
        """The controller's, of a flock that is measured in the controller's units."""
        own = self.controller.senses
        length, time = own.length_scale * self.length_scale, own.time_scale * self.time_scale
        return replace(own, length_scale=length, time_scale=time)

    @property
    def acceleration_scale(self) -> float:
        """L / tau^2."""
        return self.length_scale / self.time_scale**2

    def __call__(self, *inputs: Any) -> Any:
        """Accelerations (B, N, D) from observations (B, N, K, C, D), or from the flock and its observations."""
        return self._evaluate_unscaled(self.controller, inputs) * self.acceleration_scale

    def compiled_form(self) -> Callable[..., NDArray[Any]]:
        """It as a function of NumPy arrays, for flights: with a network's compiled form, and its present weights."""
        ask = as_numpy_function(self.controller)

        def think(*inputs: Any) -> Any:
            answer = self._evaluate_unscaled(ask, inputs)
            try:
                return np.multiply(answer, self.acceleration_scale, dtype=np.float64)
            except (TypeError, ValueError):  # no numbers: the flight says what it expected
                return answer

        # Whoever takes agents in any order still does.
        think.order_independent = getattr(ask, "order_independent", False)  # type: ignore[attr-defined]
        return think

    def _evaluate_unscaled(self, controller: Any, inputs: tuple[Any, ...]) -> Any:
        """The controller's answer in its own units; observations, the last of what is known, are in these already."""
        flocks = (flock.in_units(self.length_scale, self.time_scale) for flock in inputs[:-1])
        return controller(*flocks, inputs[-1])


def scale_controller(
    controller: Controller, training_radius: float, comm_radius: float | None = None, time_scale: float = 1.0
) -> Controller:
    """The controller for robots of other units; itself, if these are its own.

    Args:
        controller: in its own units.
        training_radius: R in its own unit of length.
        comm_radius: R in the robots' unit of length; if left out, it is the controller's.
        time_scale: how many of the robots' seconds one of the controller's takes.
    """
    radius = training_radius if comm_radius is None else check_positive("comm_radius", comm_radius)
    length = check_scale("comm_radius / R of the controller's own", radius / training_radius)
    time = check_scale("time_scale", check_positive("time_scale", time_scale))
    if length == time == 1.0:
        return controller
    if not isinstance(getattr(controller, "senses", None), Senses):
        raise InputError(f"{type(controller).__name__} must declare senses to be scaled to other units")
    return ScaledController(controller, length, time)
