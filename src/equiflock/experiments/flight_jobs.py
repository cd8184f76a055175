"""Flights of a scenario under a controller, as jobs, commands and reports make them."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any

from equiflock.experiments.world import DEFAULT_WORLD, World
from equiflock.flock import Flock
from equiflock.protocols import Controller
from equiflock.runtime.checks import InputError, raise_wrong_choice, shorten_repr
from equiflock.scenarios.registry import Scenario, build_flight_options, collect_options
from equiflock.simulation import metrics
from equiflock.simulation.simulate import Measure, describe_part, simulate
from equiflock.simulation.trajectory import Trajectory

if TYPE_CHECKING:  # most commands do without pandas, which takes long to import
    import pandas as pd

MOMENT_METRICS: Mapping[str, Measure] = {
    name: found
    for name, found in vars(metrics).items()
    if inspect.isfunction(found) and not name.startswith("_") and "subject" in inspect.signature(found).parameters
}
"""The functions of `equiflock.metrics` that take a moment, by their names."""


def fly(
    scenario: Scenario,
    start: Flock,
    controller: Controller,
    time_step: float,
    duration: float,
    world: World = DEFAULT_WORLD,
    **simulate_options: Any,
) -> Trajectory:
    """Fly flocks by the rules of a scenario and a world; `simulate_options` are the arguments of `simulate` about what is kept.

    A controller with an `orbit` of its own flies by that where the scenario has the default one.
    """
    flight_options = build_flight_options(scenario, controller) | world.flight_options
    return simulate(start, controller, time_step=time_step, duration=duration, **flight_options, **simulate_options)


def resolve_measures(scenario: Scenario) -> dict[str, Measure]:
    """The measures of a scenario, as functions of a moment by their names."""
    found: dict[str, Measure] = {}
    for measure in scenario.measures:
        # A name of the package's metrics, or a function of the scenario's own, which needs a name for its column.
        if isinstance(measure, str):
            if measure not in MOMENT_METRICS:
                raise_wrong_choice(f"a measure of scenario {scenario.name!r}", measure, tuple(MOMENT_METRICS))
            found[measure] = MOMENT_METRICS[measure]
        elif getattr(measure, "__name__", "").isidentifier():
            found[measure.__name__] = measure
        else:
            raise InputError(f"a measure must be a name, or a function that has one; got {shorten_repr(measure)}")
    return found


def scenario_to_dict(scenario: Scenario) -> dict[str, Any]:
    """The scenario's part of the config of a saved flight: its name, and its options under "start"."""
    return {
        "scenario": scenario.name,
        "start": {name: _to_json_value(value) for name, value in collect_options(scenario).items()},
    }


def _to_json_value(value: Any) -> Any:
    """A value as JSON can hold it."""
    return value if isinstance(value, (bool, int, float, str, NoneType)) else describe_part(value)


def build_outcome_table(run: Trajectory) -> pd.DataFrame:
    """How the flight of each flock ended, and when, a row for each."""
    import pandas as pd

    names = [outcome.name for outcome in run.outcome]
    return pd.DataFrame({"flock": range(len(names)), "outcome": names, "seconds": run.steps * run.time_step})


class FlightJob(ABC):
    """The common part of jobs that fly one controller through a scenario; they add `scenario`, `make_controller` and `run`."""

    time_step: float
    duration: float
    world: World = DEFAULT_WORLD

    @property
    @abstractmethod
    def scenario(self) -> Scenario:
        """The scenario that is flown."""

    @abstractmethod
    def make_controller(self) -> Controller:
        """The controller that flies."""

    def start(self) -> Flock:
        """The flocks at t = 0."""
        return self.scenario.draw()

    def fly(self, start: Flock, **simulate_options: Any) -> Trajectory:
        """The flight of these flocks; `simulate_options` are the arguments of `simulate` about what is kept of it."""
        return fly(
            self.scenario, start, self.make_controller(), self.time_step, self.duration, self.world, **simulate_options
        )
