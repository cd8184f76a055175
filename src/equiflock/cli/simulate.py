"""`equiflock simulate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from equiflock.cli.console import out
from equiflock.cli.environment_options import EnvironmentArgument, EnvironmentOptions, print_environment
from equiflock.cli.plugins import import_plugin
from equiflock.cli.scenario_options import (
    ScenarioName,
    ScenarioOptions,
    ScenarioOptionsArgument,
    build_scenario,
    warn_about_disagreement,
)
from equiflock.cli.terminal import PREPARING_TEXT, print_orbit, print_table, progress
from equiflock.controllers import load
from equiflock.experiments.flight_jobs import fly, resolve_measures, scenario_to_dict
from equiflock.experiments.summary import RECORDED_METRICS, summarize, summarize_outcomes
from equiflock.flock import Role
from equiflock.runtime.checks import check_count
from equiflock.runtime.files import check_absent, run_interruptibly
from equiflock.scenarios.registry import choose_orbit
from equiflock.simulation.simulate import count_steps


@dataclass(frozen=True)
class Simulate:
    """Fly random flocks under a controller and print what came of it."""

    controller: str = "tanner"
    """A law such as tanner, reynolds or cucker-smale, a trained network such as etdagnn (etdagnn:3 for training seed 3;
    docs/guide.md and equiflock.controller_names() have them all), a file of weights (.safetensors), or one of your own
    (see --plugin). Options follow the name: tanner:clamp=5, or name:key=value:key=value; comm_radius and time_scale,
    which every controller takes, scale it to the units of a robot: etdagnn:comm_radius=5:time_scale=15."""
    scenario: ScenarioName = "flocking"
    options: ScenarioOptionsArgument = field(default_factory=ScenarioOptions)
    world: EnvironmentArgument = field(default_factory=EnvironmentOptions)
    time_step: float = 0.01
    """Seconds per step."""
    duration: float | None = None
    """Seconds to fly; as long as the scenario's test if left out: 2 s for flocking."""
    save: Path | None = None
    """Keep the flight here, as a zarr store that `equiflock animate` and `equiflock.Trajectory.load` open."""
    keep_every: int = 1
    """With --save: keep every so many-th frame."""
    plugin: str | None = None
    """A Python module or file to import first, such as one that registers your own controller or scenario."""

    def run(self) -> None:
        """Print a table of metrics, median and quartiles over flocks."""
        # Everything that can be refused is refused before the search for a start, which may take long.
        import_plugin(self.plugin)
        if self.save is not None:
            check_absent(self.save)
        check_count("keep_every", self.keep_every)
        scenario = build_scenario(self.scenario, self.options)
        duration = scenario.duration if self.duration is None else self.duration
        steps = count_steps(duration, self.time_step)
        controller, world = load(self.controller), self.world.world
        world.check_duration(duration)
        warn_about_disagreement(scenario, controller)
        with progress() as bar:
            task = bar.add_task(PREPARING_TEXT, total=steps)
            # Frames are kept only if they are saved; measures are recorded in any case.
            start = run_interruptibly(scenario.draw)
            world.check_start(start)
            run = fly(
                scenario,
                start,
                controller,
                self.time_step,
                duration,
                world,
                keep_every=self.keep_every if self.save is not None else None,
                record=resolve_measures(scenario) | {measure.__name__: measure for measure in RECORDED_METRICS},
                on_step=lambda moment: bar.update(
                    task, completed=moment.step, description=f"flying under {self.controller}"
                ),
                config={"controller": self.controller, **scenario_to_dict(scenario)},
            )
            if self.save is not None:
                bar.update(task, description=f"saving {self.save}", total=None)
                run.save(self.save)
        agents = int((start.roles[0] != Role.OBSTACLE).sum())
        most = "" if scenario.ending() is None else "at most "
        what = f"{len(start):,} x {agents:,} agents under {self.controller} for {most}{duration:g} s"
        header = "metric", "median (quartiles) over flocks" if len(start) > 1 else "value"
        rows = [[row.name, row.text] for row in summarize(run)] + summarize_outcomes(run, scenario)
        print_table(what, (header, rows))
        print_environment(world)
        if (orbit := choose_orbit(scenario, controller)) is not None and orbit != scenario.orbit:
            print_orbit(orbit)
        if self.save is not None:
            out.print(f"saved: {self.save}", highlight=False)
