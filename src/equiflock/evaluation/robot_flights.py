"""Flights of robots in metres and seconds, and which flocks stay connected, calm and apart: for `fit_robot`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64

from equiflock._runtime.checks import (
    InputError,
    TimeStepWarning,
    check_count,
    check_nonnegative,
    check_positive,
    shorten_repr,
)
from equiflock._runtime.randomness import make_rng
from equiflock.bodies import DoubleIntegrator
from equiflock.flock import Flock, Vectors, check_comm_radius
from equiflock.observations.radio import MAX_MEMORY_STEPS, Radio
from equiflock.protocols import Controller, Moment
from equiflock.scenarios.random_disk import RandomDisk
from equiflock.simulation import metrics
from equiflock.simulation.environment import Environment
from equiflock.simulation.flight import Flight
from equiflock.simulation.flight_builder import flight
from equiflock.statistics import Estimate, estimate_share

CALM_ACCELERATION = 0.05
"""Largest residual acceleration of a calm flock, as a share of the robot's maximum."""
CALM_DEVIATION = 0.05
"""Largest final velocity deviation of a calm flock, as a share of the largest with which robots can start."""
SAFE_SEPARATION = 0.05
"""Least distance of two robots in flight, in communication radii: half of that at the start."""
REQUIRED_SHARE = 0.95
"""Share of flocks that must stay connected, calm and apart."""
START_RANGE = 0.8
"""Range within which flocks are connected at the start, in communication radii: no link is near the edge of range."""
START_SEPARATION = 0.1
"""Least distance of two agents at the start, in communication radii."""
SETTLING_UNITS = 5.0
"""Duration of a flight, in units of R / max_speed and of max_speed / max_acceleration, whichever is longer."""
FEWEST_STEPS = 200
MOST_UNIT_STEPS = 1_000
"""Most steps in R / max_speed or max_speed / max_acceleration: flights of slower robots would take minutes."""
SAMPLES = 150
"""Moments of a flight at which a flock is measured, about."""
STEP_TOLERANCE = 1e-9
"""Rounding error of latency x rate, in steps."""


@dataclass(frozen=True)
class Robot:
    """A robot, its flock and its radio, in metres and seconds. Raise InputError if they contradict each other."""

    comm_radius: float
    """Communication radius R, in metres."""
    rate: float
    """Steps per second, in Hz: at each, a robot sends a message and sets its acceleration."""
    max_acceleration: float
    """Largest acceleration, in m/s^2."""
    max_speed: float
    """Largest speed, in m/s."""
    agents: int
    """Number of robots, N."""
    dimensions: int = 2
    """D, 2 or 3."""
    min_speed: float = 0.0
    """Least speed, in m/s, of a craft that cannot hover."""
    packet_loss: float = 0.0
    """Share of messages that are lost."""
    latency: float = 0.0
    """Age of a message at its arrival, in seconds, beyond the step at which it was sent."""
    initial_speed: float | None = None
    """Bound of the random velocity deviations at the start, in m/s; None: half of the largest possible."""

    def __post_init__(self) -> None:
        check_comm_radius(self.comm_radius)
        for name in ("rate", "max_acceleration", "max_speed"):
            check_positive(name, getattr(self, name))
        check_nonnegative("min_speed", self.min_speed)
        check_nonnegative("latency", self.latency)
        check_count("agents", self.agents, least=2)
        if self.dimensions not in (2, 3):
            raise InputError(f"dimensions must be 2 or 3; got {shorten_repr(self.dimensions)}")
        if self.min_speed >= self.max_speed:
            raise InputError(
                f"min_speed must be below max_speed, {self.max_speed:g} m/s; got {self.min_speed:g} m/s: a flock needs "
                "a range of speeds to agree on one"
            )
        if check_nonnegative("packet_loss", self.packet_loss) >= 1.0:
            raise InputError(
                f"packet_loss must be a share from 0 to below 1; got {self.packet_loss:g}: a robot that receives "
                "nothing cannot flock"
            )
        if self.latency * self.rate > MAX_MEMORY_STEPS:
            most = MAX_MEMORY_STEPS / self.rate
            raise InputError(
                f"latency must be at most {MAX_MEMORY_STEPS:,} steps, {most:g} s at {self.rate:g} Hz; "
                f"got {self.latency:g} s"
            )
        if self.initial_speed is not None and check_positive("initial_speed", self.initial_speed) > self.most_deviation:
            raise InputError(
                f"initial_speed must be at most {self.most_deviation:g} m/s, so that all robots start at speeds from "
                f"{self.min_speed:g} to {self.max_speed:g} m/s; got {self.initial_speed:g} m/s"
            )
        self._check_duration()

    def _check_duration(self) -> None:
        """Raise InputError if the robot is too fast for its rate, or so slow that flights would have too many steps."""
        crossing, braking = self.crossing_time * self.rate, self.braking_time * self.rate
        if crossing < 1.0:
            raise InputError(
                f"rate must be at least {self.max_speed / self.comm_radius:.3g} Hz for comm_radius = "
                f"{self.comm_radius:g} m and max_speed = {self.max_speed:g} m/s; got {self.rate:g} Hz, at which a "
                "robot crosses its communication radius within a step"
            )
        if crossing > MOST_UNIT_STEPS:
            least = self.comm_radius * self.rate / MOST_UNIT_STEPS
            raise InputError(
                f"max_speed must be at least {least:.3g} m/s for comm_radius = {self.comm_radius:g} m at {self.rate:g} "
                f"Hz; got {self.max_speed:g} m/s, at which a robot takes {crossing:,.0f} steps to cross its "
                "communication radius: lower the rate"
            )
        if braking > MOST_UNIT_STEPS:
            least = self.max_speed * self.rate / MOST_UNIT_STEPS
            raise InputError(
                f"max_acceleration must be at least {least:.3g} m/s^2 for max_speed = {self.max_speed:g} m/s at "
                f"{self.rate:g} Hz; got {self.max_acceleration:g} m/s^2, with which a robot takes {braking:,.0f} steps "
                "to reach max_speed: lower the rate"
            )

    @property
    def time_step(self) -> float:
        """Time step dt = 1 / rate, in seconds."""
        return 1.0 / self.rate

    @property
    def delay(self) -> int:
        """Latency in steps, rounded up."""
        return math.ceil(self.latency * self.rate - STEP_TOLERANCE)

    @property
    def crossing_time(self) -> float:
        """Time R / max_speed in which a robot crosses its communication radius."""
        return self.comm_radius / self.max_speed

    @property
    def braking_time(self) -> float:
        """Time max_speed / max_acceleration in which a robot stops."""
        return self.max_speed / self.max_acceleration

    @property
    def steps(self) -> int:
        """Steps of a flight, which is long against the time to cross R, to stop, and to act."""
        units = SETTLING_UNITS * max(self.crossing_time, self.braking_time) * self.rate
        return max(FEWEST_STEPS, math.ceil(units))

    @property
    def duration(self) -> float:
        """Duration of a flight, in seconds."""
        return self.steps * self.time_step

    @property
    def cruise_speed(self) -> float:
        """Speed of the velocity that all robots share at the start: 0, or midway between min_speed and max_speed.

        Robots that can hover start around rest, craft that cannot around a common velocity.
        """
        return 0.0 if self.min_speed == 0.0 else (self.min_speed + self.max_speed) / 2

    @property
    def most_deviation(self) -> float:
        """Largest bound of the velocity deviations with which all robots start within their speeds."""
        return self.max_speed - self.cruise_speed

    @property
    def deviation(self) -> float:
        """Bound of the velocity deviations that the flock must settle, in m/s."""
        return self.most_deviation / 2 if self.initial_speed is None else self.initial_speed

    def draw_starts(self, flocks: int, seed: int, split: str) -> Starts:
        """Draw connected flocks, whose velocities have a size that a flight chooses."""
        disk = RandomDisk(
            flocks,
            self.agents,
            seed,
            f"robot fit, {split}",
            dimensions=2 if self.dimensions == 2 else 3,
            comm_radius=START_RANGE * self.comm_radius,
            min_separation=START_SEPARATION * self.comm_radius,
            min_degree=min(2, self.agents - 1),
            max_speed=1.0,
            velocities="disc",
        )
        deviations, directions = np.empty((flocks, self.agents, self.dimensions)), np.empty((flocks, self.dimensions))
        for b in range(flocks):
            rng = make_rng(seed, "robot_fit", split, b)
            deviations[b] = disk.draw_velocities(rng, self.agents)
            direction = rng.normal(size=self.dimensions)
            directions[b] = direction / np.linalg.norm(direction)
        return Starts(disk.draw().positions, deviations, directions)


class Starts(NamedTuple):
    """Flocks at the start."""

    positions: Vectors
    """(B, N, D), in metres."""
    deviations: Vectors
    """(B, N, D): random vectors, uniform in the unit ball."""
    directions: Float64[np.ndarray, "B D"]
    """Unit vectors: the direction of the velocity that a flock shares."""

    def build_flock(self, robot: Robot, *deviations: float) -> Flock:
        """Return these flocks once for each bound of the velocity deviations, in m/s: (len(deviations) B, N, D)."""
        shared = robot.cruise_speed * self.directions[:, None]
        velocities = np.concatenate([shared + bound * self.deviations for bound in deviations])
        positions = np.concatenate([self.positions] * len(deviations))
        return Flock(positions, velocities, comm_radius=robot.comm_radius)


class RadioSetting(NamedTuple):
    """What a flight's radio does to messages."""

    packet_loss: float
    delay: int
    """In steps."""


class FlockResults(NamedTuple):
    """Results of a flight, one number per flock."""

    connected: Bool[np.ndarray, " B"]
    """Whether the communication graph had one component at all sampled moments."""
    residual: Float64[np.ndarray, " B"]
    """Mean |a| of commanded accelerations over the second half of the flight, in m/s^2."""
    final_deviation: Float64[np.ndarray, " B"]
    """Root of the final velocity variance, in m/s."""
    settling_time: Float64[np.ndarray, " B"]
    """Time from which on the velocity deviation is that of a calm flock, in seconds; the duration if it never is."""
    lowest_speed: Float64[np.ndarray, " B"]
    """Lowest speed of any robot, in m/s."""
    separation: Float64[np.ndarray, " B"]
    """Smallest distance of two robots, in metres."""
    saturation: Float64[np.ndarray, " B"]
    """Share of commands above the maximum acceleration."""

    def find_calm(self, robot: Robot) -> Bool[np.ndarray, " B"]:
        """Return the mask of flocks that were calm: gentle in the second half of the flight, and agreed at its end."""
        gentle = self.residual <= CALM_ACCELERATION * robot.max_acceleration
        return np.asarray(gentle & (self.final_deviation <= CALM_DEVIATION * robot.most_deviation))

    def find_apart(self, robot: Robot) -> Bool[np.ndarray, " B"]:
        """Return the mask of flocks in which no two robots came too close."""
        return np.asarray(self.separation >= SAFE_SEPARATION * robot.comm_radius)

    def find_fast_enough(self, robot: Robot) -> Bool[np.ndarray, " B"]:
        """Return the mask of flocks in which no robot fell below its least speed."""
        return np.asarray(self.lowest_speed >= robot.min_speed)

    def find_successes(self, robot: Robot) -> Bool[np.ndarray, " B"]:
        """Return the mask of flocks that stayed connected, calm and apart."""
        return np.asarray(self.connected & self.find_calm(robot) & self.find_apart(robot))

    def estimate_success(self, robot: Robot) -> Estimate:
        """Return the share of flocks that stayed connected, calm and apart, with its Wilson interval."""
        successes = self.find_successes(robot)
        return estimate_share(int(successes.sum()), len(successes))


def meets_share(share: Estimate) -> bool:
    """Return whether the share of successful flocks is at least the required one."""
    return share.value >= REQUIRED_SHARE


def fly_robots(
    robot: Robot,
    controller: Controller,
    start: Flock,
    radio: RadioSetting,
    seed: int,
    *,
    repeats: int = 1,
    may_stop: bool = False,
) -> FlockResults:
    """Fly flocks in the robot's units for `repeats` times the robot's duration, and return the results of each.

    Measure connectivity, speeds and distances at about SAMPLES moments. With `may_stop` the flight ends as soon as so
    many flocks have failed that the required share is out of reach.
    """
    body = DoubleIntegrator(max_acceleration=robot.max_acceleration, max_speed=robot.max_speed)
    environment = Environment(Radio(packet_loss=radio.packet_loss, delay=radio.delay, seed=seed), body)
    B, steps = len(start), repeats * robot.steps
    connected, residual, saturation = np.ones(B, bool), np.zeros(B), np.zeros(B)
    lowest_speed, separation, settling_time = np.full(B, np.inf), np.full(B, np.inf), np.zeros(B)
    final_deviation = np.zeros(B)
    samples = late_samples = 0
    with warnings.catch_warnings():
        # The time step in the controller's units is one of the quantities that the flights test.
        warnings.simplefilter("ignore", TimeStepWarning)
        loop = flight(start, controller, time_step=robot.time_step, environment=environment)
    for moment in _sample_moments(loop, steps):
        connected &= metrics.component_count(moment) == 1
        speeds = np.linalg.norm(moment.flock.velocities, axis=2)
        lowest_speed = np.minimum(lowest_speed, speeds.min(axis=1))
        separation = np.minimum(separation, metrics.minimum_separation(moment))
        final_deviation = np.sqrt(metrics.velocity_variance(moment))
        restless = final_deviation > CALM_DEVIATION * robot.most_deviation
        settling_time[restless] = moment.time
        norms = np.linalg.norm(moment.accelerations, axis=2)
        saturation += (norms > robot.max_acceleration).mean(axis=1)
        samples += 1
        if 2 * moment.step >= steps:
            residual += norms.mean(axis=1)
            late_samples += 1
        failed = ~connected | (separation < SAFE_SEPARATION * robot.comm_radius)
        if may_stop and 1.0 - failed.mean() < REQUIRED_SHARE:
            break
    return FlockResults(
        connected,
        residual / max(late_samples, 1),
        final_deviation,
        settling_time,
        lowest_speed,
        separation,
        saturation / samples,
    )


def _sample_moments(loop: Flight, steps: int) -> Iterator[Moment]:
    """Yield about SAMPLES moments of a flight, from the first to that of step `steps`."""
    # An odd interval: agents that overshoot at every step would look alike at every second one.
    interval = max(steps // SAMPLES, 1) | 1
    moment = next(loop)
    yield moment
    while moment.step < steps:
        loop.skip(min(interval, steps - moment.step) - 1)
        moment = next(loop)
        yield moment
