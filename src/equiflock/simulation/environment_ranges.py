"""Ranges of numbers, such as 0-0.5, from which a training draws a number per flight or flock."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from equiflock._runtime.checks import InputError
from equiflock._runtime.randomness import make_rng
from equiflock._runtime.specs import NUMBER_PATTERN
from equiflock.bodies import DoubleIntegrator
from equiflock.observations.radio import Radio

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


# The environments of a training: radio and body of each flight, with domain randomization.
#
# A recipe has a setting, a number or a range, for every field of `Radio` and `DoubleIntegrator`. Each flight draws a
# number from every range, from a stream named by the training's seed, the epoch and the setting, so that a repeated
# flight has the same environment.

Part: TypeAlias = type[Radio | DoubleIntegrator]
STREAM_NAMES = {"packet_loss": "loss", "send_interval": "every"}
"""Random streams that keep the setting's name in version 0.2, so that a seed still draws the same environments."""
PartT = TypeVar("PartT", bound=Radio | DoubleIntegrator)


@dataclass(frozen=True)
class FlightWorld:
    """Radio and body of a flight; None if they are ideal, because flights without them use faster kernels."""

    radio: Radio | None = None
    body: DoubleIntegrator | None = None


@dataclass(frozen=True)
class Setting:
    """One field of a radio or a body, as a setting of a recipe."""

    part: Part
    name: str
    """Name of the field in the part."""
    distribution: Distribution
    """Distribution of a range of it."""
    default: Any
    """Its value for an ideal part."""


def _build_settings(part: Part, renamed: Mapping[str, str]) -> dict[str, Setting]:
    """Return the settings of a radio or body by their names in a recipe, without the seed.

    `renamed` maps names of fields to names in a recipe where the two differ.
    """
    settings = {}
    for field in fields(part):
        # Counts are integers. Limits, which are None by default, may range from 1 to 1000; a uniform distribution would
        # hardly ever draw a small one.
        is_count = str(field.type).startswith("int")
        distribution: Distribution = (
            "uniform_integer" if is_count else "log_uniform" if field.default is None else "uniform"
        )
        if field.name != "seed":  # set by the trainer
            settings[renamed.get(field.name, field.name)] = Setting(part, field.name, distribution, field.default)
    return settings


SETTINGS = _build_settings(Radio, {}) | _build_settings(DoubleIntegrator, {"max_speed": "top_speed"})
"""All settings of radio and body. In a recipe, max_speed is that of the initial velocities, as in `RandomDisk`, so that
of the body is top_speed."""


def parse_setting(name: str, value: Any) -> Any:
    """Return the value of a setting as a recipe stores it: a number, None or the text of a range.

    Texts of one number, and of ranges with equal ends, become numbers.

    Raises:
        InputError: if radio or body reject the value, or an end of the range.
    """
    if isinstance(value, np.generic):  # recipes are stored as JSON, which has plain numbers only
        value = value.item()
    setting = SETTINGS[name]
    result = parse_range(name, value, setting.distribution) if isinstance(value, str) else value
    # The part checks its values; a range is valid if both of its ends are.
    for end in (result.low, result.high) if isinstance(result, Range) else (result,):
        arguments: dict[str, Any] = {setting.name: end}
        try:
            setting.part(**arguments)
        except InputError as error:
            suffix = f" in the range {result}" if isinstance(result, Range) else ""
            raise InputError(str(error).replace(setting.name, name, 1) + suffix) from None
    return str(result) if isinstance(result, Range) else result


class Worlds:
    """Environments that the settings of a recipe describe.

    Args:
        values: a value from `parse_setting` for each of `SETTINGS`.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values: dict[str, Any] = {
            name: parse_range(name, values[name], setting.distribution)
            if isinstance(values[name], str)
            else values[name]
            for name, setting in SETTINGS.items()
        }

    def check(self) -> None:
        """Raise InputError if a combination of range ends is invalid, e.g. short bursts with a high packet loss."""
        # If all corners of the ranges are valid, so is everything between them.
        parts: tuple[Part, ...] = Radio, DoubleIntegrator
        for part in parts:
            ranges = {name: value for name, value in self._select_values(part).items() if isinstance(value, Range)}
            for corner in product(*map(_get_ends, ranges.values())):
                self._make_part(part, dict(zip(ranges, corner, strict=True)).__getitem__, seed=0)

    def draw(self, seed: int, epoch: int) -> FlightWorld:
        """Draw radio and body of an epoch's flight, including their seeds; both depend only on seed and epoch."""
        stream = seed, "world", epoch

        # One stream per setting, so that a range does not change the numbers of the others.
        def draw_number(name: str) -> float:
            number: float = self._values[name].draw(make_rng(*stream, STREAM_NAMES.get(name, name)))
            return number

        return self._make_world(draw_number, make_rng(*stream))

    def make_middle(self) -> FlightWorld:
        """Return radio and body for validation: the middle of every range, with the same seeds for all trainings."""
        return self._make_world(lambda name: self._values[name].middle, make_rng(0, "world", "validation"))

    def _make_world(self, choose: Callable[[str], float], rng: np.random.Generator) -> FlightWorld:
        """Return radio and body (None if ideal) with `choose(name)` as the value of each range and seeds from `rng`."""
        seeds = rng.integers(2**63, size=2)
        radio = self._make_part(Radio, choose, int(seeds[0]))
        body = self._make_part(DoubleIntegrator, choose, int(seeds[1]))
        is_ideal_body = body == DoubleIntegrator(seed=body.seed)
        return FlightWorld(None if radio.is_ideal else radio, None if is_ideal_body else body)

    def _make_part(self, part: type[PartT], choose: Callable[[str], float], seed: int) -> PartT:
        """Return a radio or a body with `choose(name)` as the value of each range."""
        values: dict[str, Any] = {
            SETTINGS[name].name: choose(name) if isinstance(value, Range) else value
            for name, value in self._select_values(part).items()
        }
        return part(**values, seed=seed)

    def _select_values(self, part: type[object]) -> dict[str, Any]:
        """Return the values of the settings of a part by their names in a recipe."""
        return {name: value for name, value in self._values.items() if SETTINGS[name].part is part}


def _get_ends(values: Range) -> tuple[float, float]:
    """Return the smallest and largest number that a range can draw; "uniform" never draws `high`."""
    # A packet loss of 1 allows bursts of any length, but one just below 1, the largest that is drawn, does not.
    is_open = values.distribution == "uniform"
    return values.low, float(np.nextafter(values.high, values.low)) if is_open else values.high
