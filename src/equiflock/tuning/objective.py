"""The objective of a tuning: tasks, measures of their flights, and the cost of a candidate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float64, Int8

from equiflock._runtime.checks import InputError, NumericRangeError, check_choice, check_count, check_positive
from equiflock._runtime.specs import Spec, format_spec, parse_spec, parse_weighted_specs
from equiflock.controllers.gain_schedule import compute_gain
from equiflock.controllers.networks.compiled import CompiledNetwork
from equiflock.flock import FOLLOWER, OBSTACLE, Flock, Role
from equiflock.graph.radius_graph import compute_connectivity
from equiflock.observations.orbit import Orbit
from equiflock.outcomes import Outcome
from equiflock.protocols import Controller, Moment
from equiflock.scenarios import make_scenario
from equiflock.scenarios.course_survey import CourseSurvey, survey_course
from equiflock.scenarios.registry import Scenario, find_failed_flights, scenario_class
from equiflock.simulation import metrics
from equiflock.simulation.flight_builder import flight
from equiflock.simulation.metrics import RESIDUAL_SECONDS
from equiflock.simulation.simulate import count_steps

TIME_STEP = 0.01
"""Default time step of a task, in seconds."""
EXAMPLE = "0.5*flocking+1*obstacles:sides=96"
DEFAULT_MEASURES = "1*detached+0.3*variance+0.5*final_variance+1*leaders+0.2*collisions+0.1*effort+1*failures"
"""Default weights of the measures."""
DETACHED, VARIANCE, FINAL_VARIANCE, LEADERS = "detached", "variance", "final_variance", "leaders"
COLLISIONS, EFFORT, RESIDUAL, FAILURES = "collisions", "effort", "residual", "failures"
PEAK, GAP, TIME = "peak", "gap", "time"
TOLERANCES: Mapping[str, float] = {
    DETACHED: 1e-2,
    VARIANCE: 1e-3,
    FINAL_VARIANCE: 1e-4,
    LEADERS: 1e-2,
    COLLISIONS: 1e-3,
    EFFORT: 1e-2,
    RESIDUAL: 0.1,
    PEAK: 1.0,
    FAILURES: 0.1,
    GAP: 1e-2,
    TIME: 0.1,
}
"""The measures of a flight, each with a tolerance: smaller values count as 0, since they are not worth a search.

All but `final_variance`, `residual`, `peak` and `failures` are integrals over time, divided by the duration of the
task, so a flight that has reached its end, such as a flock that has passed its obstacle, adds nothing from then on. A
failed flight goes on: an agent that was left behind adds to the cost for as long as it is alone.

detached: share of agents outside the largest component; a nearby obstacle is a node of the graph as in `UntilPassed`.
variance: variance of the flock's velocities.
final_variance: the same at the end of the flight; the median over flocks, as `gap` counts those that lost an agent.
leaders: mean distance of velocities from the leaders' velocity, for flocks with leaders.
collisions: share of agents closer than R_min to another agent or to an obstacle agent.
effort: mean norm of the accelerations.
residual: the same at the measurements in the last half second of the flight, the median over flocks; large if flocks
oscillate.
peak: largest norm of an acceleration at the measurements; the first is the start, where it is largest as a rule.
failures: share of flights that fail, for scenarios that define failure.
gap: width of the widest gap between components, from 0 if connected to 1 beyond 2 R, in steps of R / 4. A nearby
obstacle is a node here as well.
time: share of the duration until flights reach their end, 1 if they fail, for scenarios that define failure.
"""
GAP_RADIUS_FACTORS = (1.25, 1.5, 1.75, 2.0)
"""Multiples of R at which a disconnected flock is tested again: the largest at which it is disconnected measures its
gap. A single lost agent hardly counts in `detached`, but it does in `gap`."""
CONNECTIVITY_OPTIONS = {"obstacle_node": "one", "awareness": "followers"}
"""Scenario options that define connectivity, with their defaults."""
Values = Float64[np.ndarray, " B"]
Measurements: TypeAlias = Sequence[Mapping[str, float]]
"""Measures of a candidate by name, for each task."""


@dataclass(frozen=True)
class Task:
    """Scenario with its share of the cost."""

    share: float
    """Share of the cost, relative to the other tasks."""
    scenario: str
    """Name of the scenario, with options."""
    duration: float
    """Seconds of flight."""
    time_step: float = TIME_STEP
    """Seconds per step."""
    flocks: int | None = None
    """Flocks per generation; None for the default of the tuning."""
    gain_margin: float = 1.0
    """Further factor on the accelerations, which a network with a margin tolerates."""

    def __post_init__(self) -> None:
        check_positive(f"the share of {self.scenario!r}", self.share)
        check_positive("gain_margin", self.gain_margin)
        _check_numbers(self.duration, self.time_step, self.flocks)

    @property
    def name(self) -> str:
        """Scenario with its options, and options of the flight that are not the defaults; each task has another."""
        name, own = parse_spec(self.scenario)
        defaults = {"duration": scenario_class(name).duration, "time_step": TIME_STEP, "gain_margin": 1.0}
        options = {key: getattr(self, key) for key, default in defaults.items() if getattr(self, key) != default}
        return format_spec(name, **own, **options)

    def build_scenario(self, flocks: int, seed: int, split: str) -> Scenario:
        """Return the scenario with `flocks` flocks of a split, not drawn yet; other scenarios draw other flocks."""
        own = f"{split}, {self.scenario}"
        return make_scenario(self.scenario, {"flocks": flocks, "seed": seed, "split": own})


def parse_tasks(text: str) -> tuple[Task, ...]:
    """Parse tasks: one scenario, or several with their shares, each with options.

    Options are those of the scenario, and `duration`, `time_step`, `flocks` and `gain_margin`.
    """
    tasks = tuple(_parse_task(share, spec) for share, spec in parse_weighted_specs("tasks", text, EXAMPLE))
    names = [task.name for task in tasks]
    if len(set(names)) < len(names):
        raise InputError(f"tasks must name each scenario with its options once; got {text!r}")
    return tasks


def _parse_task(share: float, spec: Spec) -> Task:
    """Return the task of a spec such as obstacles:sides=96:duration=10."""
    name, options = spec.name, dict(spec.options)
    for reserved in ("seed", "split"):
        if reserved in options:
            raise InputError(f"{reserved} is set by the tuning: leave it out of {format_spec(name, **options)!r}")
    duration = options.pop("duration", scenario_class(name).duration)
    time_step, flocks = options.pop("time_step", TIME_STEP), options.pop("flocks", None)
    gain_margin = options.pop("gain_margin", 1.0)
    _check_numbers(duration, time_step, flocks)
    task = Task(share, format_spec(name, **options), duration, time_step, flocks, gain_margin)
    task.build_scenario(1, 0, "")  # raises InputError if there is no such scenario or option
    return task


def _check_numbers(duration: Any, time_step: Any, flocks: Any) -> None:
    """Raise InputError if `flocks` is given and not positive, or if the duration is shorter than one time step."""
    if flocks is not None:
        check_count("flocks", flocks)
    count_steps(duration, time_step)


def measure_flight(
    scenario: Scenario,
    start: Flock,
    controller: Controller,
    orbit: Orbit | None,
    task: Task,
    measurement_interval: float,
) -> dict[str, float]:
    """Simulate flocks from a start of the task's scenario and return each of its measures.

    All measures are infinite if a flight diverges. `failures` and `time` are left out if the scenario does not define
    failure, `leaders` if a flock has no leader. `measurement_interval` is in seconds.
    """
    measures = _FlightMeasures(scenario, start, task, measurement_interval)
    try:
        measures.fly(controller, orbit)
    except NumericRangeError:
        return dict.fromkeys(measures.compute_measures(), math.inf)
    return measures.compute_measures()


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
        self.values = {name: np.zeros(len(start)) for name in (*integrals, FINAL_VARIANCE, RESIDUAL, PEAK)}
        # The measurements in the last half second, at most half of the flight.
        self.first_residual_step = self.steps - min(round(RESIDUAL_SECONDS / task.time_step), self.steps // 2)
        self.residual_count = 0
        # Leaders collide like followers.
        self.collision_roles = np.where(start.roles == Role.LEADER, np.int8(FOLLOWER), start.roles)
        self.collision_distance: float = getattr(getattr(scenario, "disk", None), "min_separation", 0.1) * (1.0 - 1e-9)

    def fly(self, controller: Controller, orbit: Orbit | None) -> None:
        """Simulate for the duration, or until all flocks have succeeded, and measure at intervals."""
        rules = {"ending": self.outcome_recorder, "orbit": orbit, "obstacles": self.scenario.obstacles}
        controller = self._apply_margin(controller)
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

    def _apply_margin(self, controller: Controller) -> Controller:
        """Return the controller with its gain at the task's time step times the margin."""
        if self.task.gain_margin == 1.0:
            return controller
        if not isinstance(controller, CompiledNetwork):
            raise InputError("gain_margin needs a network of the package: leave it out of the tasks")
        return controller.scale_output(compute_gain(controller, self.task.time_step) * self.task.gain_margin)

    def _add_moment(self, moment: Moment) -> None:
        """Add the measures of flocks still flying, weighted by the share of the duration until the next measurement."""
        flying = moment.flying
        variance = metrics.velocity_variance(moment)
        self.values[FINAL_VARIANCE][flying] = variance[flying]
        # Share of the duration until the next measurement or the end of the flight.
        share = min(self.interval_steps, self.steps - moment.step) / self.steps
        flock = moment.flock if flying.all() else moment.flock[flying]
        acceleration = metrics.mean_acceleration_norm(moment)
        current = {VARIANCE: variance[flying], EFFORT: acceleration[flying]}
        np.maximum(self.values[PEAK], metrics.peak_acceleration_norm(moment), out=self.values[PEAK])
        if moment.step >= self.first_residual_step:
            self.residual_count += 1
            self.values[RESIDUAL] += (acceleration - self.values[RESIDUAL]) / self.residual_count
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
        """Return the widest gap between components per flock, from 0 to 1; `survey` is that at radius R."""
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
        """Return the share of agents in a collision per flock still flying; `flying` is their mask among all flocks."""
        if self.collision_distance <= 0.0:
            return np.zeros(len(flock))
        degrees, _ = compute_connectivity(flock, self.collision_distance, self.collision_roles[flying])
        share: Values = ((degrees > 0) & (flock.roles != OBSTACLE)).sum(axis=1) / flock.working.sum(axis=1)
        return share

    def compute_measures(self) -> dict[str, float]:
        """Return each measure of the scenario over all flocks, in the order of `TOLERANCES`.

        It is the mean, and the median for `final_variance` and `residual`.
        """
        values = (
            self.values
            if self.outcome_recorder is None
            else {**self.values, FAILURES: self.outcome_recorder.find_failed().astype(float)}
        )
        return {
            name: float(np.median(values[name]) if name in (FINAL_VARIANCE, RESIDUAL) else values[name].mean())
            for name in TOLERANCES
            if name in values
        }


class _OutcomeRecorder:
    """The scenario's ending, except that a failed flight is recorded and goes on."""

    def __init__(self, scenario: Scenario, flocks: int) -> None:
        self.scenario = scenario
        self.outcomes = np.full(flocks, Outcome.FLYING, np.int8)
        ending = scenario.ending()
        assert ending is not None, "a scenario with success_outcomes must have an ending"
        self._ending = ending

    def __call__(
        self, times: Float64[np.ndarray, " B"], flock: Flock, flying: Bool[np.ndarray, " B"]
    ) -> Int8[np.ndarray, " B"]:
        """Return the outcomes of flocks that have succeeded, and FLYING for all others."""
        undecided = self.outcomes == Outcome.FLYING
        if undecided.any():
            self.outcomes = np.where(undecided, self._ending(times, flock, undecided), self.outcomes)
        reached = np.isin(self.outcomes, self.scenario.success_outcomes)
        return np.where(reached, self.outcomes, np.int8(Outcome.FLYING))

    def find_failed(self) -> Bool[np.ndarray, " B"]:
        """Return a mask of the failed flights; a flight without an outcome so far counts as TIME_UP."""
        over = np.where(self.outcomes == Outcome.FLYING, np.int8(Outcome.TIME_UP), self.outcomes)
        return find_failed_flights(self.scenario, [Outcome(int(code)) for code in over])


def parse_measures(text: str) -> dict[str, float]:
    """Parse weights of measures such as 1*detached+0.5*variance; measures that are not named are left out."""
    weights: dict[str, float] = {}
    for weight, (name, _) in parse_weighted_specs("measures", text, "1*detached+0.5*variance"):
        check_choice("a measure", name, tuple(TOLERANCES))
        if name in weights:
            raise InputError(f"measures must name each measure once; got {text!r}")
        weights[name] = check_positive(f"the weight of {name}", weight)
    return weights


def compute_cost(
    measurements: Measurements,
    initial: Measurements,
    held_out: Measurements,
    tasks: Sequence[Task],
    weights: Mapping[str, float],
) -> float:
    """Return the cost of a candidate: a weighted sum of its measures, each relative to that of the initial weights.

    With m(c, t) the measure m of candidate c in task t (`measurements`), c_0 the initial weights on the same flocks
    (`initial`), and h(c_0, t) their measure on held-out flocks (`held_out`),

        scale(m, t) = max(m(c_0, t), h(c_0, t) / 2, tolerance_m)
        sum(c) = sum_t share_t sum_m weight_m m(c, t) / scale(m, t),        cost(c) = sum(c) / sum(c_0)

    so that the initial weights cost 1 (0 if all their measures are 0). The lower limits of the scale keep a measure
    that happens to be near 0 for the initial weights on a few flocks from dominating the sum. If a flight diverges, the
    cost is infinite. Raise InputError if the initial weights diverge, or if no task has any of the measures.
    """
    terms, initial_terms = [], []
    for task, own, first, typical in zip(tasks, measurements, initial, held_out, strict=True):
        for name in weights.keys() & own.keys():
            if not (math.isfinite(first[name]) and math.isfinite(typical[name])):
                raise InputError(f"the initial weights diverge in {task.name!r}: train them on it first")
            factor = task.share * weights[name] / max(first[name], typical[name] / 2.0, TOLERANCES[name])
            terms.append(factor * own[name])
            initial_terms.append(factor * first[name])
    if not terms:
        raise InputError(f"no task has a measure among {', '.join(weights)}: choose others with --measures")
    if not all(map(math.isfinite, terms)):
        return math.inf
    # fsum does not depend on the order. If all measures of the initial weights are 0, so is their cost.
    return math.fsum(terms) / (math.fsum(initial_terms) or 1.0)
