"""Parameters of the orbit technique, by which followers avoid obstacles (section 5 of the paper, "Obstacle avoidance").

`equiflock.senses.orbit` applies them. Weights tuned with other parameters store these in their metadata.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from equiflock.runtime.checks import InputError, is_finite, shorten_repr


class OrbitCoefficients(NamedTuple):
    """The parameters of an `Orbit` as kernels take them."""

    gravity_break: float
    """alpha_2."""
    cosine: float
    """cos(alpha_theta)."""
    sine: float
    """sin(alpha_theta)."""
    near: float
    """The weight of e^(-|r|) in alpha_1."""
    slow: float
    """The weight of e^(-|w|) in alpha_1."""


@dataclass(frozen=True)
class Orbit:
    """Parameters of the orbit technique; the defaults are the paper's."""

    gravity_break: float = 0.5
    """alpha_2 in [0, 1]: a follower leaves its orbit the sooner, the smaller it is."""
    dodge_angle: float = math.pi / 2
    """alpha_theta in (0, pi/2], the dodge angle in radians. Only pi/2 is symmetric between left and right."""
    near: float = 1.0
    """Weight of e^(-|r|) in alpha_1(|r|, |w|) = near e^(-|r|) + slow e^(-|w|)."""
    slow: float = 1.0
    """Weight of e^(-|w|) in alpha_1(|r|, |w|) = near e^(-|r|) + slow e^(-|w|)."""

    def __post_init__(self) -> None:
        if not (is_finite(self.gravity_break) and 0.0 <= self.gravity_break <= 1.0):
            raise InputError(f"gravity_break must be from 0 to 1; got {shorten_repr(self.gravity_break)}")
        if not (is_finite(self.dodge_angle) and 0.0 < self.dodge_angle <= math.pi / 2):
            raise InputError(f"dodge_angle must be above 0 and at most pi/2; got {shorten_repr(self.dodge_angle)}")
        for name in ("near", "slow"):
            if not (is_finite(getattr(self, name)) and getattr(self, name) >= 0.0):
                raise InputError(
                    f"{name} must be a finite number of at least 0; got {shorten_repr(getattr(self, name))}"
                )

    @property
    def coefficients(self) -> OrbitCoefficients:
        """The parameters as kernels take them."""
        cosine, sine = math.cos(self.dodge_angle), math.sin(self.dodge_angle)
        return OrbitCoefficients(self.gravity_break, cosine, sine, self.near, self.slow)
