"""What a flight is measured by: numbers that change smoothly with the weights, and are better the smaller they are.

All but `parse_setting` and `find_failed_flights` are integrals over time, divided by the duration of the task, so a flight that has
reached its end, such as a flock that has passed its obstacle, adds nothing from then on. One that has failed flies on:
an agent that was left behind costs for as long as it is alone.
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
"""The measures, each with a value so small that it is as good as 0: less than that is not worth a search.

apart: the share of agents outside the largest component, where an obstacle that is near is a node as in `UntilPassed`.
variance: of the flock's velocities. settled: the same at the end of the flight.
leaders: the mean distance of velocities from the leaders'; of flocks that have leaders.
collisions: the share of agents nearer than R_min to another agent, or to an obstacle agent.
effort: the mean norm of accelerations.
failures: the share of flights that fail; of scenarios that know failures.
gap: how wide the widest gap between components is, from 0 in one piece to 1 beyond 2 R, in steps of R / 4. An obstacle
that is near is a node here, too.
time: the share of the duration until flights reach their end, all of it if they fail; of scenarios that know failures.
"""
GAP_RADIUS_FACTORS = (1.25, 1.5, 1.75, 2.0)
"""Multiples of R at which a flock in pieces is looked at again: it has a gap as wide as the largest that leaves pieces.
A single agent that is lost is next to nothing for `apart`, but not here."""
Values = Float64[np.ndarray, " B"]


def measure_flight(
    scenario: Scenario,
    start: Flock,
    controller: Controller,
    orbit: Orbit | None,
    task: Task,
    measurement_interval: float,
) -> dict[str, float]:
    """Fly flocks of a scenario and return each measure that it has, as the mean over flocks; infinite if one diverges.

    Args:
        scenario: as `Task.scene` makes it.
        start: its flocks at t = 0.
        controller: that flies them.
        orbit: the technique by which followers avoid obstacles, if there is one.
        task: how long they fly.
        measurement_interval: seconds from one look at the flocks to the next.
    """
    measured = _FlightMeasures(scenario, start, task, measurement_interval)
    try:
        measured.fly(controller, orbit)
    except NumericRangeError:
        return dict.fromkeys(measured.compute_means(), math.inf)
    return measured.compute_means()


class _FlightMeasures:
    """The measures of one flight, added up while it goes on."""

    def __init__(self, scenario: Scenario, start: Flock, task: Task, measurement_interval: float) -> None:
        self.scenario, self.start, self.task = scenario, start, task
        self.steps = count_steps(task.duration, task.time_step)
        self.interval_steps = max(round(measurement_interval / task.time_step), 1)
        self.has_leaders = bool((start.roles == Role.LEADER).any(axis=1).all())
        self.outcome_recorder = _OutcomeRecorder(scenario, len(start)) if scenario.success_outcomes else None
        integrals = (DETACHED, VARIANCE, COLLISIONS, EFFORT, GAP, *([LEADERS] if self.has_leaders else []))
        integrals += (TIME,) if self.outcome_recorder else ()
        self.values = {name: np.zeros(len(start)) for name in (*integrals, FINAL_VARIANCE)}
        # Leaders collide as followers do.
        self.collision_roles = np.where(start.roles == Role.LEADER, np.int8(FOLLOWER), start.roles)
        self.collision_distance: float = getattr(getattr(scenario, "disk", None), "min_separation", 0.1) * (1.0 - 1e-9)

    def fly(self, controller: Controller, orbit: Orbit | None) -> None:
        """Fly to the end, and look at the flocks now and then."""
        rules = {"ending": self.outcome_recorder, "orbit": orbit, "obstacles": self.scenario.obstacles}
        loop = flight(self.start, controller, time_step=self.task.time_step, **rules)  # type: ignore[arg-type]
        for moment in loop:
            # A flock that has reached its end is seen for the last time.
            self._add_moment(moment)
            left = self.steps - moment.step
            if left < 1 or not moment.flying.any():
                break
            # The ending is asked at looks only, so that the steps between them are one call.
            loop.ending = None
            loop.skip(min(self.interval_steps, left) - 1)
            loop.ending = self.outcome_recorder

    def _add_moment(self, moment: Moment) -> None:
        flying = moment.flying
        variance = metrics.velocity_variance(moment)
        self.values[FINAL_VARIANCE][flying] = variance[flying]
        # From this look to the next, or to the end of the flight.
        part = min(self.interval_steps, self.steps - moment.step) / self.steps
        flock = moment.flock if flying.all() else moment.flock[flying]
        now = {VARIANCE: variance[flying], EFFORT: metrics.mean_acceleration_norm(moment)[flying]}
        if len(flock) and part > 0.0:
            seen = self._watch_flock(flock)
            now |= {
                DETACHED: 1.0 - seen.largest_component / flock.working.sum(axis=1),
                GAP: self._compute_gap(flock, seen),
            }
            now[COLLISIONS] = self._compute_collisions(flock, flying)
            if self.outcome_recorder:
                now[TIME] = np.ones(len(flock))
            if self.has_leaders:
                now[LEADERS] = metrics.mean_leader_velocity_distance(flock)
            for name, values in now.items():
                self.values[name][flying] += part * values

    def _compute_gap(self, flock: Flock, seen: CourseSurvey) -> Values:
        """How wide the widest gap between components is, from 0 to 1; `seen` is the flock at R."""
        apart, step = np.flatnonzero(seen.component_count > 1), 1.0 / (len(GAP_RADIUS_FACTORS) + 1)
        found = np.zeros(len(flock))
        found[apart] = step
        for factor in GAP_RADIUS_FACTORS:
            if not apart.size:
                break
            # Who is in one piece at this radius is so at all larger ones.
            apart = apart[self._watch_flock(flock[apart], factor * flock.comm_radius).component_count > 1]
            found[apart] += step
        return found

    def _watch_flock(self, flock: Flock, comm_radius: float | None = None) -> CourseSurvey:
        """The flock as the scenario's own ending sees it, where it has choices about what is connected."""
        rules: dict[str, Any] = {
            name: getattr(self.scenario, name, usual) for name, usual in CONNECTIVITY_OPTIONS.items()
        }
        return survey_course(flock, comm_radius, **rules)

    def _compute_collisions(self, flock: Flock, flying: Bool[np.ndarray, " all"]) -> Values:
        """The share of agents that are too near to another, of the flocks that fly."""
        if self.collision_distance <= 0.0:
            return np.zeros(len(flock))
        degrees, _ = compute_connectivity(flock, self.collision_distance, self.collision_roles[flying])
        found: Values = ((degrees > 0) & (flock.roles != OBSTACLE)).sum(axis=1) / flock.working.sum(axis=1)
        return found

    def compute_means(self) -> dict[str, float]:
        """Each measure as its mean over flocks."""
        values = (
            self.values
            if self.outcome_recorder is None
            else {**self.values, FAILURES: self.outcome_recorder.find_failed().astype(float)}
        )
        return {name: float(values[name].mean()) for name in TOLERANCES if name in values}


CONNECTIVITY_OPTIONS = {"obstacle_node": "one", "awareness": "followers"}
"""Options of courses about what is connected, with their usual values."""


class _OutcomeRecorder:
    """The scenario's ending, but a flight that fails is only noted, and flies on."""

    def __init__(self, scenario: Scenario, flocks: int) -> None:
        self.scenario = scenario
        self.outcomes = np.full(flocks, Outcome.FLYING, np.int8)
        ending = scenario.ending()
        assert ending is not None, "a scenario that names successes has an ending"
        self._ending = ending

    def __call__(self, time: float, flock: Flock, flying: Bool[np.ndarray, " B"]) -> Int8[np.ndarray, " B"]:
        """Which flocks have reached their end; FLYING for all others."""
        undecided = self.outcomes == Outcome.FLYING
        if undecided.any():
            self.outcomes = np.where(undecided, self._ending(time, flock, undecided), self.outcomes)
        reached = np.isin(self.outcomes, self.scenario.success_outcomes)
        return np.where(reached, self.outcomes, np.int8(Outcome.FLYING))

    def find_failed(self) -> Bool[np.ndarray, " B"]:
        """Which flights failed: those that fly still have not reached their end."""
        over = np.where(self.outcomes == Outcome.FLYING, np.int8(Outcome.TIME_UP), self.outcomes)
        return find_failed_flights(self.scenario, [Outcome(int(code)) for code in over])
