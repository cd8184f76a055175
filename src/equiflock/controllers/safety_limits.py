"""Limits that a robot keeps whatever its controller, its measurements of others and its network do.

The limits are in the robots' units and seconds. At a step of length T an agent with position p and velocity v changes
its controller's acceleration a by these rules, in this order. T_b is the braking time, and r_j = p - p_j and
v_j = v - v_j are those of the messages in use at this step.

1. STALE: no message of a neighbour was in use for `max_silence`. Brake to hover: a = -v / T_b.
2. TOO_CLOSE: neighbours, obstacle agents included, are nearer than d = `min_separation`. With n_j = r_j / |r_j|,

       s = sum over them of n_j (max(0, -<v_j, n_j>) / T_b + (d - |r_j|) / T_b^2),    u = s / |s|:

   remove what a has against u, a -= min(0, <a, u>) u, then a += s. Forces that balance, |s| below 1e-4 d / T_b^2, do
   not count.
3. FENCE: per axis and side, with the distance x to the wall (negative outside), the outward speed w and
   b = `max_acceleration` / 2, the allowed outward speed is w* = sign(x) min(sqrt(2 b |x|), |x| / (4 T_b)). The outward
   component of a becomes (w* - w) / T_b if it is larger. With |x| / (4 T_b) the approach is critically damped: an agent
   that can stop in time does not cross the wall.
4. LIMITED: |v + a T| is above `max_speed`. The velocity v + a T is shortened to it.
5. LIMITED: |a| is above `max_acceleration`. It is shortened to it. This comes last, so it always holds; it also comes
   before rules 2 and 3, so that a large command cannot outweigh them.

All rules are local and do not depend on the order of neighbours. Rules 1, 2, 4 and 5 are equivariant under rotations
and reflections; the fence has axes, and is not. Rules 2 and 5 depend on differences of velocities only; braking, the
fence and the speed limit depend on the agent's own velocity, so a flock in a moving frame flies differently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

from equiflock._runtime.checks import InputError, check_positive, is_finite, shorten_repr
from equiflock._runtime.specs import parse_options
from equiflock.features import feature

DEFAULT_BRAKING_PERIODS = 4
"""Default of the braking time, in sampling periods."""
LONGEST_SILENCE = 4000.0
"""Largest `max_silence` in seconds: agents count microseconds in 32 bits."""
BALANCED_SHARE = 1e-4
"""Share of d / T_b^2 below which |s| counts as zero: its direction would be rounding."""
ROUNDING_SHARE = 1e-4
"""Share of `max_acceleration` that a rule must change to count in the state: less may be rounding."""

Corners = tuple[tuple[float, ...], tuple[float, ...]]


class SafetyState(IntEnum):
    """The most severe rule that changed an agent's acceleration at a step, in increasing severity."""

    OK = 0
    ALONE = 1
    """No message of a neighbour is in use."""
    LIMITED = 2
    """The speed limit or the acceleration limit."""
    TOO_CLOSE = 3
    FENCE = 4
    STALE = 5
    INVALID = 6
    """The measured state or the controller's acceleration is not finite, or the period invalid; on robots only."""


@dataclass(frozen=True)
class SafetyLimits:
    """Limits of an agent, in the robots' units and seconds; None for no limit.

    >>> SafetyLimits(max_acceleration=4.0, max_speed=1.5, fence=((-5, -5), (5, 5))).fence
    ((-5.0, -5.0), (5.0, 5.0))
    """

    max_acceleration: float
    max_speed: float | None = None
    min_separation: float | None = None
    """Distance below which an agent evades a neighbour, in the robots' unit of length."""
    max_silence: float | None = None
    """Seconds without a neighbour's message after which an agent brakes, at most 4000."""
    fence: Corners | None = None
    """Lower and upper corner of the box in which an agent stays, D numbers each."""
    braking_time: float | None = None
    """T_b, the seconds in which rules correct a velocity, at least one sampling period; None for four periods."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name != "fence" and (value is not None or each.name == "max_acceleration"):
                # The dataclass is frozen.
                object.__setattr__(self, each.name, check_positive(each.name, value))
        if self.max_silence is not None and self.max_silence > LONGEST_SILENCE:
            raise InputError(f"max_silence must be at most {LONGEST_SILENCE:g} s; got {self.max_silence:g}")
        if self.fence is not None:
            object.__setattr__(self, "fence", _check_fence(self.fence))

    @classmethod
    def parse(cls, text: str) -> SafetyLimits:
        """Return the limits of a text such as max_acceleration=4:max_speed=1.5:fence=-5,-5,5,5.

        A fence is the lower corner and then the upper one. Raise InputError if an option is unknown, invalid or
        missing.
        """
        options, names = parse_options(text), [each.name for each in fields(cls)]
        if unknown := [name for name in options if name not in names]:
            raise InputError(f"limits have no option {unknown[0]!r}; they have {', '.join(names)}")
        if "max_acceleration" not in options:
            raise InputError(f"limits must have a max_acceleration, such as max_acceleration=4; got {text!r}")
        if options.get("fence") is not None:
            options["fence"] = _parse_fence(options["fence"])
        return cls(**options)

    def check_dimensions(self, dimensions: int) -> None:
        """Raise InputError if the fence is not one of `dimensions` axes."""
        if self.fence is not None and len(self.fence[0]) != dimensions:
            raise InputError(
                f"the corners of the fence must have D = {dimensions} numbers each; got {len(self.fence[0])}"
            )

    def check_radius(self, comm_radius: float) -> None:
        """Raise InputError if agents would be too close as soon as they are neighbours."""
        if self.min_separation is not None and self.min_separation >= comm_radius:
            raise InputError(
                f"min_separation must be below comm_radius = {comm_radius:g}, or all neighbours would be too close; "
                f"got {self.min_separation:g}"
            )

    def compute_braking_time(self, period: float) -> float:
        """Return T_b at a sampling period."""
        return max(self.braking_time or DEFAULT_BRAKING_PERIODS * period, period)

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        if self.fence is not None:
            values["fence"] = ",".join(_format_number(number) for corner in self.fence for number in corner)
        given = (value for value in values.values() if value is not None)
        texts = (value if isinstance(value, str) else _format_number(value) for value in given)
        names = (name for name, value in values.items() if value is not None)
        return ":".join(f"{name}={text}" for name, text in zip(names, texts, strict=True))


def get_safety_limits(controller: object) -> SafetyLimits | None:
    """Return the limits of a `Safe` controller; None for any other."""
    limits = getattr(controller, "safety_limits", None)
    return limits if isinstance(limits, SafetyLimits) else None


def count_microseconds(seconds: float) -> int:
    """Return a time as agents count it, at least 1."""
    return max(int(seconds * 1e6 + 0.5), 1)


@feature("evasion", vector="position")
def _evasion(square: float, inner: float, distance: float = 0.2, braking_time: float = 0.1) -> float:
    """Stop the approach of a neighbour that is nearer than the distance, and push it away (rule 2)."""
    length = math.sqrt(square)
    if length >= distance:
        return 0.0
    approach = max(0.0, -inner / length)
    return (approach / braking_time + (distance - length) / (braking_time * braking_time)) / length


def _check_fence(fence: Any) -> Corners:
    """Return the corners as tuples of floats; raise InputError unless lower < upper in every axis."""
    corners = [tuple(corner) for corner in fence if _is_vector(corner)] if _is_vector(fence) else []
    numbers = [number for corner in corners for number in corner]
    if len(corners) != 2 or len(corners[0]) != len(corners[1]) or not all(map(is_finite, numbers)):
        raise InputError(
            f"fence must be two corners of D finite numbers each, such as ((-5, -5), (5, 5)); got {shorten_repr(fence)}"
        )
    lower, upper = (tuple(map(float, corner)) for corner in corners)
    for axis, (low, high) in enumerate(zip(lower, upper, strict=True)):
        if not low < high:
            raise InputError(
                f"the first corner of the fence must be below the second in every axis; got {low:g} and {high:g} "
                f"in axis {axis}"
            )
    return lower, upper


def _is_vector(value: Any) -> bool:
    """Return whether a value is a sequence with elements, such as a tuple, a list or an array, but no text."""
    return (
        (isinstance(value, Sequence) or hasattr(value, "__array__")) and not isinstance(value, str) and len(value) > 0
    )


def _format_number(number: float) -> str:
    """Return a text from which `float` gives the number: the short one of :g, if it does."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def _parse_fence(text: Any) -> Corners:
    """Return the corners of a text such as -5,-5,5,5; raise InputError if it has other than 2 D numbers."""
    parts = str(text).split(",")
    try:
        numbers = tuple(map(float, parts))
    except ValueError:
        numbers = ()
    if len(numbers) not in (4, 6):
        raise InputError(f"fence must be the 2 D numbers of two corners, such as -5,-5,5,5; got {text!r}")
    half = len(numbers) // 2
    return numbers[:half], numbers[half:]
