"""`equiflock animate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from equiflock._runtime.checks import InputError
from equiflock._runtime.files import check_writable, run_interruptibly
from equiflock.cli.plugins import import_plugin
from equiflock.cli.shared_options import (
    ScenarioName,
    ScenarioOptions,
    ScenarioOptionsArgument,
    check_radius_has_effect,
    load_flights,
    report_duration,
    warn_about_flight,
)
from equiflock.cli.terminal import PREPARING_TEXT, out, progress
from equiflock.controllers import load
from equiflock.controllers.trained import DEFAULT_CONTROLLER
from equiflock.scenarios import make_scenario
from equiflock.simulation.flight_jobs import fly, scenario_to_dict
from equiflock.simulation.trajectory import Trajectory


@dataclass(frozen=True)
class Animate:
    """Render a film of saved flights, side by side, or of a new flight, or a page that plays them."""

    flights: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Flights saved by `equiflock simulate --save` or `equiflock view`, or flight logs (.csv, with --comm-radius); if
    none, a new one is simulated."""
    out: Path = Path("flock.mp4")
    """File to write: .mp4, .webp (an animated picture of half the size of a GIF), .gif, or .html (a page that plays the
    flights, with curves, without a server)."""
    flock: int = 0
    """Index of the flock in the batch, from 0."""
    frames_per_second: int = 30
    """Frame rate of the film."""
    speed: float = 0.5
    """Simulated seconds per second of film."""
    dots_per_inch: int = 110
    """Resolution; a panel is 4.8 inches wide."""
    theme: Literal["dark", "light"] = "dark"
    """Colours of the film, as on the live page."""
    controller: str = DEFAULT_CONTROLLER
    """New flight: the controller, as for `equiflock simulate`."""
    scenario: ScenarioName = "flocking"
    options: ScenarioOptionsArgument = field(default_factory=ScenarioOptions)
    time_step: float = 0.01
    """New flight: time step in seconds."""
    duration: float | None = None
    """New flight: duration in seconds; by default that of the scenario's test."""
    comm_radius: float | None = None
    """Communication radius of flight logs, or of a new flight, by default that of the scenario."""
    plugin: str | None = None
    """Python module or file to import first, which may register your own controllers and scenarios."""

    def run(self) -> None:
        """Write the film or the page and print its path."""
        from equiflock.plotting.film_file import FORMATS, check_film
        from equiflock.plotting.player.embedding import show

        import_plugin(self.plugin)
        default = type(self)()
        if is_page := self.out.suffix == ".html":
            check_writable(self.out)
            film_options = ("frames_per_second", "dots_per_inch", "theme")
            if any(getattr(self, name) != getattr(default, name) for name in film_options):
                raise InputError("options of a film have no effect on a page: leave them out, or write an .mp4")
        elif self.out.suffix not in FORMATS:
            names = f"{', '.join(FORMATS)} or .html"
            raise InputError(f"the file to write must end in {names}; got {self.out.name!r}")
        else:
            check_film(self.out, self.speed, self.frames_per_second, self.dots_per_inch)
        options = ("controller", "scenario", "options", "time_step", "duration")
        if self.flights and any(getattr(self, name) != getattr(default, name) for name in options):
            raise InputError("options of a new flight have no effect on saved flights: leave them out")
        check_radius_has_effect(self.flights, self.comm_radius)
        with progress() as bar:
            runs = [run for path in self.flights for run in load_flights(path, self.comm_radius)]
            if not runs:
                task = bar.add_task(PREPARING_TEXT, total=None)
                runs = [self._simulate()]
                bar.remove_task(task)
            task = bar.add_task("rendering frames", total=None)
            path = (
                show(*runs, flock=self.flock, speed=self.speed).save(self.out)
                if is_page
                else self._render(runs, lambda done, total: bar.update(task, completed=done, total=total))
            )
        out.print(f"{'page' if is_page else 'film'}: {path}", highlight=False)

    def _render(self, runs: list[Trajectory], on_frame: Callable[[int, int], object]) -> Path:
        """Render the film and return its path."""
        from equiflock.plotting.film import film

        return film(
            runs,
            self.out,
            flock=self.flock,
            frames_per_second=self.frames_per_second,
            speed=self.speed,
            dots_per_inch=self.dots_per_inch,
            theme=self.theme,
            on_frame=on_frame,
        )

    def _simulate(self) -> Trajectory:
        """Simulate a new flight of the chosen scenario."""
        radius = {} if self.comm_radius is None else {"comm_radius": self.comm_radius}
        scenario = make_scenario(self.scenario, **(self.options.option_values | radius))
        duration = report_duration(scenario.duration if self.duration is None else self.duration, self.time_step)
        config = {"controller": self.controller, **scenario_to_dict(scenario)}
        start = run_interruptibly(scenario.draw)
        controller = load(self.controller)
        warn_about_flight(scenario, self.controller, controller, self.time_step)
        return fly(scenario, start, controller, self.time_step, duration, config=config)
