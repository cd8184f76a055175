"""`equiflock compare`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from equiflock._runtime.files import check_absent
from equiflock.cli.plugins import import_plugin
from equiflock.cli.shared_options import (
    EnvironmentArgument,
    EnvironmentOptions,
    SafetyArgument,
    parse_safety,
    print_environment,
    warn_about_radius,
    warn_about_time_step,
)
from equiflock.cli.terminal import PREPARING_TEXT, print_line, print_table, progress
from equiflock.controllers import load
from equiflock.controllers.safe import apply_limits
from equiflock.controllers.trained import DEFAULT_CONTROLLER
from equiflock.evaluation.flight_comparison import FlightComparison, compare_with_simulation
from equiflock.simulation.trajectory import Trajectory


@dataclass(frozen=True)
class Compare:
    """Compare the log of a real flight with a simulation of the same start."""

    log: Annotated[Path, tyro.conf.Positional]
    """Flight log: a CSV file with the columns time, agent, x, y, and optionally z, vx, vy, vz, ax, ay, az, role and
    condition."""
    comm_radius: float
    """Communication radius of the robots, in the unit of x and y."""
    controller: str = DEFAULT_CONTROLLER
    """Controller of the robots, as for `equiflock simulate`, in their units: starling:comm_radius=3:time_scale=12."""
    safety: SafetyArgument = None
    time_step: float | None = None
    """Time step in seconds; by default the median interval between two samples of an agent."""
    max_gap: float | None = None
    """Longest time that an agent may be without a sample, in seconds; by default 5 time steps."""
    environment: EnvironmentArgument = field(default_factory=EnvironmentOptions)
    save: Path | None = None
    """Folder to save both flights to, for `equiflock view` and `equiflock animate`."""
    plugin: str | None = None
    """Python module or file to import first, which may register your own controllers and bodies."""

    def run(self) -> None:
        """Read the log, simulate its start, save both flights if requested, and print their metrics and drift."""
        import_plugin(self.plugin)
        if self.save is not None:
            check_absent(self.save)
        controller = apply_limits(load(self.controller), parse_safety(self.safety))
        environment = self.environment.build()
        warn_about_radius(self.comm_radius, self.controller)
        with progress() as bar:
            task = bar.add_task(f"reading {self.log}", total=None)
            log = Trajectory.from_csv(
                self.log, comm_radius=self.comm_radius, time_step=self.time_step, max_gap=self.max_gap
            )
            bar.update(task, description=PREPARING_TEXT, total=len(log.times) - 1)
            comparison = compare_with_simulation(
                log,
                controller,
                environment=environment,
                on_step=lambda moment: bar.update(
                    task, completed=moment.step, description=f"flying under {self.controller}"
                ),
            )
            if self.save is not None:
                comparison.save(self.save)
            rows = _list_rows(comparison)
        warn_about_time_step(controller, log.time_step)
        title = f"{log.positions.shape[2]:,} agents for {log.times[-1]:g} s in steps of {log.time_step:g} s"
        print_table(title, (("metric", "log", "simulation"), rows))
        _print_log(comparison)
        print_environment(environment)
        if self.save is not None:
            print_line(f"saved: {self.save}")


def _list_rows(comparison: FlightComparison) -> list[list[str]]:
    """Return the rows of the printed table."""
    return [[name, *(f"{value:.3g}" for value in row)] for name, *row in comparison.table.itertuples()]


def _print_log(comparison: FlightComparison) -> None:
    """Print the drift, the part of the log that is compared, and what the log lacks."""
    drift, log = comparison.drift, comparison.log
    half = len(drift) // 2
    print_line(
        f"drift (RMS distance between log and simulation): {drift[half]:.3g} after {log.times[half]:g} s, "
        f"{drift[-1]:.3g} at the end"
    )
    settings = log.config
    if settings["log_duration"] - settings["duration"] >= log.time_step:
        times = f"{settings['duration']:g} s of {settings['log_duration']:g} s"
        print_line(f"compared: {times}, in which all agents have logged")
    for name, source in (("velocities", "differences of positions"), ("accelerations", "differences of velocities")):
        if settings[name] != "logged":
            print_line(f"{name} are {source}, as the log has none")
