"""Locality audit of a swarm: robots must behave the same, bit for bit, when only their received bytes are the same.

The first flight records every byte that a robot receives. In a second flight half of the robots are new processes that
receive exactly the recorded bytes, while everything else differs: the others start elsewhere, run another controller,
and are more. In a third flight the halves are swapped. If a robot's messages and commands are bit-identical, it used
nothing else that differed, neither on the network nor on disk.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from equiflock._runtime.checks import InputError
from equiflock._runtime.randomness import make_rng
from equiflock.controllers import load
from equiflock.controllers.registry import parse_controller_name
from equiflock.controllers.safe import apply_limits
from equiflock.deployment.audit import OWN_MEASUREMENT, Audit, ChangeEffect, ReceivedItem
from equiflock.deployment.link_frames import COMMAND, MESSAGE, unpack_floats, unpack_frame, unpack_messages
from equiflock.deployment.robot_processes import RobotProcesses
from equiflock.deployment.swarm import (
    Deployment,
    DeploymentResult,
    build_robot_settings,
    exit_on_sigterm,
    make_swarm_directory,
)
from equiflock.deployment.swarm_host import SwarmHost
from equiflock.deployment.swarm_results import Exchange
from equiflock.flock import Flock
from equiflock.simulation.failures import NO_FAILURES

ADDED_AGENT_COUNT = 3
"""Number of robots that the audit adds."""
REPLACEMENT_CONTROLLERS = ("tanner-dynamic", "reynolds")
"""Controllers for the others: the first one that differs from the audited controller."""
CHANGE_DESCRIPTION = f"all others: positions, velocities, controller, and {ADDED_AGENT_COUNT} added"


def audit_swarm(name: str, start: Flock, deployment: Deployment, result: DeploymentResult) -> Audit:
    """Audit a flight in lockstep: fly twice more with new processes, and compare each robot's messages and commands.

    `result` is that of `deploy` with `keep_record` and the other arguments. Raise InputError if a robot reports another
    checksum of its input than the record has.
    """
    robots = [number for number in result.host.robots if number in result.log.record]
    checked = _check_checksums(result)
    changes = []
    for half in filter(None, (robots[::2], robots[1::2])):
        changes += _replay_half(name, start, deployment, result, half)
    procedure = (
        f"{len(result.host.robots)} processes flew {len(result.log.seconds)} steps. The record has all measurements "
        f"and messages that each received; its SHA-256 matches the one reported by each of {checked} processes. Then "
        "one half of the robots, and after that the other half, were started again with the same input, while the "
        "others started elsewhere, ran another controller, and were more."
    )
    record = tuple(row for number in robots for row in _list_received(number, result))
    return Audit(name, procedure, record, tuple(sorted(changes)))


def _replay_half(
    name: str, start: Flock, deployment: Deployment, result: DeploymentResult, half: list[int]
) -> list[ChangeEffect]:
    """Replay the recorded input of the robots `half`, in new processes, with all others changed. Return the effects."""
    record = {number: result.log.record[number] for number in half}
    steps = 1 + max(max(exchanges) for exchanges in record.values())
    replacement = next(each for each in REPLACEMENT_CONTROLLERS if each != parse_controller_name(name).name)
    changed_start = _draw_changed_start(start)
    # No injected faults this time, and the default timeout for slow robots.
    environment = replace(deployment.environment, failures=NO_FAILURES)
    plain = replace(deployment, environment=environment, stall=0, garbage=0, answer_timeout=None, message_bytes=None)
    controller, other = (apply_limits(load(each), deployment.safety) for each in (name, replacement))
    host = SwarmHost(changed_start, other, **plain.flight_options)
    with exit_on_sigterm(), make_swarm_directory() as folder, make_swarm_directory() as replacement_folder:
        settings = build_robot_settings(replacement, other, changed_start, plain, replacement_folder)
        original = build_robot_settings(name, controller, start, deployment, folder)
        settings |= {number: original[number] for number in half}
        different, largest = dict.fromkeys(half, 0), dict.fromkeys(half, 0.0)
        with RobotProcesses(settings, plain.port, plain.effective_timeout) as processes:
            for step in range(steps):
                # A robot without a frame at a step of the first flight, because it was late or lost, gets none now.
                exchanges = {n: recorded[step] for n, recorded in record.items() if step in recorded}
                others = {n: frame for n, frame in host.make_sensor_frames().items() if n not in record}
                sensor_frames = processes.send(others | {n: each.sensor_frame for n, each in exchanges.items()})
                messages = processes.gather(MESSAGE, step, sensor_frames)
                # Messages of the replayed half are not delivered: the others receive only from each other.
                frames = host.make_radio_frames({n: message for n, message in messages.items() if n in others})
                replayed = {n: each.radio_frame for n, each in exchanges.items() if each.radio_frame}
                radio_frames = processes.send({n: frames[n] for n in others} | replayed)
                commands = processes.gather(COMMAND, step, radio_frames)
                for n, exchange in exchanges.items():
                    difference = _compute_difference(exchange, messages.get(n, b""), commands.get(n, b""))
                    if difference is not None:
                        different[n] += 1
                        largest[n] = max(largest[n], difference)
                host.advance(host.parse_commands({n: each for n, each in commands.items() if n in others}))
    changed = len(settings) - len(half)
    compared = {n: sum(bool(each.message or each.command) for each in record[n].values()) for n in half}
    return [ChangeEffect(n, CHANGE_DESCRIPTION, changed, compared[n], different[n], largest[n]) for n in half]


def _compute_difference(recorded: Exchange, message: bytes, command: bytes) -> float | None:
    """Return the largest difference between two commands; None if message and command are bit-identical.

    Infinity if the new command is missing. Recorded answers that are missing are not compared.
    """
    if recorded.message in (b"", message) and recorded.command in (b"", command):
        return None
    if recorded.command in (b"", command):
        return 0.0  # only the message differs
    before, now = unpack_floats(recorded.command), unpack_floats(command)
    return float(np.abs(np.subtract(before, now)).max()) if len(before) == len(now) > 0 else np.inf


def _check_checksums(result: DeploymentResult) -> int:
    """Return the number of reports. Raise InputError if a report's checksum of received bytes is not the record's."""
    for number, report in result.reports.items():
        exchanges = result.log.record.get(number, {}).values()
        data = b"".join(each.sensor_frame + each.radio_frame for each in exchanges)
        if hashlib.sha256(data).hexdigest() != report.received_sha256:
            raise InputError(f"agent {number} received other bytes than the host recorded: the audit is not valid")
    return len(result.reports)


def _draw_changed_start(start: Flock) -> Flock:
    """Return a flock with other positions and velocities, and ADDED_AGENT_COUNT more agents, all followers."""
    rng = make_rng(0, "swarm audit")
    shape = (1, start.shape[1] + ADDED_AGENT_COUNT, start.shape[2])
    spread = max(float(np.ptp(start.positions[0], axis=0).max()), start.comm_radius)
    positions = rng.uniform(-spread, spread, shape) + 3.0 * spread
    return Flock(positions, rng.normal(0.0, start.comm_radius, shape), comm_radius=start.comm_radius)


def _list_received(number: int, result: DeploymentResult) -> list[ReceivedItem]:
    """Return the measurements and received messages of a robot, by step."""
    items = []
    for step, exchange in result.log.record[number].items():
        _, _, measured = unpack_frame(exchange.sensor_frame)
        items.append(ReceivedItem(number, step, OWN_MEASUREMENT, len(measured), measured.hex()))
        _, _, content = unpack_frame(exchange.radio_frame)
        for link, message in unpack_messages(content):
            items.append(ReceivedItem(number, step, link, len(message), message.hex()))
    return items
