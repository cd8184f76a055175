"""Flights saved for the report: Fig. 1, initial conditions, and films."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.experiments.flight_jobs import fly, scenario_to_dict
from equiflock.experiments.paper.connectivity import LAW, NETWORK, find_contrasting_flocks
from equiflock.experiments.paper.interpretation import Interpretation
from equiflock.experiments.paper.policies import TrainedPolicies
from equiflock.protocols import Controller
from equiflock.runtime.checks import InputError
from equiflock.runtime.files import remove_path
from equiflock.scenarios import Scenario, make_scenario
from equiflock.simulation.trajectory import Trajectory

FLIGHTS = "flights"
"""Subdirectory of these flights in the run directory."""
DRAWN_SIDES = (12, 48, 96)
"""Numbers of sides of the drawn obstacles."""
CONNECTIVITY_DURATION = 0.6
"""Duration of the flights of Fig. 1, in seconds."""


@dataclass(frozen=True)
class Film:
    """One flock of a scenario under each trained controller, side by side."""

    title: str
    scenario: str
    duration: float
    """Maximal seconds of flight."""
    keep_every: int = 1
    speed: float = 0.5
    """Simulated seconds per second of film."""


FILMS = {
    "flocking": Film("Flocking", "flocking", 2.0),
    "leaders": Film("Leader following", "leaders", 3.0),
    "obstacles": Film("Obstacle avoidance", "obstacles:sides=24", 10.0, keep_every=2, speed=2.0),
}


def load_report_flight(folder: Path, *names: str) -> Trajectory:
    """Load a flight that `save_report_flights` saved in a run directory; parts of its name are joined by hyphens."""
    return Trajectory.load(_get_flight_path(folder, *names))


def save_report_flights(
    folder: Path,
    tables: Mapping[str, pd.DataFrame],
    policies: TrainedPolicies,
    interpretation: Interpretation,
    films: bool,
    on_part: Callable[[str], object] = lambda name: None,
) -> None:
    """Simulate and save the flights of the report that are missing or damaged.

    Args:
        folder: run directory of the reproduction.
        tables: tables of its experiments.
        policies: trained networks.
        interpretation: sets the scenario options.
        films: whether to include the flights of the films.
        on_part: called with the name of each flight before it is simulated.
    """
    for name, make in _build_flights(tables, policies, interpretation, films).items():
        path = _get_flight_path(folder, name)
        try:
            Trajectory.load(path)
        except InputError:  # missing or damaged
            on_part(name)
            remove_path(path)
            make().save(path)


def _get_flight_path(folder: Path, *names: str) -> Path:
    return folder / FLIGHTS / f"{'-'.join(names)}.zarr"


def _build_flights(
    tables: Mapping[str, pd.DataFrame], policies: TrainedPolicies, interpretation: Interpretation, films: bool
) -> dict[str, Callable[[], Trajectory]]:
    """Return a function that simulates each flight of the report, by name; networks are loaded at once.

    Flights of Fig. 1 need the table of "connectivity", those of films `films`; initial conditions are always included.
    """
    flights: dict[str, Callable[[], Trajectory]] = {}
    if "connectivity" in tables:
        flights |= _build_connectivity_flights(tables["connectivity"], policies)
    # Pictures of initial conditions are flights of duration 0, for which any controller will do.
    law = policies.load(interpretation.format_law(LAW), None)
    flights["flocks"] = partial(
        _fly, make_scenario("flocking", flocks=3, **interpretation.get_scenario_options("flocking")), law, 0.0
    )
    for sides in DRAWN_SIDES:
        flights[f"course-{sides}"] = partial(_fly, make_scenario("obstacles", sides=sides), law, 0.0)
    for name, film in FILMS.items() if films else ():
        scenario = make_scenario(film.scenario, split="film", **interpretation.get_scenario_options(film.scenario))
        for network in PAPER_NETWORKS:
            flights[f"{name}-{network}"] = partial(
                _fly, scenario, policies.load(network, 0), film.duration, keep_every=film.keep_every
            )
    return flights


def _build_connectivity_flights(table: pd.DataFrame, policies: TrainedPolicies) -> dict[str, Callable[[], Trajectory]]:
    """Return the flights of Fig. 1: one flock, which the law disconnects and the first seed's network does not.

    If there is no such flock, it is flock 0.
    """
    seed = int(table.seed.dropna().min())
    flock = next(iter(find_contrasting_flocks(table, seed)), 0)
    # Flock b of a set does not depend on the size of the set, so the set may end with it.
    scenario = make_scenario("flocking", flocks=flock + 1, velocities=policies.interpretation.velocities)
    controllers = {
        LAW: policies.load(policies.interpretation.format_law(LAW), None),
        NETWORK: policies.load(NETWORK, seed),
    }
    return {
        f"connectivity-{name}": partial(_fly, scenario, controller, CONNECTIVITY_DURATION, flock=flock)
        for name, controller in controllers.items()
    }


def _fly(
    scenario: Scenario, controller: Controller, duration: float, flock: int | None = None, **simulate_options: Any
) -> Trajectory:
    """Simulate the flocks of a scenario, or only the one with index `flock`, at steps of 0.01 s."""
    start = scenario.draw()
    return fly(
        scenario,
        start if flock is None else start[flock],
        controller,
        0.01,
        duration,
        config=scenario_to_dict(scenario),
        **simulate_options,
    )
