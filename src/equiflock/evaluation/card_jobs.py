"""Jobs of a report card: one controller under one condition, or under one disturbance until it breaks."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64

from equiflock._runtime.checks import InputError, TimeStepWarning
from equiflock.controllers import load
from equiflock.evaluation.card_conditions import SETTLED_SHARE, Condition, Disturbance
from equiflock.evaluation.evaluate import FLIGHT_SERIES, measure_flights
from equiflock.evaluation.job_weights import check_weights
from equiflock.flock import Flock, Role
from equiflock.simulation import metrics
from equiflock.simulation.trajectory import Trajectory
from equiflock.statistics import find_breakpoint

SUCCESS, COLLIDED = "success", "collided"
COLLISION_SHARE = 0.1
"""Distance of two agents below which they collide, in communication radii: R_min of the paper."""
METRIC_TITLES = {
    SUCCESS: "success rate",
    "order_parameter": "order parameter",
    "final_variance": "final velocity variance",
    "settling_time": "settling time (s)",
    "mlvd": "distance to leaders' velocity",
    "component_count": "components",
    "algebraic_connectivity": "algebraic connectivity",
    "smallest_separation": "smallest separation",
    COLLIDED: "flights with a collision",
    "rms_acceleration": "RMS |a|",
    "peak_acceleration": "peak |a|",
    "residual_acceleration": "residual |a|",
    "jerk": "RMS jerk",
}
"""Columns of a row's result, in the order of the card's tables."""
SHARE_METRICS = (SUCCESS, COLLIDED)
LARGER_IS_BETTER: dict[str, bool | None] = {
    **dict.fromkeys(METRIC_TITLES, False),
    **dict.fromkeys((SUCCESS, "order_parameter", "algebraic_connectivity"), True),
    "smallest_separation": None,
}
THRESHOLDS = (0.95, 0.5)
"""Success rates whose breakpoints are found."""


@dataclass(frozen=True)
class CardJob(ABC):
    """Base class of the jobs of a card: the controller, and what its result depends on."""

    name: str
    """The controller's name on the card."""
    controller: str
    """As `load` takes it."""
    checksum: str
    """Checksum of the weights file; empty if the controller has none."""
    plugin: str
    """Checksum of the plugin that defines the controller; empty if it comes with the package."""

    @property
    @abstractmethod
    def part(self) -> str:
        """Name of the row or disturbance."""

    @property
    def key(self) -> str:
        """Name of the job."""
        text = f"{self.name}-{self.part}"
        return "".join(letter if letter.isalnum() or letter in "-=." else "_" for letter in text)[-100:]

    @property
    def labels(self) -> dict[str, Any]:
        """Columns that identify the job's rows in the card's table."""
        return {"controller": self.name, "part": self.part}

    def run(self) -> pd.DataFrame:
        """Return the result; if the controller fails, a single row whose `remark` says why.

        Raise InputError if the weights changed.
        """
        check_weights(self.controller, None, self.checksum, "report card")
        # The card's own process has loaded it: a worker that cannot is no result.
        load(self.controller)
        try:
            with warnings.catch_warnings():
                # Rows beyond the longest time step of its training are part of the card.
                warnings.simplefilter("ignore", TimeStepWarning)
                return self.compute().assign(remark="")
        # These may pass; a result would stay.
        except (MemoryError, OSError):
            raise
        # A user's controller may raise anything; the other rows of the card do not depend on it.
        except Exception as error:
            return pd.DataFrame([{"flock": 0, "remark": describe_error(error)}])

    @abstractmethod
    def compute(self) -> pd.DataFrame:
        """Fly, and return the result."""


def describe_error(error: Exception) -> str:
    """Return an error in one line, with its type unless it is one of ours, whose text says all."""
    text = " ".join(str(error).split())
    return text if isinstance(error, InputError) else f"{type(error).__name__}: {text}"


@dataclass(frozen=True)
class RowJob(CardJob):
    """Flights of a controller under one condition."""

    condition: Condition
    result_version: int = 1
    """Version of the columns of the result: results of another version are computed again."""

    @property
    def part(self) -> str:
        """Name of the row."""
        return self.condition.name

    def compute(self) -> pd.DataFrame:
        """Return a row per flock with its metrics."""
        start = self.condition.draw_start()
        controller = load(self.controller, **self.condition.units)
        run = self.condition.fly(controller, start, keep_every=None, record=FLIGHT_SERIES)
        columns = measure_row(self.condition, start, run)
        return pd.DataFrame({"flock": np.arange(len(run.steps)), **columns})


def measure_row(condition: Condition, start: Flock, run: Trajectory) -> dict[str, Float64[np.ndarray, " B"]]:
    """Return the metrics of a run that recorded `FLIGHT_SERIES`, one number per flock; NaN where one has no value."""
    last, variance, measured = run.flock(), run.series["velocity_variance"], measure_flights(run)
    separation = measured["smallest_separation"] / run.comm_radius
    has_leaders = bool((run.roles == Role.LEADER).any(axis=1).all())
    values = {
        SUCCESS: condition.find_successes(start, run).astype(float),
        "order_parameter": metrics.order_parameter(last),
        "final_variance": variance[-1],
        "settling_time": _compute_settling_time(variance, run.time_step),
        "mlvd": metrics.mean_leader_velocity_distance(last) if has_leaders else np.full(len(start), np.nan),
        "component_count": measured["component_count"],
        "algebraic_connectivity": metrics.algebraic_connectivity(last),
        "smallest_separation": separation,
        COLLIDED: (separation < COLLISION_SHARE).astype(float),
        **{name: measured[name] for name in metrics.Effort._fields},
    }
    # A number that overflowed is as bad as can be, not unknown.
    return {
        name: np.where(
            np.isnan(value) & (name != "mlvd" or has_leaders), 0.0 if LARGER_IS_BETTER[name] else np.inf, value
        )
        for name, value in values.items()
    }


def _compute_settling_time(variance: Float64[np.ndarray, "T1 B"], time_step: float) -> Float64[np.ndarray, " B"]:
    """Return the time from which on the variance stays below SETTLED_SHARE of its first value; infinite if never."""
    restless = ~(variance < SETTLED_SHARE * variance[0])
    steps = len(variance) - np.argmax(restless[::-1], axis=0)
    return np.where(steps == len(variance), np.inf, steps * time_step)


@dataclass(frozen=True)
class BreakpointJob(CardJob):
    """Flights of a controller under one disturbance, at the levels that bisection asks for."""

    disturbance: Disturbance
    result_version: int = 1

    @property
    def part(self) -> str:
        """Name of the disturbance."""
        return self.disturbance.name

    def compute(self) -> pd.DataFrame:
        """Return a row per threshold, with `value`, `low` and `high` as indices of levels, and one per level flown."""
        levels, successes = self.disturbance.levels, dict[int, int]()
        controller = load(self.controller)

        def count_successes(index: int) -> int:
            if index not in successes:
                condition = self.disturbance.apply(levels[index])
                start = condition.draw_start()
                try:
                    run = condition.fly(controller, start, keep_every=None)
                    successes[index] = int(condition.find_successes(start, run).sum())
                # Flocks that fly off the scale have failed, unless they do without the disturbance.
                except InputError:
                    if index == 0:
                        raise
                    successes[index] = 0
            return successes[index]

        rows: list[dict[str, Any]] = []
        for threshold in THRESHOLDS:
            found = find_breakpoint(count_successes, len(levels), self.disturbance.base.flocks, threshold)
            rows.append({"threshold": threshold, **found._asdict()})
        rows += [{"level": index, "successes": count} for index, count in sorted(successes.items())]
        return pd.DataFrame(rows)
