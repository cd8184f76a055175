"""Flights saved for the report of a reproduction: Fig. 1, initial conditions, and films."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock._runtime.checksums import compute_checksum
from equiflock._runtime.provenance import read_config
from equiflock.controllers import load
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.saved_flights import load_or_fly
from equiflock.paper.connectivity_experiment import LAW, NETWORK, find_contrasting_flocks
from equiflock.paper.profile import Profile
from equiflock.protocols import Controller
from equiflock.scenarios import Scenario, make_scenario
from equiflock.simulation.flight_jobs import fly, scenario_to_dict
from equiflock.simulation.trajectory import Trajectory

DRAWN_SIDES = (12, 48, 96)
"""Numbers of sides of the drawn obstacles."""
TIME_STEP = 0.01
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
    profile: Profile,
    folder: Path,
    tables: Mapping[str, pd.DataFrame],
    films: bool,
    on_flight: Callable[[str], object] = lambda name: None,
    on_notice: Callable[[str], object] = lambda text: None,
) -> None:
    """Simulate and save the flights of the report that are missing, damaged or of another run in a run directory.

    Flights of Fig. 1 need the table of "connectivity", those of the films `films`; initial conditions are always
    included. `on_flight` is called with the name of each flight before it is simulated, and `on_notice` with a line of
    text about every damaged or other one.
    """
    settings = json.dumps(read_config(folder), sort_keys=True)
    flights = _build_start_flights(profile)
    if "connectivity" in tables:
        flights |= _build_connectivity_flights(profile, folder, tables["connectivity"])
    if films:
        flights |= _build_film_flights(profile, folder)
    for name, make in flights.items():
        key = compute_checksum(f"{name} {settings}".encode())
        load_or_fly(_get_flight_path(folder, name), key, make, partial(on_flight, name), on_notice)


def _get_flight_path(folder: Path, *names: str) -> Path:
    return folder / "flights" / f"{'-'.join(names)}.zarr"


def _build_start_flights(profile: Profile) -> dict[str, Callable[[], Trajectory]]:
    """Return functions that draw initial conditions: flights of one step, for which any controller will do."""
    law = load(profile.interpretation.format_law(LAW))
    flocks = make_scenario("flocking", flocks=3, **profile.interpretation.get_scenario_options("flocking"))
    courses = {f"course-{sides}": make_scenario("obstacles", sides=sides) for sides in DRAWN_SIDES}
    return {name: partial(_fly, scenario, law, TIME_STEP) for name, scenario in {"flocks": flocks, **courses}.items()}


def _build_connectivity_flights(
    profile: Profile, folder: Path, table: pd.DataFrame
) -> dict[str, Callable[[], Trajectory]]:
    """Return functions that fly Fig. 1: one flock, which the law disconnects and the first seed's network does not.

    If there is no such flock, it is flock 0.
    """
    seed = int(table.seed.dropna().min())
    flock = next(iter(find_contrasting_flocks(table, seed)), 0)
    # Flock b of a set does not depend on the size of the set, so the set may end with it.
    scenario = make_scenario("flocking", flocks=flock + 1, velocities=profile.interpretation.velocities)
    controllers = {
        LAW: load(profile.interpretation.format_law(LAW)),
        NETWORK: profile.build_policies(folder).load(NETWORK, seed),
    }
    return {
        f"connectivity-{name}": partial(_fly, scenario, controller, CONNECTIVITY_DURATION, flock=flock)
        for name, controller in controllers.items()
    }


def _build_film_flights(profile: Profile, folder: Path) -> dict[str, Callable[[], Trajectory]]:
    """Load the networks of training seed 0, training missing ones; return functions that fly the films.

    The keys are film-network, such as "obstacles-etdagnn"; each function simulates one flock of the film's scenario.
    """
    networks = {name: profile.build_policies(folder).load(name, 0) for name in PAPER_NETWORKS}
    flights: dict[str, Callable[[], Trajectory]] = {}
    for name, film in FILMS.items():
        options = profile.interpretation.get_scenario_options(film.scenario)
        scenario = make_scenario(film.scenario, split="film", **options)
        for network, controller in networks.items():
            flights[f"{name}-{network}"] = partial(
                _fly, scenario, controller, film.duration, keep_every=film.keep_every
            )
    return flights


def _fly(
    scenario: Scenario, controller: Controller, duration: float, flock: int | None = None, **simulate_options: Any
) -> Trajectory:
    """Simulate the flocks of a scenario, or only the one with index `flock`."""
    start = scenario.draw()
    return fly(
        scenario,
        start if flock is None else start[flock],
        controller,
        TIME_STEP,
        duration,
        config=scenario_to_dict(scenario),
        **simulate_options,
    )
