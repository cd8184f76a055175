"""Ranges of numbers, such as 0-0.5, and the environments that a training draws from them (domain randomization)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np

from equiflock._runtime.checks import InputError
from equiflock._runtime.randomness import make_rng
from equiflock._runtime.specs import NUMBER_PATTERN
from equiflock.bodies import DoubleIntegrator
from equiflock.observations.radio import Radio
from equiflock.simulation.environment import RADIO_OPTIONS, Environment, map_body_options

Distribution = Literal["uniform_integer", "uniform", "log_uniform"]
"""Distribution of the numbers of a range; log_uniform draws from 3 to 10 as often as from 30 to 100."""

EXAMPLES: dict[Distribution, str] = {
    "uniform_integer": "a whole number, or a range of them such as 0-2",
    "uniform": "a number, or a range such as 0-0.5",
    "log_uniform": "a number, or a range such as 3-100",
}
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

    Numbers have no sign; uniform_integer accepts only integers. Raise InputError, which starts with `name`, if the text
    is neither, or if the first number is the larger.
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


STREAM_NAMES = {"packet_loss": "loss", "send_interval": "every"}
"""Random streams that keep the option's name in version 0.2, so that a seed still draws the same environments."""


def _choose_distribution(field: Field[Any]) -> Distribution:
    """Return the distribution of a range of a radio's or a body's field."""
    if str(field.type).startswith("int"):
        return "uniform_integer"
    # Limits, which are None by default, may range from 1 to 1000; uniform would hardly ever draw a small one.
    return "log_uniform" if field.default is None else "uniform"


RANGE_DISTRIBUTIONS: Mapping[str, Distribution] = {
    option: _choose_distribution(part.__dataclass_fields__[field])
    for part, names in ((Radio, RADIO_OPTIONS), (DoubleIntegrator, map_body_options(DoubleIntegrator)))
    for option, field in names.items()
    if field != "seed"
}
"""Options of radio and body that a training may draw, as in `Environment.from_options`, with their distributions."""


def parse_range_option(name: str, value: Any) -> Any:
    """Return the value of an option of `RANGE_DISTRIBUTIONS` as a recipe stores it: a number, None or a range's text.

    Texts of one number, and of ranges with equal ends, become numbers. Raise InputError if radio or body reject the
    value, or an end of the range.
    """
    if isinstance(value, np.generic):  # recipes are stored as JSON, which has plain numbers only
        value = value.item()
    result = _parse_value(name, value)
    # A range is valid if both of its ends are.
    for end in (result.low, result.high) if isinstance(result, Range) else (result,):
        try:
            Environment.from_options(**{name: end})
        except InputError as error:
            suffix = f" in the range {result}" if isinstance(result, Range) else ""
            raise InputError(f"{error}{suffix}") from None
    return str(result) if isinstance(result, Range) else result


def _parse_value(name: str, value: Any) -> Any:
    """Return the range or number of a text, and any other value unchanged."""
    return parse_range(name, value, RANGE_DISTRIBUTIONS[name]) if isinstance(value, str) else value


class EnvironmentRanges:
    """Environments of a training: every flight draws a number from each range of its radio and body; no agent fails.

    `values` has a value from `parse_range_option` for each of `RANGE_DISTRIBUTIONS`.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        parsed = {name: _parse_value(name, values[name]) for name in RANGE_DISTRIBUTIONS}
        self._ranges = {name: value for name, value in parsed.items() if isinstance(value, Range)}
        self._numbers = {name: value for name, value in parsed.items() if name not in self._ranges}

    def check(self) -> None:
        """Raise InputError if a combination of range ends is invalid, e.g. short bursts with a high packet loss."""
        # If all corners of the ranges of a part are valid, so is everything between them.
        of_radio = [name for name in self._ranges if name in RADIO_OPTIONS]
        of_body = [name for name in self._ranges if name not in RADIO_OPTIONS]
        for names in (of_radio, of_body):
            for corner in product(*(_get_ends(self._ranges[name]) for name in names)):
                Environment.from_options(**self._numbers, **dict(zip(names, corner, strict=True)))

    def draw(self, seed: int, epoch: int) -> Environment:
        """Draw the environment of an epoch's flight, including its seeds; it depends only on seed and epoch."""
        stream = seed, "world", epoch
        # One stream per option, so that a range does not change the numbers of the others.
        drawn = {
            name: values.draw(make_rng(*stream, STREAM_NAMES.get(name, name))) for name, values in self._ranges.items()
        }
        return self._build(drawn, make_rng(*stream))

    def make_middle(self) -> Environment:
        """Return the environment of validations: the middle of every range, with the same seeds for all trainings."""
        middle = {name: values.middle for name, values in self._ranges.items()}
        return self._build(middle, make_rng(0, "world", "validation"))

    def _build(self, drawn: Mapping[str, float], rng: np.random.Generator) -> Environment:
        """Return the environment with these numbers; radio and body get seeds from `rng` unless they are ideal."""
        environment = Environment.from_options(**self._numbers, **drawn)
        parts: tuple[Any, ...] = environment.radio, environment.body
        seeds = map(int, rng.integers(2**63, size=2))
        return Environment(
            *(part if part.is_ideal else replace(part, seed=seed) for part, seed in zip(parts, seeds, strict=True))
        )


def _get_ends(values: Range) -> tuple[float, float]:
    """Return the smallest and largest number that a range can draw; "uniform" never draws `high`."""
    # A packet loss of 1 allows bursts of any length, but one just below 1, the largest that is drawn, does not.
    is_open = values.distribution == "uniform"
    return values.low, float(np.nextafter(values.high, values.low)) if is_open else values.high
