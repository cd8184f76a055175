"""`equiflock fly`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from equiflock._runtime.checks import check_count, check_positive
from equiflock._runtime.files import check_absent, run_interruptibly
from equiflock.cli.plugins import import_plugin
from equiflock.cli.shared_options import print_environment, report_duration, warn_about_time_step
from equiflock.cli.terminal import PREPARING_TEXT, print_line, print_table, print_warning, progress
from equiflock.controllers.trained import DEFAULT_CONTROLLER
from equiflock.evaluation.drone_flights import DroneSetting, ScaledChoice, choose_controller, simulate_drones
from equiflock.simulation.simulate import count_steps

SettingArgument = Annotated[DroneSetting, tyro.conf.arg(name="")]
"""Type of the field that holds the options of the drones; they have no prefix."""


@dataclass(frozen=True)
class Fly:
    """Fly a flock of quadrotors in metres and seconds, and print its margins.

    Drones start level, at random places with random velocities, connected and above the ground. Collisions are pairs
    closer than 0.2 m.
    """

    setting: SettingArgument = field(default_factory=DroneSetting)
    duration: float = 20.0
    """Duration in seconds."""
    controller: str = DEFAULT_CONTROLLER
    """A controller, as for `equiflock simulate`. With comm_radius and time_scale in its name it is used as is, such as
    starling:comm_radius=5:time_scale=20."""
    time_scale: float | None = None
    """Seconds of the drones per second of the controller; by default `fit_robot` chooses it, which takes seconds."""
    save: Path | None = None
    """Zarr store to save the flight to, for `equiflock.Trajectory.load`, `equiflock view` and, seen from above,
    `equiflock animate`."""
    keep_every: int = 2
    """With --save or --film: keep one frame every KEEP_EVERY steps."""
    film: Path | None = None
    """Film of the first flock in space to write, .mp4, .webp or .gif."""
    film_speed: float = 2.0
    """Seconds of flight per second of film."""
    frames_per_second: int = 25
    """Frame rate of the film."""
    dots_per_inch: int = 120
    """Resolution of the film, which is 6.4 inches wide."""
    theme: Literal["dark", "light"] = "dark"
    """Colours of the film, as on the live page."""
    plugin: str | None = None
    """Python module or file to import first, which may register your own controllers."""

    def run(self) -> None:
        """Choose the time scale, fly, save and film if requested, and print a table."""
        import_plugin(self.plugin)
        if self.save is not None:
            check_absent(self.save)
        if self.film is not None:
            from equiflock.plotting.film_file import check_film

            check_film(self.film, self.film_speed, self.frames_per_second, self.dots_per_inch)
        check_count("keep_every", self.keep_every)
        if self.time_scale is not None:
            check_positive("time_scale", self.time_scale)
        setting = self.setting
        duration = report_duration(self.duration, setting.time_step)
        keeps_frames = self.save is not None or self.film is not None
        with progress() as bar:
            task = bar.add_task(PREPARING_TEXT, total=None)
            # The start is drawn first: it is checked, and may be refused, before the fit.
            start = run_interruptibly(setting.draw_start)
            choice = choose_controller(
                setting,
                self.controller,
                self.time_scale,
                lambda text, done, total: bar.update(task, description=text, completed=done, total=total),
            )
            steps = count_steps(duration, setting.time_step)
            bar.update(task, description=PREPARING_TEXT, completed=0, total=steps)
            run, results = simulate_drones(
                setting,
                choice.controller,
                duration,
                start=start,
                keep_every=self.keep_every if keeps_frames else None,
                on_step=lambda moment: bar.update(
                    task, completed=moment.step, description=f"flying under {self.controller}"
                ),
                controller_name=choice.name,
            )
            if self.save is not None:
                bar.update(task, description=f"saving {self.save}", total=None)
                run.save(self.save)
            if self.film is not None:
                from equiflock.plotting.film_3d import film_3d

                film_3d(
                    run,
                    self.film,
                    frames_per_second=self.frames_per_second,
                    speed=self.film_speed,
                    dots_per_inch=self.dots_per_inch,
                    theme=self.theme,
                    on_frame=lambda done, total: bar.update(
                        task, description="rendering frames", completed=done, total=total
                    ),
                )
        warn_about_time_step(choice.controller, setting.time_step)
        flocks = f"{setting.flocks:,} x " if setting.flocks > 1 else ""
        title = f"{flocks}{setting.drones:,} drones in {setting.dimensions}-D, R = {setting.comm_radius:g} m"
        print_table(f"{title}, {setting.rate:g} Hz, {duration:g} s", results.table)
        print_environment(setting.build_environment())
        _print_choice(choice)
        restless = int(np.isinf(results.settling_time).sum())
        if restless:
            text = f"not settled: {restless} of {setting.flocks} flocks"
            text += f"; try a larger --time-scale ({choice.time_scale:g} now)"
            print_warning(text)
        for label, path in (("saved", self.save), ("film", self.film)):
            if path is not None:
                print_line(f"{label}: {path}")


def _print_choice(choice: ScaledChoice) -> None:
    """Print the controller and its time scale; if a fit chose it, also how to repeat the flight without the fit."""
    print_line(f"controller: {choice.name}")
    if choice.fit is None:
        return
    print_line(
        f"time scale {choice.time_scale:g} was chosen by test flights; --time-scale {choice.time_scale:g} skips them"
    )
    unmet = [demand.name for demand in choice.fit.demands if not demand.met]
    if unmet:
        text = f"no time scale meets all demands of these drones; not met: {', '.join(unmet)} (see equiflock fit)"
        print_warning(text)
