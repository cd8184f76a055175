"""The steps of one robot's agent on the robot's own computer: when each begins and ends, and what it does in silence.

`OnboardSteps` has neither a clock nor a network: its caller passes the time, what the robot measures and what it
receives, and sends what `advance` returns. `equiflock ros2` and `equiflock mavlink` share it.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from equiflock._runtime.checks import InputError, check_count, check_positive
from equiflock.controllers.safety_limits import DEFAULT_BRAKING_PERIODS, SafetyLimits
from equiflock.deployment.exported_agents import Agent, restart_agent
from equiflock.deployment.link_frames import MESSAGE_HEADER

State: TypeAlias = Literal["waiting", "flying", "silent"]
"""Whether the robot waits for its first measurement, flies, or had no measurement or no set-point for the timeout."""
SetpointKind: TypeAlias = Literal["acceleration", "velocity"]
"""What a robot is asked for: an acceleration, or the velocity that it shall have a period later."""
MAX_EARLY_MESSAGES = 256
"""Most messages that are kept for the first step, or for one after a gap."""
MAX_ECHOES = 8
"""Number of own messages that are recognized if the network returns them."""
OLD_MESSAGE_REASON = "waited for longer than a step to be read"
MAX_LATE_PERIODS = 2
"""Periods after which an open step is given up: its acceleration is for a state of the past."""
STOPPED_SPEED = 0.05
"""Speed below which a robot needs no brake, in the robot's units."""


@dataclass(frozen=True)
class StepTiming:
    """When the steps of a robot begin and end."""

    rate: float
    """Steps per second."""
    listen: float = 0.5
    """Share of the period from the beginning of a step, when its message is sent, to its end."""
    timeout: float = 0.5
    """Seconds without a measurement, or without a set-point, after which the robot is silent."""
    begins_on_measurement: bool = False
    """Whether a step begins with each measurement; else by the robot's clock, at the rate."""
    agents: int | None = None
    """Number of agents in the flock: a step ends early when all others have been received. None if unknown."""

    def __post_init__(self) -> None:
        for name in ("rate", "listen", "timeout"):
            check_positive(name, getattr(self, name))
        if not self.begins_on_measurement and self.listen >= 1.0:
            raise InputError(f"listen must be below 1, so that a step ends before the next begins; got {self.listen:g}")
        if self.begins_on_measurement and self.listen_seconds >= self.timeout:
            raise InputError(
                f"listen must be below timeout * rate = {self.timeout * self.rate:g}, or the robot would stop in every "
                f"step; got {self.listen:g}"
            )
        if self.agents is not None:
            check_count("agents", self.agents)

    @property
    def period(self) -> float:
        """Seconds per step."""
        return 1.0 / self.rate

    @property
    def listen_seconds(self) -> float:
        """Seconds from the beginning of a step to its end."""
        return self.listen * self.period

    @property
    def longest_step(self) -> float:
        """Seconds from the beginning of a step after which it is given up."""
        return max(MAX_LATE_PERIODS * self.period, 2.0 * self.listen_seconds)


class Setpoint(NamedTuple):
    """What the robot is asked to do, in the flock's frame, D numbers each."""

    acceleration: tuple[float, ...] | None
    """None if the robot is silent: without its velocity no acceleration stops it, its own watchdog has to."""
    velocity: tuple[float, ...]
    """The velocity with which the step began, plus the acceleration over one period; zero in silence."""


class Output(NamedTuple):
    """What to send now, or None: the agent's message to the flock, and a set-point to the robot."""

    message: bytes | None = None
    setpoint: Setpoint | None = None


@dataclass
class StepCounts:
    """Statistics of a robot's steps."""

    steps: int = 0
    missed_steps: int = 0
    """Periods of flight that had no set-point before the next one began."""
    silences: int = 0
    """How often the robot fell silent, for lack of measurements or of set-points in time."""
    sent: int = 0
    received: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Messages of others that were dropped, by reason."""

    @property
    def summary(self) -> str:
        """One line for the end of a flight."""
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in sorted(self.dropped.items()))
        dropped = f"{self.dropped.total():,} dropped" + (f" ({reasons})" if reasons else "")
        return (
            f"{self.steps:,} steps, {self.missed_steps:,} missed, {self.silences:,} silences; "
            f"messages: {self.sent:,} sent, {self.received:,} received, {dropped}"
        )


class OnboardSteps:
    """The steps of a robot with an agent of `make_agent`. Times are seconds of any clock that does not jump.

    Call `measure` and `receive` when something arrives, then `advance`, and `advance` again at `next_time`. The first
    measurement begins the first step. After a gap, of missed steps or silence, the agent restarts, or a new one begins
    if it cannot: the observations that it would pass on are too old. `limits` are those of the agent, which hold for
    `make_brake`, too.
    """

    def __init__(self, make_agent: Callable[[], Agent], timing: StepTiming, limits: SafetyLimits | None = None) -> None:
        self.make_agent, self.timing, self.limits = make_agent, timing, limits
        self.agent = make_agent()
        self.state: State = "waiting"
        self.counts = StepCounts()
        self.is_slow = False
        """Whether the robot is silent because no step ended in time, although it was measured."""
        self._measured: tuple[Sequence[float], Sequence[float]] = (), ()
        self._measured_at = self._began_at = self._tick = -math.inf
        self._is_open = self._has_new_measurement = False
        self._first_velocity: Sequence[float] = ()
        """The velocity with which the step began."""
        self._owed_since = math.inf
        """When the first step began that has followed the last set-point."""
        self._senders: set[int] = set()
        self._early: deque[tuple[float, bytes]] = deque(maxlen=MAX_EARLY_MESSAGES)
        """Messages for the agent of the next step, with the times of their arrival."""
        self._passed_on: deque[tuple[float, bytes]] = deque(maxlen=MAX_EARLY_MESSAGES)
        """Those that the agent has received since the last step ended."""
        self._echoes: deque[bytes] = deque(maxlen=MAX_ECHOES)

    @property
    def description(self) -> str:
        """The state, and that of the agent if it has one."""
        agent_state = getattr(self.agent, "state", None)
        return self.state if agent_state is None or self.state != "flying" else f"{self.state}, {agent_state}"

    @property
    def next_time(self) -> float:
        """Time at which `advance` has to be called, at the latest; infinity before the first measurement."""
        if self.state == "waiting":
            return math.inf
        if self.state == "silent":
            return self._tick
        due = self._next_end if self._is_open else self._next_begin
        return min(due, self._silent_at)

    @property
    def longest_debt(self) -> float:
        """Seconds from the beginning of a step, without a set-point, after which the robot is silent."""
        return max(self.timing.timeout, self.timing.longest_step)

    @property
    def _silent_at(self) -> float:
        """Time at which the robot falls silent, unless a measurement and a set-point come before."""
        return min(self._measured_at + self.timing.timeout, self._owed_since + self.longest_debt)

    @property
    def _next_end(self) -> float:
        """When the open step ends: at once if all others were received, or if a new measurement begins the next one."""
        others = math.inf if self.timing.agents is None else self.timing.agents - 1
        is_next_due = self.timing.begins_on_measurement and self._has_new_measurement
        return -math.inf if is_next_due or len(self._senders) >= others else self._began_at + self.timing.listen_seconds

    @property
    def _message_lifetime(self) -> float:
        """Seconds for which a message waits for the step that uses it."""
        return max(self.timing.period, self.timing.listen_seconds)

    @property
    def _next_begin(self) -> float:
        if self.timing.begins_on_measurement:
            return -math.inf if self._has_new_measurement else math.inf
        return self._tick

    def measure(self, position: Sequence[float], velocity: Sequence[float], now: float) -> None:
        """Store the robot's own position and velocity in the flock's frame, D numbers each."""
        self._measured, self._measured_at, self._has_new_measurement = (position, velocity), now, True
        if self.state != "flying":
            self.state, self._tick = "flying", now

    def receive(self, message: bytes, now: float, age: float = 0.0) -> str | None:
        """Store a message of another agent. Return None, or why it was dropped.

        `age` is for how many seconds it has waited to be read: on a busy computer, old messages would be a delay that
        the controller does not know of. A copy of an own message, which the network returned, is ignored.
        """
        if message in self._echoes:
            return None
        if age > self._message_lifetime:
            return self._drop(OLD_MESSAGE_REASON)
        if self.state != "flying":
            self._early.append((now - age, message))
            return None
        return self._pass_on(message, now - age)

    def advance(self, now: float) -> Output:
        """Do what is due at this time: end a step, begin one, or stop. Return what to send."""
        if self.state == "flying" and now >= self._silent_at:
            self._fall_silent(now)
        if self.state == "silent":
            return self._stop(now)
        if self.state == "waiting":
            return Output()
        setpoint = self._end(now) if self._is_open and now >= self._next_end else None
        message = self._begin(now) if not self._is_open and now >= self._next_begin else None
        return Output(message, setpoint)

    def make_brake(self, now: float) -> Setpoint | None:
        """Return a set-point that brakes the robot at the end of its flight; None if it stands, or is not measured.

        The acceleration is -v / (4 periods), within the limits. A velocity of the past could turn the robot round, so
        the measurement must be newer than two periods.
        """
        velocity = self._measured[1]
        speed = math.hypot(*velocity)
        is_measured = now - self._measured_at < MAX_LATE_PERIODS * self.timing.period
        if self.state != "flying" or not is_measured or not STOPPED_SPEED < speed < math.inf:
            return None
        factor = 1.0 / (DEFAULT_BRAKING_PERIODS * self.timing.period)
        if self.limits is not None:
            factor = min(factor, self.limits.max_acceleration / speed)
        return Setpoint(tuple(-factor * v for v in velocity), self._make_zeros())

    def make_last_setpoint(self) -> Setpoint:
        """Return the set-point with which the flight ends, after brakes."""
        zeros = self._make_zeros()
        return Setpoint(zeros if self.state == "flying" else None, zeros)

    def _make_zeros(self) -> tuple[float, ...]:
        return (0.0,) * len(self._measured[0])

    def _begin(self, now: float) -> bytes:
        """Begin a step. Return the message to send."""
        if self.timing.begins_on_measurement:
            self._tick = now
        else:
            gap = math.floor((now - self._tick) / self.timing.period)
            if gap > 0:
                self.counts.missed_steps += gap
                self._renew_agent(gap)
            self._tick += (gap + 1) * self.timing.period
        self._began_at, self._is_open, self._has_new_measurement = now, True, False
        self._owed_since = min(self._owed_since, now)
        self._first_velocity = self._measured[1]
        message = self.agent.begin(*self._measured)
        # A message may come before the first measurement, if its sender was measured first.
        while self._early:
            arrived, early = self._early.popleft()
            if now - arrived <= self._message_lifetime:
                self._pass_on(early, arrived)
        self._echoes.append(message)
        self.counts.sent += 1
        return message

    def _end(self, now: float) -> Setpoint | None:
        """End the step. Return the set-point, or None if it is given up, as it is too late."""
        is_late = self._has_new_measurement if self.timing.begins_on_measurement else now >= self._tick
        self._is_open = False
        if is_late:
            self.counts.missed_steps += 1
        if now >= self._began_at + self.timing.longest_step:
            self._renew_agent(1)
            return None
        self._senders.clear()
        self._passed_on.clear()
        self._owed_since = math.inf
        # An agent with limits counts silence and late steps by this clock.
        if (set_time := getattr(self.agent, "set_time", None)) is not None:
            set_time(now)
        acceleration = tuple(float(number) for number in self.agent.end())
        self.counts.steps += 1
        if getattr(self.agent, "state", None) == "INVALID":
            return Setpoint(acceleration, self._make_zeros())
        velocity = (v + a * self.timing.period for v, a in zip(self._first_velocity, acceleration, strict=True))
        return Setpoint(acceleration, tuple(velocity))

    def _fall_silent(self, now: float) -> None:
        """Give up the step and the agent."""
        self.is_slow = now - self._measured_at < self.timing.timeout
        self.state, self._tick, self._is_open, self._owed_since = "silent", now, False, math.inf
        self.counts.silences += 1
        self._renew_agent(1)

    def _stop(self, now: float) -> Output:
        """Return a set-point of zero velocity once per period, and nothing else."""
        if now < self._tick:
            return Output()
        # After a delay the set-points that are overdue are left out.
        periods = 1 + math.floor((now - self._tick) / self.timing.period)
        self._tick += periods * self.timing.period
        return Output(setpoint=self.make_last_setpoint())

    def _renew_agent(self, steps: int) -> None:
        """Restart or replace the agent. The next step has a later number, and uses messages that are not old yet."""
        self.agent = restart_agent(self.agent, self.make_agent, (self.agent.step + steps) % 2**32)
        self.counts.received -= len(self._passed_on)
        self._early.extend(self._passed_on)
        self._passed_on.clear()
        self._senders.clear()

    def _pass_on(self, message: bytes, arrived: float) -> str | None:
        """Pass a message to the agent. Return None, or why it was dropped, and count it."""
        if (reason := self.agent.receive(message)) is not None:
            return self._drop(reason)
        self.counts.received += 1
        self._senders.add(MESSAGE_HEADER.unpack_from(message)[3])
        self._passed_on.append((arrived, message))
        return None

    def _drop(self, reason: str) -> str:
        """Count a dropped message. Return the reason."""
        self.counts.dropped[reason] += 1
        return reason
