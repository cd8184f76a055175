"""Gain schedules: the factor on a controller's accelerations at the sampling period of its robot.

A robot that samples its neighbours every dt seconds and corrects its velocity with a gain g is calm for g dt well below
1, overshoots from g dt = 1 on and diverges from g dt = 2 on. If messages are late by a step, it diverges from g dt = 1
on: it compares its velocity with the old ones of its neighbours. A controller with a gain schedule therefore lowers its
gain in proportion to 1 / T, for the period T = dt (1 + d) of robots whose messages are up to d steps late. The factor
is the same for all agents and directions, so the controller stays equivariant and local.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, check_positive
from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.protocols import Controller

LARGEST_GAIN = 5.0
"""Default of the largest factor, for short sampling periods."""


@dataclass(frozen=True)
class GainSchedule:
    """The factor s(T) = min(largest, period / T) on accelerations, for the sampling period T.

    `GainSchedule(period=0.02)(0.05)` is 0.4. If messages are late by d steps, T is (1 + d) time steps. A controller
    that is called by itself, outside of a flight, has the factor 1, as at T = `period`.
    """

    period: float
    """Sampling period at which the factor is 1, in seconds."""
    largest: float = LARGEST_GAIN
    """Largest factor, for all periods below period / largest."""

    def __post_init__(self) -> None:
        check_positive("gain_period", self.period)
        check_positive("largest_gain", self.largest)

    def __call__(self, time_step: float, latency: int = 0) -> float:
        """Return s(T) for T = `time_step` (1 + `latency`), with the latency of messages in steps."""
        return min(self.largest, self.period / (check_positive("time_step", time_step) * (1 + latency)))

    def scale_time(self, time_scale: float) -> GainSchedule:
        """Return the schedule for robots with `time_scale` of their seconds per second of the controller."""
        return GainSchedule(self.period * time_scale, self.largest)


def get_gain_schedule(controller: object) -> GainSchedule | None:
    """Return the gain schedule that a controller declares as `gain_schedule`; None for a constant gain."""
    schedule = getattr(controller, "gain_schedule", None)
    if schedule is not None and not isinstance(schedule, GainSchedule):
        raise InputError(f"gain_schedule must be an equiflock.GainSchedule; got {schedule!r:.80}")
    return schedule


def compute_gain(controller: object, time_step: float, latency: int = 0) -> float:
    """Return the factor on a controller's accelerations at this time step and latency; 1 without a gain schedule."""
    schedule = get_gain_schedule(controller)
    return 1.0 if schedule is None else schedule(time_step, latency)


def describe_long_time_step(controller: object, time_step: float) -> str | None:
    """Return a warning if a time step is longer than all in the controller's training, else None."""
    longest = getattr(controller, "longest_time_step", None)
    if not isinstance(longest, float) or time_step <= longest * (1.0 + 1e-9):
        return None
    name = getattr(controller, "name", type(controller).__name__)
    return (
        f"{name} was trained with time steps of up to {longest:g} s and may oscillate at {time_step:g} s: shorten the "
        "time step, or load it with a time_scale (equiflock fit chooses one)"
    )


def apply_gain_schedule(controller: Controller, time_step: float) -> Controller:
    """Return the controller with its gain at this time step as a constant, if it can apply a gain itself; else as is.

    Then `as_sampled_function` multiplies its output.
    """
    schedule, scale_output = get_gain_schedule(controller), getattr(controller, "scale_output", None)
    if schedule is None or scale_output is None:
        return controller
    scaled: Controller = scale_output(schedule(time_step))
    return scaled


def as_sampled_function(controller: Controller, gain: float) -> Callable[..., NDArray[Any]]:
    """Return a controller as a function of NumPy arrays whose accelerations are multiplied by a gain.

    A network or law with a method `scale_output` applies the gain itself, so that it stays compiled; the output of any
    other controller is multiplied.
    """
    if gain == 1.0:
        return as_numpy_function(controller)
    scale_output = getattr(controller, "scale_output", None)
    if scale_output is not None:
        return as_numpy_function(scale_output(gain))
    function = as_numpy_function(controller)
    # The compiled form of a torch module.
    scale_compiled = getattr(function, "scale_output", None)
    return multiply_output(function, gain) if scale_compiled is None else scale_compiled(gain)


def multiply_output(function: Callable[..., Any], factor: float) -> Callable[..., NDArray[Any]]:
    """Return the function with its accelerations multiplied by a factor, as float64."""

    def evaluate(*inputs: Any) -> Any:
        accelerations = function(*inputs)
        try:
            return np.multiply(accelerations, factor, dtype=np.float64)
        except (TypeError, ValueError):  # not numbers: the flight raises the error
            return accelerations

    # A factor does not depend on the order of agents.
    evaluate.order_independent = getattr(function, "order_independent", False)  # type: ignore[attr-defined]
    return evaluate
