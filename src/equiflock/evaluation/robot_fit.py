"""`fit_robot`: the time scale of a controller for a robot, and the margins that it leaves, found by flights.

With L = R and tau = `time_scale` a robot's time step is dt / tau in the controller's units, its speed v tau / R and its
acceleration a tau^2 / R. A small tau makes the time step long, so that latency and lost messages upset the flock, and
commands exceed the maximum acceleration. A large tau makes the controller slow: robots collide, or leave each other's
range, before they agree. In between, flights in the robot's units decide.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from equiflock._runtime.checks import InputError, check_count
from equiflock.controllers.gain_schedule import get_gain_schedule
from equiflock.controllers.loading import load
from equiflock.controllers.registry import parse_controller_name, split_unit_options
from equiflock.controllers.trained import DEFAULT_CONTROLLER
from equiflock.evaluation.robot_flights import (
    REQUIRED_SHARE,
    FlockResults,
    RadioSetting,
    Robot,
    Starts,
    fly_robots,
    meets_share,
)
from equiflock.protocols import Controller
from equiflock.statistics import Estimate, estimate_share
from equiflock.version import __version__

LONGEST_STEP = 0.05
"""Longest time step in the controller's units that is tried, if its training does not say."""
LARGEST_SPEED = 50.0
"""Largest own velocity deviation, v tau / R, that is tried: beyond, robots leave before they agree."""
CANDIDATES = 10
"""Time scales that are tried, in equal ratios."""
FINALISTS = 4
"""Time scales that are also tried with more packet loss and latency."""
SEARCH_FLOCKS = 12
"""Flocks per time scale and setting."""
SPEED_LEVELS = (1.0, 0.5, 0.25)
"""Velocity deviations at which time scales are compared, in shares of the largest."""
LOSS_LEVELS = (0.3, 0.6)
"""Packet losses at which the finalists are compared: the share of the messages that arrive otherwise."""
DELAY_LEVELS = (1, 3)
"""Delays at which the finalists are compared, in steps more than required."""
BISECTIONS = 5
"""Halvings of the interval in which a margin lies."""
MOST_DELAY = 64
"""Largest delay that is tried, in steps more than required."""
LONG_FACTOR, LONG_FLOCKS = 20, 20
"""Duration of the long flight, in usual durations, and its number of flocks at most."""
DEFAULT_FLOCKS = 40

Progress = Callable[[str, int, int], object]
"""Function that is called before each flight with a text, the number of flights done and about how many there are."""


class Margin(NamedTuple):
    """The largest value of a quantity at which the required share of flocks stays connected, calm and apart."""

    value: float | None
    """None if too many flocks fail at 0, too."""
    share: Estimate
    """Share of successful flocks at that value, with its Wilson interval, which does not account for the search for the
    value; at 0 if there is no value."""
    is_bound: bool
    """Whether the value is the largest that was tried, so that the margin may be larger."""


class Margins(NamedTuple):
    """Margins of a fit, each with the other two quantities as required."""

    packet_loss: Margin
    """Share of messages."""
    latency: Margin
    """In seconds; a gain schedule is that of the latency, so robots must be set to it."""
    initial_speed: Margin
    """Bound of the velocity deviations at the start, in m/s."""


class Demand(NamedTuple):
    """A check of a fit."""

    name: str
    required: float
    reached: float | None
    """None if no value succeeds."""
    met: bool
    text: str
    """What was reached, for readers, with the number of flocks."""


class Candidate(NamedTuple):
    """A time scale that was tried."""

    time_scale: float
    successes: int
    """Successful flocks over all initial speeds."""
    trials: int
    stress_successes: int | None
    """Successful flocks with more packet loss and latency; None if it was not among the finalists."""


TIE_SHARE = 0.95
"""Time scales with this share of the most successes count as equally good: a flock or two decide by chance."""


@dataclass(frozen=True)
class RobotFit:
    """A controller in a robot's metres and seconds, with the margins that its flights leave."""

    controller: Controller
    """The controller, in metres and seconds."""
    time_scale: float
    """tau: the robot's seconds per second of the controller."""
    margins: Margins
    robot: Robot
    controller_name: str
    """Name or weights file from which the controller was loaded."""
    demands: tuple[Demand, ...]
    settling_time: float
    """Median time until the velocity deviation is that of a calm flock, in seconds."""
    separation: float
    """Smallest distance of two robots in any flight at the demands, in metres."""
    saturation: float
    """Share of commands that exceeded max_acceleration."""
    candidates: tuple[Candidate, ...]
    """All time scales that were tried."""
    flocks: int
    seed: int

    @property
    def met(self) -> bool:
        """Whether all demands are met."""
        return all(demand.met for demand in self.demands)

    @property
    def load_call(self) -> str:
        """The Python call that loads the controller."""
        units = f"comm_radius={_format_exactly(self.robot.comm_radius)}, time_scale={self.time_scale:g}"
        return f'ef.load("{self.controller_name}", {units})'

    @property
    def export_command(self) -> str:
        """The command that exports the controller as a C header."""
        units = f"comm_radius={_format_exactly(self.robot.comm_radius)}:time_scale={self.time_scale:g}"
        space = " --dimensions 3" if self.robot.dimensions == 3 else ""
        return f"equiflock export {self.controller_name}:{units}{space} --out robot.h"

    @property
    def sampling_period(self) -> float | None:
        """Period for which an exported agent sets its gain, dt (1 + delay), in seconds; None for a constant gain."""
        schedule = get_gain_schedule(self.controller)
        return None if schedule is None else self.robot.time_step * (1 + self.robot.delay)

    @property
    def title(self) -> str:
        """What was fitted, in one line."""
        robot = self.robot
        speeds = f"{robot.min_speed:g} to {robot.max_speed:g}" if robot.min_speed else f"{robot.max_speed:g}"
        return (
            f"{self.controller_name} for {robot.agents} robots in {robot.dimensions}-D: R = {robot.comm_radius:g} m, "
            f"{robot.rate:g} Hz, {robot.max_acceleration:g} m/s^2, {speeds} m/s"
        )

    @property
    def table(self) -> tuple[tuple[str, str], ...]:
        """Rows (name, text): the time scale, how flocks fly at the demands, and the demands with their margins."""
        robot = self.robot
        own_step = 1e3 * robot.time_step / self.time_scale
        around = f" around a common {robot.cruise_speed:g} m/s" if robot.cruise_speed else ""
        return (
            ("time scale", f"{self.time_scale:g} (a step is {own_step:.3g} ms of the controller's time)"),
            ("flights", f"{self.flocks} flocks, {robot.duration:g} s, up to {robot.deviation:g} m/s{around}"),
            ("median settling time", f"{self.settling_time:.3g} s"),
            ("smallest separation", f"{self.separation:.3g} m"),
            ("commands above the maximum", f"{self.saturation:.2%}"),
            *((demand.name, f"{'met' if demand.met else 'NOT MET'}: {demand.text}") for demand in self.demands),
        )

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.table)
        return "\n".join([self.title, *(f"  {name:<{width}}  {text}" for name, text in self.table)])

    def to_dict(self) -> dict[str, Any]:
        """Return all results but the controller itself as a JSON-serializable dict."""
        return {
            "equiflock": __version__,
            "controller": self.controller_name,
            "time_scale": self.time_scale,
            "met": self.met,
            "robot": {
                key: value.item() if hasattr(value, "item") else value for key, value in vars(self.robot).items()
            },
            "demands": [demand._asdict() for demand in self.demands],
            "margins": {
                name: {**margin._asdict(), "share": margin.share._asdict()}
                for name, margin in self.margins._asdict().items()
            },
            "settling_time": self.settling_time,
            "separation": self.separation,
            "saturation": self.saturation,
            "candidates": [candidate._asdict() for candidate in self.candidates],
            "flocks": self.flocks,
            "seed": self.seed,
            "load": self.load_call,
            "export": self.export_command,
            "sampling_period": self.sampling_period,
        }


def _format_exactly(number: float) -> str:
    """Return the shortest text of exactly this number: 3 for 3.0."""
    return repr(number).removesuffix(".0")


def _format_margin(margin: Margin, factor: float, unit: str) -> str:
    """Return a margin in a unit, with the share of successful flocks."""
    successes = f"{margin.share.percent} of {margin.share.n} flocks"
    if margin.value is None:
        return f"no margin: at 0{unit} only {successes} succeed"
    bound = "at least" if margin.is_bound else "up to"
    return f"{bound} {factor * margin.value:.3g}{unit}, with {successes}"


def fit_robot(
    comm_radius: float,
    rate: float,
    max_acceleration: float,
    max_speed: float,
    agents: int,
    dimensions: int = 2,
    min_speed: float = 0.0,
    packet_loss: float = 0.0,
    latency: float = 0.0,
    *,
    initial_speed: float | None = None,
    controller: str | os.PathLike[str] = DEFAULT_CONTROLLER,
    flocks: int = DEFAULT_FLOCKS,
    seed: int = 0,
    on_flight: Progress | None = None,
) -> RobotFit:
    """Choose the time scale of a controller for a robot, and measure the margins that it leaves.

    Flights are in the robot's units: time step 1 / rate, a double integrator with the robot's limits, a radio with its
    packet loss and latency. They begin with connected random flocks whose links are at most 0.8 R long, and take five
    times R / max_speed or max_speed / max_acceleration, whichever is longer, but at least 200 steps. A flock succeeds
    if it stays

    - connected: the communication graph has one component throughout;
    - calm: the mean |a| of commands in the second half is at most 5% of max_acceleration, and the root of the final
      velocity variance at most 5% of the largest `initial_speed`;
    - apart: no two robots come closer than 0.05 R, half of the least distance at the start.

    Time scales are compared on common random flocks: those with the most successes over initial speeds are flown with
    more packet loss and latency, and the one with the most successes in all is chosen. Then other flocks are flown: at
    the demands, in a flight that is 20 times as long, and for each margin by bisection for the largest value at which
    95% succeed. The result depends on the seed, but not on the number of threads. Demands that are not met are in
    `demands`; raise InputError if an argument is invalid or the demands contradict each other.

    Args:
        comm_radius: communication radius R, in metres.
        rate: steps per second, in Hz: at each, a robot sends a message and sets its acceleration.
        max_acceleration: in m/s^2.
        max_speed: in m/s.
        agents: number of robots.
        dimensions: 2 or 3.
        min_speed: least speed of a craft that cannot hover, in m/s. Its flocks begin around a common velocity, midway
            between both speeds; others begin around rest. The demand is that no robot falls below it in the long
            flight.
        packet_loss: share of messages that are lost.
        latency: of messages, in seconds, rounded up to whole steps.
        initial_speed: bound of the random velocity deviations at the start, in m/s. The largest, with which all robots
            start within their speeds, is max_speed, or (max_speed - min_speed) / 2 with a min_speed; default: half of
            it.
        controller: name or weights file of a decentralized controller, in its own units.
        flocks: number of flocks of each flight at the demands and for the margins.
        seed: of the random flocks and of the radio.
        on_flight: called before each flight, for progress.
    """
    robot = Robot(
        comm_radius,
        rate,
        max_acceleration,
        max_speed,
        agents,
        dimensions,
        min_speed,
        packet_loss,
        latency,
        initial_speed,
    )
    fitter = _Fitter(robot, _check_controller(controller), check_count("flocks", flocks), seed, on_flight)
    return fitter.fit()


def _check_controller(controller: str | os.PathLike[str]) -> str:
    """Return the name of a controller; raise InputError if it is scaled already, or an expert."""
    loaded, name = load(controller), os.fspath(controller)
    if units := split_unit_options(parse_controller_name(name, {})[1])[0]:
        raise InputError(f"fit_robot chooses the units of {name}: omit {' and '.join(units)}")
    if getattr(loaded, "privileged", False):
        raise InputError(
            f"{name} is an expert, which needs the whole flock: choose a decentralized controller, such as "
            f"{DEFAULT_CONTROLLER}"
        )
    return name


class _Fitter:
    """One fit: the robot, the flocks, and the number of flights so far."""

    def __init__(self, robot: Robot, name: str, flocks: int, seed: int, on_flight: Progress | None) -> None:
        self.robot, self.name, self.flocks, self.seed = robot, name, flocks, seed
        self.on_flight = on_flight
        self.required = RadioSetting(robot.packet_loss, robot.delay)
        self.flights_done = 0
        self.flights_expected = CANDIDATES + FINALISTS * (len(LOSS_LEVELS) + len(DELAY_LEVELS)) + 3 * BISECTIONS + 2

    def fit(self) -> RobotFit:
        """Choose the time scale, then measure margins on other flocks."""
        robot = self.robot
        candidates = self._try_time_scales()
        time_scale = _choose_time_scale(candidates)
        self.flights_expected = self.flights_done + 3 * BISECTIONS + 2
        starts = robot.draw_starts(self.flocks, self.seed, "check")
        controller = self._load(time_scale)
        base = self._fly(controller, starts, self.required, robot.deviation, text="checking the demands")
        long_starts = robot.draw_starts(min(self.flocks, LONG_FLOCKS), self.seed, "long")
        text = "checking a long flight"
        long = self._fly(controller, long_starts, self.required, robot.deviation, repeats=LONG_FACTOR, text=text)
        margins = self._find_margins(controller, starts, base)
        return RobotFit(
            controller,
            time_scale,
            margins,
            robot,
            self.name,
            _list_demands(robot, self.name, base, long, margins),
            float(np.median(base.settling_time)),
            float(base.separation.min()),
            float(base.saturation.mean()),
            tuple(candidates),
            self.flocks,
            self.seed,
        )

    def _load(self, time_scale: float) -> Controller:
        return load(self.name, comm_radius=self.robot.comm_radius, time_scale=time_scale)

    def _list_time_scales(self) -> list[float]:
        """Return the time scales to try: from the longest own time step to the largest own speed."""
        robot = self.robot
        longest = getattr(load(self.name), "longest_time_step", None)
        smallest = robot.time_step / (longest if isinstance(longest, float) else LONGEST_STEP)
        largest = max(LARGEST_SPEED * robot.comm_radius / robot.most_deviation, 2.0 * smallest)
        # Three figures, so that the printed calls load the very controller that was flown.
        return [float(f"{tau:.3g}") for tau in np.geomspace(smallest * 1.005, largest, CANDIDATES)]

    def _try_time_scales(self) -> list[Candidate]:
        """Fly every time scale over initial speeds, and the best ones with more packet loss and latency."""
        robot, starts = self.robot, self.robot.draw_starts(SEARCH_FLOCKS, self.seed, "search")
        speeds = [level * robot.most_deviation for level in SPEED_LEVELS]
        candidates = []
        for tau in self._list_time_scales():
            results = self._fly(self._load(tau), starts, self.required, *speeds, text=f"trying time scale {tau:g}")
            candidates.append(Candidate(tau, _count_successes(robot, results), len(results.connected), None))
        order = sorted(range(len(candidates)), key=lambda i: (-candidates[i].successes, -candidates[i].time_scale))
        radios = [
            *(
                self.required._replace(packet_loss=1.0 - (1.0 - robot.packet_loss) * (1.0 - loss))
                for loss in LOSS_LEVELS
            ),
            *(self.required._replace(delay=robot.delay + more) for more in DELAY_LEVELS),
        ]
        for i in order[:FINALISTS]:
            controller, text = (
                self._load(candidates[i].time_scale),
                f"stressing time scale {candidates[i].time_scale:g}",
            )
            stressed = sum(
                _count_successes(robot, self._fly(controller, starts, radio, robot.deviation, text=text))
                for radio in radios
            )
            candidates[i] = candidates[i]._replace(stress_successes=stressed)
        return candidates

    def _find_margins(self, controller: Controller, starts: Starts, base: FlockResults) -> Margins:
        """Bisect each quantity, with the other two as required."""
        robot, share = self.robot, base.estimate_success(self.robot)

        def fly(text: str, radio: RadioSetting, deviation: float) -> Estimate:
            results = self._fly(controller, starts, radio, deviation, may_stop=True, text=f"margin of {text}")
            return results.estimate_success(robot)

        def try_loss(loss: float) -> Estimate:
            return fly("packet loss", self.required._replace(packet_loss=loss), robot.deviation)

        def try_delay(delay: float) -> Estimate:
            return fly("latency", self.required._replace(delay=round(delay)), robot.deviation)

        def try_speed(speed: float) -> Estimate:
            return fly("initial speed", self.required, speed)

        latency = _find_largest(try_delay, robot.delay, share, robot.delay + MOST_DELAY, whole=True)
        seconds = None if latency.value is None else latency.value * robot.time_step
        return Margins(
            _find_largest(try_loss, robot.packet_loss, share, 1.0, excluded=True),
            latency._replace(value=seconds),
            _find_largest(try_speed, robot.deviation, share, robot.most_deviation),
        )

    def _fly(
        self,
        controller: Controller,
        starts: Starts,
        radio: RadioSetting,
        *deviations: float,
        text: str,
        repeats: int = 1,
        may_stop: bool = False,
    ) -> FlockResults:
        """Report progress and fly these flocks once for each bound of the velocity deviations."""
        if self.on_flight is not None:
            self.on_flight(text, self.flights_done, max(self.flights_expected, self.flights_done + 1))
        self.flights_done += 1
        flock = starts.build_flock(self.robot, *deviations)
        return fly_robots(self.robot, controller, flock, radio, self.seed, repeats=repeats, may_stop=may_stop)


def _choose_time_scale(candidates: list[Candidate]) -> float:
    """Return the middle of the finalists whose successes are within 5% of the most, which is far from failures."""
    totals = {
        each.time_scale: each.successes + each.stress_successes
        for each in candidates
        if each.stress_successes is not None
    }
    best = sorted(tau for tau, total in totals.items() if total >= TIE_SHARE * max(totals.values()))
    return best[(len(best) - 1) // 2]


def _count_successes(robot: Robot, results: FlockResults) -> int:
    """Return the number of flocks that stayed connected, calm, apart and above the least speed."""
    return int((results.find_successes(robot) & results.find_fast_enough(robot)).sum())


def _find_largest(
    evaluate: Callable[[float], Estimate],
    required: float,
    share: Estimate,
    most: float,
    *,
    whole: bool = False,
    excluded: bool = False,
) -> Margin:
    """Return the largest value, from 0 to `most`, at which enough flocks succeed, found by bisection.

    `share` is that at the required value, which bounds the search from below if it is enough, and else from above. With
    `whole` values are whole numbers; with `excluded` the value `most` itself is not tried.
    """
    if meets_share(share):
        low, high, reached = required, most, share
        if not excluded and high > low:
            at_most = evaluate(high)
            if meets_share(at_most):
                return Margin(high, at_most, True)
        elif high == low:
            return Margin(low, share, True)
    else:
        low, high, reached = 0.0, required, share
        if required > 0.0:
            reached = evaluate(0.0)
        if not meets_share(reached):
            return Margin(None, reached, False)
    steps = BISECTIONS if not whole else int(high - low).bit_length()
    for _ in range(steps):
        middle = float((low + high) // 2) if whole else (low + high) / 2
        if middle in (low, high):
            break
        found = evaluate(middle)
        low, high, reached = (middle, high, found) if meets_share(found) else (low, middle, reached)
    return Margin(low, reached, False)


def _list_demands(
    robot: Robot, name: str, base: FlockResults, long: FlockResults, margins: Margins
) -> tuple[Demand, ...]:
    """Return the checks of a fit: successful flocks at the demands and in a long flight, margins, and the least speed.

    The velocity on which a flock agrees may drift, so the least speed is that of the long flight.
    """
    demands = [
        _make_success_demand("connected, calm and apart", robot, base, robot.duration),
        _make_success_demand("long flight", robot, long, LONG_FACTOR * robot.duration),
        _make_margin_demand("packet loss", robot.packet_loss, margins.packet_loss, 100.0, "%"),
        _make_margin_demand("latency", robot.delay * robot.time_step, margins.latency, 1.0, " s"),
        _make_margin_demand("initial speed", robot.deviation, margins.initial_speed, 1.0, " m/s"),
    ]
    if robot.min_speed > 0.0:
        demands.append(_make_speed_demand(robot, name, long))
    return tuple(demands)


def _make_success_demand(name: str, robot: Robot, results: FlockResults, duration: float) -> Demand:
    """Return the demand that enough flocks stay connected, calm and apart."""
    share = results.estimate_success(robot)
    masks = {
        "connected": results.connected,
        "calm": results.find_calm(robot),
        "apart": results.find_apart(robot),
    }
    parts = "" if share.value == 1.0 else f" ({', '.join(f'{int(mask.sum())} {key}' for key, mask in masks.items())})"
    text = f"{share.percent} of {share.n} flocks in {duration:g} s{parts}; needed {REQUIRED_SHARE:.0%}"
    return Demand(name, REQUIRED_SHARE, share.value, meets_share(share), text)


def _make_speed_demand(robot: Robot, name: str, results: FlockResults) -> Demand:
    """Return the demand that no robot falls below its least speed, in enough flocks."""
    n, slow = len(results.connected), int((~results.find_fast_enough(robot)).sum())
    met, lowest = meets_share(estimate_share(n - slow, n)), float(results.lowest_speed.min())
    text = f"robots fell to {lowest:.3g} m/s at the lowest, and too low in {slow} of {n} flocks"
    text += f" in {LONG_FACTOR * robot.duration:g} s; needed {robot.min_speed:g} m/s"
    if not met:
        text = f"{name} has no notion of a minimum speed: {text}"
    return Demand("minimum speed", robot.min_speed, lowest, met, text)


def _make_margin_demand(name: str, required: float, margin: Margin, factor: float, unit: str) -> Demand:
    """Return the demand that a margin is at least the required value; 0 demands nothing."""
    met = required == 0.0 or (margin.value is not None and margin.value >= required)
    needed = f"needed {factor * required:.3g}{unit}" if required else "none is needed"
    text = f"{_format_margin(margin, factor, unit)}; {needed}"
    return Demand(name, required, margin.value, met, text)
