"""Options that `equiflock ros2` and `equiflock mavlink` share: the agent of one robot, and the timing of its steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from equiflock._runtime.checks import InputError
from equiflock.cli.plugins import import_plugin
from equiflock.cli.shared_options import SafetyArgument, parse_safety, warn_about_time_step
from equiflock.cli.terminal import print_warning
from equiflock.controllers import load
from equiflock.controllers.loading import read_own_radius
from equiflock.controllers.registry import parse_controller_name, split_unit_options
from equiflock.controllers.safe import apply_limits
from equiflock.controllers.safety_limits import get_safety_limits
from equiflock.controllers.trained import DEFAULT_CONTROLLER
from equiflock.deployment.export.program import check_local
from equiflock.deployment.exported_agents import Agent
from equiflock.deployment.onboard_agent import LEADER_RESPONSE, LeaderAgent, OnboardAgent, export_onboard_agent
from equiflock.deployment.onboard_steps import OnboardSteps, SetpointKind, StepTiming
from equiflock.protocols import Controller


@dataclass(frozen=True, kw_only=True)
class OnboardOptions:
    """Options of a command that runs the agent of one robot. Commands inherit them, and may redeclare one."""

    number: int | None = None
    """Number of this robot, different from that of every other; required."""
    controller: str = DEFAULT_CONTROLLER
    """A decentralized controller in the robot's units, such as starling:comm_radius=3:time_scale=8, which `equiflock
    fit` prints."""
    dimensions: Literal[2, 3] = 2
    """Dimensions of space, D."""
    rate: float = 20.0
    """Steps per second, the same on all robots."""
    listen: float = 0.5
    """Share of the period for which a step listens to the others, from its message to its set-point."""
    setpoint: SetpointKind = "acceleration"
    """What the robot is asked for: the controller's acceleration, or its own velocity plus acceleration / rate."""
    step_on_measurement: bool = False
    """Begin a step whenever the robot's position arrives, not by the clock; --rate is then the rate of positions."""
    agents: int | None = None
    """Number of agents in the flock, if known: a step ends as soon as the messages of all others have arrived."""
    group: int = 0
    """Group of this robot, for controllers that tell groups apart."""
    last_known: int = 0
    """Number of further steps for which the last message of a silent neighbour is used."""
    max_range: float | None = None
    """Distance beyond which messages are not used; by default comm_radius of the controller. Networks carry farther."""
    delay: float = 0.0
    """Usual delay of messages in seconds, by which a controller with a gain schedule lowers its gain."""
    safety: SafetyArgument = None
    timeout: float = 0.5
    """Seconds without a measurement of the robot, or without a set-point in time, after which it is silent."""
    plugin: str | None = None
    """Python module or file to import first, which may register your own controllers."""

    def make_timing(self) -> StepTiming:
        """Return the timing of the robot's steps."""
        return StepTiming(self.rate, self.listen, self.timeout, self.step_on_measurement, self.agents)

    def make_agent_settings(self) -> OnboardAgent:
        """Return the settings of the agent. Raise InputError if the number is missing."""
        if self.number is None:
            raise InputError("--number is missing: give each robot its own, such as --number 1")
        max_range = self.max_range
        if max_range is None:
            max_range = read_own_radius(self.controller) or math.inf
        period = self.make_timing().period
        return OnboardAgent(self.number, self.dimensions, period, self.delay, self.group, self.last_known, max_range)

    def load_controller(self) -> Controller:
        """Import the plugin and return the controller with its limits. Warn if it does not fit the robot."""
        import_plugin(self.plugin)
        controller: Controller = apply_limits(load(self.controller), parse_safety(self.safety))
        check_local(controller)
        if (problem := describe_missing_units(self.controller)) is not None:
            raise InputError(problem)
        warn_about_time_step(controller, self.make_agent_settings().sampling_period)
        return controller

    @contextmanager
    def open_steps(
        self, timing: StepTiming, get_target: Callable[[], Sequence[float]] | None = None
    ) -> Iterator[OnboardSteps]:
        """Yield the steps of the robot; with `get_target`, those of a leader that follows this velocity."""
        if get_target is not None and self.safety is not None:
            raise InputError("--safety has no effect on a leader, which runs no controller: leave it out")
        controller, settings = self.load_controller(), self.make_agent_settings()
        if get_target is None:
            limits = get_safety_limits(controller)
            if limits is None:
                print_warning(
                    "no limits: pass --safety max_acceleration=.. to keep accelerations within the robot's own"
                )
            with export_onboard_agent(controller, settings) as make_agent:
                yield OnboardSteps(make_agent, timing, limits)
            return
        # After one period, a velocity set-point is then the target itself.
        response = timing.period if self.setpoint == "velocity" else LEADER_RESPONSE

        def make_leader() -> Agent:
            return LeaderAgent(controller, settings, get_target, response)

        yield OnboardSteps(make_leader, timing)


def describe_missing_units(name: str) -> str | None:
    """Return why a controller does not fit a robot, if it is in units of its R = 1; else None.

    None for users' laws, whose units are unknown, and if the name has comm_radius=1.
    """
    head, options = parse_controller_name(name)
    if "comm_radius" in split_unit_options(options)[0] or read_own_radius(name) != 1.0:
        return None
    return (
        f"{name} is for comm_radius = 1 and is not scaled to a robot in metres and seconds: to scale it, use "
        f"{head}:comm_radius=..:time_scale=.. (equiflock fit chooses the time scale)"
    )
