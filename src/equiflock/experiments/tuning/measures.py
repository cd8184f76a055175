"""What a flight is measured by: numbers that change smoothly with the weights, and are better the smaller they are.

All but `settled` and `failures` are integrals over time, divided by the duration of the task, so a flight that has
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
from equiflock.outcomes import Outcome
from equiflock.protocols import Controller, Moment
from equiflock.runtime.checks import OffScaleError
from equiflock.scenarios.registry import Scenario, failures
from equiflock.scenarios.watching import Watched, watch
from equiflock.senses.graph import survey
from equiflock.simulation import metrics
from equiflock.simulation.assembly import flight
from equiflock.simulation.simulate import count_steps
from equiflock.technique import Orbit

APART, VARIANCE, SETTLED, LEADERS = "apart", "variance", "settled", "leaders"
COLLISIONS, EFFORT, FAILURES = "collisions", "effort", "failures"
GAP, TIME = "gap", "time"
NOTHING: Mapping[str, float] = {
    APART: 1e-2,
    VARIANCE: 1e-3,
    SETTLED: 1e-4,
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
WIDER = (1.25, 1.5, 1.75, 2.0)
"""Multiples of R at which a flock in pieces is looked at again: it has a gap as wide as the largest that leaves pieces.
A single agent that is lost is next to nothing for `apart`, but not here."""
Values = Float64[np.ndarray, " B"]


def measure(
    scenario: Scenario, start: Flock, controller: Controller, orbit: Orbit | None, task: Task, look: float
) -> dict[str, float]:
    """Fly flocks of a scenario and return each measure that it has, as the mean over flocks; infinite if one diverges.

    Args:
        scenario: as `Task.scene` makes it.
        start: its flocks at t = 0.
        controller: that flies them.
        orbit: the technique by which followers avoid obstacles, if there is one.
        task: how long they fly.
        look: seconds from one look at the flocks to the next.
    """
    measured = _Flown(scenario, start, task, look)
    try:
        measured.fly(controller, orbit)
    except OffScaleError:
        return dict.fromkeys(measured.means(), math.inf)
    return measured.means()


class _Flown:
    """The measures of one flight, added up while it goes on."""

    def __init__(self, scenario: Scenario, start: Flock, task: Task, look: float) -> None:
        self.scenario, self.start, self.task = scenario, start, task
        self.steps = count_steps(task.duration, task.time_step)
        self.every = max(round(look / task.time_step), 1)
        self.led = bool((start.roles == Role.LEADER).any(axis=1).all())
        self.judge = _Judge(scenario, len(start)) if scenario.succeeded else None
        integrals = (APART, VARIANCE, COLLISIONS, EFFORT, GAP, *([LEADERS] if self.led else []))
        integrals += (TIME,) if self.judge else ()
        self.values = {name: np.zeros(len(start)) for name in (*integrals, SETTLED)}
        # Leaders collide as followers do.
        self.crew = np.where(start.roles == Role.LEADER, np.int8(FOLLOWER), start.roles)
        self.nearest: float = getattr(getattr(scenario, "disk", None), "min_separation", 0.1) * (1.0 - 1e-9)

    def fly(self, controller: Controller, orbit: Orbit | None) -> None:
        """Fly to the end, and look at the flocks now and then."""
        rules = {"ending": self.judge, "orbit": orbit, "obstacles": self.scenario.obstacles}
        loop = flight(self.start, controller, time_step=self.task.time_step, **rules)  # type: ignore[arg-type]
        for moment in loop:
            # A flock that has reached its end is seen for the last time.
            self._look(moment)
            left = self.steps - moment.step
            if left < 1 or not moment.flying.any():
                break
            # The ending is asked at looks only, so that the steps between them are one call.
            loop.ending = None
            loop.skip(min(self.every, left) - 1)
            loop.ending = self.judge

    def _look(self, moment: Moment) -> None:
        flying = moment.flying
        variance = metrics.velocity_variance(moment)
        self.values[SETTLED][flying] = variance[flying]
        # From this look to the next, or to the end of the flight.
        part = min(self.every, self.steps - moment.step) / self.steps
        flock = moment.flock if flying.all() else moment.flock[flying]
        now = {VARIANCE: variance[flying], EFFORT: metrics.mean_acceleration_norm(moment)[flying]}
        if len(flock) and part > 0.0:
            seen = self._watch(flock)
            now |= {APART: 1.0 - seen.largest / flock.working.sum(axis=1), GAP: self._gap(flock, seen)}
            now[COLLISIONS] = self._collisions(flock, flying)
            if self.judge:
                now[TIME] = np.ones(len(flock))
            if self.led:
                now[LEADERS] = metrics.mean_leader_velocity_distance(flock)
            for name, values in now.items():
                self.values[name][flying] += part * values

    def _gap(self, flock: Flock, seen: Watched) -> Values:
        """How wide the widest gap between components is, from 0 to 1; `seen` is the flock at R."""
        apart, step = np.flatnonzero(seen.pieces > 1), 1.0 / (len(WIDER) + 1)
        found = np.zeros(len(flock))
        found[apart] = step
        for factor in WIDER:
            if not apart.size:
                break
            # Who is in one piece at this radius is so at all larger ones.
            apart = apart[self._watch(flock[apart], factor * flock.comm_radius).pieces > 1]
            found[apart] += step
        return found

    def _watch(self, flock: Flock, comm_radius: float | None = None) -> Watched:
        """The flock as the scenario's own ending sees it, where it has choices about what is connected."""
        rules: dict[str, Any] = {name: getattr(self.scenario, name, usual) for name, usual in RULES.items()}
        return watch(flock, comm_radius, **rules)

    def _collisions(self, flock: Flock, flying: Bool[np.ndarray, " all"]) -> Values:
        """The share of agents that are too near to another, of the flocks that fly."""
        if self.nearest <= 0.0:
            return np.zeros(len(flock))
        degrees, _ = survey(flock, self.nearest, self.crew[flying])
        found: Values = ((degrees > 0) & (flock.roles != OBSTACLE)).sum(axis=1) / flock.working.sum(axis=1)
        return found

    def means(self) -> dict[str, float]:
        """Each measure as its mean over flocks."""
        values = self.values if self.judge is None else {**self.values, FAILURES: self.judge.failed().astype(float)}
        return {name: float(values[name].mean()) for name in NOTHING if name in values}


RULES = {"obstacle_node": "one", "awareness": "followers"}
"""Options of courses about what is connected, with their usual values."""


class _Judge:
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
        reached = np.isin(self.outcomes, self.scenario.succeeded)
        return np.where(reached, self.outcomes, np.int8(Outcome.FLYING))

    def failed(self) -> Bool[np.ndarray, " B"]:
        """Which flights failed: those that fly still have not reached their end."""
        over = np.where(self.outcomes == Outcome.FLYING, np.int8(Outcome.TIME_UP), self.outcomes)
        return failures(self.scenario, [Outcome(int(code)) for code in over])
