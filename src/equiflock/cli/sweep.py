"""`equiflock sweep`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from equiflock._runtime.checks import InputError, check_choice, check_count
from equiflock.cli.jobs import WorkerOptions, try_controller
from equiflock.cli.plugins import compute_plugin_checksum, import_plugin
from equiflock.cli.shared_options import (
    EnvironmentAxes,
    EnvironmentAxesArgument,
    report_duration,
    warn_about_time_step,
)
from equiflock.cli.terminal import out, parse_floats, parse_integers, print_column_blocks, print_paths
from equiflock.controllers import load
from equiflock.controllers.trained import DEFAULT_CONTROLLER
from equiflock.learning.recipe import EXPERT, DAgger
from equiflock.scenarios import RandomDisk

if TYPE_CHECKING:
    import pandas as pd

    from equiflock.evaluation.sweep import SweepJob

OUTPUT_PATTERNS = ("jobs", "*.csv", "*.png", "grid.json")
"""Glob patterns of the files that a sweep writes beside its config."""
HEADINGS = {
    "ivv": "IVV",
    "iman": "IMAN",
    "iman_realised": "IMAN\nrealised",
    "final_velocity_variance": "variance\nat end",
    "rms_acceleration": "RMS\n|a|",
    "peak_acceleration": "peak\n|a|",
    "residual_acceleration": "residual\n|a|",
    "jerk": "RMS\njerk",
    "disconnected": "discon-\nnected",
}


@dataclass(frozen=True)
class Sweep(WorkerOptions):
    """Evaluate controllers over a grid of flock sizes, radii, hops, radios, bodies and failures.

    Options of radio, body and failures take lists of values, such as --packet-loss 0,0.1,0.2 or --delay 0-2. A network
    is trained for each grid point first if --epochs is given. Writes sweep.csv with a row for every flock, summary.csv
    with medians, quartiles and 95% intervals, and a heat map. Existing results in the run directory are kept, so the
    same command resumes an interrupted sweep, and a sweep may be extended.
    """

    controller: str = DEFAULT_CONTROLLER
    """Controllers, such as etdagnn,tdagnn,tanner, each as for `equiflock simulate`."""
    agents: str = "25,50,100,200,400"
    """Flock sizes N, such as 25,50 or 10-20."""
    comm_radius: str = "1"
    """Communication radii R, such as 0.8,1,1.5."""
    hops: str | None = None
    """Numbers of hops K, such as 1-4; only with --epochs, as trained weights have a fixed K."""
    environment: EnvironmentAxesArgument = field(default_factory=EnvironmentAxes)
    epochs: int = 0
    """If above 0, train a network for each point for this many epochs, with ideal radio and body; it is not saved."""
    seeds: str = "0"
    """Training seeds of the weights, such as 0-4."""
    flocks: int = 20
    """Number of test flocks per grid point."""
    duration: float = 2.0
    """Duration of a flight in seconds."""
    time_step: float = 0.01
    """Time step in seconds."""
    metric: str = "ivv"
    """Metric of the heat map: ivv, iman, iman_realised, final_velocity_variance, rms_acceleration, peak_acceleration,
    residual_acceleration, jerk, disconnected, or your own (see --plugin)."""
    out: Path = Path("runs/sweep")
    """Run directory to write."""
    plugin: str | None = None
    """Python module or file to import first, which may register your own controllers, bodies and metrics."""
    force: bool = False
    """Delete an earlier sweep in the run directory and start again."""

    def run(self) -> None:
        """Try all options, controllers and bodies; run the points without results; write and print all medians."""
        from equiflock._runtime.provenance import lock_run_dir, read_package_versions
        from equiflock.evaluation.sweep import build_sweep_jobs, list_metrics

        check_count("workers", self.workers)
        import_plugin(self.plugin)
        check_choice("metric", self.metric, tuple(list_metrics()))
        controllers = [name.strip() for name in self.controller.split(",")]
        if len(set(controllers)) < len(controllers):
            raise InputError(f"controller must list each controller once; got {self.controller!r}")
        if self.hops is not None and self.epochs == 0:
            raise InputError("--hops has no effect without --epochs: trained weights have a fixed number of hops")
        duration = report_duration(self.duration, self.time_step)
        environments = self.environment.build()
        for name in controllers:
            self._check_controller(name)
            warn_about_time_step(load(name), self.time_step)
        # Try each body once, too.
        for body in {repr(environment.body): environment.body for _, environment in environments}.values():
            try_controller(RandomDisk(1, 10).draw(), EXPERT, body=body)
        hops = [None] if self.epochs == 0 else parse_integers("hops", self.hops or str(DAgger.hops))
        jobs = build_sweep_jobs(
            controllers,
            parse_integers("seeds", self.seeds),
            parse_integers("agents", self.agents),
            parse_floats("comm_radius", self.comm_radius),
            hops,
            environments=environments,
            epochs=self.epochs,
            flocks=self.flocks,
            duration=duration,
            time_step=self.time_step,
            plugin=compute_plugin_checksum(self.plugin),
        )
        # Names of results are derived from the jobs' settings, so a sweep may be extended in its directory.
        config = {"versions": read_package_versions(*(("torch",) if self.epochs else ()))}
        with lock_run_dir(self.out, "sweep", config, OUTPUT_PATTERNS, self.force):
            self._run_grid(jobs)

    def _run_grid(self, jobs: list[SweepJob]) -> None:
        """Run the jobs that have no results yet; write and print the results of all jobs, and draw the heat map.

        Raise InputError if no grid point has initial conditions.
        """
        from equiflock._runtime.files import atomic_write
        from equiflock.evaluation.sweep import REALISED, draw_sweep, list_axes, summarize_sweep

        table = self.run_jobs(jobs, self.out / "jobs", f"sweep over {len(jobs)} points")
        # Jobs are ordered for speed; rows are sorted for the reader.
        table = table.sort_values(["controller", "seed", *list_axes(table), "flock"])
        summary = summarize_sweep(table)
        for name, content in (("sweep", table), ("summary", summary)):
            with atomic_write(self.out / f"{name}.csv") as scratch:
                content.to_csv(scratch, index=False)
        with atomic_write(self.out / "grid.json") as scratch:
            scratch.write_text(json.dumps([job.settings for job in jobs], indent=2) + "\n")
        # Points without initial conditions have a remark in place of numbers.
        empty = table[table.remark.notna()]
        if len(empty) == len(table):
            raise InputError(f"no initial conditions were found at any grid point: {table.remark.iloc[0]}")
        figure = draw_sweep(table, self.metric, self.out / f"{self.metric}.png")
        # For ideal bodies it is the IMAN.
        has_ideal_bodies = all(job.environment.has_ideal_body for job in jobs)
        self._print_results(summary[summary.metric != REALISED] if has_ideal_bodies else summary)
        for row in empty.drop_duplicates(["agents", "comm_radius"]).itertuples():
            out.print(f"  agents {row.agents}, comm_radius {row.comm_radius:g}: {row.remark}", highlight=False)
        print_paths((self.out / "sweep.csv", self.out / "summary.csv", figure))

    def _print_results(self, summary: pd.DataFrame) -> None:
        """Print a row per point, without axes that have a single value, and the metrics with their intervals."""
        from equiflock.evaluation.flight_statistics import (
            FEWEST_FLOCKS,
            SUMMARY_COLUMNS,
            format_heading,
            format_summary,
        )

        axes = [name for name in summary.columns[1:] if name not in ("metric", *SUMMARY_COLUMNS)]
        keys = ["controller", *(name for name in axes if summary[name].nunique(dropna=False) > 1)]
        rows: dict[tuple[object, ...], list[str]] = {}
        for values, row in zip(summary[keys].itertuples(index=False), summary.itertuples(), strict=True):
            # NaN, which is "none", does not equal itself.
            point = tuple(None if value != value else value for value in values)
            rows.setdefault(point, [_format_axis_value(value) for value in point]).append(format_summary(row))
        metrics = list(dict.fromkeys(summary.metric))
        header = [name if name == "controller" else name.replace("_", "\n") for name in keys]
        header += [HEADINGS.get(name) or format_heading(name) for name in metrics]
        ranges = "; in brackets the range over trainings" if summary.trainings.max() > 1 else ""
        title = f"median or share over {self.flocks} flocks with 95% interval{ranges}"
        print_column_blocks(title, header, list(rows.values()), keys=len(keys))
        if self.flocks < FEWEST_FLOCKS:
            out.print(f"intervals of fewer than {FEWEST_FLOCKS} flocks are too narrow: raise --flocks")

    def _check_controller(self, controller: str) -> None:
        """Raise InputError if the controller fails in a few steps or, with --epochs, cannot be trained."""
        if self.epochs == 0:
            try_controller(RandomDisk(1, 10).draw(), controller)
        else:
            from equiflock.learning.dagger import prepare_network

            prepare_network(DAgger(controller=controller))


def _format_axis_value(value: object) -> str:
    """Return a controller's name or a value of an axis as text; "-" for None."""
    from equiflock.evaluation.sweep import AXIS_DIGITS

    if value is None:
        return "-"
    return f"{value:.{AXIS_DIGITS}g}" if isinstance(value, float) else str(value)
