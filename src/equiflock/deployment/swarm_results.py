"""Results of a swarm's flight: its log, its comparison with the simulator, and the table of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float64

from equiflock.controllers.safety_limits import SafetyState
from equiflock.deployment.export.program import Program
from equiflock.deployment.robot_processes import RobotProcesses
from equiflock.deployment.swarm_host import SwarmHost
from equiflock.flock import FOLLOWER, Flock
from equiflock.protocols import Controller, Moment
from equiflock.simulation.flight_builder import flight, make_decision_function
from equiflock.simulation.metrics import RESIDUAL_SECONDS, component_count, velocity_variance
from equiflock.simulation.safety_filter import SafetyFilter, count_states, describe_states

TOLERANCE = 1e-5
"""Largest difference from the simulator's acceleration, relative to the terms it is the sum of, or to 1.

Both sides use float32, in which the largest terms limit the precision of a sum: where terms cancel to accelerations of
150, robots and simulator each differ by about 1e-5 from exact arithmetic, in any order of summation. The scale is
`Program.compute_magnitude`, the sum of the terms' absolute values; for agents of kind "package" it is the flock's
largest acceleration."""


TOLERATED_SHARE = 0.1
"""Share of steps that an agent may miss before it counts as failed, in real time or with stalled agents.

There deadlines are so short that a busy machine misses some. In plain lockstep an agent may miss none."""


class Exchange(NamedTuple):
    """Frames to a robot at a step, and the contents of its answers; b"" for what was not sent or came too late."""

    sensor_frame: bytes
    radio_frame: bytes
    message: bytes
    command: bytes


@dataclass
class FlightLog:
    """Statistics of a flight."""

    seconds: list[float] = field(default_factory=list)
    """Duration of each step."""
    acceleration_norms: list[float] = field(default_factory=list)
    """Mean |a| of the working agents' commands at each step."""
    missed_steps: Counter[int] = field(default_factory=Counter)
    """Number of steps, by robot, without a command in time although the process was alive."""
    late_steps: int = 0
    """Number of steps that the host began late in real time; robots still get their whole period."""
    lost_robots: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Step and reason, by robot whose process ended in flight."""
    killed_robots: set[int] = field(default_factory=set)
    """Robots that were killed on purpose, as failures of the environment."""
    stalled_robots: dict[int, str] = field(default_factory=dict)
    """First step and duration of the stall, by stalled robot."""
    record: dict[int, dict[int, Exchange]] = field(default_factory=dict)
    """Exchanges by robot and step, if `keep_record`."""


class Parity:
    """Compares the robots' accelerations at every step with those of the simulator in the same state.

    `program` is the exported program of the robots, which gives the scale of errors; None for agents of kind "package".
    `safety` limits the simulator's accelerations, as the robots limit theirs; None: no limits.
    Compact messages are rounded, so that there is no tolerance for differences.
    """

    def __init__(
        self,
        controller: Controller,
        period: float,
        program: Program | None = None,
        safety: SafetyFilter | None = None,
    ) -> None:
        self._decide, _ = make_decision_function(controller, period)
        self._program, self._period, self._safety = program, period, safety
        self.state_counts = np.zeros(len(SafetyState), np.int64)
        """Number of accelerations by `SafetyState`, in the simulator; all zero without limits."""
        self.compared_count = self.different_count = 0
        self.largest_difference = self.largest_relative_difference = 0.0
        """Largest difference, absolute and relative (see `TOLERANCE`)."""
        self.is_rounded = program is not None and program.compact is not None
        """Whether messages are compact."""
        self.stop_reason: str | None = None
        """Since when and why accelerations are no longer compared, or None."""

    def compare(self, moment: Moment, commands: Float64[np.ndarray, "N D"]) -> None:
        """Compare the commands of working followers at a step with the simulator's, unless `stop_reason` is set."""
        if self.stop_reason is not None:
            return
        expected = np.asarray(self._decide(moment.flock, moment.observations), np.float64)
        if self._safety is not None:
            expected = self._safety.limit(moment.flock, expected)
            self.state_counts += count_states(moment)
        expected = expected[0]
        working = moment.flock.effective_roles[0] == FOLLOWER
        distances = np.linalg.norm(commands - expected, axis=1)[working]
        if self._program is None:
            relative = distances / max(np.linalg.norm(expected, axis=1).max(), 1.0)
        else:
            terms = self._program.compute_magnitude(moment.observations[0], self._period)
            if self._safety is not None:
                terms = np.maximum(terms, self._safety.compute_magnitude(moment.flock.velocities[0])[:, None])
            relative = (np.abs(commands - expected) / terms).max(axis=1)[working]
        self.compared_count += len(distances)
        self.different_count += 0 if self.is_rounded else int((relative > TOLERANCE).sum())
        self.largest_difference = max(self.largest_difference, float(distances.max(initial=0.0)))
        self.largest_relative_difference = max(self.largest_relative_difference, float(relative.max(initial=0.0)))

    @property
    def verdict(self) -> Literal["yes", "no", "incomplete"]:
        """Whether all accelerations are within the tolerance.

        "incomplete" if some were not compared, an agent failed, or messages are rounded.
        """
        if self.different_count:
            return "no"
        is_complete = self.compared_count and self.stop_reason is None and not self.is_rounded
        return "yes" if is_complete else "incomplete"

    @property
    def is_within_tolerance(self) -> bool:
        """Whether all accelerations were compared and are within the tolerance."""
        return self.verdict == "yes"

    @property
    def summary(self) -> str:
        """Value of the row `parity` of the result table."""
        if self.compared_count == 0:
            return f"not compared {self.stop_reason or ''}".strip()
        equal_count = self.compared_count - self.different_count
        scale = "the flock's largest acceleration" if self._program is None else "the terms that they are sums of"
        if self.is_rounded:
            return (
                f"not judged, as messages are compact: {self.compared_count:,} accelerations differ from the "
                f"simulator's by at most {self.largest_relative_difference:.2g}, relative to {scale}, or to 1; "
                f"{self.largest_difference:.2g} absolute"
            ) + (f"; not compared {self.stop_reason}" if self.stop_reason else "")
        return (
            f"{self.verdict}: {equal_count:,} of {self.compared_count:,} accelerations within {TOLERANCE:g} of the "
            f"simulator's, relative to {scale}, or to 1; largest difference {self.largest_relative_difference:.2g}, "
            f"{self.largest_difference:.2g} absolute"
        ) + (f"; not compared {self.stop_reason}" if self.stop_reason else "")


class Drift(NamedTuple):
    """Distance between an agent's positions in the swarm and in an independent simulation."""

    largest: float
    """Largest distance of any agent at any step."""
    step: int
    """Step of the largest distance."""
    last: float
    """Largest distance of any agent at the end."""

    def __str__(self) -> str:
        return f"at most {self.largest:.2g} (step {self.step}), {self.last:.2g} at the end"


def compute_drift(host: SwarmHost, controller: Controller, **flight_options: Any) -> Drift:
    """Compare the positions of a swarm after its flight with an independent simulation of the same flight."""
    simulation = flight(host.start, controller, **flight_options)
    distances = [
        float(np.linalg.norm(moment.flock.positions[0] - positions, axis=1).max())
        for positions, moment in zip(host.position_history, simulation, strict=False)
    ]
    step = int(np.argmax(distances))
    return Drift(distances[step], step, distances[-1])


def compute_mean_norm(flock: Flock, commands: Float64[np.ndarray, "N D"]) -> float:
    """Return the mean |a| of commands over the working agents of a single flock; 0 without any."""
    norms = np.linalg.norm(commands[flock.working[0]], axis=1)
    return float(norms.mean()) if len(norms) else 0.0


def find_failed_agents(processes: RobotProcesses, log: FlightLog, tolerated_share: float) -> dict[int, str]:
    """Return what went wrong, by agent that failed although this was not planned.

    An agent fails if its process ends, if it misses more than `tolerated_share` of the steps, or if its report is
    missing or invalid. Planned are the losses of killed agents and the missed steps of stalled ones.
    """
    failed = {number: f"lost at step {step}, {reason}" for number, (step, reason) in log.lost_robots.items()}
    for number, reason in processes.lost_robots.items():
        failed.setdefault(number, f"lost at the end, {reason}")
    for number, count in log.missed_steps.items():
        if number not in log.stalled_robots and count > tolerated_share * len(log.seconds):
            failed.setdefault(number, f"missed {count:,} of {len(log.seconds):,} steps")
    for number in processes.active_robots - set(processes.reports):
        problem = "invalid" if number in processes.unparsed_reports else "no"
        failed.setdefault(number, f"{problem} report at the end")
    return {number: failed[number] for number in sorted(set(failed) - log.killed_robots)}


def build_result_table(
    host: SwarmHost, processes: RobotProcesses, log: FlightLog, parity: Parity, drift: Drift | None
) -> list[list[str]]:
    """Return the table of results, as rows (name, value)."""
    reports = processes.reports.values()
    agent_steps, time_step = max(len(log.seconds), 1) * max(len(host.robots), 1), host.flight.time_step
    seconds = np.array(log.seconds or [0.0])
    microseconds = np.concatenate([[0.0], *(report.seconds for report in reports)]) * 1e6
    memory = max((report.peak_memory_kib for report in reports), default=0) / 1024
    ages: Counter[int] = Counter()
    dropped: Counter[str] = Counter()
    for report in reports:
        ages.update({int(age): count for age, count in report.ages.items()})
        dropped.update(report.dropped)
    mean_age = sum(age * count for age, count in ages.items()) / max(ages.total(), 1)
    missed = _join(f"agent {n}: {count}" for n, count in sorted(log.missed_steps.items()))
    reasons = _join(f"{reason}: {count:,}" for reason, count in sorted(dropped.items()))
    rejected = processes.count_rejected_frames()
    rejections = _join(f"{reason}: {count:,}" for reason, count in sorted(rejected.items()))
    unparsed = sorted(processes.unparsed_reports)
    # Processes may also end after the last step.
    lost = {n: f"at the end, {reason}" for n, reason in processes.lost_robots.items()}
    lost |= {n: f"step {step}, {reason}" for n, (step, reason) in log.lost_robots.items()}
    return [
        ["parity", parity.summary],
        ["drift", "not compared" if drift is None else str(drift)],
        *([["limits", describe_states(parity.state_counts)]] if parity.state_counts.any() else []),
        ["components at the end", f"{component_count(host.moment)[0]:.0f}"],
        ["final velocity variance", f"{velocity_variance(host.moment)[0]:.3g}"],
        ["residual acceleration", _format_residual_acceleration(log, time_step)],
        ["steps", f"{len(log.seconds):,}, {1.0 / max(seconds.mean(), 1e-9):.1f} per second"],
        ["time per step", f"median {np.median(seconds) * 1e3:.1f} ms, longest {seconds.max() * 1e3:.1f} ms"],
        ["computing time per step", f"median {np.median(microseconds):.0f} us, longest {microseconds.max():.0f} us"],
        ["memory per process", f"at most {memory:.0f} MiB"],
        ["sent per agent", _format_bandwidth(host.sent_bytes / agent_steps, time_step)],
        ["received per agent", _format_bandwidth(host.delivered_bytes / agent_steps, time_step)],
        ["age of messages", f"mean {mean_age:.2f} steps, oldest {max(ages, default=0)}, of {ages.total():,} used"],
        ["missed steps", f"{log.missed_steps.total():,} ({missed})" if log.missed_steps else "none"],
        ["stalled", _join(f"{n} ({stall})" for n, stall in sorted(log.stalled_robots.items()))],
        ["steps begun late by the host", str(log.late_steps or "none")],
        ["lost agents", _join(f"{n} ({description})" for n, description in sorted(lost.items()))],
        ["dropped messages", f"{dropped.total():,} ({reasons})" if dropped.total() else "none"],
        ["rejected frames", f"{rejected.total():,} ({rejections})" if rejected else "none"],
        ["invalid reports", f"{len(unparsed)} (agents {_join(map(str, unparsed))})" if unparsed else "none"],
    ]


def _format_residual_acceleration(log: FlightLog, time_step: float) -> str:
    """Return the mean |a| over the last RESIDUAL_SECONDS, and over how many seconds it is."""
    norms = log.acceleration_norms
    window = max(min(round(RESIDUAL_SECONDS / time_step), -(-len(norms) // 2)), 1)
    return f"{np.mean(norms[-window:] or [0.0]):.3g}, mean |a| over the last {window * time_step:g} s"


def _join(items: Iterable[str]) -> str:
    return ", ".join(items) or "none"


def _format_bandwidth(mean: float, time_step: float) -> str:
    """Return the mean number of bytes per agent and step, and per second of flight."""
    return f"{mean:.0f} bytes per step, {mean / time_step / 1000:.1f} kB per second of flight"
