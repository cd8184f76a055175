"""Comparison of controllers, by default of one with baselines of the package, in any scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import pandas as pd

from equiflock._runtime.checks import InputError, shorten_repr
from equiflock._runtime.checksums import SHORT_DIGITS, compute_checksum
from equiflock._runtime.specs import format_spec
from equiflock.controllers.loading import has_open_seed
from equiflock.controllers.registry import WEIGHTS_SUFFIX, is_bundled, parse_controller_name, split_unit_options
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.curves import QUARTILES, build_curve_table
from equiflock.evaluation.flight_statistics import (
    DISCONNECTED,
    ENDED_PREFIX,
    FAILED,
    check_user_metrics,
    compare_flights,
    format_heading,
    format_summary,
    is_share,
    summarize_flights,
)
from equiflock.evaluation.job_weights import check_weights, compute_weights_checksum, load_with_seed
from equiflock.flock import Flock
from equiflock.learning.recipe import EXPERT
from equiflock.outcomes import Outcome
from equiflock.protocols import Controller
from equiflock.scenarios import registry
from equiflock.scenarios.registry import Scenario, collect_options, find_failed_flights, make_scenario
from equiflock.simulation import metrics
from equiflock.simulation.environment import DEFAULT_ENVIRONMENT, Environment
from equiflock.simulation.flight_jobs import FlightJob, build_outcome_table, resolve_measures
from equiflock.simulation.metrics import METRICS, get_metric
from equiflock.simulation.simulate import Measure
from equiflock.simulation.trajectory import Trajectory
from equiflock.statistics import Estimate

REALISED = "iman_realised"
"""Column that only evaluations with a body that is not ideal have."""
FLIGHT_METRICS = (
    "ivv",
    "iman",
    REALISED,
    *metrics.Effort._fields,
    "smallest_separation",
    "component_count",
    DISCONNECTED,
)
"""Metrics of a whole flight, one number per flock, which `measure_flights` computes."""
FLIGHT_SERIES = (metrics.velocity_variance, *metrics.EFFORT_METRICS, metrics.minimum_separation)
"""Series from which these metrics are computed, beside that of realised accelerations."""
HEADINGS = {
    "ivv": "IVV",
    "iman": "IMAN",
    REALISED: "IMAN\nrealised",
    "velocity_variance": "variance\nat end",
    "mean_leader_velocity_distance": "MLVD\nat end",
    "mean_acceleration_norm": "mean\n|a|\nat end",
    "rms_acceleration": "RMS\n|a|",
    "peak_acceleration": "peak\n|a|",
    "residual_acceleration": "residual\n|a|",
    "jerk": "RMS\njerk",
    "smallest_separation": "smallest\nseparation",
    "component_count": "components\nat end",
    DISCONNECTED: "discon-\nnected",
    FAILED: "failed",
    "seconds": "time (s)",
}
"""Columns of the printed table in their order; other measures of a scenario and metrics of users follow."""
STARLING = "starling"
"""Baseline beside those of the paper: the package's own network."""
CURVE_COLUMNS = ("time", "metric", *QUARTILES, "mean")
LABEL_COLUMNS = ("controller", "seed")
OUTCOME_COLUMNS = ("flock", "outcome", "seconds", FAILED)
RESERVED_COLUMNS = {*LABEL_COLUMNS, *CURVE_COLUMNS, *FLIGHT_METRICS, *OUTCOME_COLUMNS}
"""Columns whose names users' metrics and measures must not have."""
MAX_DIR_NAME = 120
"""Length of a run directory's name beyond which a checksum replaces the names of further controllers."""


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
    metrics: tuple[str, ...] = ()
    """Names of users' metrics, columns of the result."""
    result_version: int = 2
    """Version of the columns of the result: results of another version are computed again."""

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
        """Return a row per flock, with its metrics, and if the figure has curves the rows of `build_curve_table`, too.

        If the figure is "endings", a flock has its outcome, effort, and the values of measures that only the scenario
        has. `split_results` separates the two kinds of rows. Raise InputError if the weights changed.
        """
        check_weights(self.controller, self.seed, self.checksum, "evaluation")
        user_metrics = {name: get_metric(name) for name in self.metrics}
        if self.scenario.figure == "endings":
            measures = _select_own_measures(self.scenario) | user_metrics
            recorded = measures | {measure.__name__: measure for measure in metrics.EFFORT_METRICS}
            run = self.fly(self.draw_start(), keep_every=None, record=recorded)
            columns: dict[str, Any] = metrics.effort(run)._asdict()
            columns |= _summarize_measures(run, [name for name in measures if name not in columns])
            failed = find_failed_flights(self.scenario, run.outcome).astype(int)
            return build_outcome_table(run).assign(**{FAILED: failed, **columns})
        measures = resolve_measures(self.scenario) | user_metrics
        recorded = measures | {measure.__name__: measure for measure in FLIGHT_SERIES}
        if not self.environment.has_ideal_body:
            recorded["mean_realised_acceleration_norm"] = metrics.mean_realised_acceleration_norm
        run = self.fly(self.draw_start(), keep_every=None, record=recorded)
        curves = build_curve_table({name: run.series[name] for name in measures}, self.time_step)
        columns = {"flock": np.arange(len(run.steps)), **measure_flights(run)}
        columns |= _summarize_measures(run, [name for name in measures if name not in columns])
        return pd.concat([curves, pd.DataFrame(columns)], ignore_index=True)


def measure_flights(run: Trajectory) -> dict[str, Any]:
    """Return the `FLIGHT_METRICS` of a run that recorded `FLIGHT_SERIES`, one number per flock.

    The IMAN of realised accelerations is among them if they were recorded.
    """
    component_counts = metrics.component_count(run.flock(), run.comm_radius)
    has_realised = "mean_realised_acceleration_norm" in run.series
    return {
        "ivv": metrics.ivv(run),
        "iman": metrics.iman(run),
        **({REALISED: metrics.iman_realised(run)} if has_realised else {}),
        **metrics.effort(run)._asdict(),
        "smallest_separation": run.series["minimum_separation"].min(axis=0),
        "component_count": component_counts,
        DISCONNECTED: (component_counts > 1).astype(float),
    }


def _summarize_measures(run: Trajectory, names: Sequence[str]) -> dict[str, Any]:
    """Return recorded measures of whole flights: metrics as they were registered, others with their final values."""
    return {name: get_metric(name).summarize(run) if name in METRICS.parts else run.series[name][-1] for name in names}


def split_results(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of curves, none if the figure has none, and the rows of flights of a table of evaluation jobs."""
    is_flight = table.flock.notna()
    names = [name for name in table.columns if name not in (*LABEL_COLUMNS, *CURVE_COLUMNS, "flock")]
    flights = table.loc[is_flight, [*LABEL_COLUMNS, "flock", *names]].astype({"flock": int})
    curves = table.loc[~is_flight, [name for name in (*LABEL_COLUMNS, *CURVE_COLUMNS) if name in table.columns]]
    return curves.reset_index(drop=True), flights.reset_index(drop=True)


def check_reportable(scenario: Scenario) -> None:
    """Raise InputError, before any flight, if the scenario's results would have no table.

    That is, if a measure is unknown or has the name of another column, or if there are endings but no successes.
    """
    for name, measure in resolve_measures(scenario).items():
        # A metric of the package that is a column of all evaluations.
        is_same = name in METRICS.parts and getattr(measure, "function", measure) is METRICS.parts[name].function
        if name in RESERVED_COLUMNS and not is_same:
            raise InputError(
                f"the measure {name!r} of scenario {scenario.name!r} has the name of another column of the table: "
                "rename it"
            )
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
    """Return the baselines: the paper's networks, starling and, for flocks of followers only, the expert.

    The controller itself is left out. The expert's law does not model leaders and obstacles. If the controller is
    scaled to the units of a robot, so are the baselines.
    """
    # Followers have role 0.
    experts = () if start.roles.any() else (EXPERT,)
    evaluated = parse_controller_name(controller)
    units, _ = split_unit_options(evaluated.options)
    names = (format_spec(name, **units) for name in (*experts, *PAPER_NETWORKS, STARLING))
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
    user_metrics = check_user_metrics(RESERVED_COLUMNS)
    names = (controller, *baselines)
    jobs = []
    for name, label in zip(names, format_labels(names), strict=True):
        # A job whose parts all come with the package does not depend on a plugin; all evaluations share it.
        seed = 0 if has_open_seed(name) else None
        checksum = compute_weights_checksum(name, seed)
        bundled = is_bundled(name) and registry.is_bundled(scenario) and built.is_bundled and not user_metrics
        flight = scenario, tuple(sorted(options.items())), time_step, duration
        depends_on = "" if bundled else plugin
        jobs.append(EvaluationJob(name, seed, *flight, label, checksum, depends_on, built, user_metrics))
    return jobs


def format_labels(controllers: Sequence[str]) -> list[str]:
    """Return the names in tables and figures: those of `format_label`, or what was given where these are equal."""
    labels = [format_label(name) for name in controllers]
    return [name if labels.count(label) > 1 else label for name, label in zip(controllers, labels, strict=True)]


def format_label(controller: str) -> str:
    """Return the name in tables and figures; of a weights file its name, with its directory if it is "weights"."""
    file, options = _split_options(controller)
    path = Path(file)
    if path.suffix != WEIGHTS_SUFFIX:
        return controller
    return (f"{path.absolute().parent.name}/{path.name}" if path.stem == "weights" else path.name) + options


def format_run_dir_name(
    controllers: Sequence[str], scenario: str, environment: Environment = DEFAULT_ENVIRONMENT
) -> str:
    """Return the name of the run directory of an evaluation of these controllers, of which one has baselines.

    It has the checksum of a weights file, as many share a name.
    """
    names = "-".join(map(_format_dir_name, controllers))
    if len(controllers) > 1 and len(names) > MAX_DIR_NAME:
        names = f"{_format_dir_name(controllers[0])}-{compute_checksum(names.encode())[:SHORT_DIGITS]}"
    return f"{names}-{scenario}-{environment.file_suffix}".removesuffix("-")


def _format_dir_name(controller: str) -> str:
    """Return a controller's part of the name of a run directory."""
    file, options = _split_options(controller)
    path = Path(file)
    if path.suffix != WEIGHTS_SUFFIX:
        return controller.replace("/", "_").replace(":", "-")
    checksum = compute_weights_checksum(file)[:SHORT_DIGITS]
    return f"{path.absolute().parent.name}-{path.stem}-{checksum}{options.replace(':', '-')}"


def _split_options(controller: str) -> tuple[str, str]:
    """Split a controller's name into the name without options, and the options with their leading colon."""
    name, _ = parse_controller_name(controller)
    return name, controller[len(name) :]


def list_shown_metrics(flights: pd.DataFrame) -> list[str]:
    """Return the columns of flights that are metrics, in the order of the printed table; the failures come first."""
    names = [name for name in flights.columns if name not in (*LABEL_COLUMNS, "flock", "outcome")]
    ended = [name for name in names if name.startswith(ENDED_PREFIX)]
    first = [FAILED, *ended, *HEADINGS]
    return sorted(names, key=lambda name: first.index(name) if name in first else len(first))


def add_outcome_columns(flights: pd.DataFrame) -> pd.DataFrame:
    """Return the flights with a column for each outcome that occurred, 1 where a flight has it; others unchanged."""
    if "outcome" not in flights:
        return flights
    occurred = [outcome.name for outcome in Outcome.all() if outcome.name in set(flights.outcome)]
    columns = {f"{ENDED_PREFIX}{name.replace('_', ' ').lower()}": (flights.outcome == name) * 1.0 for name in occurred}
    return flights.assign(**columns)


def summarize_evaluation(flights: pd.DataFrame) -> pd.DataFrame:
    """Return a row per controller and metric, as `summarize_flights`, with shares of outcomes."""
    flights = add_outcome_columns(flights)
    return summarize_flights(flights, ["controller"], list_shown_metrics(flights))


def compare_controllers(flights: pd.DataFrame) -> pd.DataFrame:
    """Return the table of `compare_flights` for all metrics that are comparable between flights of different lengths.

    Metrics that are not registered have no direction, so no improvement.
    """
    directions = {name: metric.larger_is_better for name, metric in METRICS.parts.items()}
    directions |= dict.fromkeys((*FLIGHT_METRICS, FAILED), False) | {"smallest_separation": True}
    names = [name for name in list_shown_metrics(flights) if name != "seconds"]
    return compare_flights(flights, {name: directions.get(name) for name in names})


def build_table_rows(summary: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the printed table, a row per controller: medians or shares, with intervals."""
    names = list(dict.fromkeys(summary.metric))
    cells = {(row.controller, row.metric): format_summary(row) for row in summary.itertuples()}
    rows = [[label, *(cells[label, name] for name in names)] for label in dict.fromkeys(summary.controller)]
    return ["", *map(_format_heading, names)], rows


def build_comparison_rows(
    comparison: pd.DataFrame, scenario: Scenario, user_metrics: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the printed comparison: for each metric two columns, difference and improvement.

    Its metrics are failures or the integrals IVV and IMAN, the scenario's own measures and users' metrics.
    """
    shown = {"ivv", "iman", FAILED, *_select_own_measures(scenario), *user_metrics}
    names = [name for name in dict.fromkeys(comparison.metric) if name in shown]
    cells: dict[tuple[str, str], list[str]] = {}
    for row in comparison.itertuples():
        difference = Estimate(row.difference, row.difference_low, row.difference_high, row.n)
        improvement = Estimate(row.improvement, row.improvement_low, row.improvement_high, row.n)
        cells[row.controller, row.metric] = [
            "-" if row.n == 0 else difference.percent if is_share(row.metric) else str(difference),
            "-" if np.isnan(improvement.value) else improvement.percent,
        ]
    rows = [
        [label, *(cell for name in names for cell in cells[label, name])]
        for label in dict.fromkeys(comparison.controller)
    ]
    headings = ((f"{_format_heading(name)}\ndifference", "improves") for name in names)
    return ["", *(heading for pair in headings for heading in pair)], rows


def _select_own_measures(scenario: Scenario) -> dict[str, Measure]:
    """Return the measures that only this scenario has.

    Variance and effort are left out: they are not comparable between flights of different lengths.
    """
    return {name: measure for name, measure in resolve_measures(scenario).items() if name not in Scenario.measures}


def _format_heading(metric: str) -> str:
    """Return the heading of a column of the printed table."""
    if metric in HEADINGS:
        return HEADINGS[metric]
    if metric.startswith(ENDED_PREFIX):
        return metric.removeprefix(ENDED_PREFIX).replace(" ", "\n")
    return format_heading(metric)
