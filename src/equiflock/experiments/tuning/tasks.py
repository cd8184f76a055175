"""Tasks of a tuning: scenarios with their shares of the cost, such as 1*flocking+2*obstacles:sides=96."""

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
"""Default time step of a task, in seconds."""
EXAMPLE = "0.5*flocking+1*obstacles:sides=96"


@dataclass(frozen=True)
class Task:
    """Scenario with its share of the cost."""

    share: float
    """Share of the cost, relative to the other tasks."""
    scenario: str
    """Name of the scenario, with options."""
    duration: float
    """Seconds of flight."""
    time_step: float = TIME_STEP
    """Seconds per step."""
    flocks: int | None = None
    """Flocks per generation; None for the default of the tuning."""

    def __post_init__(self) -> None:
        check_positive(f"the share of {self.scenario!r}", self.share)
        _check_numbers(self.duration, self.time_step, self.flocks)

    def build_scenario(self, flocks: int, seed: int, split: str) -> Scenario:
        """Return the scenario with `flocks` flocks of a split, not drawn yet; other tasks draw other flocks."""
        own = f"{split}, {self.scenario}"
        return make_scenario(self.scenario, {"flocks": flocks, "seed": seed, "split": own})


def parse_tasks(text: str) -> tuple[Task, ...]:
    """Parse tasks: one scenario, or several with their shares, each with options.

    Options are those of the scenario, and `duration`, `time_step` and `flocks`.
    """
    tasks = tuple(_parse_task(share, name) for share, name in parse_shares("tasks", text, EXAMPLE))
    names = [task.scenario for task in tasks]
    if len(set(names)) < len(names):
        raise InputError(f"tasks must name each scenario with its options once; got {text!r}")
    return tasks


def _parse_task(share: float, text: str) -> Task:
    """Return the task of a text such as obstacles:sides=96:duration=10; `flocks` is None if not given.

    Raise InputError if the scenario or an option is unknown, or seed or split are given.
    """
    name, colon, option_text = text.partition(":")
    options = parse_options(option_text) if colon else {}
    for reserved in ("seed", "split"):
        if reserved in options:
            raise InputError(f"{reserved} is set by the tuning: leave it out of {text!r}")
    duration = options.pop("duration", scenario_class(name).duration)
    time_step, flocks = options.pop("time_step", TIME_STEP), options.pop("flocks", None)
    _check_numbers(duration, time_step, flocks)
    task = Task(share, format_options(name, options), duration, time_step, flocks)
    task.build_scenario(1, 0, "")  # raises InputError if there is no such scenario or option
    return task


def _check_numbers(duration: Any, time_step: Any, flocks: Any) -> None:
    """Raise InputError if `flocks` is given and not positive, or if the duration is shorter than one time step."""
    if flocks is not None:
        check_count("flocks", flocks)
    check_count("duration / time_step", count_steps(duration, time_step))


def parse_shares(label: str, text: str, example: str) -> list[tuple[float, str]]:
    """Parse names with their shares, such as 0.5*flocking+1*leaders; a single name has the share 1.

    Return (share, name with options) in order; shares are not normalized. Raise InputError if the text is malformed.

    Args:
        label: name of the setting, for errors.
        text: text to parse.
        example: a valid text, for errors.
    """
    message = f"{label} must be a name, or several with their shares such as {example}; got {text!r:.80}"
    if not re.match(rf"\s*{NUMBER_PATTERN}\s*\*", text):
        if "+" in text.partition(":")[0]:
            raise InputError(message)
        text = f"1*{text}"
    shares = []
    # A plus before a share starts the next part; any other, as in 1e+3, belongs to an option. re.split also returns
    # the shares matched by the lookahead, at odd positions.
    for part in re.split(rf"\+(?=\s*{NUMBER_PATTERN}\s*\*)", text)[::2]:
        match = re.fullmatch(rf"\s*{NUMBER_PATTERN}\s*\*\s*([^\s+:]+(?::\S+)?)\s*", part)
        if match is None:
            raise InputError(message)
        shares.append((float(match[1]), match[2]))
    return shares
