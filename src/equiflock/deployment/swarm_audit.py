"""The locality audit of a swarm: every byte that a robot received is on record, and it is flown again from these alone.

In a second flight half of the robots are fresh processes that are told exactly what they were told before, while
everything else is another: the others are elsewhere, fly otherwise, run another controller, and there are more of them.
In a third flight the halves change places. What a robot says and does must be the same to the bit: whatever else it
could have looked at, on the network or on the disk, was not what it was.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from equiflock.controllers import load
from equiflock.deployment.agent_processes import AgentProcesses
from equiflock.deployment.audit_result import OWN_MEASUREMENT, Audit, ChangeEffect, ReceivedItem
from equiflock.deployment.deploy_swarm import Deployment, DeploymentResult, build_robot_settings, exit_on_sigterm
from equiflock.deployment.link_frames import COMMAND, MESSAGE, unpack_floats, unpack_frame, unpack_messages
from equiflock.deployment.swarm import Exchange
from equiflock.deployment.swarm_host import SwarmHost
from equiflock.flock import Flock
from equiflock.runtime.checks import InputError
from equiflock.runtime.randomness import make_rng

ADDED_AGENT_COUNT = 3
"""So many robots are added."""
REPLACEMENT_CONTROLLERS = ("tanner-dynamic", "reynolds")
"""What the others fly by in place of the controller: the first of them that it is not."""
CHANGE_DESCRIPTION = f"all others: where they are, how they fly, their controller, and {ADDED_AGENT_COUNT} more of them"


def audit_swarm(name: str, start: Flock, deployment: Deployment, result: DeploymentResult) -> Audit:
    """Audit a flight that was flown in lockstep, with its record kept.

    Args:
        name: of the controller.
        start: where robots began.
        deployment: how they flew.
        result: what came of it, with `keep`.
    """
    robots = [number for number in result.host.robots if number in result.log.record]
    sums = _check_checksums(result)
    changes = []
    for half in (robots[::2], robots[1::2]):
        if half:
            changes += _replay_half(name, start, deployment, result, half)
    procedure = (
        f"{len(result.host.robots)} processes flew {len(result.log.seconds)} steps, and all that each measured and "
        f"heard is on record: {sums} processes report the SHA-256 of the bytes that reached them, and it is that of "
        "the record. Then half of them, and after that the other half, were started again and told the same bytes, "
        "while the others were elsewhere, flew by another controller, and were more."
    )
    record = tuple(row for number in robots for row in _list_received(number, result))
    return Audit(name, procedure, record, tuple(sorted(changes)), len(result.log.seconds))


def _replay_half(
    name: str, start: Flock, deployment: Deployment, result: DeploymentResult, half: list[int]
) -> list[ChangeEffect]:
    """Tell these robots again what they were told, with all others changed; what became of what they did."""
    record = {number: result.log.record[number] for number in half}
    steps = 1 + max(max(told) for told in record.values())
    other = next(each for each in REPLACEMENT_CONTROLLERS if each != name.partition(":")[0])
    elsewhere = _draw_changed_start(start)
    # With the others nothing goes wrong on purpose this time, and nobody who is slow is left behind.
    plain = replace(deployment, failures=None, stall=0, garbage=0, answer_timeout=None)
    host = SwarmHost(elsewhere, load(other), plain.time_step, **plain.flight_options)
    with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as there:
        settings = build_robot_settings(other, load(other), elsewhere, plain, Path(there))
        same = build_robot_settings(name, load(name), start, deployment, Path(here))
        settings |= {number: same[number] for number in half}
        different, largest = dict.fromkeys(half, 0), dict.fromkeys(half, 0.0)
        with exit_on_sigterm(), AgentProcesses(settings, plain.port, plain.effective_timeout) as processes:
            for step in range(steps):
                # A robot that was told nothing at a step, as it was late or gone, is told nothing again.
                mine = {number: told[step] for number, told in record.items() if step in told}
                others = {number: data for number, data in host.sensors().items() if number not in record}
                sensors = processes.send(others | {number: told.sensors for number, told in mine.items()})
                said = processes.gather(MESSAGE, step, sensors)
                # What the half says now reaches nobody: the others hear each other alone.
                air = host.make_radio_frames({number: message for number, message in said.items() if number in others})
                again = {number: told.radio for number, told in mine.items() if told.radio}
                radio = processes.send({number: air[number] for number in others} | again)
                did = processes.gather(COMMAND, step, radio)
                for number, told in mine.items():
                    gap = _compute_difference(told, said.get(number, b""), did.get(number, b""))
                    if gap is not None:
                        different[number] += 1
                        largest[number] = max(largest[number], gap)
                host.advance(host.commands({n: each for n, each in did.items() if n in others}))
    changed = len(settings) - len(half)
    compared = {number: sum(bool(told.said or told.did) for told in record[number].values()) for number in half}
    return [ChangeEffect(n, CHANGE_DESCRIPTION, changed, compared[n], different[n], largest[n]) for n in half]


def _compute_difference(told: Exchange, said: bytes, did: bytes) -> float | None:
    """How far a command is from what it was; None if all that was answered then is the same to the bit."""
    if told.said in (b"", said) and told.did in (b"", did):
        return None
    if told.did in (b"", did):
        return 0.0  # the message alone is another
    before, now = unpack_floats(told.did), unpack_floats(did)
    return float(np.abs(np.subtract(before, now)).max()) if len(before) == len(now) > 0 else np.inf


def _check_checksums(result: DeploymentResult) -> int:
    """How many robots report the checksum of what reached them; an error if it is not that of the record."""
    for number, report in result.reports.items():
        told = result.log.record.get(number, {})
        if (
            hashlib.sha256(b"".join(each.sensors + each.radio for each in told.values())).hexdigest()
            != report.received_sha256
        ):
            raise InputError(f"agent {number} received other bytes than the world told it: the record proves nothing")
    return len(result.reports)


def _draw_changed_start(start: Flock) -> Flock:
    """The same flock in other places with other velocities, and with more agents."""
    rng = make_rng(0, "swarm audit")
    shape = (1, start.shape[1] + ADDED_AGENT_COUNT, start.shape[2])
    spread = max(float(np.ptp(start.positions[0], axis=0).max()), start.comm_radius)
    positions = rng.uniform(-spread, spread, shape) + 3.0 * spread
    return Flock(positions, rng.normal(0.0, start.comm_radius, shape), comm_radius=start.comm_radius)


def _list_received(number: int, result: DeploymentResult) -> list[ReceivedItem]:
    """What a robot measured, and the messages that reached it."""
    found = []
    for step, told in result.log.record[number].items():
        measured = unpack_frame(told.sensors)[2]
        found.append(ReceivedItem(number, step, OWN_MEASUREMENT, len(measured), measured.hex()))
        for link, message in unpack_messages(unpack_frame(told.radio)[2]):
            found.append(ReceivedItem(number, step, link, len(message), message.hex()))
    return found
