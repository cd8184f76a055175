"""`equiflock simulate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from equiflock._runtime.checks import check_count
from equiflock._runtime.files import check_absent, run_interruptibly
from equiflock.cli.plugins import import_plugin
from equiflock.cli.shared_options import (
    EnvironmentArgument,
    EnvironmentOptions,
    SafetyArgument,
    ScenarioName,
    ScenarioOptions,
    ScenarioOptionsArgument,
    build_scenario,
    parse_safety,
    print_environment,
    report_duration,
    warn_about_flight,
)
from equiflock.cli.terminal import PREPARING_TEXT, out, print_line, print_orbit, print_table, progress
from equiflock.controllers import load
from equiflock.controllers.safe import apply_limits
from equiflock.controllers.safety_limits import SafetyState
from equiflock.controllers.trained import DEFAULT_CONTROLLER
from equiflock.evaluation.summary import list_recorded_metrics, summarize, summarize_outcomes
from equiflock.flock import Role
from equiflock.protocols import Moment
from equiflock.scenarios.registry import choose_orbit
from equiflock.simulation.flight_jobs import fly, resolve_measures, scenario_to_dict
from equiflock.simulation.metrics import list_user_metrics
from equiflock.simulation.safety_filter import count_states, describe_states
from equiflock.simulation.simulate import count_steps

ControllerName = Annotated[
    str,
    tyro.conf.arg(
        help="Controller: a trained network such as starling or etdagnn (etdagnn:3 for training seed 3), a law such as "
        "tanner, reynolds or cucker-smale, a weights file (.safetensors), or your own (see --plugin); docs/guide.md "
        "and equiflock.controller_names() list all. Options follow the name: tanner:clamp=5, or "
        "name:key=value:key=value. "
        "Every controller has the options comm_radius and time_scale, which scale it to a robot: "
        "etdagnn:comm_radius=5:time_scale=15 is for a communication range of 5 m and 15 times slower motion."
    ),
]


@dataclass(frozen=True)
class Simulate:
    """Simulate random flocks under a controller and print metrics."""

    controller: ControllerName = DEFAULT_CONTROLLER
    scenario: ScenarioName = "flocking"
    options: ScenarioOptionsArgument = field(default_factory=ScenarioOptions)
    environment: EnvironmentArgument = field(default_factory=EnvironmentOptions)
    time_step: float = 0.01
    """Time step in seconds."""
    duration: float | None = None
    """Duration in seconds; by default that of the scenario's test, 2 s for flocking."""
    save: Path | None = None
    """Zarr store to save the flight to, for `equiflock animate`, `equiflock view` and `equiflock.Trajectory.load`."""
    keep_every: int = 1
    """With --save: save one frame every KEEP_EVERY steps."""
    safety: SafetyArgument = None
    plugin: str | None = None
    """Python module or file to import first, which may register your own controllers, scenarios, bodies and metrics."""

    def run(self) -> None:
        """Simulate, save the flight if requested, and print a table of metrics: median and quartiles over flocks."""
        # Check all options before searching for initial conditions, which may take long.
        import_plugin(self.plugin)
        if self.save is not None:
            check_absent(self.save)
        check_count("keep_every", self.keep_every)
        scenario = build_scenario(self.scenario, self.options)
        duration = report_duration(scenario.duration if self.duration is None else self.duration, self.time_step)
        steps = count_steps(duration, self.time_step)
        controller = apply_limits(load(self.controller), parse_safety(self.safety))
        environment = self.environment.build()
        environment.check_duration(duration)
        warn_about_flight(scenario, self.controller, controller, self.time_step)
        state_counts = np.zeros(len(SafetyState), np.int64)
        with progress() as bar:
            task = bar.add_task(PREPARING_TEXT, total=steps)
            start = run_interruptibly(scenario.draw)
            environment.check_start(start)

            def show_step(moment: Moment) -> None:
                bar.update(task, completed=moment.step, description=f"flying under {self.controller}")
                state_counts[:] += count_states(moment)

            run = fly(
                scenario,
                start,
                controller,
                self.time_step,
                duration,
                environment,
                keep_every=self.keep_every if self.save is not None else None,
                record=resolve_measures(scenario)
                | list_recorded_metrics(environment)
                | {metric.name: metric for metric in list_user_metrics()},
                on_step=show_step,
                config={"controller": self.controller, **scenario_to_dict(scenario)},
            )
            if self.save is not None:
                bar.update(task, description=f"saving {self.save}", total=None)
                run.save(self.save)
        agents = int((start.roles[0] != Role.OBSTACLE).sum())
        at_most = "" if scenario.ending() is None else "at most "
        title = f"{len(start):,} x {agents:,} agents under {self.controller} for {at_most}{duration:g} s"
        header = "metric", "median (quartiles) over flocks" if len(start) > 1 else "value"
        rows = [[row.name, row.text] for row in summarize(run)] + summarize_outcomes(run, scenario)
        print_table(title, (header, rows))
        print_environment(environment)
        if state_counts.any():
            print_line(f"limits: {describe_states(state_counts)}")
        if (orbit := choose_orbit(scenario, controller)) is not None and orbit != scenario.orbit:
            print_orbit(orbit)
        if self.save is not None:
            out.print(f"saved: {self.save}", highlight=False)
