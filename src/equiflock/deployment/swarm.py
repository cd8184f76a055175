"""A swarm of processes in flight: in lockstep, where everybody waits for everybody, or in real time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from equiflock.deployment.agent_processes import AgentProcesses
from equiflock.deployment.link_frames import COMMAND, MESSAGE
from equiflock.deployment.parity import Drift, Parity
from equiflock.deployment.robot_report import RobotReport
from equiflock.deployment.swarm_host import SwarmHost
from equiflock.flock import Condition

STALL_SECONDS = 0.5
"""Seconds for which a process stalls."""
LATE_TOLERANCE = 0.1
"""The share of a period by which the world must be late for it to be counted."""


@dataclass(frozen=True)
class Faults:
    """What goes wrong on purpose, besides the failures of the world, whose processes are killed."""

    stall: tuple[int, ...] = ()
    """Robots whose processes are stopped for half a second."""
    garbage: tuple[int, ...] = ()
    """Robots that send garbage."""
    step: int = 1
    """When it begins."""


class Exchange(NamedTuple):
    """What a robot was told at a step, and what it answered; nothing, b"", for what did not come in time."""

    sensors: bytes
    radio: bytes
    said: bytes
    did: bytes


@dataclass
class FlightLog:
    """What was counted in a flight."""

    seconds: list[float] = field(default_factory=list)
    """How long each step took."""
    missed_steps: dict[int, int] = field(default_factory=dict)
    """For each robot, at how many steps no command came from it in time though its process lived."""
    late_steps: int = 0
    """In real time, how many steps the world itself began late; robots then have their whole period all the same."""
    lost_robots: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Robots whose processes ended in flight: at which step, and how."""
    stalled_robots: dict[int, int] = field(default_factory=dict)
    """Robots whose processes were stopped for a while on purpose: from which step on."""
    record: dict[int, dict[int, Exchange]] = field(default_factory=dict)
    """If it is kept: for each robot, what it was told and answered, by the number of the step."""


class Swarm:
    """A flight of robots.

    Args:
        host: what they fly in.
        processes: their processes.
        parity: compares them with the simulator.
        faults: what goes wrong on purpose.
        keep_record: whether to keep all that robots are told and say.
    """

    def __init__(
        self, host: SwarmHost, processes: AgentProcesses, parity: Parity, faults: Faults, keep_record: bool = False
    ) -> None:
        self.host, self.processes, self.parity, self.faults, self.keep_record = (
            host,
            processes,
            parity,
            faults,
            keep_record,
        )
        self.log = FlightLog()

    def fly(self, steps: int, rate: float | None, on_step: Callable[[int], object] | None = None) -> FlightLog:
        """Fly so many steps, in lockstep or at so many steps a second."""
        step_of = self._step_in_lockstep if rate is None else self._step_in_real_time
        # Python looks for garbage among all objects, which takes longer than a step with torch: not in flight.
        gc.freeze()
        try:
            began = time.perf_counter()
            self._next_tick = began
            for _ in range(steps):
                self._apply_faults()
                did = step_of(0.0 if rate is None else 1.0 / rate)
                self._finish_step(did)
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
        """A step in which everybody waits for everybody; what robots did."""
        step = self.host.moment.step
        self.processes.receive_late_robots()
        sensors = self.processes.send(self.host.sensors())
        said = self.processes.gather(MESSAGE, step, sensors)
        # Who did not begin the step in time is told no more of it.
        radio = self.processes.send(
            {number: data for number, data in self.host.make_radio_frames(said).items() if number in said}
        )
        did = self.processes.gather(COMMAND, step, radio)
        if self.keep_record:
            for number, data in sensors.items():
                told = Exchange(data, radio.get(number, b""), said.get(number, b""), did.get(number, b""))
                self.log.record.setdefault(number, {})[step] = told
        return did

    def _step_in_real_time(self, period: float) -> dict[int, bytes]:
        """A step by the clock: messages are passed on as they come, and what was not done in time was not done."""
        step, did = self.host.moment.step, {}
        now = time.perf_counter()
        # A little lateness is made up for in this period, so that the rate is kept; more of it moves the clock.
        if now > self._next_tick + LATE_TOLERANCE * period:
            self.log.late_steps += 1
            self._next_tick = now
        self._next_tick += period
        sensors = self.host.sensors()
        silent = set(self.processes.send(sensors))
        receivers: dict[int, list[int]] = {}
        for receiver, sender, sent in self.host.begin_delivery():
            # What was sent earlier, or by those for whom the world speaks, is there already.
            if (message := self.host.make_radio_frame(sender, sent)) is not None:
                self.processes.send({receiver: message})
            elif sent == step:
                receivers.setdefault(sender, []).append(receiver)
        while (left := self._next_tick - time.perf_counter()) > 0:
            late_robots = set(self.processes.late_robots)
            heard = self.processes.next_frame(left)
            if heard is None:
                continue
            silent.discard(heard.number)
            if heard.number in late_robots and heard.number in sensors:
                self.processes.send({heard.number: sensors[heard.number]})
            if heard.step != step:
                continue
            if heard.kind == MESSAGE:
                self.host.add_messages({heard.number: heard.content})
                for receiver in receivers.get(heard.number, ()):
                    message = self.host.make_radio_frame(heard.number, step)
                    assert message is not None
                    self.processes.send({receiver: message})
            elif heard.kind == COMMAND:
                did[heard.number] = heard.content
        self.processes.poll_processes()
        # From whom nothing at all came is told nothing more until something does.
        self.processes.late_robots |= silent - set(self.processes.lost_robots)
        return did

    def _finish_step(self, did: dict[int, bytes]) -> None:
        """End a step: compare, take note of who is gone, and let the world move."""
        host, step = self.host, self.host.moment.step
        working = set(host.robots) - set(host.failed_robots)
        for number in working - set(did):
            if number in self.processes.lost_robots:
                self.log.lost_robots[number] = step, self.processes.lost_robots[number]
                self.parity.stop_reason = (
                    self.parity.stop_reason or f"from step {step} on, when agent {number} was lost"
                )
            else:
                self.log.missed_steps[number] = self.log.missed_steps.get(number, 0) + 1
                why = f"from step {step} on, when agent {number} did not answer in time"
                self.parity.stop_reason = self.parity.stop_reason or why
        commands = host.commands(did)
        self.parity.compare(host.moment, commands)
        marked = dict.fromkeys(working & set(self.log.lost_robots), Condition.STOPPED)
        # Who sends garbage is silent to the simulator, and flies on.
        if step + 1 == self.faults.step:
            marked |= dict.fromkeys(self.faults.garbage, Condition.SILENT)
        if marked:
            host.mark_failed(marked)
        host.advance(commands)

    def _apply_faults(self) -> None:
        """Do to processes what is to happen at this step."""
        step = self.host.moment.step
        for number in self.host.failed_robots:
            if number not in self.processes.lost_robots:
                self.processes.kill(number)
                self.log.lost_robots[number] = step, self.processes.lost_robots[number]
        if step == self.faults.step:
            for number in self.faults.stall:
                self.processes.stall(number, STALL_SECONDS)
                self.log.stalled_robots[number] = step


def table(
    host: SwarmHost, processes: AgentProcesses, log: FlightLog, parity: Parity, drifted: Drift | None
) -> list[list[str]]:
    """The rows of the table at the end: what was measured, and how much it was."""
    steps, robots, time_step = max(len(log.seconds), 1), max(len(host.robots), 1), host.flight.time_step
    reports = processes.reports.values()
    computed = np.concatenate([[0.0], *(report.seconds for report in reports)]) * 1e6
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
        ["drift", "not compared" if drifted is None else str(drifted)],
        ["steps", f"{len(log.seconds):,}, {1.0 / max(seconds.mean(), 1e-9):.1f} a second"],
        ["time per step", f"median {np.median(seconds) * 1e3:.1f} ms, longest {seconds.max() * 1e3:.1f} ms"],
        ["time per step in an agent", f"median {np.median(computed):.0f} us, longest {computed.max():.0f} us"],
        ["memory of an agent's process", f"at most {memory:.0f} MiB"],
        ["sent by an agent", _format_bandwidth(host.sent_bytes, steps * robots, time_step)],
        ["received by an agent", _format_bandwidth(host.delivered_bytes, steps * robots, time_step)],
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
        ["steps that the world was late", f"{log.late_steps}" if log.late_steps else "none"],
        [
            "lost agents",
            ", ".join(f"{n} (step {s}, {why})" for n, (s, why) in sorted(log.lost_robots.items())) or "none",
        ],
        ["dropped messages", _format_dropped(processes.reports)],
        ["reports that say nothing", _format_robots(processes.unparsed_reports)],
    ]


def _format_bandwidth(total: int, agent_steps: int, time_step: float) -> str:
    each = total / agent_steps
    return f"{each:.0f} bytes a step, {each / time_step / 1000:.1f} kB per second of flight"


def _format_missed(log: FlightLog) -> str:
    total = sum(log.missed_steps.values())
    named = ", ".join(f"agent {number}: {count}" for number, count in sorted(log.missed_steps.items()))
    return f"{total:,} ({named})" if total else "none"


def _format_robots(numbers: set[int]) -> str:
    return f"{len(numbers)} (agents {', '.join(map(str, sorted(numbers)))})" if numbers else "none"


def _format_dropped(reports: dict[int, RobotReport]) -> str:
    """How many messages robots dropped, and why."""
    reasons: dict[str, int] = {}
    for report in reports.values():
        for reason, count in report.dropped.items():
            reasons[reason] = reasons.get(reason, 0) + count
    total = sum(reasons.values())
    return (
        f"{total:,} ({', '.join(f'{why}: {count:,}' for why, count in sorted(reasons.items()))})" if total else "none"
    )
