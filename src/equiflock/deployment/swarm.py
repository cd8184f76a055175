"""Flight of a swarm of processes: in lockstep, where the host waits for all robots, or in real time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from equiflock.deployment.agent_processes import AgentProcesses
from equiflock.deployment.link_frames import COMMAND, MESSAGE, RobotReport
from equiflock.deployment.parity import Drift, Parity
from equiflock.deployment.swarm_host import SwarmHost
from equiflock.flock import Condition

STALL_SECONDS = 0.5
"""Seconds for which a stalled process is stopped."""
LATE_TOLERANCE = 0.1
"""Share of a period by which the host must be late for a step to count as late."""


@dataclass(frozen=True)
class Faults:
    """Injected faults, besides the failures of the environment, whose processes are killed."""

    stall: tuple[int, ...] = ()
    """Robots whose processes are stopped for STALL_SECONDS."""
    garbage: tuple[int, ...] = ()
    """Robots that send garbage."""
    step: int = 1
    """Step at which the faults begin."""


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
    missed_steps: dict[int, int] = field(default_factory=dict)
    """Number of steps, by robot, without a command in time although the process was alive."""
    late_steps: int = 0
    """Number of steps that the host began late in real time; robots still get their whole period."""
    lost_robots: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Step and reason, by robot whose process ended in flight."""
    stalled_robots: dict[int, int] = field(default_factory=dict)
    """First step of the stall, by stalled robot."""
    record: dict[int, dict[int, Exchange]] = field(default_factory=dict)
    """Exchanges by robot and step, if `keep_record`."""


class Swarm:
    """A flight of robots.

    Args:
        host: simulation in which they fly.
        processes: their processes.
        parity: comparison with the simulator.
        faults: injected faults.
        keep_record: whether to keep all exchanges with robots.
    """

    def __init__(
        self, host: SwarmHost, processes: AgentProcesses, parity: Parity, faults: Faults, keep_record: bool = False
    ) -> None:
        self.host, self.processes, self.parity = host, processes, parity
        self.faults, self.keep_record = faults, keep_record
        self.log = FlightLog()

    def fly(self, steps: int, rate: float | None, on_step: Callable[[int], object] | None = None) -> FlightLog:
        """Fly `steps` steps, fewer if the flight ends: in lockstep, or in real time at `rate` steps per second.

        Call `on_step` after each step, with the number of steps done.
        """
        make_step = self._step_in_lockstep if rate is None else self._step_in_real_time
        # With torch loaded, a garbage collection of all objects takes longer than a step.
        gc.freeze()
        try:
            began = time.perf_counter()
            self._next_tick = began
            for _ in range(steps):
                self._apply_faults()
                commands = make_step(0.0 if rate is None else 1.0 / rate)
                self._finish_step(commands)
                now = time.perf_counter()
                self.log.seconds.append(now - began)
                began = now
                if on_step is not None:
                    on_step(self.host.moment.step)
                if not self.host.moment.flying.any():
                    break
        finally:
            gc.unfreeze()
        return self.log

    def _step_in_lockstep(self, period: float) -> dict[int, bytes]:
        """Make a step in lockstep, in which the host waits for all robots. Return the contents of commands by robot.

        `period` is not used.
        """
        step = self.host.moment.step
        self.processes.readmit_late_robots()
        sensor_frames = self.processes.send(self.host.make_sensor_frames())
        messages = self.processes.gather(MESSAGE, step, sensor_frames)
        # Robots that did not begin the step in time get no radio frame.
        frames = self.host.make_radio_frames(messages)
        radio_frames = self.processes.send({n: frame for n, frame in frames.items() if n in messages})
        commands = self.processes.gather(COMMAND, step, radio_frames)
        if self.keep_record:
            for n, frame in sensor_frames.items():
                exchange = Exchange(frame, radio_frames.get(n, b""), messages.get(n, b""), commands.get(n, b""))
                self.log.record.setdefault(n, {})[step] = exchange
        return commands

    def _step_in_real_time(self, period: float) -> dict[int, bytes]:
        """Make a step of `period` seconds in real time: deliver messages as they arrive.

        Return the contents of the commands that arrive in time, by robot. Robots that send nothing become late.
        """
        step, commands = self.host.moment.step, {}
        now = time.perf_counter()
        # Make up for a small delay in this period, to keep the rate; a larger one shifts the clock.
        if now > self._next_tick + LATE_TOLERANCE * period:
            self.log.late_steps += 1
            self._next_tick = now
        self._next_tick += period
        sensor_frames = self.host.make_sensor_frames()
        silent = set(self.processes.send(sensor_frames))
        receivers: dict[int, list[int]] = {}
        for receiver, sender, sent in self.host.begin_delivery():
            # Messages of earlier steps and of the host's agents are available now; deliver the others when they arrive.
            if (message := self.host.make_radio_frame(sender, sent)) is not None:
                self.processes.send({receiver: message})
            elif sent == step:
                receivers.setdefault(sender, []).append(receiver)
        while (left := self._next_tick - time.perf_counter()) > 0:
            late_robots = set(self.processes.late_robots)
            frame = self.processes.next_frame(left)
            if frame is None:
                continue
            silent.discard(frame.number)
            if frame.number in late_robots and frame.number in sensor_frames:
                self.processes.send({frame.number: sensor_frames[frame.number]})
            if frame.step != step:
                continue
            if frame.kind == MESSAGE:
                self.host.add_messages({frame.number: frame.content})
                for receiver in receivers.get(frame.number, ()):
                    message = self.host.make_radio_frame(frame.number, step)
                    assert message is not None
                    self.processes.send({receiver: message})
            elif frame.kind == COMMAND:
                commands[frame.number] = frame.content
        self.processes.poll_processes()
        # Robots that sent nothing get no more frames until they do.
        self.processes.late_robots |= silent - set(self.processes.lost_robots)
        return commands

    def _finish_step(self, contents: dict[int, bytes]) -> None:
        """End a step: note working robots without a command, compare with the simulator, and advance the host.

        A robot without a command, lost or late, ends the comparison. Lost robots are STOPPED in the simulator.
        """
        host, step = self.host, self.host.moment.step
        working = set(host.robots) - set(host.failed_robots)
        for number in working - set(contents):
            if number in self.processes.lost_robots:
                self.log.lost_robots[number] = step, self.processes.lost_robots[number]
                self.parity.stop_reason = (
                    self.parity.stop_reason or f"from step {step} on, when agent {number} was lost"
                )
            else:
                self.log.missed_steps[number] = self.log.missed_steps.get(number, 0) + 1
                reason = f"from step {step} on, when agent {number} did not answer in time"
                self.parity.stop_reason = self.parity.stop_reason or reason
        commands = host.parse_commands(contents)
        self.parity.compare(host.moment, commands)
        failed = dict.fromkeys(working & set(self.log.lost_robots), Condition.STOPPED)
        # A robot that sends garbage is SILENT in the simulator: it flies on.
        if step + 1 == self.faults.step:
            failed |= dict.fromkeys(self.faults.garbage, Condition.SILENT)
        if failed:
            host.mark_failed(failed)
        host.advance(commands)

    def _apply_faults(self) -> None:
        """Kill the processes of agents that have stopped in the simulator.

        At `faults.step`, stall the processes of `faults.stall`.
        """
        step = self.host.moment.step
        for number in self.host.failed_robots:
            if number not in self.processes.lost_robots:
                self.processes.kill(number)
                self.log.lost_robots[number] = step, self.processes.lost_robots[number]
        if step == self.faults.step:
            for number in self.faults.stall:
                self.processes.stall(number, STALL_SECONDS)
                self.log.stalled_robots[number] = step


def build_result_table(
    host: SwarmHost, processes: AgentProcesses, log: FlightLog, parity: Parity, drift: Drift | None
) -> list[list[str]]:
    """Return the table of results, as rows (name, value)."""
    steps, robots, time_step = max(len(log.seconds), 1), max(len(host.robots), 1), host.flight.time_step
    reports = processes.reports.values()
    microseconds = np.concatenate([[0.0], *(report.seconds for report in reports)]) * 1e6
    ages: dict[int, int] = {}
    for report in reports:
        for age, count in report.ages.items():
            ages[int(age)] = ages.get(int(age), 0) + count
    used = max(sum(ages.values()), 1)
    seconds = np.array(log.seconds or [0.0])
    memory = max((report.peak_memory_kib for report in reports), default=0) / 1024
    mean_age = sum(age * count for age, count in ages.items()) / used
    return [
        ["parity", parity.summary],
        ["drift", "not compared" if drift is None else str(drift)],
        ["steps", f"{len(log.seconds):,}, {1.0 / max(seconds.mean(), 1e-9):.1f} per second"],
        ["time per step", f"median {np.median(seconds) * 1e3:.1f} ms, longest {seconds.max() * 1e3:.1f} ms"],
        ["computing time per step", f"median {np.median(microseconds):.0f} us, longest {microseconds.max():.0f} us"],
        ["memory per process", f"at most {memory:.0f} MiB"],
        ["sent per agent", _format_bandwidth(host.sent_bytes, steps * robots, time_step)],
        ["received per agent", _format_bandwidth(host.delivered_bytes, steps * robots, time_step)],
        [
            "age of messages",
            f"mean {mean_age:.2f} steps, oldest {max(ages, default=0)}, of {sum(ages.values()):,} used",
        ],
        ["missed steps", _format_missed(log)],
        [
            "stalled",
            ", ".join(f"{n} (from step {s}, {STALL_SECONDS:g} s)" for n, s in sorted(log.stalled_robots.items()))
            or "none",
        ],
        ["steps begun late by the host", f"{log.late_steps}" if log.late_steps else "none"],
        [
            "lost agents",
            ", ".join(f"{n} (step {s}, {reason})" for n, (s, reason) in sorted(log.lost_robots.items())) or "none",
        ],
        ["dropped messages", _format_dropped(processes.reports)],
        ["invalid reports", _format_robots(processes.unparsed_reports)],
    ]


def _format_bandwidth(total: int, agent_steps: int, time_step: float) -> str:
    """Return the mean of `total` bytes per agent and step, and per second of flight."""
    mean = total / agent_steps
    return f"{mean:.0f} bytes per step, {mean / time_step / 1000:.1f} kB per second of flight"


def _format_missed(log: FlightLog) -> str:
    """Return the number of missed steps, in total and by agent, or "none"."""
    total = sum(log.missed_steps.values())
    counts = ", ".join(f"agent {number}: {count}" for number, count in sorted(log.missed_steps.items()))
    return f"{total:,} ({counts})" if total else "none"


def _format_robots(numbers: set[int]) -> str:
    return f"{len(numbers)} (agents {', '.join(map(str, sorted(numbers)))})" if numbers else "none"


def _format_dropped(reports: dict[int, RobotReport]) -> str:
    """Return the number of dropped messages, in total and by reason, or "none"."""
    reasons: dict[str, int] = {}
    for report in reports.values():
        for reason, count in report.dropped.items():
            reasons[reason] = reasons.get(reason, 0) + count
    total = sum(reasons.values())
    return (
        f"{total:,} ({', '.join(f'{reason}: {count:,}' for reason, count in sorted(reasons.items()))})"
        if total
        else "none"
    )
