"""Measures of a flight: numbers that change smoothly with the weights; smaller is better.

All but `final_variance` and `failures` are integrals over time, divided by the duration of the task, so a flight that
has reached its end, such as a flock that has passed its obstacle, adds nothing from then on. A failed flight goes on:
an agent that was left behind adds to the cost for as long as it is alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int8

from equiflock.experiments.tuning.tasks import Task
from equiflock.flock import FOLLOWER, OBSTACLE, Flock, Role
from equiflock.orbit_technique import Orbit
from equiflock.outcomes import Outcome
from equiflock.protocols import Controller, Moment
from equiflock.runtime.checks import NumericRangeError
from equiflock.scenarios.course_survey import CourseSurvey, survey_course
from equiflock.scenarios.registry import Scenario, find_failed_flights
from equiflock.senses.graph import compute_connectivity
from equiflock.simulation import metrics
from equiflock.simulation.flight_builder import flight
from equiflock.simulation.simulate import count_steps

DETACHED, VARIANCE, FINAL_VARIANCE, LEADERS = "detached", "variance", "final_variance", "leaders"
COLLISIONS, EFFORT, FAILURES = "collisions", "effort", "failures"
GAP, TIME = "gap", "time"
TOLERANCES: Mapping[str, float] = {
    DETACHED: 1e-2,
    VARIANCE: 1e-3,
    FINAL_VARIANCE: 1e-4,
    LEADERS: 1e-2,
    COLLISIONS: 1e-3,
    EFFORT: 1e-2,
    FAILURES: 0.1,
    GAP: 1e-2,
    TIME: 0.1,
}
"""The measures, each with a tolerance: smaller values count as 0, since they are not worth a search.

detached: share of agents outside the largest component; a nearby obstacle is a node of the graph as in `UntilPassed`.
variance: variance of the flock's velocities.
final_variance: the same at the end of the flight.
leaders: mean distance of velocities from the leaders' velocity, for flocks with leaders.
collisions: share of agents closer than R_min to another agent or to an obstacle agent.
effort: mean norm of the accelerations.
failures: share of flights that fail, for scenarios that define failure.
gap: width of the widest gap between components, from 0 if connected to 1 beyond 2 R, in steps of R / 4. A nearby
obstacle is a node here as well.
time: share of the duration until flights reach their end, 1 if they fail, for scenarios that define failure.
"""
GAP_RADIUS_FACTORS = (1.25, 1.5, 1.75, 2.0)
"""Multiples of R at which a disconnected flock is tested again: the largest at which it is disconnected measures its
gap. A single lost agent hardly counts in `detached`, but it does in `gap`."""
Values = Float64[np.ndarray, " B"]


def measure_flight(
    scenario: Scenario,
    start: Flock,
    controller: Controller,
    orbit: Orbit | None,
    task: Task,
    measurement_interval: float,
) -> dict[str, float]:
    """Simulate flocks of a scenario and return each of its measures as the mean over flocks.

    All measures are infinite if a flight diverges. `failures` and `time` are left out if the scenario does not define
    failure, `leaders` if a flock has no leader.

    Args:
        scenario: as `Task.build_scenario` returns it.
        start: its flocks at t = 0.
        controller: controller of the flocks.
        orbit: orbit technique by which followers avoid obstacles, if any.
        task: defines duration and time step.
        measurement_interval: seconds between measurements.
    """
    measures = _FlightMeasures(scenario, start, task, measurement_interval)
    try:
        measures.fly(controller, orbit)
    except NumericRangeError:
        return dict.fromkeys(measures.compute_means(), math.inf)
    return measures.compute_means()


class _FlightMeasures:
    """Measures of one flight, accumulated during the flight."""

    def __init__(self, scenario: Scenario, start: Flock, task: Task, measurement_interval: float) -> None:
        self.scenario, self.start, self.task = scenario, start, task
        self.steps = count_steps(task.duration, task.time_step)
        self.interval_steps = max(round(measurement_interval / task.time_step), 1)
        self.has_leaders = bool((start.roles == Role.LEADER).any(axis=1).all())
        self.outcome_recorder = _OutcomeRecorder(scenario, len(start)) if scenario.success_outcomes else None
        integrals = (DETACHED, VARIANCE, COLLISIONS, EFFORT, GAP, *([LEADERS] if self.has_leaders else []))
        integrals += (TIME,) if self.outcome_recorder else ()
        self.values = {name: np.zeros(len(start)) for name in (*integrals, FINAL_VARIANCE)}
        # Leaders collide like followers.
        self.collision_roles = np.where(start.roles == Role.LEADER, np.int8(FOLLOWER), start.roles)
        self.collision_distance: float = getattr(getattr(scenario, "disk", None), "min_separation", 0.1) * (1.0 - 1e-9)

    def fly(self, controller: Controller, orbit: Orbit | None) -> None:
        """Simulate for the duration, or until all flocks have succeeded, and measure at intervals.

        Failed flights go on.
        """
        rules = {"ending": self.outcome_recorder, "orbit": orbit, "obstacles": self.scenario.obstacles}
        loop = flight(self.start, controller, time_step=self.task.time_step, **rules)  # type: ignore[arg-type]
        for moment in loop:
            # A flock that has reached its end is measured here for the last time.
            self._add_moment(moment)
            remaining = self.steps - moment.step
            if remaining < 1 or not moment.flying.any():
                break
            # The ending is evaluated at measurements only, so that the steps between them are one call.
            loop.ending = None
            loop.skip(min(self.interval_steps, remaining) - 1)
            loop.ending = self.outcome_recorder

    def _add_moment(self, moment: Moment) -> None:
        """Add the measures of a moment, weighted by the share of the duration until the next measurement.

        Flocks that have ended are left out. The final variance is overwritten, not added.
        """
        flying = moment.flying
        variance = metrics.velocity_variance(moment)
        self.values[FINAL_VARIANCE][flying] = variance[flying]
        # Share of the duration until the next measurement or the end of the flight.
        share = min(self.interval_steps, self.steps - moment.step) / self.steps
        flock = moment.flock if flying.all() else moment.flock[flying]
        current = {VARIANCE: variance[flying], EFFORT: metrics.mean_acceleration_norm(moment)[flying]}
        if len(flock) and share > 0.0:
            survey = self._survey_flock(flock)
            current |= {
                DETACHED: 1.0 - survey.largest_component / flock.working.sum(axis=1),
                GAP: self._compute_gap(flock, survey),
            }
            current[COLLISIONS] = self._compute_collisions(flock, flying)
            if self.outcome_recorder:
                current[TIME] = np.ones(len(flock))
            if self.has_leaders:
                current[LEADERS] = metrics.mean_leader_velocity_distance(flock)
            for name, values in current.items():
                self.values[name][flying] += share * values

    def _compute_gap(self, flock: Flock, survey: CourseSurvey) -> Values:
        """Return the widest gap between components per flock, from 0, connected, to 1, disconnected at 2 R.

        `survey` is that of these flocks at radius R.
        """
        disconnected, step = np.flatnonzero(survey.component_count > 1), 1.0 / (len(GAP_RADIUS_FACTORS) + 1)
        gap = np.zeros(len(flock))
        gap[disconnected] = step
        for factor in GAP_RADIUS_FACTORS:
            if not disconnected.size:
                break
            # A flock that is connected at this radius is connected at all larger ones.
            radius = factor * flock.comm_radius
            disconnected = disconnected[self._survey_flock(flock[disconnected], radius).component_count > 1]
            gap[disconnected] += step
        return gap

    def _survey_flock(self, flock: Flock, comm_radius: float | None = None) -> CourseSurvey:
        """Return the components of each flock at a radius (default: R), with the scenario's connectivity options."""
        options: dict[str, Any] = {
            name: getattr(self.scenario, name, default) for name, default in CONNECTIVITY_OPTIONS.items()
        }
        return survey_course(flock, comm_radius, **options)

    def _compute_collisions(self, flock: Flock, flying: Bool[np.ndarray, " all"]) -> Values:
        """Return the share of agents closer than R_min to another agent or obstacle agent, per flock.

        `flock` holds only the flocks still flying, and `flying` is their mask among all.
        """
        if self.collision_distance <= 0.0:
            return np.zeros(len(flock))
        degrees, _ = compute_connectivity(flock, self.collision_distance, self.collision_roles[flying])
        share: Values = ((degrees > 0) & (flock.roles != OBSTACLE)).sum(axis=1) / flock.working.sum(axis=1)
        return share

    def compute_means(self) -> dict[str, float]:
        """Return each measure of the scenario as its mean over flocks, in the order of `TOLERANCES`."""
        values = (
            self.values
            if self.outcome_recorder is None
            else {**self.values, FAILURES: self.outcome_recorder.find_failed().astype(float)}
        )
        return {name: float(values[name].mean()) for name in TOLERANCES if name in values}


CONNECTIVITY_OPTIONS = {"obstacle_node": "one", "awareness": "followers"}
"""Scenario options that define connectivity, with their defaults."""


class _OutcomeRecorder:
    """The scenario's ending, except that a failed flight is recorded and goes on."""

    def __init__(self, scenario: Scenario, flocks: int) -> None:
        self.scenario = scenario
        self.outcomes = np.full(flocks, Outcome.FLYING, np.int8)
        ending = scenario.ending()
        assert ending is not None, "a scenario with success_outcomes must have an ending"
        self._ending = ending

    def __call__(self, time: float, flock: Flock, flying: Bool[np.ndarray, " B"]) -> Int8[np.ndarray, " B"]:
        """Return the outcomes of flocks that have succeeded, and FLYING for all others."""
        undecided = self.outcomes == Outcome.FLYING
        if undecided.any():
            self.outcomes = np.where(undecided, self._ending(time, flock, undecided), self.outcomes)
        reached = np.isin(self.outcomes, self.scenario.success_outcomes)
        return np.where(reached, self.outcomes, np.int8(Outcome.FLYING))

    def find_failed(self) -> Bool[np.ndarray, " B"]:
        """Return a mask of the failed flights; a flight without an outcome so far counts as TIME_UP."""
        over = np.where(self.outcomes == Outcome.FLYING, np.int8(Outcome.TIME_UP), self.outcomes)
        return find_failed_flights(self.scenario, [Outcome(int(code)) for code in over])
