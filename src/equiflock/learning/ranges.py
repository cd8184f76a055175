"""Ranges of numbers, written such as 0-0.5, from which each flight of a training draws one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from equiflock.runtime.checks import InputError

Distribution = Literal["uniform_integer", "uniform", "log_uniform"]
"""How the numbers of a range are spread: whole numbers, all equally likely; numbers, equally likely wherever they are;
or scales, as likely from 3 to 10 as from 30 to 100."""

EXAMPLES: dict[Distribution, str] = {
    "uniform_integer": "a whole number, or a range of them such as 0-2",
    "uniform": "a number, or a range such as 0-0.5",
    "log_uniform": "a number, or a range such as 3-100",
}
NUMBER_PATTERN = r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
"""A number without a sign. The minus of its exponent belongs to it, so 1e-3 is one number and no range."""
MAX_DIGITS = 19
"""The most digits of a whole number that an int64 may have."""


@dataclass(frozen=True)
class Range:
    """The numbers from low to high, spread in one of three ways.

    low, high: the smallest and the largest number; whole ones, and both included, if it is a range of counts.
    """

    low: float
    high: float
    distribution: Distribution = "uniform"

    def __str__(self) -> str:
        return f"{_format_number(self.low)}-{_format_number(self.high)}"

    def draw(self, rng: np.random.Generator) -> float:
        """One number of the range."""
        match self.distribution:
            case "uniform_integer":
                return int(rng.integers(int(self.low), int(self.high), endpoint=True))
            case "uniform":
                return float(rng.uniform(self.low, self.high))
            case "log_uniform":
                drawn = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
                # The exponential of a logarithm may be an end's neighbour, and so outside of the range.
                return min(max(drawn, self.low), self.high)

    @property
    def middle(self) -> float:
        """The middle: of counts rounded down, of scales the geometric mean, (low + high) / 2 of others."""
        match self.distribution:
            case "uniform_integer":
                return (int(self.low) + int(self.high)) // 2
            case "uniform":
                return self.low + (self.high - self.low) / 2
            case "log_uniform":
                return math.sqrt(self.low) * math.sqrt(self.high)


def parse_range(name: str, text: str, distribution: Distribution) -> Range | float:
    """The range that a text such as 0-0.5 tells, or the number if it is one, or the same at both ends.

    Args:
        name: what it is a range of, for errors.
        text: one number, or two with a minus between them.
        distribution: how its numbers are spread; only whole numbers make a range of counts.
    """
    number = rf"(\d{{1,{MAX_DIGITS}}})" if distribution == "uniform_integer" else NUMBER_PATTERN
    found = re.fullmatch(rf"\s*{number}(?:\s*-\s*{number})?\s*", text)
    if found is None:
        raise InputError(f"{name} must be {EXAMPLES[distribution]}; got {text!r:.80}")
    low, high = (
        int(each) if distribution == "uniform_integer" else float(each) for each in (found[1], found[2] or found[1])
    )
    if low > high:
        raise InputError(f"{name} must be a range from low to high, {Range(high, low)}; got {text!r:.80}")
    return low if low == high else Range(low, high, distribution)


def _format_number(number: float) -> str:
    """A number as `parse_range` reads it back to the last bit."""
    return repr(number).removesuffix(".0")
