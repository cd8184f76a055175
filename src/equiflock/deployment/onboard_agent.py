"""The agent of one robot on the robot's own computer: the exported NumPy agent, or a leader that follows a velocity."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from equiflock._runtime.checks import InputError, check_count, check_nonnegative, check_positive, shorten_repr
from equiflock._runtime.scratch_directory import make_scratch_directory
from equiflock.controllers.gain_schedule import get_gain_schedule
from equiflock.controllers.safety_limits import get_safety_limits
from equiflock.deployment.export import export
from equiflock.deployment.export.program import check_local
from equiflock.deployment.exported_agents import Agent, import_agent_class
from equiflock.deployment.wire_format import OBSTACLE_GROUP, Message, decode_message, encode_message, make_zero_hops
from equiflock.protocols import Controller

SCRATCH_PREFIX = "equiflock-onboard-"
MAX_NUMBER = 2**32 - 1
"""Largest number of a robot: the field of a message has 32 bits."""
LEADER_RESPONSE = 0.5
"""Seconds in which a leader would reach its target velocity at its initial acceleration."""


@dataclass(frozen=True)
class OnboardAgent:
    """Settings of a robot's agent."""

    number: int
    """Number of the robot, different from that of all others."""
    dimensions: int
    period: float
    """Seconds per step."""
    delay: float = 0.0
    """Usual delay of messages in seconds, by which a gain schedule lowers the gain."""
    group: int = 0
    last_known: int = 0
    """Number of further steps for which the last message of a silent neighbour is used."""
    max_range: float = math.inf
    """Distance beyond which messages are not used."""

    def __post_init__(self) -> None:
        for name, largest in (("number", MAX_NUMBER), ("group", OBSTACLE_GROUP - 1)):
            if check_count(name, getattr(self, name), least=0) > largest:
                raise InputError(f"{name} must be at most {largest:,}; got {shorten_repr(getattr(self, name))}")
        check_count("last_known", self.last_known, least=0)
        for name in ("period", "delay"):
            check_nonnegative(name, getattr(self, name))
        if self.max_range != math.inf:
            check_positive("max_range", self.max_range)

    @property
    def sampling_period(self) -> float:
        """Period of the gain schedule in seconds: a step, and the usual delay of messages."""
        return self.period + self.delay

    def build_arguments(self, controller: Controller) -> dict[str, Any]:
        """Return the arguments of the exported class `Agent`."""
        arguments: dict[str, Any] = {name: getattr(self, name) for name in ("number", "group", "last_known")}
        arguments["max_range"] = self.max_range
        has_schedule = get_gain_schedule(controller) is not None
        if get_safety_limits(controller) is not None:
            # Limits need the seconds per step; the gain needs the delay, too.
            return arguments | {"period": self.period} | ({"delay": self.delay} if has_schedule else {})
        return arguments | ({"period": self.sampling_period} if has_schedule else {})


@contextmanager
def export_onboard_agent(controller: Controller, settings: OnboardAgent) -> Iterator[Callable[[], Agent]]:
    """Export a controller as a NumPy agent to a private temporary directory. Yield a function that makes new agents.

    Raise InputError if the controller is not local or cannot be exported.
    """
    check_local(controller)
    with make_scratch_directory(Path(tempfile.gettempdir()), SCRATCH_PREFIX) as folder:
        program = export(controller, folder / "agent.py", dimensions=settings.dimensions)[0]
        agent_class, arguments = import_agent_class(program), settings.build_arguments(controller)
        yield lambda: agent_class(**arguments)


class TargetVelocity:
    """The velocity that a leader shall have; zero if it was not set for `timeout` seconds."""

    def __init__(self, dimensions: int, timeout: float) -> None:
        self._timeout, self._zero = timeout, (0.0,) * dimensions
        self._velocity: Sequence[float] = self._zero
        self._set_at = -math.inf

    def set(self, velocity: Sequence[float], now: float) -> None:
        """Store the velocity, D numbers in the flock's frame."""
        self._velocity, self._set_at = velocity, now

    def get(self, now: float) -> Sequence[float]:
        """Return the velocity at this time."""
        return self._velocity if now - self._set_at < self._timeout else self._zero


class LeaderAgent:
    """An `Agent` that sends its state, with zeros as observations, and accelerates towards a target velocity.

    Its acceleration is (target - velocity) / `response`. Like every leader, it uses no messages.
    """

    def __init__(
        self,
        controller: Controller,
        settings: OnboardAgent,
        get_target: Callable[[], Sequence[float]],
        response: float = LEADER_RESPONSE,
    ) -> None:
        self.step = 0
        self._settings, self._get_target, self._response = settings, get_target, response
        self._senses = check_local(controller)
        self._hops = make_zero_hops(self._senses, settings.dimensions)
        self._velocity = np.zeros(settings.dimensions)

    def begin(self, position: Sequence[float], velocity: Sequence[float]) -> bytes:
        """Begin a step and return the message."""
        self._velocity = np.asarray(velocity, np.float64)
        state = np.asarray(position, np.float32), np.asarray(velocity, np.float32)
        return encode_message(Message(self._settings.number, self.step, *state, self._hops, self._settings.group))

    def receive(self, message: bytes) -> str | None:
        """Return None, or why the message is not a valid one of another agent."""
        decoded = decode_message(message, self._senses, self._settings.dimensions)
        if isinstance(decoded, str):
            return decoded
        return "sender has this agent's own number" if decoded.sender == self._settings.number else None

    def end(self) -> list[float]:
        """End the step and return the acceleration."""
        self.step = (self.step + 1) % 2**32
        acceleration = (np.asarray(self._get_target(), np.float64) - self._velocity) / self._response
        return [float(number) for number in acceleration]
