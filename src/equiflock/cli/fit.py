"""`equiflock fit`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from equiflock._runtime.files import atomic_write, check_writable
from equiflock.cli.plugins import import_plugin
from equiflock.cli.terminal import PREPARING_TEXT, err, print_line, progress
from equiflock.controllers.trained import DEFAULT_CONTROLLER
from equiflock.evaluation.robot_fit import DEFAULT_FLOCKS, RobotFit, fit_robot


@dataclass(frozen=True)
class Fit:
    """Fit a controller to a robot: choose its time scale, and measure the margins that it leaves.

    Flights are in the robot's metres and seconds. Exit codes: 0 if all demands are met, 1 if one is not, 2 for bad
    input.
    """

    comm_radius: float
    """Communication radius, in metres."""
    rate: float
    """Steps per second, in Hz: at each, a robot sends a message and sets its acceleration."""
    max_acceleration: float
    """Largest acceleration, in m/s^2."""
    max_speed: float
    """Largest speed, in m/s."""
    agents: int
    """Number of robots."""
    dimensions: Literal[2, 3] = 2
    """Dimensions of space, D."""
    min_speed: float = 0.0
    """Least speed, in m/s, of a craft that cannot hover."""
    packet_loss: float = 0.0
    """Share of messages that are lost, from 0 to below 1."""
    latency: float = 0.0
    """Latency of messages in seconds, rounded up to whole steps."""
    initial_speed: float | None = None
    """Bound of the random velocity deviations at the start, in m/s; by default half of the largest."""
    controller: str = DEFAULT_CONTROLLER
    """A decentralized controller, as for `equiflock simulate`, without comm_radius and time_scale."""
    flocks: int = DEFAULT_FLOCKS
    """Flocks of each flight at the demands and for the margins."""
    seed: int = 0
    """Random seed of flocks and radio."""
    out: Path | None = None
    """JSON file to save the result to."""
    plugin: str | None = None
    """Python module or file to import first, which may register your own controllers."""

    def run(self) -> None:
        """Print the time scale, the demands, the margins and the next commands. Exit with 1 if a demand is not met."""
        import_plugin(self.plugin)
        if self.out is not None:
            check_writable(self.out)
        with progress() as bar:
            task = bar.add_task(PREPARING_TEXT, total=None)
            fit = fit_robot(
                self.comm_radius,
                self.rate,
                self.max_acceleration,
                self.max_speed,
                self.agents,
                self.dimensions,
                self.min_speed,
                self.packet_loss,
                self.latency,
                initial_speed=self.initial_speed,
                controller=self.controller,
                flocks=self.flocks,
                seed=self.seed,
                on_flight=lambda text, done, total: bar.update(task, description=text, completed=done, total=total),
            )
        # Before anything is printed, so that a closed pipe does not lose the result.
        if self.out is not None:
            with atomic_write(self.out) as scratch:
                scratch.write_text(json.dumps(fit.to_dict(), indent=1) + "\n")
        print_fit(fit)
        if self.out is not None:
            print_line(f"saved: {self.out}")
        if not fit.met:
            names = ", ".join(demand.name for demand in fit.demands if not demand.met)
            err.print(f"demands that are not met: {names}", highlight=False, markup=False, soft_wrap=True)
            sys.exit(1)


def print_fit(fit: RobotFit) -> None:
    """Print the table of a fit, and how to load and export the controller."""
    # Values are sentences, which a table would truncate in a narrow terminal.
    print_line(str(fit))
    print_line(f"load it:   {fit.load_call}")
    print_line(f"export it: {fit.export_command}")
    if fit.sampling_period is not None:
        print_line(f"period of the exported agent, which sets its gain: {fit.sampling_period:g} s")
