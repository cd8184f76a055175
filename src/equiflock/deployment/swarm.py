"""A swarm of processes in flight: in lockstep, where everybody waits for everybody, or in real time."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from equiflock.deployment.crew import Crew
from equiflock.deployment.frames import AIR, MOTOR
from equiflock.deployment.parity import Drift, Parity
from equiflock.deployment.report import Report
from equiflock.deployment.world import World
from equiflock.flock import Condition

STALL = 0.5
"""Seconds for which a process stalls."""
LATE = 0.1
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
class Log:
    """What was counted in a flight."""

    seconds: list[float] = field(default_factory=list)
    """How long each step took."""
    missed: dict[int, int] = field(default_factory=dict)
    """For each robot, at how many steps no command came from it in time though its process lived."""
    slipped: int = 0
    """In real time, how many steps the world itself began late; robots then have their whole period all the same."""
    lost: dict[int, tuple[int, str]] = field(default_factory=dict)
    """Robots whose processes ended in flight: at which step, and how."""
    stalled: dict[int, int] = field(default_factory=dict)
    """Robots whose processes were stopped for a while on purpose: from which step on."""
    record: dict[int, dict[int, Exchange]] = field(default_factory=dict)
    """If it is kept: for each robot, what it was told and answered, by the number of the step."""


class Swarm:
    """A flight of robots.

    Args:
        world: what they fly in.
        crew: their processes.
        parity: compares them with the simulator.
        faults: what goes wrong on purpose.
        keep: whether to keep all that robots are told and say.
    """

    def __init__(self, world: World, crew: Crew, parity: Parity, faults: Faults, keep: bool = False) -> None:
        self.world, self.crew, self.parity, self.faults, self.keep = world, crew, parity, faults, keep
        self.log = Log()

    def fly(self, steps: int, rate: float | None, on_step: Callable[[int], object] | None = None) -> Log:
        """Fly so many steps, in lockstep or at so many steps a second."""
        step_of = self._lockstep if rate is None else self._tick
        # Python looks for garbage among all objects, which takes longer than a step with torch: not in flight.
        gc.freeze()
        try:
            began = time.perf_counter()
            self._next_tick = began
            for _ in range(steps):
                self._kill_and_stall()
                did = step_of(0.0 if rate is None else 1.0 / rate)
                self._settle(did)
                now = time.perf_counter()
                self.log.seconds.append(now - began)
                began = now
                if on_step is not None:
                    on_step(self.world.moment.step)
                if not self.world.moment.flying.any():
                    break
        finally:
            gc.unfreeze()
        return self.log

    def _lockstep(self, period: float) -> dict[int, bytes]:
        """A step in which everybody waits for everybody; what robots did."""
        step = self.world.moment.step
        self.crew.welcome()
        sensors = self.crew.tell(self.world.sensors())
        said = self.crew.gather(AIR, step, sensors)
        # Who did not begin the step in time is told no more of it.
        radio = self.crew.tell({number: data for number, data in self.world.air(said).items() if number in said})
        did = self.crew.gather(MOTOR, step, radio)
        if self.keep:
            for number, data in sensors.items():
                told = Exchange(data, radio.get(number, b""), said.get(number, b""), did.get(number, b""))
                self.log.record.setdefault(number, {})[step] = told
        return did

    def _tick(self, period: float) -> dict[int, bytes]:
        """A step by the clock: messages are passed on as they come, and what was not done in time was not done."""
        step, did = self.world.moment.step, {}
        now = time.perf_counter()
        # A little lateness is made up for in this period, so that the rate is kept; more of it moves the clock.
        if now > self._next_tick + LATE * period:
            self.log.slipped += 1
            self._next_tick = now
        self._next_tick += period
        sensors = self.world.sensors()
        silent = set(self.crew.tell(sensors))
        receivers: dict[int, list[int]] = {}
        for receiver, sender, sent in self.world.begin_air():
            # What was sent earlier, or by those for whom the world speaks, is there already.
            if (message := self.world.radio_frame(sender, sent)) is not None:
                self.crew.tell({receiver: message})
            elif sent == step:
                receivers.setdefault(sender, []).append(receiver)
        while (left := self._next_tick - time.perf_counter()) > 0:
            late = set(self.crew.late)
            heard = self.crew.next(left)
            if heard is None:
                continue
            silent.discard(heard.number)
            if heard.number in late and heard.number in sensors:
                self.crew.tell({heard.number: sensors[heard.number]})
            if heard.step != step:
                continue
            if heard.kind == AIR:
                self.world.say({heard.number: heard.content})
                for receiver in receivers.get(heard.number, ()):
                    message = self.world.radio_frame(heard.number, step)
                    assert message is not None
                    self.crew.tell({receiver: message})
            elif heard.kind == MOTOR:
                did[heard.number] = heard.content
        self.crew.look()
        # From whom nothing at all came is told nothing more until something does.
        self.crew.late |= silent - set(self.crew.lost)
        return did

    def _settle(self, did: dict[int, bytes]) -> None:
        """End a step: compare, take note of who is gone, and let the world move."""
        world, step = self.world, self.world.moment.step
        working = set(world.robots) - set(world.failed)
        for number in working - set(did):
            if number in self.crew.lost:
                self.log.lost[number] = step, self.crew.lost[number]
                self.parity.until = self.parity.until or f"from step {step} on, when agent {number} was lost"
            else:
                self.log.missed[number] = self.log.missed.get(number, 0) + 1
                why = f"from step {step} on, when agent {number} did not answer in time"
                self.parity.until = self.parity.until or why
        commands = world.commands(did)
        self.parity.compare(world.moment, commands)
        marked = dict.fromkeys(working & set(self.log.lost), Condition.STOPPED)
        # Who sends garbage is silent to the simulator, and flies on.
        if step + 1 == self.faults.step:
            marked |= dict.fromkeys(self.faults.garbage, Condition.SILENT)
        if marked:
            world.mark(marked)
        world.act(commands)

    def _kill_and_stall(self) -> None:
        """Do to processes what is to happen at this step."""
        step = self.world.moment.step
        for number in self.world.failed:
            if number not in self.crew.lost:
                self.crew.kill(number)
                self.log.lost[number] = step, self.crew.lost[number]
        if step == self.faults.step:
            for number in self.faults.stall:
                self.crew.stall(number, STALL)
                self.log.stalled[number] = step


def table(world: World, crew: Crew, log: Log, parity: Parity, drifted: Drift | None) -> list[list[str]]:
    """The rows of the table at the end: what was measured, and how much it was."""
    steps, robots, time_step = max(len(log.seconds), 1), max(len(world.robots), 1), world.flight.time_step
    reports = crew.reports.values()
    computed = np.concatenate([[0.0], *(report.seconds for report in reports)]) * 1e6
    ages: dict[int, int] = {}
    for report in reports:
        for age, count in report.ages.items():
            ages[int(age)] = ages.get(int(age), 0) + count
    used = max(sum(ages.values()), 1)
    seconds = np.array(log.seconds or [0.0])
    memory = max((report.kilobytes for report in reports), default=0) / 1024
    mean_age = sum(age * count for age, count in ages.items()) / used
    return [
        ["parity", parity.text],
        ["drift", "not compared" if drifted is None else str(drifted)],
        ["steps", f"{len(log.seconds):,}, {1.0 / max(seconds.mean(), 1e-9):.1f} a second"],
        ["time per step", f"median {np.median(seconds) * 1e3:.1f} ms, longest {seconds.max() * 1e3:.1f} ms"],
        ["time per step in an agent", f"median {np.median(computed):.0f} us, longest {computed.max():.0f} us"],
        ["memory of an agent's process", f"at most {memory:.0f} MiB"],
        ["sent by an agent", _bandwidth(world.sent_bytes, steps * robots, time_step)],
        ["received by an agent", _bandwidth(world.passed_bytes, steps * robots, time_step)],
        [
            "age of messages",
            f"mean {mean_age:.2f} steps, oldest {max(ages, default=0)}, of {sum(ages.values()):,} used",
        ],
        ["missed steps", _missed(log)],
        ["stalled", ", ".join(f"{n} (from step {s}, {STALL:g} s)" for n, s in sorted(log.stalled.items())) or "none"],
        ["steps that the world was late", f"{log.slipped}" if log.slipped else "none"],
        ["lost agents", ", ".join(f"{n} (step {s}, {why})" for n, (s, why) in sorted(log.lost.items())) or "none"],
        ["dropped messages", _dropped(crew.reports)],
        ["reports that say nothing", _listed(crew.unreadable)],
    ]


def _bandwidth(total: int, agent_steps: int, time_step: float) -> str:
    each = total / agent_steps
    return f"{each:.0f} bytes a step, {each / time_step / 1000:.1f} kB per second of flight"


def _missed(log: Log) -> str:
    total = sum(log.missed.values())
    named = ", ".join(f"agent {number}: {count}" for number, count in sorted(log.missed.items()))
    return f"{total:,} ({named})" if total else "none"


def _listed(numbers: set[int]) -> str:
    return f"{len(numbers)} (agents {', '.join(map(str, sorted(numbers)))})" if numbers else "none"


def _dropped(reports: dict[int, Report]) -> str:
    """How many messages robots dropped, and why."""
    reasons: dict[str, int] = {}
    for report in reports.values():
        for reason, count in report.dropped.items():
            reasons[reason] = reasons.get(reason, 0) + count
    total = sum(reasons.values())
    return (
        f"{total:,} ({', '.join(f'{why}: {count:,}' for why, count in sorted(reasons.items()))})" if total else "none"
    )
