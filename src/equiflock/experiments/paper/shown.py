"""The flights that the report shows, which are saved beside the tables: Fig. 1, initial conditions, and the films."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock.controllers.trained import TRAINED
from equiflock.experiments.flights import fly, told
from equiflock.experiments.paper.connectivity import LAW, NETWORK, telling_flocks
from equiflock.experiments.paper.pupils import Pupils
from equiflock.experiments.paper.reading import Reading
from equiflock.protocols import Controller
from equiflock.runtime.checks import InputError
from equiflock.runtime.files import remove
from equiflock.scenarios import Scenario, make_scenario
from equiflock.simulation.trajectory import Trajectory

FLIGHTS = "flights"
"""The folder of these flights, inside that of the reproduction."""
COURSES = (12, 48, 96)
"""The numbers of sides of the obstacles that are drawn."""
SECONDS_IN_TOUCH = 0.6
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


def shown_flight(folder: Path, *names: str) -> Trajectory:
    """A flight that `fly_shown` kept in the folder of a reproduction."""
    return Trajectory.load(_path(folder, *names))


def fly_shown(
    folder: Path,
    tables: Mapping[str, pd.DataFrame],
    pupils: Pupils,
    reading: Reading,
    films: bool,
    on_part: Callable[[str], object] = lambda name: None,
) -> None:
    """Fly and save the flights that the report shows, unless they are in the folder already and intact.

    Args:
        folder: the folder of the reproduction.
        tables: the tables of its experiments.
        pupils: the trained networks.
        reading: by which scenarios are made.
        films: whether the flights of films are flown, too.
        on_part: called with the name of each flight that is flown.
    """
    for name, make in _flights(tables, pupils, reading, films).items():
        path = _path(folder, name)
        try:
            Trajectory.load(path)
        except InputError:  # it is not there, or damaged
            on_part(name)
            remove(path)
            make().save(path)


def _path(folder: Path, *names: str) -> Path:
    return folder / FLIGHTS / f"{'-'.join(names)}.zarr"


def _flights(
    tables: Mapping[str, pd.DataFrame], pupils: Pupils, reading: Reading, films: bool
) -> dict[str, Callable[[], Trajectory]]:
    """A function that makes each flight, by the flight's name."""
    found: dict[str, Callable[[], Trajectory]] = {}
    if "connectivity" in tables:
        found |= _in_touch(tables["connectivity"], pupils)
    # Pictures of initial conditions are flights of no duration, whatever the controller.
    law = pupils.load(reading.law(LAW), None)
    found["flocks"] = partial(_fly, make_scenario("flocking", flocks=3, **reading.scene("flocking")), law, 0.0)
    for sides in COURSES:
        found[f"course-{sides}"] = partial(_fly, make_scenario("obstacles", sides=sides), law, 0.0)
    for name, film in FILMS.items() if films else ():
        scenario = make_scenario(film.scenario, split="film", **reading.scene(film.scenario))
        for trained in TRAINED:
            found[f"{name}-{trained}"] = partial(
                _fly, scenario, pupils.load(trained, 0), film.duration, keep_every=film.keep_every
            )
    return found


def _in_touch(table: pd.DataFrame, pupils: Pupils) -> dict[str, Callable[[], Trajectory]]:
    """The same flock under the law, which loses agents, and under the network of the first seed, which does not."""
    seed = int(table.seed.dropna().min())
    flock = next(iter(telling_flocks(table, seed)), 0)
    # Flock b of a set is the same however many there are, so the set may end with the one that is shown.
    scenario = make_scenario("flocking", flocks=flock + 1, velocities=pupils.reading.velocities)
    controllers = {LAW: pupils.load(pupils.reading.law(LAW), None), NETWORK: pupils.load(NETWORK, seed)}
    return {
        f"connectivity-{name}": partial(_fly, scenario, controller, SECONDS_IN_TOUCH, flock=flock)
        for name, controller in controllers.items()
    }


def _fly(
    scenario: Scenario, controller: Controller, duration: float, flock: int | None = None, **kept: Any
) -> Trajectory:
    start = scenario.draw()
    return fly(
        scenario, start if flock is None else start[flock], controller, 0.01, duration, config=told(scenario), **kept
    )
