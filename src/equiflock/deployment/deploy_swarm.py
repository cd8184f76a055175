"""Deploy a controller to a swarm of processes, one per robot, and summarise the flight."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from equiflock._runtime.checks import InputError, check_choice, check_count, check_positive, shorten_repr
from equiflock.controllers import load
from equiflock.deployment.agent_processes import AgentProcesses
from equiflock.deployment.agents import AgentKind, compile_kernels
from equiflock.deployment.compiled_agent import compile_header
from equiflock.deployment.export import export
from equiflock.deployment.export.program import check_local, read_program
from equiflock.deployment.link_frames import RobotReport
from equiflock.deployment.parity import Drift, Parity, compute_drift
from equiflock.deployment.swarm import Faults, FlightLog, Swarm, build_result_table
from equiflock.deployment.swarm_host import MessageDelivery, SwarmHost
from equiflock.flock import FOLLOWER, Flock
from equiflock.observations.orbit import Orbit
from equiflock.protocols import Controller
from equiflock.simulation.environment import DEFAULT_ENVIRONMENT, Environment

EXPORT_HINT = "to deploy it without an export, use --agent package; tanner-dynamic is an example that can be exported"
"""Advice for a controller that cannot be exported."""
LISTEN_SHARE = 0.5
"""Share of a step, in real time, for which a robot receives messages before it acts."""
ANSWER_TIMEOUT, STALL_ANSWER_TIMEOUT = 10.0, 0.1
"""Seconds to wait for a robot in lockstep: by default, and with stalled robots."""
MAX_AGENTS = 500
"""Largest number of processes: each takes tens of megabytes and a share of the cores."""


@dataclass(frozen=True)
class Deployment:
    """Settings of a deployment, besides the flock and the controller.

    Attributes:
        agent: implementation of the agents: "numpy" or "c", the exported controller, or "package".
        time_step: dt, in seconds of flight.
        steps: number of steps.
        environment: radio and body; its failures are the agents whose processes are killed.
        orbit: orbit technique, or None.
        rate: steps per second of real time; None for lockstep.
        port: port on which the host listens; 0 for any free port.
        answer_timeout: seconds that a robot may take to answer in lockstep; if None, 10, or 0.1 with stalled robots.
        stall: number of processes that stall for half a second in the middle of the flight.
        garbage: number of robots that send garbage from the middle of the flight on.
        plugin: module or file that registers a user's controller, or None.
    """

    agent: AgentKind = "numpy"
    time_step: float = 0.01
    steps: int = 200
    environment: Environment = DEFAULT_ENVIRONMENT
    orbit: Orbit | None = None
    rate: float | None = None
    port: int = 0
    answer_timeout: float | None = None
    stall: int = 0
    garbage: int = 0
    plugin: str | None = None

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_choice("agent", self.agent, get_args(AgentKind))
        check_positive("time_step", self.time_step)
        for name in ("answer_timeout", "rate"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        for name in ("stall", "garbage"):
            check_count(name, getattr(self, name), least=0)
        failures = self.environment.failures
        if failures.kind != "stopped" and not failures.is_empty:
            raise InputError(
                f"failed agents of a swarm are killed, so they are stopped: their kind must be 'stopped', "
                f"got {failures.kind!r}"
            )

    @property
    def flight_options(self) -> dict[str, Any]:
        """Arguments of `flight`: environment and orbit technique."""
        return {"environment": self.environment, "orbit": self.orbit}

    @property
    def effective_timeout(self) -> float:
        """Seconds to wait for a robot. With stalled robots shorter than a stall, so that the others fly on."""
        if self.answer_timeout is not None:
            return self.answer_timeout
        return STALL_ANSWER_TIMEOUT if self.stall else ANSWER_TIMEOUT

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
    log: FlightLog
    host: SwarmHost
    reports: dict[int, RobotReport]


def deploy(
    name: str,
    start: Flock,
    deployment: Deployment,
    on_step: Callable[[int], object] | None = None,
    keep_record: bool = False,
) -> DeploymentResult:
    """Fly a swarm of processes and return the result; all processes have ended by then.

    The host compares every acceleration with the simulator's. `drift` of the result is None if a robot was late, sent
    garbage, or was lost for another reason than `failures`. Raise InputError for a controller that is not local or
    cannot be exported.

    Args:
        name: name of a local controller, as for `equiflock.load`.
        start: a single flock.
        deployment: settings of the flight.
        on_step: called after each step with the number of steps done.
        keep_record: whether to keep all exchanges with robots, for `audit_swarm`.
    """
    controller, robots = load(name), list_followers(start)
    if not 1 <= len(robots) <= MAX_AGENTS:
        raise InputError(f"a swarm must have 1 to {MAX_AGENTS} followers, a process each, got {len(robots):,}")
    check_local(controller)
    faults = deployment.assign_faults(robots)
    host = SwarmHost(start, controller, deployment.time_step, **deployment.flight_options)
    with exit_on_sigterm(), tempfile.TemporaryDirectory(prefix="equiflock-") as folder:
        settings = build_robot_settings(name, controller, start, deployment, Path(folder))
        # Agents of kind "package" may have controllers without a program.
        is_exported = deployment.agent != "package"
        program = read_program(controller, start.shape[2], deployment.orbit) if is_exported else None
        parity = Parity(controller, program)
        # Compile the kernels before robots wait for the host.
        list(MessageDelivery(host.radio, controller.senses).compute_arrivals(host.moment.flock))
        Parity(controller).compare(host.moment, host.parse_commands({}))
        with AgentProcesses(settings, deployment.port, deployment.effective_timeout) as processes:
            swarm = Swarm(host, processes, parity, faults, keep_record)
            log = swarm.fly(deployment.steps, deployment.rate, on_step)
    # An independent simulation has no unexpected faults, so it is not comparable with a flight that had some.
    comparable = parity.stop_reason is None and not faults.garbage
    drift = compute_drift(host, controller, deployment.time_step, **deployment.flight_options) if comparable else None
    table = build_result_table(host, processes, log, parity, drift)
    return DeploymentResult(table, parity, drift, log, host, processes.reports)


def build_robot_settings(
    name: str, controller: Controller, start: Flock, deployment: Deployment, folder: Path
) -> dict[int, dict[str, Any]]:
    """Return the settings of every robot process by robot, and write the program that they run to `folder`.

    For agents of kind "package" nothing is written, and the kernels are compiled. Raise InputError if the controller
    cannot be exported or compiled.
    """
    kind, dimensions = deployment.agent, start.shape[2]
    program = name
    if kind != "package":
        path = folder / f"robot.{'h' if kind == 'c' else 'py'}"
        try:
            program = str(export(controller, path, dimensions=dimensions, orbit=deployment.orbit)[0])
        except InputError as error:
            raise InputError(f"{error}; {EXPORT_HINT}") from None
    if kind == "c":
        program = str(compile_header(program, folder / "robot.so", neighbours=start.shape[1]))
    common = {
        "kind": kind,
        "program": program,
        "plugin": deployment.plugin if kind == "package" else None,
        "last_known": deployment.environment.radio.last_known,
        "listen_seconds": 0.0 if deployment.rate is None else LISTEN_SHARE / deployment.rate,
    }
    settings, robots = {}, list_followers(start)
    faults = deployment.assign_faults(robots)
    for number in robots:
        agent: dict[str, Any] = {"number": number, "group": int(start.groups[0, number])}
        if kind == "package":
            orbit = None if deployment.orbit is None else asdict(deployment.orbit)
            agent |= {"dimensions": dimensions, "comm_radius": start.comm_radius, "orbit": orbit}
        garbage_start_step = faults.step if number in faults.garbage else -1
        settings[number] = {**common, "garbage_start_step": garbage_start_step, "agent": agent}
    if kind == "package":
        compile_kernels(controller, **agent)  # fills the kernel cache, so that the processes need not compile
    return settings


def list_followers(start: Flock) -> list[int]:
    """Return the numbers of the followers, which are the robots. Raise InputError if `start` is not a single flock."""
    if not isinstance(start, Flock) or len(start) != 1:
        raise InputError(f"a swarm is a single flock, got {shorten_repr(start)}")
    return [number for number, role in enumerate(start.roles[0]) if role == FOLLOWER]


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
