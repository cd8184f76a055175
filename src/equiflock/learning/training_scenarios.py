"""The scenarios of a training, with their shares of the flights and options that may be ranges.

Each initial flock draws a number from every range, from a stream named by the seed, the option and the flock's index,
so that a larger set of flocks starts with the same flocks.
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

from equiflock._runtime.checks import InputError, check_positive
from equiflock._runtime.randomness import make_rng
from equiflock._runtime.specs import NUMBER_PATTERN, Spec, parse_weighted_specs
from equiflock.flock import FOLLOWER, Flock
from equiflock.scenarios import RandomDisk, Scenario, make_scenario, scenario_names
from equiflock.scenarios.registry import scenario_class
from equiflock.simulation.environment_ranges import Distribution, Range, parse_range

MIX_EXAMPLE = "0.6*flocking+0.4*leaders:leaders=2"


class Start(NamedTuple):
    """Start of a flight: a scenario and one flock of it."""

    scenario: Scenario
    flock: Flock

    @property
    def followers(self) -> int:
        """Number of followers in the flock; only these learn."""
        return int((self.flock.roles == FOLLOWER).sum())


@dataclass(frozen=True)
class TrainingScenario:
    """One scenario of a training."""

    share: float
    """Share of the flights; the shares of all scenarios of a training sum to 1."""
    name: str
    """Name of the scenario, without options."""
    defaults: Mapping[str, Any]
    """Numbers and ranges of the recipe, for the options that the scenario has."""
    own_options: Mapping[str, Any]
    """Options in the scenario's text, which override `defaults`."""

    @cached_property
    def ranges(self) -> dict[str, Range]:
        """Ranges from which its flocks draw, by option name."""
        options = {
            **{name: self.defaults[name] for name in self.defaults if name in _get_distributions(self.name)},
            **self.own_options,
        }
        return {name: value for name, value in options.items() if isinstance(value, Range)}

    def check(self, flocks: int) -> None:
        """Raise InputError if an option, or a combination of range ends, is invalid; no flock is drawn."""
        if self.ranges and (own := {"flocks", "seed"} & self.own_options.keys()):
            raise InputError(f"a scenario with ranges uses the recipe's {min(own)}: omit it from {self.name!r}")
        # If all corners of the ranges are valid, so is everything between them.
        for corner in product(*((values.low, values.high) for values in self.ranges.values())):
            self._make_scenario(dict(zip(self.ranges, corner, strict=True)).__getitem__, flocks, 0, "train")

    def make_middle(self, flocks: int, seed: int, split: str) -> Scenario:
        """Return the scenario with the middle of every range, with `flocks` flocks of a split; none is drawn yet."""
        return self._make_scenario(lambda name: self.ranges[name].middle, flocks, seed, split)

    def draw(self, flocks: int, seed: int, split: str) -> list[Start]:
        """Draw the initial flocks of a split, each as a batch of one.

        With ranges, each flock draws its own numbers and has its own scenario; without, all share one.
        """
        if not self.ranges:
            scenario = self.make_middle(flocks, seed, split)
            batch = scenario.draw()
            return [Start(scenario, batch[b]) for b in range(len(batch))]
        return [self._draw_one(b, seed, split) for b in range(flocks)]

    def _draw_one(self, b: int, seed: int, split: str) -> Start:
        """Draw flock b of a split, with a number from every range; the result depends only on seed, split and b."""

        # One stream per range, so that a range does not change the numbers of the others.
        def draw_number(name: str) -> float:
            return self.ranges[name].draw(make_rng(seed, "start", split, name, b))

        # Each flock is a set of one flock, so each set needs a different seed.
        flock_seed = int(make_rng(seed, "start", split, b).integers(2**63))
        scenario = self._make_scenario(draw_number, 1, flock_seed, split)
        return Start(scenario, scenario.draw())

    def _make_scenario(self, choose: Callable[[str], float], flocks: int, seed: int, split: str) -> Scenario:
        """Return the scenario with `choose(name)` as the number of each range; other options are unchanged."""
        defaults, own_options = (
            {name: choose(name) if name in self.ranges else value for name, value in options.items()}
            for options in (self.defaults, self.own_options)
        )
        return make_scenario(self.name, {**defaults, "flocks": flocks, "seed": seed, "split": split}, **own_options)


def parse_training_scenarios(text: str, defaults: Mapping[str, Any]) -> tuple[TrainingScenario, ...]:
    """Parse the scenario field of a recipe: one scenario such as leaders:leaders=1-3, or several with shares.

    Shares are normalized to sum 1. `defaults` are options for all scenarios that have them, unless the text sets them;
    texts of two numbers are ranges.
    """
    parts = parse_weighted_specs("scenario", text, MIX_EXAMPLE, scenario_names())
    total = math.fsum(check_positive("the share of a scenario", share) for share, _ in parts)
    return tuple(_make_training_scenario(share / total, spec, defaults) for share, spec in parts)


def _make_training_scenario(share: float, spec: Spec, defaults: Mapping[str, Any]) -> TrainingScenario:
    """Return the scenario of a spec such as "leaders:leaders=1-3"; ranges in its options and `defaults` are parsed."""
    distributions = _get_distributions(spec.name)
    parsed_defaults, parsed_options = (
        {
            key: _parse_number(key, value, distributions[key]) if key in distributions else value
            for key, value in options.items()
        }
        for options in (defaults, spec.options)
    )
    return TrainingScenario(share, spec.name, parsed_defaults, parsed_options)


def _get_distributions(name: str) -> dict[str, Distribution]:
    """Return the distribution of ranges for each numeric option of a scenario and of its `RandomDisk`, if it has one.

    Options are numeric if their annotation starts with int or float.
    """
    own = {field.name: field.type for field in fields(scenario_class(name)) if field.init}
    disk = {field.name: field.type for field in fields(RandomDisk)} if "disk" in own else {}
    # Annotations of custom classes may be types instead of texts.
    texts = {key: getattr(kind, "__name__", str(kind)) for key, kind in {**disk, **own}.items()}
    integers: dict[str, Distribution] = {
        key: "uniform_integer" for key, text in texts.items() if text.startswith("int")
    }
    return integers | {key: "uniform" for key, text in texts.items() if text.startswith("float")}


def _parse_number(name: str, value: Any, distribution: Distribution) -> Any:
    """Return the range (a number if its ends are equal) that a text of two numbers denotes; else the value itself."""
    if isinstance(value, str) and re.fullmatch(rf"\s*{NUMBER_PATTERN}\s*-\s*{NUMBER_PATTERN}\s*", value):
        return parse_range(name, value, distribution)
    return value


def split_by_shares(count: int, shares: Sequence[float]) -> list[int]:
    """Split a count into whole numbers by shares, which sum to 1, with the largest remainder method.

    The result sums to `count`; of equal remainders the first is rounded up.
    """
    exact = np.asarray(shares) * count
    parts = np.floor(exact).astype(int)
    for index in np.argsort(parts - exact, kind="stable")[: count - parts.sum()]:
        parts[index] += 1
    return [int(part) for part in parts]
