"""The number that tells how far a flock is from what its scenario asks, such as 82% in place."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from jaxtyping import Bool, Float64
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, check_choice, shorten_repr
from equiflock.flock import Flock

Unit: TypeAlias = Literal["share", "number"]


@dataclass(frozen=True)
class SuccessMeasure:
    """A number per flock with its text. `compute` takes O(N): pages call it for every picture."""

    text: str
    """The text with {} for the number, such as "{} in place"."""
    compute: Callable[[Flock], Float64[np.ndarray, " B"]]
    """Returns the number of each flock, (B,); NaN where there is none, such as without working agents."""
    unit: Unit = "share"
    """A "share" from 0 to 1 is shown in percent, a "number" with two decimals."""

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or self.text.count("{}") != 1 or len(self.text) > 60:
            raise InputError(
                f"the text of a success measure must have one {{}}, such as '{{}} in place', and at most 60 "
                f"characters; got {shorten_repr(self.text)}"
            )
        check_choice("unit", self.unit, get_args(Unit))
        if not callable(self.compute):
            raise InputError(f"compute must be a function of a flock; got {shorten_repr(self.compute)}")

    def measure(self, flock: Flock) -> float:
        """Return the number of a single flock; raise InputError if `compute` does not return one per flock."""
        values = np.asarray(self.compute(flock), np.float64)
        if values.shape != (1,):
            raise InputError(f"a success measure must return one number per flock, (1,); got the shape {values.shape}")
        return float(values[0])

    def format(self, value: float) -> str:
        """Return the text with a number: a share in whole percent, below 100% unless it is reached; – for NaN."""
        if not math.isfinite(value):
            return self.text.replace("{}", "–")
        number = f"{math.floor(100.0 * value + 1e-9)}%" if self.unit == "share" else f"{value:.2f}"
        return self.text.replace("{}", number)


def compute_alignment(flock: Flock) -> Float64[np.ndarray, " B"]:
    """Return |sum_i v_i| / sum_i |v_i| over working agents, (B,): 1 if all fly in one direction; NaN if none moves."""
    velocities = np.where(flock.working[..., None], flock.velocities, 0.0)
    return divide(compute_norms(velocities.sum(axis=1)), compute_norms(velocities).sum(axis=1))


def compute_working_share(flock: Flock, succeeds: Bool[np.ndarray, "B N"]) -> Float64[np.ndarray, " B"]:
    """Return the share of working agents for which a mask is True, (B,); NaN if none works."""
    return divide((succeeds & flock.working).sum(axis=1), flock.working.sum(axis=1))


def divide(numerator: NDArray[Any], denominator: NDArray[Any]) -> Float64[np.ndarray, " B"]:
    """Return the quotient, NaN where the denominator is 0."""
    return np.asarray(numerator / np.where(denominator > 0, denominator, np.nan), np.float64)


def compute_norms(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return the 2-norm of vectors along the last axis."""
    return np.asarray(np.sqrt(np.square(vectors).sum(axis=-1)))
