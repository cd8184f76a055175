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
from equiflock.learning.ranges import NUMBER, Range, Spread, read_range
from equiflock.runtime.checks import InputError, check_positive
from equiflock.runtime.options import read_options
from equiflock.runtime.randomness import stream
from equiflock.scenarios import RandomDisk, Scenario, make_scenario, scenario_names
from equiflock.scenarios.registry import scenario_class

EXAMPLE = "0.6*flocking+0.4*leaders:leaders=2"


class Start(NamedTuple):
    """Where a flight may begin: a scenario and one flock of it."""

    scenario: Scenario
    flock: Flock

    @property
    def followers(self) -> int:
        """How many agents of the flock follow; only these learn."""
        return int((self.flock.roles == FOLLOWER).sum())


@dataclass(frozen=True)
class Scene:
    """One scenario of a training.

    Attributes:
        share: of the flights, where all scenes of a training have 1 together.
        name: the scenario's, without options.
        usual: numbers and ranges of the recipe, for the options that the scenario has.
        given: its own options, which go before these.
    """

    share: float
    name: str
    usual: Mapping[str, Any]
    given: Mapping[str, Any]

    @cached_property
    def ranges(self) -> dict[str, Range]:
        """The ranges from which its flocks draw, by the names of its options."""
        known = {**{name: self.usual[name] for name in self.usual if name in _kinds(self.name)}, **self.given}
        return {name: value for name, value in known.items() if isinstance(value, Range)}

    def check(self, flocks: int) -> None:
        """Raise a clear error if one of its flocks makes no sense."""
        if self.ranges and (own := {"flocks", "seed"} & self.given.keys()):
            raise InputError(f"{min(own)} is the recipe's where a scenario has ranges: leave it out of {self.name!r}")
        # What makes sense at all corners of the ranges does so between them.
        for corner in product(*((each.low, each.high) for each in self.ranges.values())):
            self._made(dict(zip(self.ranges, corner, strict=True)).__getitem__, flocks, 0, "train")

    def middle(self, flocks: int, seed: int, split: str) -> Scenario:
        """The scenario with the middle of every range, for so many flocks of a split."""
        return self._made(lambda name: self.ranges[name].middle, flocks, seed, split)

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
            return self.ranges[name].draw(stream(seed, "start", split, name, b))

        # It is the only flock of its set, so the set has a seed of its own.
        own = int(stream(seed, "start", split, b).integers(2**63))
        scenario = self._made(drawn, 1, own, split)
        return Start(scenario, scenario.draw())

    def _made(self, choose: Callable[[str], float], flocks: int, seed: int, split: str) -> Scenario:
        """The scenario with the numbers that `choose` chooses for the names of ranges."""
        usual, given = (
            {name: choose(name) if name in self.ranges else value for name, value in options.items()}
            for options in (self.usual, self.given)
        )
        return make_scenario(self.name, {**usual, "flocks": flocks, "seed": seed, "split": split}, **given)


def read_scenes(text: str, usual: Mapping[str, Any]) -> tuple[Scene, ...]:
    """The scenes that a recipe tells: one scenario such as leaders:leaders=1-3, or several with their shares.

    Args:
        text: a scenario with its options, or shares such as 0.6*flocking+0.4*leaders, of any sum.
        usual: options for all scenarios that have them, where they are not given; a text of numbers is a range.
    """
    parts = _shares(text)
    total = math.fsum(share for share, _ in parts)
    return tuple(_scene(share / total, name, usual) for share, name in parts)


def _shares(text: str) -> list[tuple[float, str]]:
    """Shares and scenarios; one scenario alone has all flights."""
    wrong = f"scenario must be a scenario, or several with their shares such as {EXAMPLE}; got {text!r:.80}"
    if not re.match(rf"\s*{NUMBER}\s*\*", text):
        head = text.partition(":")[0]
        if "+" in head and head not in scenario_names():
            raise InputError(wrong)
        return [(1.0, text)]
    found = []
    # A plus before a share begins the next part; any other, as in 1e+3, belongs to an option. Between the parts are the
    # shares that were looked ahead to.
    for part in re.split(rf"\+(?=\s*{NUMBER}\s*\*)", text)[::2]:
        match = re.fullmatch(rf"\s*{NUMBER}\s*\*\s*([^\s+:]+(?::\S+)?)\s*", part)
        if match is None:
            raise InputError(wrong)
        found.append((check_positive("the share of a scenario", float(match[1])), match[2]))
    return found


def _scene(share: float, text: str, usual: Mapping[str, Any]) -> Scene:
    name, colon, told = text.partition(":")
    kinds, given = _kinds(name), read_options(told) if colon else {}
    ours, theirs = (
        {key: _number(key, value, kinds[key]) if key in kinds else value for key, value in options.items()}
        for options in (usual, given)
    )
    return Scene(share, name, ours, theirs)


def _kinds(name: str) -> dict[str, Spread]:
    """How a range of a scenario's option is spread, for the options that are numbers."""
    own = {field.name: field.type for field in fields(scenario_class(name)) if field.init}
    disk = {field.name: field.type for field in fields(RandomDisk)} if "disk" in own else {}
    # A class of one's own may have types as annotations, where ours have texts.
    texts = {key: getattr(kind, "__name__", str(kind)) for key, kind in {**disk, **own}.items()}
    spreads: dict[str, Spread] = {key: "count" for key, text in texts.items() if text.startswith("int")}
    return spreads | {key: "even" for key, text in texts.items() if text.startswith("float")}


def _number(name: str, value: Any, spread: Spread) -> Any:
    """The range that a text of two numbers tells; any other value as it is, for the scenario to check."""
    if isinstance(value, str) and re.fullmatch(rf"\s*{NUMBER}\s*-\s*{NUMBER}\s*", value):
        return read_range(name, value, spread)
    return value


def divided(count: int, shares: Sequence[float]) -> list[int]:
    """So many things by shares: the whole parts, and one more where the largest rests are."""
    exact = np.asarray(shares) * count
    parts = np.floor(exact).astype(int)
    for place in np.argsort(parts - exact, kind="stable")[: count - parts.sum()]:
        parts[place] += 1
    return [int(part) for part in parts]
