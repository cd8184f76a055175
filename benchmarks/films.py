"""Makes every film of the README, the documentation and the atlas again, from its flights.

    python benchmarks/films.py                     # all; the pictures of the live page need Chromium (`make browser`)
    python benchmarks/films.py flock starling      # some; --list prints their names
    python benchmarks/films.py --out runs/films    # into another folder

Prints the size of each film. The flights have fixed seeds, so the films change only with the code and the weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from atlas import ENTRIES, FILM_SUFFIX, draw_film
from equiflock.cli.fly import Fly
from equiflock.controllers import load
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.drone_flights import DroneSetting
from equiflock.paper.profile import PROFILES
from equiflock.paper.report_flights import FILMS as PAPER_FILMS
from equiflock.plotting.film import film
from equiflock.scenarios import Scenario, make_scenario
from equiflock.simulation.flight_jobs import fly
from equiflock.simulation.trajectory import Trajectory

DOCS = Path(__file__).parent.parent / "docs"
TIME_STEP = 0.01
FRAMES_PER_SECOND = 10


def fly_all(scenario: Scenario, controllers: Sequence[str], duration: float, flock: int = 0) -> list[Trajectory]:
    """Fly one flock of a scenario under each controller."""
    start = scenario.draw()[flock]
    return [fly(scenario, start, load(name), TIME_STEP, duration) for name in controllers]


def film_flock(path: Path) -> None:
    """The README's film: an expert that sees everything, a network and a law that receive from neighbours."""
    controllers = "tanner", "starling", "tanner-dynamic"
    runs = fly_all(make_scenario("flocking", flocks=1, seed=3), controllers, 1.2)
    film(runs, path, titles=controllers, frames_per_second=FRAMES_PER_SECOND, speed=0.24, dots_per_inch=58)


def film_starling(path: Path) -> None:
    """A flock that meets a large obstacle: the paper's network loses its connectivity, starling does not."""
    controllers = "etdagnn", "starling"
    scenario = make_scenario("obstacles", sides=96, flocks=2, seed=0)
    runs = fly_all(scenario, controllers, scenario.duration, flock=1)
    film(runs, path, titles=controllers, frames_per_second=FRAMES_PER_SECOND, speed=1.5, dots_per_inch=58)


def film_paper_scenario(name: str, path: Path) -> None:
    """One flock of a scenario under each of the paper's networks, as `equiflock reproduce` films it."""
    settings = PAPER_FILMS[name]
    options = PROFILES["paper"].interpretation.get_scenario_options(settings.scenario)
    scenario = make_scenario(settings.scenario, split="film", **options)
    runs = fly_all(scenario, PAPER_NETWORKS, settings.duration)
    film(runs, path, titles=PAPER_NETWORKS, frames_per_second=8, speed=settings.speed, dots_per_inch=50)


def film_drones(path: Path) -> None:
    """A hundred drones in space: the command in docs/quadrotors.md."""
    setting = DroneSetting(cruise_speed=1.0, seed=3)
    Fly(setting=setting, film=path, dots_per_inch=75, frames_per_second=8).run()


def record_view(path: Path) -> None:
    """The live page in use, with view.png beside it."""
    from record_view import record

    record(path.parent)


FILMS: dict[str, Callable[[Path], object]] = {
    f"media/flock{FILM_SUFFIX}": film_flock,
    f"media/starling{FILM_SUFFIX}": film_starling,
    f"media/leaders{FILM_SUFFIX}": partial(film_paper_scenario, "leaders"),
    f"media/obstacles{FILM_SUFFIX}": partial(film_paper_scenario, "obstacles"),
    f"media/drones{FILM_SUFFIX}": film_drones,
    **{f"atlas/{entry.name}{FILM_SUFFIX}": partial(draw_film, entry) for entry in ENTRIES},
    f"media/view{FILM_SUFFIX}": record_view,
}
"""Functions that write each film, by its path in docs."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Make the films of the README, the documentation and the atlas again.")
    names = {Path(path).stem: path for path in FILMS}
    parser.add_argument("names", nargs="*", metavar="NAME", help="films to make; by default all")
    parser.add_argument("--list", action="store_true", help="print the names, and make nothing")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder to write to; by default docs")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(names):
        parser.error(f"there is no film of the name {', '.join(sorted(unknown))}; --list prints all")
    for name, path in names.items():
        if options.list:
            print(name)
        elif not options.names or name in options.names:
            target = options.out / path
            target.parent.mkdir(parents=True, exist_ok=True)
            FILMS[path](target)
            print(f"{target}: {target.stat().st_size / 1024:,.0f} KB", flush=True)


if __name__ == "__main__":
    main()
