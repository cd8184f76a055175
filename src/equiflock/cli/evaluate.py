"""`equiflock evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from equiflock._runtime.checks import InputError, check_count, check_positive
from equiflock.cli.jobs import WorkerOptions, try_controller
from equiflock.cli.plugins import compute_plugin_checksum, import_plugin
from equiflock.cli.shared_options import (
    EnvironmentArgument,
    EnvironmentOptions,
    PluginName,
    ScenarioName,
    ScenarioOptions,
    ScenarioOptionsArgument,
    build_scenario,
    print_environment,
    report_duration,
    warn_about_flight,
)
from equiflock.cli.terminal import out, print_column_blocks, print_notice, print_orbit, print_paths, progress
from equiflock.controllers import load
from equiflock.flock import Flock, Role
from equiflock.scenarios.registry import Scenario, build_flight_options, choose_orbit
from equiflock.simulation.environment import Environment

if TYPE_CHECKING:
    import pandas as pd

    from equiflock.evaluation.evaluate import EvaluationJob

OUTPUT_PATTERNS = ("jobs", "flights", "*.csv", "*.png", "*.html")
"""Glob patterns of the files that an evaluation writes beside its config."""


@dataclass(frozen=True)
class Evaluate(WorkerOptions):
    """Compare controllers, or one with the package's, by the paper's metrics and figures.

    Prints medians and shares over flocks with 95% intervals, and the differences to the first controller on the same
    flocks. Writes report.html, flights.csv with a row for every flight, summary.csv, comparison.csv and a figure.
    """

    controllers: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Weights files (.safetensors) or names of controllers, as for `equiflock simulate`. A single one is compared with
    the expert, the paper's networks and starling, several with each other only."""
    scenario: ScenarioName = "flocking"
    options: ScenarioOptionsArgument = field(default_factory=ScenarioOptions)
    environment: EnvironmentArgument = field(default_factory=EnvironmentOptions)
    time_step: float | None = None
    """Time step in seconds; by default that of the scenario's test: 0.001 for flocking and leaders, else 0.01."""
    duration: float | None = None
    """Longest duration in seconds; by default that of the scenario's test."""
    out: Path | None = None
    """Run directory, whose results are reused; by default runs/evaluation/CONTROLLERS-SCENARIO, with checksums of
    weights files, and with the environment if it is not the paper's."""
    plugin: PluginName = None
    force: bool = False
    """Delete an earlier evaluation in the run directory and start again."""

    @staticmethod
    def get_default_options(kind: type[Any]) -> Mapping[str, Any]:
        """Return the options of the scenario's test, which are this command's defaults; 50 flocks if it has none."""
        return {"flocks": 50, **kind.test_options}

    def run(self) -> None:
        """Run the flights that are missing, write tables and figure, and print the comparison and their paths."""
        from equiflock._runtime.provenance import lock_run_dir, read_package_versions
        from equiflock.evaluation.evaluate import build_evaluation_jobs, check_reportable, format_run_dir_name

        check_count("workers", self.workers)
        import_plugin(self.plugin)
        if not self.controllers or len(set(self.controllers)) < len(self.controllers):
            raise InputError(f"expected one or more controllers, each once; got {' '.join(self.controllers) or 'none'}")
        # Find errors of controllers and scenario before the first job: load, draw, and simulate some steps.
        controllers = [load(name) for name in self.controllers]
        scenario = build_scenario(self.scenario, self.options)
        check_reportable(scenario)
        environment, start = self.environment.build(), scenario.draw()
        settings = self._collect_settings(scenario, start, environment)
        for name, controller in zip(self.controllers, controllers, strict=True):
            warn_about_flight(scenario, name, controller, settings["time_step"])
        settings["duration"] = report_duration(settings["duration"], settings["time_step"])
        environment.check_duration(settings["duration"])
        environment.check_start(start)
        for name, controller in zip(self.controllers, controllers, strict=True):
            try_controller(start, name, **build_flight_options(scenario, controller), environment=environment)
        jobs = build_evaluation_jobs(**settings, plugin=compute_plugin_checksum(self.plugin))
        name = format_run_dir_name(self.controllers, scenario.name, environment)
        run_dir = self.out or Path("runs/evaluation") / name
        # Everything that the results depend on.
        config = {
            "settings": settings,
            "weights": {job.name: job.checksum for job in jobs if job.checksum},
            "versions": read_package_versions(*(("torch",) if self.plugin else ())),
        }
        agents = int((start.roles[0] != Role.OBSTACLE).sum())
        title = f"{scenario.name}: {len(start)} flocks of {agents} agents"
        # Tables and figure show all jobs, including those of earlier calls.
        with lock_run_dir(run_dir, "evaluation", config, OUTPUT_PATTERNS, self.force):
            table = self.run_jobs(jobs, run_dir / "jobs", title)
            paths = self._report(table, run_dir, scenario, title, jobs[0].metrics)
            paths.insert(0, self._write_page(table, jobs, run_dir, title, config))
        print_environment(environment)
        for name, controller in zip(self.controllers, controllers, strict=True):
            if (orbit := choose_orbit(scenario, controller)) is not None and orbit != scenario.orbit:
                print_orbit(orbit, "" if len(self.controllers) == 1 else name)
        print_paths(paths)

    def _report(
        self, table: pd.DataFrame, run_dir: Path, scenario: Scenario, title: str, user_metrics: Sequence[str]
    ) -> list[Path]:
        """Write the tables and the figure, print medians and differences, and return the paths of the files."""
        from equiflock._runtime.files import atomic_write
        from equiflock.evaluation.curves import build_measure_panels
        from equiflock.evaluation.evaluate import (
            build_comparison_rows,
            build_table_rows,
            compare_controllers,
            split_results,
            summarize_evaluation,
        )
        from equiflock.evaluation.flight_statistics import FEWEST_FLOCKS
        from equiflock.plotting.figures import draw_outcome_bars, draw_panels

        curves, flights = split_results(table)
        summary, comparison = summarize_evaluation(flights), compare_controllers(flights)
        tables = {"flights": flights, "summary": summary, "comparison": comparison}
        figure = run_dir / f"{scenario.name}.png"
        if scenario.figure == "endings":
            draw_outcome_bars(flights, figure, scenario.success_outcomes)
        else:
            tables[scenario.name] = curves
            draw_panels(build_measure_panels(curves, list(dict.fromkeys(curves.metric))), figure)
        for name, content in tables.items():
            with atomic_write(run_dir / f"{name}.csv") as scratch:
                content.to_csv(scratch, index=False)
        print_column_blocks(f"{title}; median or share with 95% interval", *build_table_rows(summary))
        if len(comparison):
            first = comparison.compared_with.iloc[0]
            print_column_blocks(
                f"difference from {first} on the same flocks with 95% interval, and probability of improving on it",
                *build_comparison_rows(comparison, scenario, user_metrics),
                group=2,
            )
        if flights.flock.nunique() < FEWEST_FLOCKS:
            out.print(f"intervals of fewer than {FEWEST_FLOCKS} flocks are too narrow: raise --flocks")
        return [*(run_dir / f"{name}.csv" for name in tables), figure]

    def _write_page(
        self,
        table: pd.DataFrame,
        jobs: Sequence[EvaluationJob],
        run_dir: Path,
        title: str,
        settings: Mapping[str, Any],
    ) -> Path:
        """Simulate the flights that the page shows, unless they are saved; write the page and return its path."""
        from equiflock.evaluation.evaluation_report import REPORT_FILE, save_shown_flights, write_evaluation_report

        with progress() as bar:
            task = bar.add_task("flights of the report", total=len(jobs))
            flights = save_shown_flights(jobs, run_dir, lambda name: bar.advance(task), partial(print_notice, bar))
        return write_evaluation_report(table, jobs, flights, run_dir / REPORT_FILE, title=title, settings=settings)

    def _collect_settings(self, scenario: Scenario, start: Flock, environment: Environment) -> dict[str, Any]:
        """Return the arguments of `build_evaluation_jobs`, which are saved in the config."""
        from equiflock.evaluation.evaluate import get_json_options, list_baselines

        first, *others = self.controllers
        times = {name: getattr(self, name) for name in ("time_step", "duration")}
        return {
            "controller": first,
            "scenario": scenario.name,
            "options": get_json_options(scenario),
            **{
                name: getattr(scenario, name) if value is None else check_positive(name, value)
                for name, value in times.items()
            },
            "baselines": tuple(others) or list_baselines(first, start),
            "environment": environment.settings,
        }
