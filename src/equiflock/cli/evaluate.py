"""`equiflock evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from equiflock._runtime.checks import check_count, check_positive
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
    warn_about_disagreement,
)
from equiflock.cli.terminal import print_orbit, print_paths, print_table
from equiflock.controllers import load
from equiflock.flock import Flock, Role
from equiflock.scenarios.registry import Scenario, build_flight_options, choose_orbit
from equiflock.simulation.environment import Environment

OUTPUT_PATTERNS = ("jobs", "*.csv", "*.png")
"""Glob patterns of the files that an evaluation writes beside its config."""


@dataclass(frozen=True)
class Evaluate(WorkerOptions):
    """Compare a controller with the package's controllers by the paper's metrics and figures."""

    controller: Annotated[str, tyro.conf.Positional]
    """Weights file (.safetensors), or the name of a controller, as for `equiflock simulate`."""
    scenario: ScenarioName = "flocking"
    options: ScenarioOptionsArgument = field(default_factory=ScenarioOptions)
    environment: EnvironmentArgument = field(default_factory=EnvironmentOptions)
    time_step: float | None = None
    """Time step in seconds; by default that of the scenario's test: 0.001 for flocking and leaders, else 0.01."""
    duration: float | None = None
    """Longest duration in seconds; by default that of the scenario's test."""
    out: Path | None = None
    """Run directory, whose results are reused; by default runs/evaluation/CONTROLLER-SCENARIO, with a checksum of a
    weights file, and with the environment if it is not the paper's."""
    plugin: PluginName = None
    force: bool = False
    """Delete an earlier evaluation in the run directory and start again."""

    @staticmethod
    def get_default_options(kind: type[Any]) -> Mapping[str, Any]:
        """Return the options of the scenario's test, which are this command's defaults; 50 flocks if it has none."""
        return {"flocks": 50, **kind.test_options}

    def run(self) -> None:
        """Run the flights that are missing, write table and figure, and print the comparison and their paths."""
        from equiflock._runtime.files import atomic_write
        from equiflock._runtime.provenance import lock_run_dir, read_package_versions
        from equiflock.evaluation.curves import draw_measure_curves
        from equiflock.evaluation.evaluate import (
            build_evaluation_jobs,
            build_table_rows,
            check_reportable,
            format_run_dir_name,
        )
        from equiflock.plotting.figures import draw_outcome_bars
        from equiflock.simulation.flight_jobs import resolve_measures

        check_count("workers", self.workers)
        import_plugin(self.plugin)
        # Find errors of controller and scenario before the first job: load, draw, and simulate some steps.
        controller = load(self.controller)
        scenario = build_scenario(self.scenario, self.options)
        check_reportable(scenario)
        warn_about_disagreement(scenario, controller)
        environment, start = self.environment.build(), scenario.draw()
        settings = self._collect_settings(scenario, start, environment)
        settings["duration"] = report_duration(settings["duration"], settings["time_step"])
        environment.check_duration(settings["duration"])
        environment.check_start(start)
        try_controller(start, self.controller, **build_flight_options(scenario, controller), environment=environment)
        jobs = build_evaluation_jobs(**settings, plugin=compute_plugin_checksum(self.plugin))
        run_dir = self.out or Path("runs/evaluation") / format_run_dir_name(self.controller, scenario.name, environment)
        # Everything that the results depend on.
        config = {
            "settings": settings,
            "weights": {job.name: job.checksum for job in jobs if job.checksum},
            "versions": read_package_versions(*(("torch",) if self.plugin else ())),
        }
        agents = int((start.roles[0] != Role.OBSTACLE).sum())
        title = f"{scenario.name}: {len(start)} flocks of {agents} agents"
        csv, png = (run_dir / f"{scenario.name}{kind}" for kind in (".csv", ".png"))
        # Table and figure show all jobs, including those of earlier calls.
        with lock_run_dir(run_dir, "evaluation", config, OUTPUT_PATTERNS, self.force):
            table = self.run_jobs(jobs, run_dir / "jobs", title)
            with atomic_write(csv) as scratch:
                table.to_csv(scratch, index=False)
            if scenario.figure == "endings":
                draw_outcome_bars(table, png, scenario.success_outcomes)
            else:
                draw_measure_curves(table, png, tuple(resolve_measures(scenario)))
        print_table(title, *(build_table_rows(table, scenario, quartiles) for quartiles in (True, False)))
        print_environment(environment)
        if (orbit := choose_orbit(scenario, controller)) is not None and orbit != scenario.orbit:
            print_orbit(orbit)
        print_paths((csv, png))

    def _collect_settings(self, scenario: Scenario, start: Flock, environment: Environment) -> dict[str, Any]:
        """Return the arguments of `build_evaluation_jobs`, which are saved in the config."""
        from equiflock.evaluation.evaluate import get_json_options, list_baselines

        times = {name: getattr(self, name) for name in ("time_step", "duration")}
        return {
            "controller": self.controller,
            "scenario": scenario.name,
            "options": get_json_options(scenario),
            **{
                name: getattr(scenario, name) if value is None else check_positive(name, value)
                for name, value in times.items()
            },
            "baselines": list_baselines(self.controller, start),
            "environment": environment.settings,
        }
