"""Evaluation of a controller beside those of the package, in any scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import pandas as pd

from equiflock.controllers.loading import has_open_seed
from equiflock.controllers.registry import WEIGHTS_SUFFIX, is_bundled, parse_controller_name, split_unit_options
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.experiments.curves import QUARTILES, build_curve_table, compute_weights_checksum, load_with_seed
from equiflock.experiments.flight_jobs import FlightJob, build_outcome_table, resolve_measures
from equiflock.experiments.summary import compute_peak_acceleration
from equiflock.experiments.world import DEFAULT_WORLD, World, make_world
from equiflock.flock import Flock
from equiflock.learning.recipe import EXPERT
from equiflock.outcomes import Outcome
from equiflock.protocols import Controller
from equiflock.runtime.checks import InputError, shorten_repr
from equiflock.scenarios import registry
from equiflock.scenarios.registry import Scenario, collect_options, find_failed_flights, make_scenario
from equiflock.simulation import metrics
from equiflock.simulation.simulate import Measure
from equiflock.simulation.trajectory import Trajectory

DISCONNECTED = "disconnected"
FLIGHT_METRICS: dict[str, Callable[[Trajectory], Any]] = {
    "ivv": metrics.ivv,
    "iman": metrics.iman,
    "peak_acceleration": compute_peak_acceleration,
    "smallest_separation": lambda run: run.series["minimum_separation"].min(axis=0),
    "component_count": lambda run: metrics.component_count(run.flock(), run.comm_radius),
    DISCONNECTED: lambda run: (metrics.component_count(run.flock(), run.comm_radius) > 1).astype(float),
}
"""Metrics of a whole flight, one number for each flock; in a table their rows have the time of the last moment."""
RECORDED_METRICS = (
    metrics.velocity_variance,
    metrics.mean_acceleration_norm,
    metrics.peak_acceleration_norm,
    metrics.minimum_separation,
)
"""The series that these metrics are computed from."""
HEADINGS = {
    "ivv": "IVV",
    "iman": "IMAN",
    "velocity_variance": "variance\nat end",
    "mean_leader_velocity_distance": "MLVD\nat end",
    "mean_acceleration_norm": "mean\n|a|\nat end",
    "peak_acceleration": "peak\n|a|",
    "smallest_separation": "smallest\nseparation",
    "component_count": "components\nat end",
    DISCONNECTED: "in\npieces",
}
"""Columns of the printed table, in their order; further measures of a scenario come after these."""


@dataclass(frozen=True)
class EvaluationJob(FlightJob):
    """The flights of one controller in a scenario."""

    controller: str
    seed: int | None
    scenario_name: str
    options: tuple[tuple[str, Any], ...]
    """The options of the scenario, as `make_scenario` takes them."""
    time_step: float
    duration: float
    name: str
    """The controller's name in tables and figures."""
    checksum: str
    """The checksum of the file of weights that is to be flown; empty if there is none."""
    plugin: str = ""
    """The checksum of the plugin that controller, scenario or body come from; empty if all come with the package."""
    world: World = DEFAULT_WORLD
    """The world that it flies in."""

    @property
    def key(self) -> str:
        """The job's name."""
        return self.name.replace("/", "_")

    @property
    def labels(self) -> dict[str, Any]:
        """The columns that mark its rows in the experiment's table."""
        return {"controller": self.name, "seed": self.seed}

    @property
    def scenario(self) -> Scenario:
        """The scenario that is flown."""
        return make_scenario(self.scenario_name, **dict(self.options))

    def make_controller(self) -> Controller:
        """The controller that flies."""
        return load_with_seed(self.controller, self.seed)

    def run(self) -> pd.DataFrame:
        """The table behind the scenario's figure: how each flight ended, or its measures over time and in the whole."""
        # A worker may find another file under the path, or one that was changed since the command was given.
        if self.checksum and compute_weights_checksum(self.controller, self.seed) != self.checksum:
            raise InputError(f"{self.controller} is missing, or not the file that was to be evaluated")
        if self.scenario.figure == "endings":
            run = self.fly(self.start(), keep_every=None, record=_select_own_measures(self.scenario))
            return build_outcome_table(run).assign(**{name: values[-1] for name, values in run.series.items()})
        # Curves of the scenario's measures; metrics of the whole flight stand in rows of the last moment.
        measures = resolve_measures(self.scenario)
        recorded = measures | {measure.__name__: measure for measure in RECORDED_METRICS}
        run = self.fly(self.start(), keep_every=None, record=recorded)
        curves = build_curve_table({name: run.series[name] for name in measures}, self.time_step)
        numbers = {name: of(run) for name, of in FLIGHT_METRICS.items() if name not in measures}
        return pd.concat([curves, _build_final_rows(numbers, curves.time.max())], ignore_index=True)


def _build_final_rows(numbers: dict[str, Any], time: float) -> pd.DataFrame:
    """Quartiles over flocks as rows of `build_curve_table`, all at one time."""
    rows = []
    for name, values in numbers.items():
        quartiles = {label: np.quantile(values, q) for label, q in QUARTILES.items()}
        rows.append({"time": time, "metric": name, **quartiles, "mean": values.mean()})
    return pd.DataFrame(rows)


def check_reportable(scenario: Scenario) -> None:
    """Raise a clear error, before anything is flown, if an evaluation could not show the results of the scenario."""
    resolve_measures(scenario)
    if scenario.figure == "endings":
        find_failed_flights(scenario, ())


def get_json_options(scenario: Scenario) -> dict[str, Any]:
    """The scenario's options as a job keeps them, fit for JSON; an error if any other has not its default."""
    usual = collect_options(make_scenario(scenario.name))
    options = collect_options(scenario)
    # Options such as an Orbit object cannot be kept; they are allowed if making the scenario by name gives the same.
    found = {name: value for name, value in options.items() if isinstance(value, (bool, int, float, str, NoneType))}
    for name in set(options) - set(found):
        if options[name] != usual[name]:
            raise InputError(f"an evaluation cannot keep the option {name} = {shorten_repr(options[name])}")
    return found


def list_baselines(controller: str, start: Flock) -> tuple[str, ...]:
    """The controllers to compare with: the networks of the package and, for flocks of followers only, the expert.

    In the paper the expert flies flocks without leaders and obstacles; nothing in its law is about these. If the
    controller is scaled to the units of a robot, so are its rivals.
    """
    # Followers have role 0, so any other role makes this true.
    experts = () if start.roles.any() else (EXPERT,)
    asked = parse_controller_name(controller, {})
    units = "".join(f":{key}={value}" for key, value in split_unit_options(asked[1])[0].items())
    names = (f"{name}{units}" for name in (*experts, *PAPER_NETWORKS))
    return tuple(name for name in names if parse_controller_name(name, {}) != asked)


def build_evaluation_jobs(
    controller: str,
    scenario: str,
    options: Mapping[str, Any],
    time_step: float,
    duration: float,
    baselines: Sequence[str],
    plugin: str = "",
    world: Mapping[str, Any] | None = None,
) -> Sequence[EvaluationJob]:
    """One job for the controller, and one for each of its rivals, networks of the package with training seed 0.

    `plugin` is the checksum of the plugin that was imported, if any; jobs that depend on it have it in their names.
    `world` has the settings of the world that all fly in, as `make_world` takes them; that of the paper if left out.
    """
    flown_in = make_world(**(world or {}))
    jobs = []
    for name in (controller, *baselines):
        # A job of the package's own parts does not depend on a plugin, so it is shared by all evaluations.
        seed = 0 if has_open_seed(name) else None
        flown = compute_weights_checksum(name, seed)
        bundled = is_bundled(name) and registry.is_bundled(scenario) and flown_in.is_bundled
        ours = scenario, tuple(sorted(options.items())), time_step, duration
        jobs.append(EvaluationJob(name, seed, *ours, format_label(name), flown, "" if bundled else plugin, flown_in))
    return jobs


def format_label(controller: str) -> str:
    """The name of a controller in tables and figures: that of a file of weights, with its folder if it is "weights"."""
    file, told = _split_options(controller)
    path = Path(file)
    if path.suffix != WEIGHTS_SUFFIX:
        return controller
    return (f"{path.absolute().parent.name}/{path.name}" if path.stem == "weights" else path.name) + told


def format_run_dir_name(controller: str, scenario: str, world: World = DEFAULT_WORLD) -> str:
    """The folder of an evaluation; a file of weights has its checksum in it, as many files have the same name."""
    file, told = _split_options(controller)
    path = Path(file)
    name = controller.replace("/", "_").replace(":", "-")
    if path.suffix == WEIGHTS_SUFFIX:
        name = f"{path.absolute().parent.name}-{path.stem}-{compute_weights_checksum(file)}{told.replace(':', '-')}"
    return f"{name}-{scenario}-{world.file_suffix}".removesuffix("-")


def _split_options(controller: str) -> tuple[str, str]:
    """A controller's name without its options, and these as they follow it."""
    name, _ = parse_controller_name(controller, {})
    return name, controller[len(name) :]


def build_table_rows(
    table: pd.DataFrame, scenario: Scenario, quartiles: bool = True
) -> tuple[list[str], list[list[str]]]:
    """The table that is printed: header, and a row for every controller, with quartiles over flocks or without."""
    if scenario.figure == "endings":
        return _build_outcome_rows(table, scenario)
    # Values at the end, and those of whole flights, which have the same time.
    last = table[table.time == table.time.max()]
    shown = [metric for metric in dict.fromkeys((*HEADINGS, *last.metric)) if metric in set(last.metric)]
    rows = []
    for name in dict.fromkeys(table.controller):
        mine = last[last.controller == name].set_index("metric")
        rows.append([name, *(_format_cell(metric, mine.loc[metric], quartiles) for metric in shown)])
    told = "median (quartiles)" if quartiles else "median"
    return [f"{told}\nover flocks", *map(_format_heading, shown)], rows


def _build_outcome_rows(table: pd.DataFrame, scenario: Scenario) -> tuple[list[str], list[list[str]]]:
    """The shares of flights by how they ended, the median time, and medians of what the scenario itself measures."""
    # Only outcomes that occurred have a column.
    endings = [outcome for outcome in Outcome.all() if outcome.name in set(table.outcome)]
    failed = [outcome.name for outcome in endings if outcome not in scenario.success_outcomes]
    own = _select_own_measures(scenario)
    rows = []
    for name in dict.fromkeys(table.controller):
        mine = table[table.controller == name]
        shares = [f"{(mine.outcome == ending.name).mean():.0%}" for ending in endings]
        medians = [f"{mine[measure].median():.3g}" for measure in own]
        rows.append(
            [name, f"{mine.outcome.isin(failed).mean():.0%}", *shares, f"{mine.seconds.median():.2f} s", *medians]
        )
    names = (ending.name.replace("_", "\n").lower() for ending in endings)
    return ["", "failed", *names, "median\ntime", *map(_format_heading, own)], rows


def _select_own_measures(scenario: Scenario) -> dict[str, Measure]:
    """The measures that are a scenario's own; variance and effort of flights of different lengths tell little."""
    return {
        name: found
        for name, found in resolve_measures(scenario).items()
        if name not in registry.SCENARIO_DEFAULTS["measures"]
    }


def _format_heading(metric: str) -> str:
    return HEADINGS.get(metric, metric.replace("_", "\n") + "\nat end")


def _format_cell(metric: str, found: Any, quartiles: bool) -> str:
    if metric == DISCONNECTED:
        return f"{found['mean']:.0%}"
    # Three figures, and whole numbers from 1,000 on; equal quartiles are left out.
    low, middle, high = (
        f"{found[label]:,.0f}" if found[label] >= 1000 else f"{found[label]:.3g}" for label in QUARTILES
    )
    return f"{middle} ({low}, {high})" if quartiles and low != high else middle
