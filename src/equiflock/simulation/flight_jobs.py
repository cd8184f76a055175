"""Flights of a scenario under a controller, for jobs, commands and reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import NoneType
from typing import TYPE_CHECKING, Any

from equiflock._runtime.checks import InputError, shorten_repr
from equiflock.flock import Flock
from equiflock.protocols import Controller
from equiflock.scenarios.registry import Scenario, build_flight_options, collect_options
from equiflock.simulation.environment import DEFAULT_ENVIRONMENT, Environment
from equiflock.simulation.metrics import get_metric
from equiflock.simulation.simulate import Measure, describe_part, simulate
from equiflock.simulation.trajectory import Trajectory

if TYPE_CHECKING:  # most commands do not need pandas, which is slow to import
    import pandas as pd


def fly(
    scenario: Scenario,
    start: Flock,
    controller: Controller,
    time_step: float,
    duration: float,
    environment: Environment = DEFAULT_ENVIRONMENT,
    **simulate_options: Any,
) -> Trajectory:
    """Simulate flocks in a scenario and environment; `simulate_options` are passed to `simulate`.

    If the controller has an `orbit`, it replaces the scenario's default one.
    """
    return simulate(
        start,
        controller,
        time_step=time_step,
        duration=duration,
        environment=environment,
        **build_flight_options(scenario, controller),
        **simulate_options,
    )


def resolve_measures(scenario: Scenario) -> dict[str, Measure]:
    """Return the measures of a scenario by name, which is the column of a table.

    Raise InputError if one is neither the name of a metric nor a named function of a moment.
    """
    result: dict[str, Measure] = {}
    for measure in scenario.measures:
        if isinstance(measure, str):
            result[measure] = get_metric(measure, f"a measure of scenario {scenario.name!r}")
        elif getattr(measure, "__name__", "").isidentifier():
            result[measure.__name__] = measure
        else:
            raise InputError(f"a measure must be a name or a named function; got {shorten_repr(measure)}")
    return result


def scenario_to_dict(scenario: Scenario) -> dict[str, Any]:
    """Return the scenario's entries in the config of a saved flight: its name, and its options under "start".

    Options that JSON cannot represent are replaced by a description.
    """
    start = {
        name: value if isinstance(value, (bool, int, float, str, NoneType)) else describe_part(value)
        for name, value in collect_options(scenario).items()
    }
    return {"scenario": scenario.name, "start": start}


def build_outcome_table(run: Trajectory) -> pd.DataFrame:
    """Return a table with a row per flock: flock, outcome, and seconds flown."""
    import pandas as pd

    names = [outcome.name for outcome in run.outcome]
    return pd.DataFrame({"flock": range(len(names)), "outcome": names, "seconds": run.steps * run.time_step})


class FlightJob(ABC):
    """Base class of jobs that fly one controller in a scenario; subclasses add `scenario`, `make_controller`, `run`."""

    time_step: float
    duration: float
    environment: Environment = DEFAULT_ENVIRONMENT

    @property
    @abstractmethod
    def scenario(self) -> Scenario:
        """Scenario of the flights."""

    @abstractmethod
    def make_controller(self) -> Controller:
        """Load or train the controller."""

    def draw_start(self) -> Flock:
        """Draw the flocks at t = 0, the same in every call."""
        return self.scenario.draw()

    def fly(self, start: Flock, **simulate_options: Any) -> Trajectory:
        """Load the controller and simulate these flocks under it; `simulate_options` are passed to `simulate`."""
        flight = self.scenario, start, self.make_controller(), self.time_step, self.duration, self.environment
        return fly(*flight, **simulate_options)
