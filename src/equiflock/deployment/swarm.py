"""Flight of a swarm of processes: `deploy` exports the controller, starts the robots, and flies them.

In lockstep the host waits for all robots at every step. In real time it gives ticks at a fixed rate, and robots act by
their own clocks.
"""

from __future__ import annotations

import gc
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from equiflock._runtime.checks import InputError, check_choice, check_count, check_positive
from equiflock._runtime.scratch_directory import make_scratch_directory
from equiflock.controllers import load
from equiflock.controllers.gain_schedule import get_gain_schedule
from equiflock.controllers.safe import apply_limits
from equiflock.controllers.safety_limits import SafetyLimits, get_safety_limits
from equiflock.deployment.export import export, find_comm_radius
from equiflock.deployment.export.message_choice import MessageOptions, choose_messages
from equiflock.deployment.export.program import Program, check_local, read_program
from equiflock.deployment.exported_agents import AgentKind, compile_header
from equiflock.deployment.link_frames import COMMAND, MESSAGE, RobotReport
from equiflock.deployment.package_agent import compile_kernels
from equiflock.deployment.robot_processes import RobotProcesses
from equiflock.deployment.swarm_host import MessageDelivery, SwarmHost, list_followers
from equiflock.deployment.swarm_results import (
    TOLERATED_SHARE,
    Drift,
    Exchange,
    FlightLog,
    Parity,
    build_result_table,
    compute_drift,
    compute_mean_norm,
    find_failed_agents,
)
from equiflock.flock import Condition, Flock
from equiflock.observations.orbit import Orbit
from equiflock.protocols import Controller
from equiflock.simulation.environment import DEFAULT_ENVIRONMENT, Environment

EXPORT_HINT = "to deploy it without an export, use --agent package; tanner-dynamic is an example that can be exported"
"""Advice for a controller that cannot be exported."""
LISTEN_SHARE = 0.5
"""Share of a step, in real time, for which a robot receives messages before it acts."""
LATE_TOLERANCE = 0.1
"""Share of a period by which the host must be late for a step to count as late."""
STALL_SECONDS = 0.5
"""Seconds for which a stalled process is stopped."""
ANSWER_TIMEOUT, STALL_ANSWER_TIMEOUT = 10.0, 0.1
"""Seconds to wait for a robot in lockstep: by default, and with stalled robots, so that the others fly on."""
SCRATCH_PREFIX = "equiflock-swarm-"
MAX_AGENTS = 500
"""Largest number of processes: each takes tens of megabytes and a share of the cores."""


@dataclass(frozen=True)
class Faults:
    """Injected faults, besides the failures of the environment, whose processes are killed."""

    stall: tuple[int, ...]
    """Robots whose processes are stopped for STALL_SECONDS."""
    garbage: tuple[int, ...]
    """Robots that send garbage."""
    step: int
    """Step at which the faults begin."""


@dataclass(frozen=True)
class Deployment:
    """Settings of a deployment, besides the flock and the controller."""

    agent: AgentKind = "numpy"
    time_step: float = 0.01
    """dt, in seconds of flight."""
    steps: int = 200
    environment: Environment = DEFAULT_ENVIRONMENT
    """Radio and body; its failures are the agents whose processes are killed."""
    orbit: Orbit | None = None
    rate: float | None = None
    """Steps per second of real time; None for lockstep."""
    port: int = 0
    """Port on which the host listens; 0 for any free port."""
    answer_timeout: float | None = None
    """Seconds that a robot may take to answer in lockstep; if None, 10, or 0.1 with stalled robots."""
    stall: int = 0
    """Number of processes that stall for half a second in the middle of the flight."""
    garbage: int = 0
    """Number of robots that send garbage from the middle of the flight on."""
    message_bytes: int | None = None
    """Most bytes of a message, which has one packet and all hops; None for float32 of any size."""
    plugin: str | None = None
    """Module or file that registers a user's controller."""
    safety: SafetyLimits | None = None
    """Limits of the agents; None: those of the controller, if any. Agents of kind "package" cannot have any."""

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_choice("agent", self.agent, get_args(AgentKind))
        check_positive("time_step", self.time_step)
        for name in ("answer_timeout", "rate"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        for name in ("stall", "garbage"):
            check_count(name, getattr(self, name), least=0)
        if self.message_bytes is not None and self.agent == "package":
            raise InputError("agents of kind package send float32: with message_bytes, agent must be numpy or c")
        failures = self.environment.failures
        if failures.kind != "stopped" and not failures.is_empty:
            raise InputError(
                f"failed agents of a swarm are killed, so they are stopped: their kind must be 'stopped', "
                f"got {failures.kind!r}"
            )

    @property
    def sampling_period(self) -> float:
        """Period for the agents' gain schedule, in seconds: a time step, and the radio's latency."""
        return self.time_step * (1 + self.environment.radio.latency)

    def make_period_settings(self, controller: Controller) -> dict[str, float]:
        """Return the arguments of exported agents about time: none, `period`, or also `delay`.

        With limits, the period is the time step, and the latency of the radio is the delay.
        """
        has_schedule = get_gain_schedule(controller) is not None
        if get_safety_limits(controller) is None:
            return {"period": self.sampling_period} if has_schedule else {}
        delay = {"delay": self.time_step * self.environment.radio.latency} if has_schedule else {}
        return {"period": self.time_step, **delay}

    @property
    def flight_options(self) -> dict[str, Any]:
        """Arguments of `flight`: time step, environment and orbit technique."""
        return {"time_step": self.time_step, "environment": self.environment, "orbit": self.orbit}

    @property
    def effective_timeout(self) -> float:
        """Seconds to wait for a robot."""
        return self.answer_timeout or (STALL_ANSWER_TIMEOUT if self.stall else ANSWER_TIMEOUT)

    def assign_faults(self, robots: list[int]) -> Faults:
        """Return the injected faults: the first `stall` robots stall, the last `garbage` ones send garbage.

        Faults begin in the middle of the flight. Raise InputError if these are more than all robots.
        """
        if self.stall + self.garbage > len(robots):
            raise InputError(
                f"stall + garbage must be at most the number of followers, {len(robots)}, "
                f"got {self.stall + self.garbage}"
            )
        last = robots[len(robots) - self.garbage :]
        return Faults(tuple(robots[: self.stall]), tuple(last), max(self.steps // 2, 1))


@dataclass(frozen=True)
class DeploymentResult:
    """Result of a deployment: `table` for display, and the data it is made from."""

    table: list[list[str]]
    parity: Parity
    drift: Drift | None
    """None if a robot was late, sent garbage, or failed for another reason than `failures`."""
    log: FlightLog
    host: SwarmHost
    reports: dict[int, RobotReport]
    failed_agents: dict[int, str]
    """What went wrong, by agent that failed although this was not planned."""


def deploy(
    name: str,
    start: Flock,
    deployment: Deployment,
    on_step: Callable[[int], object] | None = None,
    keep_record: bool = False,
) -> DeploymentResult:
    """Fly a swarm of processes and return the result; all processes have ended by then.

    `name` is that of a local controller, as for `equiflock.load`, and `start` a single flock. The host compares every
    acceleration with the simulator's, calls `on_step` with the number of steps done, and with `keep_record` keeps all
    exchanges with robots, for `audit_swarm`. Raise InputError if the controller is not local or cannot be exported.
    """
    controller, robots = apply_limits(load(name), deployment.safety), list_followers(start)
    if not 1 <= len(robots) <= MAX_AGENTS:
        raise InputError(f"a swarm must have 1 to {MAX_AGENTS} followers, a process each, got {len(robots):,}")
    check_local(controller)
    faults = deployment.assign_faults(robots)
    # Agents of kind "package" may have controllers without a program.
    is_exported = deployment.agent != "package"
    program = read_swarm_program(name, controller, start, deployment) if is_exported else None
    compact = None if program is None else program.compact
    host = SwarmHost(start, controller, **deployment.flight_options, compact=compact)
    with exit_on_sigterm(), make_swarm_directory() as folder:
        settings = build_robot_settings(name, controller, start, deployment, folder)
        parity = Parity(controller, deployment.sampling_period, program, host.flight.safety)
        # Compile the kernels before robots wait for the host.
        list(MessageDelivery(host.radio, controller.senses).compute_arrivals(host.moment.flock))
        Parity(controller, deployment.sampling_period).compare(host.moment, host.parse_commands({}))
        with RobotProcesses(settings, deployment.port, deployment.effective_timeout) as processes:
            swarm = Swarm(host, processes, parity, faults, keep_record)
            swarm.fly(deployment.steps, deployment.rate, on_step)
    is_strict = deployment.rate is None and not deployment.stall
    failed_agents = find_failed_agents(processes, swarm.log, 0.0 if is_strict else TOLERATED_SHARE)
    if failed_agents:
        parity.stop_reason = parity.stop_reason or f"at the end, when agent {min(failed_agents)} failed"
    # An independent simulation has no unexpected faults, so it is not comparable with a flight that had some.
    comparable = parity.stop_reason is None and not faults.garbage
    drift = compute_drift(host, controller, **deployment.flight_options) if comparable else None
    table = build_result_table(host, processes, swarm.log, parity, drift)
    return DeploymentResult(table, parity, drift, swarm.log, host, processes.reports, failed_agents)


def build_robot_settings(
    name: str, controller: Controller, start: Flock, deployment: Deployment, folder: Path
) -> dict[int, dict[str, Any]]:
    """Return the settings of the robot processes, by agent number, and write the program that they run to `folder`.

    The robots are the followers of `start`, a single flock. An agent of kind "c" is also compiled. For kind "package"
    nothing is written, but its kernels are compiled into the cache. Raise InputError if the controller cannot be
    exported or compiled.
    """
    kind, dimensions, robots = deployment.agent, start.shape[2], list_followers(start)
    program, plugin = name, deployment.plugin
    agents: dict[int, dict[str, Any]] = {n: {"number": n, "group": int(start.groups[0, n])} for n in robots}
    if kind == "package":
        orbit = None if deployment.orbit is None else asdict(deployment.orbit)
        for agent in agents.values():
            agent |= {
                "period": deployment.sampling_period,
                "dimensions": dimensions,
                "comm_radius": start.comm_radius,
                "orbit": orbit,
            }
        compile_kernels(controller, **agents[robots[-1]])  # fills the kernel cache, so that robots need not compile
    else:
        plugin, path = None, folder / f"robot.{'h' if kind == 'c' else 'py'}"
        try:
            messages = make_message_options(controller, deployment)
            limits: dict[str, Any] = {"orbit": deployment.orbit, "safety": deployment.safety}
            program = str(export(name, path, dimensions=dimensions, **limits, **asdict(messages))[0])
        except InputError as error:
            raise InputError(f"{error}; {EXPORT_HINT}") from None
        for agent in agents.values():
            agent |= deployment.make_period_settings(controller)
    if kind == "c":
        program = str(compile_header(program, folder / "robot.so", neighbours=start.shape[1]))
    faults = deployment.assign_faults(robots)
    return {
        number: {
            "kind": kind,
            "program": program,
            "plugin": plugin,
            "last_known": deployment.environment.radio.last_known,
            "listen_seconds": 0.0 if deployment.rate is None else LISTEN_SHARE / deployment.rate,
            "garbage_start_step": faults.step if number in faults.garbage else -1,
            "agent": agent,
        }
        for number, agent in agents.items()
    }


def make_message_options(controller: Controller, deployment: Deployment) -> MessageOptions:
    """Return the options of messages: with `message_bytes`, one packet with all hops."""
    if deployment.message_bytes is None:
        return MessageOptions()
    return MessageOptions(deployment.message_bytes, packets=1, relayed_hops=controller.senses.hops - 1)


def read_swarm_program(name: str, controller: Controller, start: Flock, deployment: Deployment) -> Program:
    """Return the program of the robots. Raise InputError if the controller has none, or its messages do not fit."""
    try:
        program = read_program(controller, start.shape[2], deployment.orbit)
    except InputError as error:
        raise InputError(f"{error}; {EXPORT_HINT}") from None
    options = make_message_options(controller, deployment)
    return choose_messages(program, find_comm_radius(name, program), options)[0]


def make_swarm_directory() -> AbstractContextManager[Path]:
    """Return a context with a private temporary directory; those of killed hosts are removed first."""
    return make_scratch_directory(Path(tempfile.gettempdir()), SCRATCH_PREFIX)


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Turn SIGTERM in this block into SystemExit, so that temporary files are removed.

    No effect outside the main thread, or if SIGTERM has a handler already.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    install = is_main_thread and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if install:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        if install:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Swarm:
    """A flight of robots: the host's environment, the processes, and the comparison with the simulator."""

    def __init__(
        self, host: SwarmHost, processes: RobotProcesses, parity: Parity, faults: Faults, keep_record: bool = False
    ) -> None:
        self.host, self.processes, self.parity = host, processes, parity
        self.faults, self.keep_record = faults, keep_record
        self.log = FlightLog()

    def fly(self, steps: int, rate: float | None, on_step: Callable[[int], object] | None = None) -> None:
        """Fly `steps` steps, fewer if the flight ends: in lockstep, or in real time at `rate` steps per second.

        Call `on_step` after each step, with the number of steps done.
        """
        # With torch loaded, a garbage collection of all objects takes longer than a step.
        gc.freeze()
        try:
            began = self._next_tick = time.perf_counter()
            for _ in range(steps):
                self._apply_faults()
                commands = self._step_in_lockstep() if rate is None else self._step_in_real_time(1.0 / rate)
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

    def _step_in_lockstep(self) -> dict[int, bytes]:
        """Make a step in which the host waits for all robots. Return the contents of commands by robot."""
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
        """Exchange the frames of one step with the robots, for `period` seconds; the flock does not move yet.

        Send each robot its sensor frame, then deliver messages as they arrive. Return the contents of the commands that
        arrive in time, by robot. Robots that send nothing become late: they get no more frames until they send one.
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
                fault = "was lost"
            else:
                self.log.missed_steps[number] += 1
                fault = "did not answer in time"
            self.parity.stop_reason = self.parity.stop_reason or f"from step {step} on, when agent {number} {fault}"
        commands = host.parse_commands(contents)
        self.parity.compare(host.moment, commands)
        self.log.acceleration_norms.append(compute_mean_norm(host.moment.flock, commands))
        failed = dict.fromkeys(working & set(self.log.lost_robots), Condition.STOPPED)
        # A robot that sends garbage is SILENT in the simulator: it flies on.
        if step + 1 == self.faults.step:
            failed |= dict.fromkeys(self.faults.garbage, Condition.SILENT)
        if failed:
            host.mark_failed(failed)
        host.advance(commands)

    def _apply_faults(self) -> None:
        """Kill the processes of agents that have stopped in the simulator; at `faults.step`, stall `faults.stall`."""
        step = self.host.moment.step
        for number in self.host.failed_robots:
            if number not in self.log.lost_robots:
                self.processes.kill(number)
                self.log.killed_robots.add(number)
                self.log.lost_robots[number] = step, self.processes.lost_robots[number]
        if step == self.faults.step:
            for number in self.faults.stall:
                self.processes.stall(number, STALL_SECONDS)
                self.log.stalled_robots[number] = f"from step {step}, {STALL_SECONDS:g} s"
