"""The worlds of a training: by which radio agents hear each other in a flight, and which bodies they have.

A recipe has a setting for every number of `Radio` and `DoubleIntegrator`, which is a number or a range. Of a range each
flight draws a number of its own (domain randomization), from a stream named by the training's seed, the epoch and the
setting: a flight that is flown again has the same world.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, TypeAlias, TypeVar

import numpy as np

from equiflock.bodies import DoubleIntegrator
from equiflock.learning.ranges import Distribution, Range, parse_range
from equiflock.runtime.checks import InputError
from equiflock.runtime.randomness import make_rng
from equiflock.senses.radio import Radio

Part: TypeAlias = type[Radio | DoubleIntegrator]
PartT = TypeVar("PartT", bound=Radio | DoubleIntegrator)


@dataclass(frozen=True)
class FlightWorld:
    """The radio and the body of a flight; None where they are perfect, for which flights have faster kernels."""

    radio: Radio | None = None
    body: DoubleIntegrator | None = None


@dataclass(frozen=True)
class Setting:
    """One number of a radio or a body, as a recipe sets it."""

    part: Part
    name: str
    """The name that the part itself has for it."""
    distribution: Distribution
    """How a range of it is spread."""
    default: Any
    """Its value for a perfect part."""


def _settings(part: Part, renamed: Mapping[str, str]) -> dict[str, Setting]:
    """The settings of a part, by their names in a recipe."""
    found = {}
    for field in fields(part):
        # Of what is counted only whole numbers make sense. What has no limit by default is a scale: it may be anything
        # from 1 to 1000, and as an even range it would hardly ever be small.
        counted = str(field.type).startswith("int")
        distribution: Distribution = (
            "uniform_integer" if counted else "log_uniform" if field.default is None else "uniform"
        )
        if field.name != "seed":  # which the trainer sets itself
            found[renamed.get(field.name, field.name)] = Setting(part, field.name, distribution, field.default)
    return found


SETTINGS = _settings(Radio, {}) | _settings(DoubleIntegrator, {"max_speed": "top_speed"})
"""All settings of worlds. The max_speed of a recipe is that of the velocities with which flocks begin, as in
`RandomDisk`, so that of the body has another name."""


def parse_setting(name: str, value: Any) -> Any:
    """The value of a setting as a recipe keeps it: a number, None or the text of a range.

    Raises:
        InputError: if radio or body do not take it, or an end of its range.
    """
    if isinstance(value, np.generic):  # JSON, in which recipes are kept, knows plain numbers only
        value = value.item()
    setting = SETTINGS[name]
    found = parse_range(name, value, setting.distribution) if isinstance(value, str) else value
    # The part itself knows what makes sense, and a range makes sense if both its ends do.
    for end in (found.low, found.high) if isinstance(found, Range) else (found,):
        only: dict[str, Any] = {setting.name: end}
        try:
            setting.part(**only)
        except InputError as error:
            where = f" in the range {found}" if isinstance(found, Range) else ""
            raise InputError(str(error).replace(setting.name, name, 1) + where) from None
    return str(found) if isinstance(found, Range) else found


class Worlds:
    """The worlds that the settings of a recipe allow.

    Args:
        values: a settled value for every one of `SETTINGS`.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values: dict[str, Any] = {
            name: parse_range(name, values[name], setting.distribution)
            if isinstance(values[name], str)
            else values[name]
            for name, setting in SETTINGS.items()
        }

    def check(self) -> None:
        """Raise a clear error if one of these worlds makes no sense, such as short bursts of many losses."""
        # What makes sense at all corners of the ranges does so between them.
        parts: tuple[Part, ...] = Radio, DoubleIntegrator
        for part in parts:
            ranges = {name: value for name, value in self._select_values(part).items() if isinstance(value, Range)}
            for corner in product(*map(_get_ends, ranges.values())):
                self._make_part(part, dict(zip(ranges, corner, strict=True)).__getitem__, seed=0)

    def draw(self, seed: int, epoch: int) -> FlightWorld:
        """The world of an epoch's flight, with seeds of its own for the radio and the body."""
        names = seed, "world", epoch

        # A stream for each setting: whether one is a range or a number changes nothing in the others.
        def drawn(name: str) -> float:
            number: float = self._values[name].draw(make_rng(*names, name))
            return number

        return self._world(drawn, make_rng(*names))

    def middle(self) -> FlightWorld:
        """The world of validation: of every range its middle, with the same seeds for all trainings."""
        return self._world(lambda name: self._values[name].middle, make_rng(0, "world", "validation"))

    def _world(self, choose: Callable[[str], float], rng: np.random.Generator) -> FlightWorld:
        """The world with the values that `choose` chooses for the names of ranges, and seeds that `rng` draws."""
        seeds = rng.integers(2**63, size=2)
        radio = self._make_part(Radio, choose, int(seeds[0]))
        body = self._make_part(DoubleIntegrator, choose, int(seeds[1]))
        perfect = body == DoubleIntegrator(seed=body.seed)
        return FlightWorld(None if radio.is_ideal else radio, None if perfect else body)

    def _make_part(self, part: type[PartT], choose: Callable[[str], float], seed: int) -> PartT:
        """A radio or a body."""
        values: dict[str, Any] = {
            SETTINGS[name].name: choose(name) if isinstance(value, Range) else value
            for name, value in self._select_values(part).items()
        }
        return part(**values, seed=seed)

    def _select_values(self, part: type[object]) -> dict[str, Any]:
        """The values of the settings of a part, by their names in a recipe."""
        return {name: value for name, value in self._values.items() if SETTINGS[name].part is part}


def _get_ends(values: Range) -> tuple[float, float]:
    """The smallest and the largest number that is drawn of a range: an even one never draws `high` itself."""
    # A loss of 1 may come in bursts of any length, one just below 1 must not: it is the latter that is drawn.
    even = values.distribution == "uniform"
    return values.low, float(np.nextafter(values.high, values.low)) if even else values.high
