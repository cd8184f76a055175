"""The scenarios of a training, by shares of its flights, and their numbers, some of which may be ranges.

Of a range every flock at t = 0 has a draw of its own, from a stream named by the seed, the number's name and the
flock's index: more flocks begin with the same ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from equiflock.flock import FOLLOWER, Flock
from equiflock.learning.ranges import NUMBER_PATTERN, Distribution, Range, parse_range
from equiflock.runtime.checks import InputError, check_positive
from equiflock.runtime.options import parse_options
from equiflock.runtime.randomness import make_rng
from equiflock.scenarios import RandomDisk, Scenario, make_scenario, scenario_names
from equiflock.scenarios.registry import scenario_class

MIX_EXAMPLE = "0.6*flocking+0.4*leaders:leaders=2"


class Start(NamedTuple):
    """Where a flight may begin: a scenario and one flock of it."""

    scenario: Scenario
    flock: Flock

    @property
    def followers(self) -> int:
        """How many agents of the flock follow; only these learn."""
        return int((self.flock.roles == FOLLOWER).sum())


@dataclass(frozen=True)
class TrainingScenario:
    """One scenario of a training.

    Attributes:
        share: of the flights, where all scenes of a training have 1 together.
        name: the scenario's, without options.
        defaults: numbers and ranges of the recipe, for the options that the scenario has.
        own_options: its own options, which go before these.
    """

    share: float
    name: str
    defaults: Mapping[str, Any]
    own_options: Mapping[str, Any]

    @cached_property
    def ranges(self) -> dict[str, Range]:
        """The ranges from which its flocks draw, by the names of its options."""
        known = {
            **{name: self.defaults[name] for name in self.defaults if name in _get_distributions(self.name)},
            **self.own_options,
        }
        return {name: value for name, value in known.items() if isinstance(value, Range)}

    def check(self, flocks: int) -> None:
        """Raise a clear error if one of its flocks makes no sense."""
        if self.ranges and (own := {"flocks", "seed"} & self.own_options.keys()):
            raise InputError(f"{min(own)} is the recipe's where a scenario has ranges: leave it out of {self.name!r}")
        # What makes sense at all corners of the ranges does so between them.
        for corner in product(*((each.low, each.high) for each in self.ranges.values())):
            self._make_scenario(dict(zip(self.ranges, corner, strict=True)).__getitem__, flocks, 0, "train")

    def middle(self, flocks: int, seed: int, split: str) -> Scenario:
        """The scenario with the middle of every range, for so many flocks of a split."""
        return self._make_scenario(lambda name: self.ranges[name].middle, flocks, seed, split)

    def draw(self, flocks: int, seed: int, split: str) -> list[Start]:
        """Draw so many flocks of a split, each with numbers of its own if there are ranges."""
        if not self.ranges:
            scenario = self.middle(flocks, seed, split)
            drawn = scenario.draw()
            return [Start(scenario, drawn[b]) for b in range(len(drawn))]
        return [self._draw_one(b, seed, split) for b in range(flocks)]

    def _draw_one(self, b: int, seed: int, split: str) -> Start:
        # A stream for each range: whether one is a range or a number changes nothing in the others.
        def drawn(name: str) -> float:
            return self.ranges[name].draw(make_rng(seed, "start", split, name, b))

        # It is the only flock of its set, so the set has a seed of its own.
        own = int(make_rng(seed, "start", split, b).integers(2**63))
        scenario = self._make_scenario(drawn, 1, own, split)
        return Start(scenario, scenario.draw())

    def _make_scenario(self, choose: Callable[[str], float], flocks: int, seed: int, split: str) -> Scenario:
        """The scenario with the numbers that `choose` chooses for the names of ranges."""
        defaults, own_options = (
            {name: choose(name) if name in self.ranges else value for name, value in options.items()}
            for options in (self.defaults, self.own_options)
        )
        return make_scenario(self.name, {**defaults, "flocks": flocks, "seed": seed, "split": split}, **own_options)


def parse_training_scenarios(text: str, defaults: Mapping[str, Any]) -> tuple[TrainingScenario, ...]:
    """The scenes that a recipe tells: one scenario such as leaders:leaders=1-3, or several with their shares.

    Args:
        text: a scenario with its options, or shares such as 0.6*flocking+0.4*leaders, of any sum.
        defaults: options for all scenarios that have them, where they are not given; a text of numbers is a range.
    """
    parts = _parse_shares(text)
    total = math.fsum(share for share, _ in parts)
    return tuple(_make_training_scenario(share / total, name, defaults) for share, name in parts)


def _parse_shares(text: str) -> list[tuple[float, str]]:
    """Shares and scenarios; one scenario alone has all flights."""
    wrong = f"scenario must be a scenario, or several with their shares such as {MIX_EXAMPLE}; got {text!r:.80}"
    if not re.match(rf"\s*{NUMBER_PATTERN}\s*\*", text):
        head = text.partition(":")[0]
        if "+" in head and head not in scenario_names():
            raise InputError(wrong)
        return [(1.0, text)]
    found = []
    # A plus before a share begins the next part; any other, as in 1e+3, belongs to an option. Between the parts are the
    # shares that were looked ahead to.
    for part in re.split(rf"\+(?=\s*{NUMBER_PATTERN}\s*\*)", text)[::2]:
        match = re.fullmatch(rf"\s*{NUMBER_PATTERN}\s*\*\s*([^\s+:]+(?::\S+)?)\s*", part)
        if match is None:
            raise InputError(wrong)
        found.append((check_positive("the share of a scenario", float(match[1])), match[2]))
    return found


def _make_training_scenario(share: float, text: str, defaults: Mapping[str, Any]) -> TrainingScenario:
    name, colon, told = text.partition(":")
    kinds, given = _get_distributions(name), parse_options(told) if colon else {}
    ours, theirs = (
        {key: _parse_number(key, value, kinds[key]) if key in kinds else value for key, value in options.items()}
        for options in (defaults, given)
    )
    return TrainingScenario(share, name, ours, theirs)


def _get_distributions(name: str) -> dict[str, Distribution]:
    """How a range of a scenario's option is spread, for the options that are numbers."""
    own = {field.name: field.type for field in fields(scenario_class(name)) if field.init}
    disk = {field.name: field.type for field in fields(RandomDisk)} if "disk" in own else {}
    # A class of one's own may have types as annotations, where ours have texts.
    texts = {key: getattr(kind, "__name__", str(kind)) for key, kind in {**disk, **own}.items()}
    spreads: dict[str, Distribution] = {key: "uniform_integer" for key, text in texts.items() if text.startswith("int")}
    return spreads | {key: "uniform" for key, text in texts.items() if text.startswith("float")}


def _parse_number(name: str, value: Any, distribution: Distribution) -> Any:
    """The range that a text of two numbers tells; any other value as it is, for the scenario to check."""
    if isinstance(value, str) and re.fullmatch(rf"\s*{NUMBER_PATTERN}\s*-\s*{NUMBER_PATTERN}\s*", value):
        return parse_range(name, value, distribution)
    return value


def split_by_shares(count: int, shares: Sequence[float]) -> list[int]:
    """So many things by shares: the whole parts, and one more where the largest rests are."""
    exact = np.asarray(shares) * count
    parts = np.floor(exact).astype(int)
    for place in np.argsort(parts - exact, kind="stable")[: count - parts.sum()]:
        parts[place] += 1
    return [int(part) for part in parts]
