"""Flights of drones in metres and seconds, from random velocities to a flock: for `equiflock fly`.

`DroneSetting` has the drones, their radio and their start; `choose_controller` scales a controller to them, and
`simulate_drones` flies them and returns what `DroneResults` lists.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from equiflock._runtime.checks import (
    InputError,
    TimeStepWarning,
    check_choice,
    check_count,
    check_nonnegative,
    check_positive,
)
from equiflock._runtime.imports import require_modules
from equiflock._runtime.specs import format_spec
from equiflock.bodies.crazyflow import Crazyflow, count_substeps
from equiflock.bodies.quadrotor import Quadrotor, check_drone_start
from equiflock.controllers.loading import load
from equiflock.controllers.registry import parse_controller_name, split_unit_options
from equiflock.controllers.trained import DEFAULT_CONTROLLER
from equiflock.evaluation.robot_fit import Progress, RobotFit, fit_robot
from equiflock.evaluation.robot_flights import CALM_DEVIATION, Robot
from equiflock.flock import Flock
from equiflock.observations.radio import MAX_MEMORY_STEPS, Radio
from equiflock.protocols import AnyBody, Controller, Moment
from equiflock.scenarios.drone_start import draw_drones
from equiflock.simulation import metrics
from equiflock.simulation.drone_metrics import (
    compute_max_acceleration,
    find_close_pairs,
    largest_tilt,
    lowest_height,
    thrust_margin,
)
from equiflock.simulation.environment import Environment
from equiflock.simulation.simulate import simulate
from equiflock.simulation.trajectory import Trajectory
from equiflock.statistics import Estimate, estimate_share

COMMAND_SHARE = 0.6
"""Share of the drone's acceleration that commands may use; the drone needs the rest to track them."""
LAG_FACTOR = 1.35
"""Factor on the time scale of the fit, whose robots have no lag: flocks settle also under the firmware's controller, in
crazyflow, which oscillate at the fit's own choice."""
COLLISION_DISTANCE = 0.2
"""Distance of two drones below which they collide, in m: a Crazyflie is 0.13 m wide with its propellers."""
FIT_DRONES, FIT_FLOCKS = 30, 2
"""Most drones of a flock with which the time scale is chosen, and flocks for its margins, so that it takes seconds."""
WARM_UP_STEPS = 2
"""Steps before the measurement of speed begins: the first ones may compile kernels."""


@dataclass(frozen=True)
class DroneSetting:
    """Drones, their radio and their start, in metres and seconds. Raise InputError if a value is invalid."""

    drones: int = 100
    """Number of drones in each flock."""
    flocks: int = 1
    """Number of flocks."""
    dimensions: Literal[2, 3] = 3
    """Dimensions of the flight, D; in 2 the drones hold a height."""
    seed: int = 0
    """Random seed of the start and of the radio."""
    comm_radius: float = 5.0
    """Communication radius R, in m."""
    rate: float = 50.0
    """Steps per second, in Hz: at each, a drone sends a message and sets its acceleration."""
    packet_loss: float = 0.0
    """Share of messages that are lost, from 0 to below 1."""
    delay: int = 0
    """Age of a message at its arrival, in steps."""
    initial_speed: float = 1.0
    """Largest speed of a drone at the start, in m/s, relative to the flock's common velocity."""
    cruise_speed: float = 0.0
    """Speed of the common velocity at the start, which is horizontal, in m/s."""
    min_separation: float = 0.5
    """Least distance of two drones at the start, in m."""
    height: float = 3.0
    """Height of the lowest drone at the start, in m; of all drones if D = 2."""
    max_speed: float = 2.0
    """Largest speed that is commanded, in m/s; crazyflow does not limit it in flight."""
    max_tilt: float = 25.0
    """Largest tilt that is commanded, in degrees (quadrotor only)."""
    max_acceleration: float | None = None
    """Largest acceleration that is commanded, in m/s^2; by default 60% of what tilt and thrust allow."""
    body: Literal["quadrotor", "crazyflow"] = "quadrotor"
    """Simulator of the drone: our quadrotor, or crazyflow (extra drones)."""
    downwash: bool = False
    """Whether rotors blow onto the drones below (quadrotor only)."""

    def __post_init__(self) -> None:
        check_choice("body", self.body, ("quadrotor", "crazyflow"))
        if self.body == "crazyflow":
            require_modules("drones", "the body 'crazyflow'", "crazyflow", "jax")
            if self.downwash:
                raise InputError("crazyflow has no downwash: choose --body quadrotor, or omit downwash")
        check_count("drones", self.drones, least=2)
        check_count("flocks", self.flocks)
        if check_count("delay", self.delay, least=0) > MAX_MEMORY_STEPS:
            raise InputError(f"delay must be at most {MAX_MEMORY_STEPS:,} steps; got {self.delay:,}")
        check_positive("rate", self.rate)
        if self.body == "crazyflow":
            count_substeps(self.time_step)
        least = self.drone.start_distance
        if check_nonnegative("min_separation", self.min_separation) < least:
            raise InputError(f"min_separation must be at least {least:g} m; got {self.min_separation:g}")
        check_positive("height", self.height)
        check_nonnegative("initial_speed", self.initial_speed)
        _ = self.robot
        if self.initial_speed + check_nonnegative("cruise_speed", self.cruise_speed) > self.max_speed:
            raise InputError(
                f"initial_speed + cruise_speed must be at most max_speed, {self.max_speed:g} m/s; got "
                f"{self.initial_speed + self.cruise_speed:g}"
            )

    @property
    def time_step(self) -> float:
        """Time step 1 / rate, in seconds."""
        return 1.0 / self.rate

    @cached_property
    def drone(self) -> Quadrotor:
        """The drone, with limits of tilt and thrust; crazyflow simulates the same Crazyflie."""
        return Quadrotor(max_tilt=self.max_tilt)

    @property
    def command_limit(self) -> float:
        """Largest commanded acceleration, in m/s^2."""
        most = compute_max_acceleration(self.drone, self.dimensions)
        # Three figures, so that the printed number is the one that is flown.
        if self.max_acceleration is None:
            return float(f"{COMMAND_SHARE * most:.3g}")
        if check_positive("max_acceleration", self.max_acceleration) > most:
            raise InputError(
                f"max_acceleration must be at most {most:.3g} m/s^2, what tilt and thrust allow; "
                f"got {self.max_acceleration:g}"
            )
        return self.max_acceleration

    @property
    def robot(self) -> Robot:
        """The drone as a robot for `fit_robot`: at most FIT_DRONES of them, with the largest initial speeds."""
        return Robot(
            self.comm_radius,
            self.rate,
            self.command_limit,
            self.max_speed,
            min(self.drones, FIT_DRONES),
            self.dimensions,
            packet_loss=self.packet_loss,
            latency=self.delay / self.rate,
        )

    def build_environment(self) -> Environment:
        """Return the radio and the body of the flights."""
        body: AnyBody
        # In space the body's height has no meaning.
        height = {"height": self.height} if self.dimensions == 2 else {}
        if self.body == "quadrotor":
            body = Quadrotor(
                max_acceleration=self.command_limit,
                max_speed=self.max_speed,
                max_tilt=self.max_tilt,
                downwash=self.downwash,
                **height,
            )
        else:
            body = Crazyflow(max_acceleration=self.command_limit, **height)
        return Environment(Radio(packet_loss=self.packet_loss, delay=self.delay, seed=self.seed), body)

    def draw_start(self) -> Flock:
        """Draw the flocks; raise InputError if there is no room, or two drones are closer than the body accepts."""
        start = draw_drones(
            self.flocks,
            self.drones,
            self.seed,
            dimensions=self.dimensions,
            comm_radius=self.comm_radius,
            min_separation=self.min_separation,
            initial_speed=self.initial_speed,
            cruise_speed=self.cruise_speed,
            height=self.height,
        )
        check_drone_start(start, self.drone.start_distance)
        return start


class ScaledChoice(NamedTuple):
    """A controller in metres and seconds, and how it was scaled."""

    controller: Controller
    name: str
    """Name with comm_radius and time_scale, as `load` takes it."""
    time_scale: float
    fit: RobotFit | None
    """The fit of which the time scale is LAG_FACTOR times its choice; None if it was given."""


def choose_controller(
    setting: DroneSetting,
    controller: str = DEFAULT_CONTROLLER,
    time_scale: float | None = None,
    on_flight: Progress | None = None,
) -> ScaledChoice:
    """Return a controller that is scaled to the drones.

    If no time scale is given, it is LAG_FACTOR times the one that `fit_robot` chooses. A name with comm_radius and
    time_scale is used as is. Raise InputError if its comm_radius is not that of the drones, if it has a time_scale
    without a comm_radius, or if the time scale is given twice.
    """
    name, options = parse_controller_name(controller)
    units, own = split_unit_options(options)
    if "time_scale" in units and "comm_radius" not in units:
        raise InputError(
            f"{controller} is not scaled to metres: add comm_radius={setting.comm_radius:g} to its name, or pass its "
            "time_scale as --time-scale"
        )
    if units.get("comm_radius", setting.comm_radius) != setting.comm_radius:
        raise InputError(
            f"comm_radius of {controller} must be that of the drones, {setting.comm_radius:g} m; got "
            f"{units['comm_radius']}: change one of them"
        )
    if "time_scale" in units and time_scale is not None:
        raise InputError(f"time_scale is given twice, in {controller} and as --time-scale: omit one of them")

    tau = units.get("time_scale", time_scale)
    fit = None
    if tau is None:
        fit = _fit_drones(setting, format_spec(name, **own), on_flight)
        tau = float(f"{LAG_FACTOR * fit.time_scale:.3g}")
    scaled_name = format_spec(name, **own, comm_radius=setting.comm_radius, time_scale=tau)
    scaled = load(name, **own, comm_radius=setting.comm_radius, time_scale=tau)
    return ScaledChoice(scaled, scaled_name, float(tau), fit)


def _fit_drones(setting: DroneSetting, controller: str, on_flight: Progress | None) -> RobotFit:
    """Fit a controller to the drones. The fit has its own seed, so that the same drones get the same time scale."""
    robot = setting.robot
    return fit_robot(
        robot.comm_radius,
        robot.rate,
        robot.max_acceleration,
        robot.max_speed,
        robot.agents,
        robot.dimensions,
        packet_loss=robot.packet_loss,
        latency=robot.latency,
        initial_speed=setting.initial_speed or None,
        controller=controller,
        flocks=FIT_FLOCKS,
        on_flight=on_flight,
    )


class DroneResults(NamedTuple):
    """Results of a flight, one number per flock unless noted."""

    tilt: Float64[np.ndarray, " B"]
    """Largest tilt of a drone, in degrees."""
    thrust_margin: Float64[np.ndarray, " B"]
    """Smallest distance of a motor's thrust from its maximum, as a share of the maximum."""
    separation: Float64[np.ndarray, " B"]
    """Smallest distance of two drones, in m."""
    height: Float64[np.ndarray, " B"]
    """Height of the lowest drone, in m."""
    collisions: Int64[np.ndarray, " B"]
    """Pairs of drones that came closer than COLLISION_DISTANCE."""
    crashes: Int64[np.ndarray, " B"] | None
    """Drones that crashed into the ground; None if the body has no ground."""
    first_variance: Float64[np.ndarray, " B"]
    """Velocity variance at the start, in m^2/s^2."""
    final_variance: Float64[np.ndarray, " B"]
    connected: Bool[np.ndarray, " B"]
    """Whether the communication graph has one component at the end."""
    settling_time: Float64[np.ndarray, " B"]
    """Time from which on the root of the velocity variance is at most 5% of max_speed, in seconds; infinite if it never
    is."""
    duration: float
    """Duration of the flight, in seconds."""
    real_time_factor: float
    """Seconds of flight per second of computation, all flocks together as one, without compiling; NaN for a flight of
    up to WARM_UP_STEPS steps."""
    cpu_factor: float
    """Seconds of flight per second of processor time, over all cores."""

    @property
    def share_connected(self) -> Estimate:
        """Share of flocks that are connected at the end, with its Wilson interval."""
        return estimate_share(int(self.connected.sum()), len(self.connected))

    @property
    def table(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows: one value for one flock; median and worst over several flocks."""
        B = len(self.tilt)
        crashes = [math.nan] * B if self.crashes is None else self.crashes
        rows = [
            _make_row("largest tilt", self.tilt, "{:.1f} deg"),
            _make_row("thrust margin", 100.0 * self.thrust_margin, "{:.0f}%", smallest_is_worst=True),
            _make_row("smallest separation", self.separation, "{:.2f} m", smallest_is_worst=True),
            _make_row("lowest height", self.height, "{:.2f} m", smallest_is_worst=True),
            _make_row(f"collisions (pairs closer than {COLLISION_DISTANCE:g} m)", self.collisions, "{:g}"),
            _make_row("crashes", np.asarray(crashes), "{:g}"),
            _make_row("velocity variance at the start", self.first_variance, "{:.3g} m^2/s^2"),
            _make_row("velocity variance at the end", self.final_variance, "{:.2g} m^2/s^2"),
            _make_row("settling time", self.settling_time, "{:.2f} s"),
        ]
        share = self.share_connected
        single = "yes" if self.connected[0] else "no"
        rows.append(["connected at the end", *([single] if B == 1 else [f"{share.percent} of {B}", ""])])
        rows.append(["real-time factor", _format_number(self.real_time_factor, "{:.3g}"), *[""] * (B > 1)])
        if B > 1:
            text = _format_number(B * self.real_time_factor, "{:.3g}")
            rows.append([f"real-time factor times {B} flocks", text, ""])
        return ["", "value"] if B == 1 else ["", "median over flocks", "worst flock"], rows


def _make_row(name: str, values: np.ndarray, pattern: str, smallest_is_worst: bool = False) -> list[str]:
    """Return a row with the value of one flock, or median and worst of several; a dash if a value is NaN."""
    worst = values.min() if smallest_is_worst else values.max()
    numbers = [worst] if len(values) == 1 else [np.median(values), worst]
    return [name, *(_format_number(float(number), pattern) for number in numbers)]


def _format_number(number: float, pattern: str) -> str:
    """Return a number as text: "-" for NaN, "never" for an infinite time."""
    return "-" if math.isnan(number) else "never" if math.isinf(number) else pattern.format(number)


def simulate_drones(
    setting: DroneSetting,
    controller: Controller,
    duration: float,
    *,
    start: Flock | None = None,
    keep_every: int | None = None,
    on_step: Callable[[Moment], object] | None = None,
    controller_name: str | None = None,
) -> tuple[Trajectory, DroneResults]:
    """Fly the drones of a setting for a duration, in seconds; return the trajectory and the results.

    Args:
        setting: drones, radio and start.
        controller: in metres and seconds, as of `choose_controller`.
        duration: in seconds.
        start: flocks at the start; default: `setting.draw_start()`.
        keep_every: interval of the frames to keep, in steps; None: the first and last only.
        on_step: called with every moment, for progress.
        controller_name: name to store with the trajectory.
    """
    start = setting.draw_start() if start is None else start
    recorder = _Recorder(setting, len(start))

    def record(moment: Moment) -> None:
        recorder.add(moment)
        if on_step is not None:
            on_step(moment)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TimeStepWarning)
        run = simulate(
            start,
            controller,
            time_step=setting.time_step,
            duration=duration,
            environment=setting.build_environment(),
            keep_every=keep_every,
            on_step=record,
            config={} if controller_name is None else {"controller": controller_name},
        )
    return run, recorder.build_results()


class _Recorder:
    """Extremes of a flight, updated at every moment, and the time that it took."""

    def __init__(self, setting: DroneSetting, flocks: int) -> None:
        self.setting = setting
        self.tilt, self.settling_time = np.zeros(flocks), np.zeros(flocks)
        self.margin, self.separation, self.height = (np.full(flocks, math.inf) for _ in range(3))
        self.pairs: set[tuple[int, int, int]] = set()
        self.begin = self.now = 0.0, 0.0, 0.0

    def add(self, moment: Moment) -> None:
        """Record one moment."""
        self.tilt = np.maximum(self.tilt, largest_tilt(moment))
        self.margin = np.minimum(self.margin, thrust_margin(moment, self.setting.drone))
        self.height = np.minimum(self.height, lowest_height(moment))
        separation = metrics.minimum_separation(moment)
        self.separation = np.minimum(self.separation, separation)
        if separation.min() < COLLISION_DISTANCE:
            self.pairs |= find_close_pairs(moment.flock, COLLISION_DISTANCE)
        variance = metrics.velocity_variance(moment)
        if moment.step == 0:
            self.first_variance = variance
        restless = np.sqrt(variance) > CALM_DEVIATION * self.setting.max_speed
        # The first moment at which a flock may be calm for good is the next one.
        self.settling_time[restless] = moment.time + moment.time_step
        self.variance, self.last = variance, moment
        self.now = moment.time, time.perf_counter(), time.process_time()
        if moment.step <= WARM_UP_STEPS:
            self.begin = self.now

    def build_results(self) -> DroneResults:
        """Return the results after the last moment."""
        last = self.last
        crashed = last.body_state.get("crashed")
        flown, seconds, cpu_seconds = np.subtract(self.now, self.begin).tolist()
        flocks = np.array([pair[0] for pair in self.pairs], np.int64)
        return DroneResults(
            self.tilt,
            self.margin,
            self.separation,
            self.height,
            np.bincount(flocks, minlength=len(self.tilt)).astype(np.int64),
            None if crashed is None else np.asarray(crashed).sum(axis=1).astype(np.int64),
            self.first_variance,
            self.variance,
            metrics.component_count(last) == 1.0,
            np.where(self.settling_time > last.time, math.inf, self.settling_time),
            last.time,
            flown / max(seconds, 1e-9) if flown > 0.0 else math.nan,
            flown / max(cpu_seconds, 1e-9) if flown > 0.0 else math.nan,
        )
