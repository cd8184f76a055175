"""Summary of a run: median and interquartile range over flocks of its most important metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from equiflock.flock import Role
from equiflock.scenarios.registry import Scenario, find_failed_flights
from equiflock.simulation import metrics
from equiflock.simulation.environment import Environment
from equiflock.simulation.simulate import Measure
from equiflock.simulation.trajectory import Trajectory

RECORDED_METRICS: tuple[Measure, ...] = (
    metrics.velocity_variance,
    *metrics.EFFORT_METRICS,
    metrics.component_count,
    metrics.minimum_separation,
)
"""Series that `summarize` reads; pass them to `simulate(record=...)`."""
SUMMARIZED_METRICS: tuple[Measure, ...] = (
    *RECORDED_METRICS,
    metrics.largest_velocity_difference,
    metrics.diameter,
    metrics.mean_leader_velocity_distance,
    metrics.mean_realised_acceleration_norm,
)
"""Metrics that have rows in a summary."""


@dataclass(frozen=True)
class MetricSummary:
    """One metric over the flocks of a run."""

    name: str
    values: Float64[np.ndarray, " B"]
    is_share: bool = False
    """Whether values are 1 or 0, so that the text is the share of flocks."""

    @property
    def quartiles(self) -> tuple[float, float, float]:
        """25%, median and 75%."""
        low, middle, high = np.quantile(self.values, (0.25, 0.5, 0.75)).tolist()
        return low, middle, high

    @property
    def median(self) -> str:
        """Median to three figures."""
        return f"{np.median(self.values):.3g}"

    @property
    def text(self) -> str:
        """Median and quartiles to three figures, or a single number if they are equal; a share in percent."""
        if self.is_share:
            return f"{100 * self.values.mean():.3g}%"
        if (self.values == self.values[0]).all():  # covers infinity, which has no quantiles
            return f"{self.values[0]:.3g}"
        low, middle, high = (f"{value:.3g}" for value in self.quartiles)
        return middle if low == high else f"{middle} ({low}, {high})"


def list_recorded_metrics(environment: Environment) -> dict[str, Measure]:
    """Return the series that `summarize` reads by name, with realised accelerations if the body is not ideal."""
    realised = () if environment.has_ideal_body else (metrics.mean_realised_acceleration_norm,)
    return {measure.__name__: measure for measure in (*RECORDED_METRICS, *realised)}


def summarize(run: Trajectory) -> list[MetricSummary]:
    """Return the integrals IVV and IMAN, final values, extremes and effort of a run that recorded `RECORDED_METRICS`.

    The IMAN of realised accelerations is included if they were recorded, and MLVD, the mean distance to the leaders'
    velocity, if every flock has a leader. Other recorded series follow, metrics over the flight as they were
    registered, others with their final values.
    """
    series, effort = run.series, metrics.effort(run)
    realised = []
    if metrics.mean_realised_acceleration_norm.__name__ in series:
        realised = [MetricSummary("realised acceleration norm, integral", metrics.iman_realised(run))]
    rows = [
        MetricSummary("velocity variance, integral (IVV)", metrics.ivv(run)),
        MetricSummary("acceleration norm, integral (IMAN)", metrics.iman(run)),
        MetricSummary("velocity variance, end", series["velocity_variance"][-1]),
        MetricSummary("largest velocity difference, end", metrics.largest_velocity_difference(run.flock())),
        MetricSummary("smallest separation, in flight", series["minimum_separation"].min(axis=0)),
        MetricSummary("RMS acceleration, in flight", effort.rms_acceleration),
        MetricSummary("peak acceleration, in flight", effort.peak_acceleration),
        MetricSummary("residual acceleration, end", effort.residual_acceleration),
        MetricSummary("jerk (RMS), in flight", effort.jerk),
        *realised,
        MetricSummary("diameter, end", metrics.diameter(run.flock())),
        MetricSummary("components, end", series["component_count"][-1]),
    ]
    if (run.roles == Role.LEADER).any(axis=1).all():
        distances = metrics.mean_leader_velocity_distance(run.flock())
        rows.append(MetricSummary("leader velocity distance (MLVD), end", distances))
    # Metrics that the rows above show, and which a scenario may have recorded as well.
    others = (name for name in series if name not in {measure.__name__ for measure in SUMMARIZED_METRICS})
    return [*rows, *(_summarize_series(run, name) for name in others)]


def _summarize_series(run: Trajectory, name: str) -> MetricSummary:
    """Return the row of a recorded series: its metric over the flight, or the final value if it is no metric."""
    title = metrics.format_title(name)
    if name not in metrics.METRICS.parts:
        return MetricSummary(title, run.series[name][-1])
    metric = metrics.get_metric(name)
    return MetricSummary(title, metric.summarize(run), metric.is_share)


def summarize_outcomes(run: Trajectory, scenario: Scenario) -> list[list[str]]:
    """Return rows (name, text): seconds flown, number of failed flights, and number of flights by outcome.

    Empty if the scenario has no ending; failures only if it defines successes.
    """
    if scenario.ending() is None:
        return []
    outcomes = run.outcome
    counts = {"failed": int(find_failed_flights(scenario, outcomes).sum())} if scenario.success_outcomes else {}
    names = {outcome: outcome.name.replace("_", " ").lower() for outcome in sorted(set(outcomes))}
    counts |= {f"ended: {names[outcome]}": outcomes.count(outcome) for outcome in names}
    rows = [[name, f"{count} of {len(outcomes)}"] for name, count in counts.items()]
    durations = MetricSummary("seconds flown", run.steps * run.time_step)
    return [[durations.name, durations.text], *rows]
