"""The flights that the report shows, which are saved beside the tables: Fig. 1, initial conditions, and the films."""

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
"""The folder of these flights, inside that of the reproduction."""
DRAWN_SIDES = (12, 48, 96)
"""The numbers of sides of the obstacles that are drawn."""
CONNECTIVITY_DURATION = 0.6
"""The duration of the flights of Fig. 1."""


@dataclass(frozen=True)
class Film:
    """One flock of a scenario under each trained controller, side by side."""

    title: str
    scenario: str
    duration: float
    """Seconds to fly, unless the flight ends before."""
    keep_every: int = 1
    speed: float = 0.5
    """Simulated seconds per second of film."""


FILMS = {
    "flocking": Film("Flocking", "flocking", 2.0),
    "leaders": Film("Leader following", "leaders", 3.0),
    "obstacles": Film("Obstacle avoidance", "obstacles:sides=24", 10.0, keep_every=2, speed=2.0),
}


def load_report_flight(folder: Path, *names: str) -> Trajectory:
    """A flight that `save_report_flights` kept in the folder of a reproduction."""
    return Trajectory.load(_get_flight_path(folder, *names))


def save_report_flights(
    folder: Path,
    tables: Mapping[str, pd.DataFrame],
    policies: TrainedPolicies,
    interpretation: Interpretation,
    films: bool,
    on_part: Callable[[str], object] = lambda name: None,
) -> None:
    """Fly and save the flights that the report shows, unless they are in the folder already and intact.

    Args:
        folder: the folder of the reproduction.
        tables: the tables of its experiments.
        policies: the trained networks.
        interpretation: by which scenarios are made.
        films: whether the flights of films are flown, too.
        on_part: called with the name of each flight that is flown.
    """
    for name, make in _build_flights(tables, policies, interpretation, films).items():
        path = _get_flight_path(folder, name)
        try:
            Trajectory.load(path)
        except InputError:  # it is not there, or damaged
            on_part(name)
            remove_path(path)
            make().save(path)


def _get_flight_path(folder: Path, *names: str) -> Path:
    return folder / FLIGHTS / f"{'-'.join(names)}.zarr"


def _build_flights(
    tables: Mapping[str, pd.DataFrame], policies: TrainedPolicies, interpretation: Interpretation, films: bool
) -> dict[str, Callable[[], Trajectory]]:
    """A function that makes each flight, by the flight's name."""
    found: dict[str, Callable[[], Trajectory]] = {}
    if "connectivity" in tables:
        found |= _build_connectivity_flights(tables["connectivity"], policies)
    # Pictures of initial conditions are flights of no duration, whatever the controller.
    format_law = policies.load(interpretation.format_law(LAW), None)
    found["flocks"] = partial(
        _fly, make_scenario("flocking", flocks=3, **interpretation.get_scenario_options("flocking")), format_law, 0.0
    )
    for sides in DRAWN_SIDES:
        found[f"course-{sides}"] = partial(_fly, make_scenario("obstacles", sides=sides), format_law, 0.0)
    for name, film in FILMS.items() if films else ():
        scenario = make_scenario(film.scenario, split="film", **interpretation.get_scenario_options(film.scenario))
        for trained in PAPER_NETWORKS:
            found[f"{name}-{trained}"] = partial(
                _fly, scenario, policies.load(trained, 0), film.duration, keep_every=film.keep_every
            )
    return found


def _build_connectivity_flights(table: pd.DataFrame, policies: TrainedPolicies) -> dict[str, Callable[[], Trajectory]]:
    """The same flock under the law, which loses agents, and under the network of the first seed, which does not."""
    seed = int(table.seed.dropna().min())
    flock = next(iter(find_contrasting_flocks(table, seed)), 0)
    # Flock b of a set is the same however many there are, so the set may end with the one that is shown.
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
