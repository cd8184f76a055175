"""What a network is tuned on: scenarios with their shares, such as 1*flocking+2*obstacles:sides=96."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from equiflock.learning.ranges import NUMBER_PATTERN
from equiflock.runtime.checks import InputError, check_count, check_positive
from equiflock.runtime.options import format_options, parse_options
from equiflock.scenarios import Scenario, make_scenario
from equiflock.scenarios.registry import scenario_class
from equiflock.simulation.simulate import count_steps

TIME_STEP = 0.01
"""Seconds per step, where a task does not say."""
EXAMPLE = "0.5*flocking+1*obstacles:sides=96"


@dataclass(frozen=True)
class Task:
    """A scenario to fly, and how much it counts."""

    share: float
    """Its share of the cost, beside those of the other tasks."""
    scenario: str
    """Its name, with options."""
    duration: float
    """Seconds to fly."""
    time_step: float = TIME_STEP
    """Seconds per step."""
    flocks: int | None = None
    """How many flocks a generation flies; as many as of the other tasks if left out."""

    def __post_init__(self) -> None:
        check_positive(f"the share of {self.scenario!r}", self.share)
        _check_numbers(self.duration, self.time_step, self.flocks)

    def build_scenario(self, flocks: int, seed: int, split: str) -> Scenario:
        """The scenario with this many flocks of a split, which differ from those of other tasks."""
        own = f"{split}, {self.scenario}"
        return make_scenario(self.scenario, {"flocks": flocks, "seed": seed, "split": own})


def parse_tasks(text: str) -> tuple[Task, ...]:
    """The tasks that a text tells: one scenario, or several with their shares, each with its options.

    Beside the scenario's own, options are `duration`, `time_step` and `flocks`.
    """
    tasks = tuple(_parse_task(share, name) for share, name in parse_shares("tasks", text, EXAMPLE))
    names = [task.scenario for task in tasks]
    if len(set(names)) < len(names):
        raise InputError(f"tasks must name each scenario with its options once; got {text!r}")
    return tasks


def _parse_task(share: float, text: str) -> Task:
    name, colon, told = text.partition(":")
    options = parse_options(told) if colon else {}
    for own in ("seed", "split"):
        if own in options:
            raise InputError(f"{own} is the tuning's own: leave it out of {text!r}")
    duration = options.pop("duration", scenario_class(name).duration)
    time_step, flocks = options.pop("time_step", TIME_STEP), options.pop("flocks", None)
    _check_numbers(duration, time_step, flocks)
    task = Task(share, format_options(name, options), duration, time_step, flocks)
    task.build_scenario(1, 0, "")  # a clear error, if there is no such scenario or option
    return task


def _check_numbers(duration: Any, time_step: Any, flocks: Any) -> None:
    """Raise a clear error unless a task can have such numbers."""
    if flocks is not None:
        check_count("flocks", flocks)
    check_count("duration / time_step", count_steps(duration, time_step))


def parse_shares(label: str, text: str, example: str) -> list[tuple[float, str]]:
    """Names with their shares, such as 0.5*flocking+1*leaders; one name alone has the share 1.

    Args:
        label: is told, for errors.
        text: to read.
        example: of such a text, for errors.
    """
    wrong = f"{label} must be a name, or several with their shares such as {example}; got {text!r:.80}"
    if not re.match(rf"\s*{NUMBER_PATTERN}\s*\*", text):
        if "+" in text.partition(":")[0]:
            raise InputError(wrong)
        text = f"1*{text}"
    found = []
    # A plus before a share begins the next part; any other, as in 1e+3, belongs to an option. Between the parts are the
    # shares that were looked ahead to.
    for part in re.split(rf"\+(?=\s*{NUMBER_PATTERN}\s*\*)", text)[::2]:
        match = re.fullmatch(rf"\s*{NUMBER_PATTERN}\s*\*\s*([^\s+:]+(?::\S+)?)\s*", part)
        if match is None:
            raise InputError(wrong)
        found.append((float(match[1]), match[2]))
    return found
