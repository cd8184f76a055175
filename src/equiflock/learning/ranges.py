"""Ranges of numbers, such as 0-0.5, from which a training draws a number per flight or flock."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np

from equiflock.runtime.checks import InputError

Distribution = Literal["uniform_integer", "uniform", "log_uniform"]
"""Distribution of the numbers of a range; log_uniform draws from 3 to 10 as often as from 30 to 100."""

EXAMPLES: dict[Distribution, str] = {
    "uniform_integer": "a whole number, or a range of them such as 0-2",
    "uniform": "a number, or a range such as 0-0.5",
    "log_uniform": "a number, or a range such as 3-100",
}
NUMBER_PATTERN = r"((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
"""Regular expression of a number without a sign; it includes the minus of an exponent, so 1e-3 is not a range."""
MAX_DIGITS = 19
"""Most digits of an int64."""


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high` with a distribution."""

    low: float
    """Smallest number."""
    high: float
    """Largest number; integer, as is `low`, and included if the distribution is uniform_integer."""
    distribution: Distribution = "uniform"

    def __str__(self) -> str:
        return f"{_format_number(self.low)}-{_format_number(self.high)}"

    def draw(self, rng: np.random.Generator) -> float:
        """Draw a number from the range; `high` is included for uniform_integer, excluded for uniform."""
        match self.distribution:
            case "uniform_integer":
                return int(rng.integers(int(self.low), int(self.high), endpoint=True))
            case "uniform":
                return float(rng.uniform(self.low, self.high))
            case "log_uniform":
                number = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
                # Rounding of exp(log(.)) may leave the range.
                return min(max(number, self.low), self.high)

    @property
    def middle(self) -> float:
        """Middle of the range: (low + high) / 2, rounded down for uniform_integer; geometric mean for log_uniform."""
        match self.distribution:
            case "uniform_integer":
                return (int(self.low) + int(self.high)) // 2
            case "uniform":
                return self.low + (self.high - self.low) / 2
            case "log_uniform":
                return math.sqrt(self.low) * math.sqrt(self.high)


def parse_range(name: str, text: str, distribution: Distribution) -> Range | float:
    """Parse a text such as 0-0.5; return a number if the text is one, or if both ends are equal.

    Raise InputError if the text is neither, or if the first number is the larger. Numbers have no sign.

    Args:
        name: name of the setting, for errors.
        text: one number, or two with a minus between them.
        distribution: distribution of the range; uniform_integer accepts only integers.
    """
    number = rf"(\d{{1,{MAX_DIGITS}}})" if distribution == "uniform_integer" else NUMBER_PATTERN
    match = re.fullmatch(rf"\s*{number}(?:\s*-\s*{number})?\s*", text)
    if match is None:
        raise InputError(f"{name} must be {EXAMPLES[distribution]}; got {text!r:.80}")
    low, high = (
        int(end) if distribution == "uniform_integer" else float(end) for end in (match[1], match[2] or match[1])
    )
    if low > high:
        raise InputError(f"{name} must be a range from low to high, {Range(high, low)}; got {text!r:.80}")
    return low if low == high else Range(low, high, distribution)


def _format_number(number: float) -> str:
    """Return the shortest text that `parse_range` converts back to exactly this number."""
    return repr(number).removesuffix(".0")
