"""Evaluation of a controller against baselines of the package, in any scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import pandas as pd

from equiflock._runtime.checks import InputError, shorten_repr
from equiflock._runtime.checksums import SHORT_DIGITS
from equiflock._runtime.specs import format_spec
from equiflock.controllers.loading import has_open_seed
from equiflock.controllers.registry import WEIGHTS_SUFFIX, is_bundled, parse_controller_name, split_unit_options
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.curves import QUARTILES, build_curve_table
from equiflock.evaluation.job_weights import check_weights, compute_weights_checksum, load_with_seed
from equiflock.evaluation.summary import compute_peak_acceleration
from equiflock.flock import Flock
from equiflock.learning.recipe import EXPERT
from equiflock.outcomes import Outcome
from equiflock.protocols import Controller
from equiflock.scenarios import registry
from equiflock.scenarios.registry import Scenario, collect_options, find_failed_flights, make_scenario
from equiflock.simulation import metrics
from equiflock.simulation.environment import DEFAULT_ENVIRONMENT, Environment
from equiflock.simulation.flight_jobs import FlightJob, build_outcome_table, resolve_measures
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
"""Metrics of a whole flight, one number per flock; their table rows have the time of the last moment."""
RECORDED_METRICS = (
    metrics.velocity_variance,
    metrics.mean_acceleration_norm,
    metrics.peak_acceleration_norm,
    metrics.minimum_separation,
)
"""Series from which these metrics are computed."""
HEADINGS = {
    "ivv": "IVV",
    "iman": "IMAN",
    "velocity_variance": "variance\nat end",
    "mean_leader_velocity_distance": "MLVD\nat end",
    "mean_acceleration_norm": "mean\n|a|\nat end",
    "peak_acceleration": "peak\n|a|",
    "smallest_separation": "smallest\nseparation",
    "component_count": "components\nat end",
    DISCONNECTED: "discon-\nnected",
}
"""Columns of the printed table in their order; other measures of a scenario follow."""


@dataclass(frozen=True)
class EvaluationJob(FlightJob):
    """Flights of one controller in a scenario."""

    controller: str
    seed: int | None
    scenario_name: str
    options: tuple[tuple[str, Any], ...]
    """Scenario options as `make_scenario` accepts them."""
    time_step: float
    duration: float
    name: str
    """The controller's name in tables and figures."""
    checksum: str
    """Checksum of the weights file; empty if the controller has none."""
    plugin: str = ""
    """Checksum of the plugin that defines controller, scenario or body; empty if the package defines all three."""
    environment: Environment = DEFAULT_ENVIRONMENT
    """Radio, body and failures of the flights."""

    @property
    def key(self) -> str:
        """Name of the job."""
        return self.name.replace("/", "_")

    @property
    def labels(self) -> dict[str, Any]:
        """Columns that identify the job's rows in the experiment's table."""
        return {"controller": self.name, "seed": self.seed}

    @property
    def scenario(self) -> Scenario:
        """Scenario of the flights."""
        return make_scenario(self.scenario_name, **dict(self.options))

    def make_controller(self) -> Controller:
        """Load the controller."""
        return load_with_seed(self.controller, self.seed)

    def run(self) -> pd.DataFrame:
        """Return the table behind the scenario's figure: outcomes per flock, or quartiles of measures over flocks.

        Outcomes have a column per measure that only this scenario has, with its final value. Quartiles are those of
        `build_curve_table`, with metrics of whole flights at the last moment. Raise InputError if the weights changed.
        """
        check_weights(self.controller, self.seed, self.checksum, "evaluation")
        if self.scenario.figure == "endings":
            run = self.fly(self.draw_start(), keep_every=None, record=_select_own_measures(self.scenario))
            return build_outcome_table(run).assign(**{name: values[-1] for name, values in run.series.items()})
        measures = resolve_measures(self.scenario)
        recorded = measures | {measure.__name__: measure for measure in RECORDED_METRICS}
        run = self.fly(self.draw_start(), keep_every=None, record=recorded)
        curves = build_curve_table({name: run.series[name] for name in measures}, self.time_step)
        numbers = {name: compute(run) for name, compute in FLIGHT_METRICS.items() if name not in measures}
        return pd.concat([curves, _build_final_rows(numbers, curves.time.max())], ignore_index=True)


def _build_final_rows(numbers: dict[str, Any], time: float) -> pd.DataFrame:
    """Return quartiles over flocks as rows like those of `build_curve_table`, all at one time."""
    rows = []
    for name, values in numbers.items():
        quartiles = {label: np.quantile(values, q) for label, q in QUARTILES.items()}
        rows.append({"time": time, "metric": name, **quartiles, "mean": values.mean()})
    return pd.DataFrame(rows)


def check_reportable(scenario: Scenario) -> None:
    """Raise InputError, before any flight, if a measure is unknown, or the scenario has endings but no successes."""
    resolve_measures(scenario)
    if scenario.figure == "endings":
        find_failed_flights(scenario, ())


def get_json_options(scenario: Scenario) -> dict[str, Any]:
    """Return the scenario's JSON-serializable options. Raise InputError if any other option is not at its default."""
    defaults = collect_options(make_scenario(scenario.name))
    options = collect_options(scenario)
    # Options such as an Orbit object cannot be stored; they are allowed if the scenario's name alone restores them.
    result = {name: value for name, value in options.items() if isinstance(value, (bool, int, float, str, NoneType))}
    for name in set(options) - set(result):
        if options[name] != defaults[name]:
            raise InputError(f"an evaluation cannot store the option {name} = {shorten_repr(options[name])}")
    return result


def list_baselines(controller: str, start: Flock) -> tuple[str, ...]:
    """Return the baselines: the paper's networks and, for flocks of followers only, the expert; not the controller.

    The expert's law does not model leaders and obstacles. If the controller is scaled to the units of a robot, so are
    the baselines.
    """
    # Followers have role 0.
    experts = () if start.roles.any() else (EXPERT,)
    evaluated = parse_controller_name(controller)
    units, _ = split_unit_options(evaluated.options)
    names = (format_spec(name, **units) for name in (*experts, *PAPER_NETWORKS))
    return tuple(name for name in names if parse_controller_name(name) != evaluated)


def build_evaluation_jobs(
    controller: str,
    scenario: str,
    options: Mapping[str, Any],
    time_step: float,
    duration: float,
    baselines: Sequence[str],
    plugin: str = "",
    environment: Mapping[str, Any] | None = None,
) -> Sequence[EvaluationJob]:
    """Return a job for the controller and then one per baseline; networks of the package have training seed 0.

    `plugin` is the checksum of the imported plugin, if any; jobs that depend on it have it in their names.
    `environment` holds options of `Environment.from_options`, the same for all jobs; by default the paper's.
    """
    built = Environment.from_options(**(environment or {}))
    jobs = []
    for name in (controller, *baselines):
        # A job whose parts all come with the package does not depend on a plugin; all evaluations share it.
        seed = 0 if has_open_seed(name) else None
        checksum = compute_weights_checksum(name, seed)
        bundled = is_bundled(name) and registry.is_bundled(scenario) and built.is_bundled
        flight = scenario, tuple(sorted(options.items())), time_step, duration
        jobs.append(EvaluationJob(name, seed, *flight, format_label(name), checksum, "" if bundled else plugin, built))
    return jobs


def format_label(controller: str) -> str:
    """Return the name in tables and figures; of a weights file its name, with its directory if it is "weights"."""
    file, options = _split_options(controller)
    path = Path(file)
    if path.suffix != WEIGHTS_SUFFIX:
        return controller
    return (f"{path.absolute().parent.name}/{path.name}" if path.stem == "weights" else path.name) + options


def format_run_dir_name(controller: str, scenario: str, environment: Environment = DEFAULT_ENVIRONMENT) -> str:
    """Return the name of an evaluation's run directory, with the checksum of a weights file, as many share a name."""
    file, options = _split_options(controller)
    path = Path(file)
    name = controller.replace("/", "_").replace(":", "-")
    if path.suffix == WEIGHTS_SUFFIX:
        checksum = compute_weights_checksum(file)[:SHORT_DIGITS]
        name = f"{path.absolute().parent.name}-{path.stem}-{checksum}{options.replace(':', '-')}"
    return f"{name}-{scenario}-{environment.file_suffix}".removesuffix("-")


def _split_options(controller: str) -> tuple[str, str]:
    """Split a controller's name into the name without options, and the options with their leading colon."""
    name, _ = parse_controller_name(controller)
    return name, controller[len(name) :]


def build_table_rows(
    table: pd.DataFrame, scenario: Scenario, quartiles: bool = True
) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the printed table, one row per controller.

    Cells are medians over flocks at the end, with `quartiles` in parentheses, or for scenarios whose figure is
    "endings" shares of outcomes.
    """
    if scenario.figure == "endings":
        return _build_outcome_rows(table, scenario)
    # Final values, and whole-flight metrics, which have the same time.
    last = table[table.time == table.time.max()]
    shown = [metric for metric in dict.fromkeys((*HEADINGS, *last.metric)) if metric in set(last.metric)]
    rows = []
    for name in dict.fromkeys(table.controller):
        values = last[last.controller == name].set_index("metric")
        rows.append([name, *(_format_cell(metric, values.loc[metric], quartiles) for metric in shown)])
    statistic = "median (quartiles)" if quartiles else "median"
    return [f"{statistic}\nover flocks", *map(_format_heading, shown)], rows


def _build_outcome_rows(table: pd.DataFrame, scenario: Scenario) -> tuple[list[str], list[list[str]]]:
    """Return the shares of flights by outcome, the median time, and medians of the scenario's own measures."""
    outcomes = [outcome for outcome in Outcome.all() if outcome.name in set(table.outcome)]
    failed = [outcome.name for outcome in outcomes if outcome not in scenario.success_outcomes]
    own = _select_own_measures(scenario)
    rows = []
    for name in dict.fromkeys(table.controller):
        flights = table[table.controller == name]
        failure_rate = f"{flights.outcome.isin(failed).mean():.0%}"
        shares = [f"{(flights.outcome == outcome.name).mean():.0%}" for outcome in outcomes]
        medians = [f"{flights[measure].median():.3g}" for measure in own]
        rows.append([name, failure_rate, *shares, f"{flights.seconds.median():.2f} s", *medians])
    names = (outcome.name.replace("_", "\n").lower() for outcome in outcomes)
    return ["", "failed", *names, "median\ntime", *map(_format_heading, own)], rows


def _select_own_measures(scenario: Scenario) -> dict[str, Measure]:
    """Return the measures that only this scenario has.

    Variance and effort are left out: they are not comparable between flights of different lengths.
    """
    return {name: measure for name, measure in resolve_measures(scenario).items() if name not in Scenario.measures}


def _format_heading(metric: str) -> str:
    return HEADINGS.get(metric, metric.replace("_", "\n") + "\nat end")


def _format_cell(metric: str, values: Any, quartiles: bool) -> str:
    """Return the median, with quartiles in parentheses if wanted and unequal; for `DISCONNECTED`, the mean in %."""
    if metric == DISCONNECTED:
        return f"{values['mean']:.0%}"
    # Three significant figures, integers from 1,000 on.
    low, middle, high = (
        f"{values[label]:,.0f}" if values[label] >= 1000 else f"{values[label]:.3g}" for label in QUARTILES
    )
    return f"{middle} ({low}, {high})" if quartiles and low != high else middle
