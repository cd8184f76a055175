"""`equiflock animate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from equiflock.cli.console import out
from equiflock.cli.plugins import import_plugin
from equiflock.cli.scenario_options import ScenarioName, ScenarioOptions, ScenarioOptionsArgument, build_scenario
from equiflock.cli.terminal import PREPARING_TEXT, progress
from equiflock.controllers import load
from equiflock.experiments.flight_jobs import fly, scenario_to_dict
from equiflock.runtime.checks import InputError
from equiflock.runtime.files import run_interruptibly
from equiflock.simulation.trajectory import Trajectory, load_trajectories


@dataclass(frozen=True)
class Animate:
    """Draw a film of saved flights, side by side, or of a new one."""

    flights: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Flights saved by `equiflock simulate --save`, or folders that `equiflock view` saved; without any, a new flock is
    flown."""
    out: Path = Path("flock.mp4")
    """The film: .mp4 or .gif."""
    flock: int = 0
    """Which flock of the batch, counted from 0."""
    frames_per_second: int = 30
    """Frames per second of film."""
    speed: float = 0.5
    """Simulated seconds per second of film."""
    dots_per_inch: int = 110
    """Each panel of the film is 4.8 inches wide."""
    controller: str = "tanner"
    """For a new flight: a controller, as for `equiflock simulate`."""
    scenario: ScenarioName = "flocking"
    options: ScenarioOptionsArgument = field(default_factory=ScenarioOptions)
    time_step: float = 0.01
    """For a new flight: seconds per step."""
    duration: float | None = None
    """For a new flight: seconds to fly; as long as the scenario's test if left out."""
    plugin: str | None = None
    """A Python module or file to import first, such as one that registers your own controller or scenario."""

    def run(self) -> None:
        """Write the film and say where it is."""
        from equiflock.report.film import check_film, film

        import_plugin(self.plugin)
        check_film(self.out, self.speed, self.frames_per_second, self.dots_per_inch)
        # An option that would have no effect is an error: the user expects something of it.
        fresh = type(self)()
        options = ("controller", "scenario", "options", "time_step", "duration")
        if self.flights and any(getattr(self, name) != getattr(fresh, name) for name in options):
            raise InputError("options of a new flight do not go with saved flights")
        with progress() as bar:
            runs = [run for path in self.flights for run in load_trajectories(path)]
            if not runs:
                task = bar.add_task(PREPARING_TEXT, total=None)
                runs = [self._simulate()]
                bar.remove_task(task)
            task = bar.add_task("drawing frames", total=None)
            path = film(
                runs,
                self.out,
                flock=self.flock,
                frames_per_second=self.frames_per_second,
                speed=self.speed,
                dots_per_inch=self.dots_per_inch,
                on_frame=lambda done, total: bar.update(task, completed=done, total=total),
            )
        out.print(f"film: {path}", highlight=False)

    def _simulate(self) -> Trajectory:
        """A new flight of the chosen scenario."""
        scenario = build_scenario(self.scenario, self.options)
        duration = scenario.duration if self.duration is None else self.duration
        config = {"controller": self.controller, **scenario_to_dict(scenario)}
        start = run_interruptibly(scenario.draw)
        return fly(scenario, start, load(self.controller), self.time_step, duration, config=config)
