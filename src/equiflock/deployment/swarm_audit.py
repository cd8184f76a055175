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
from equiflock.deployment.crew import Crew
from equiflock.deployment.deploying import Deployed, Deployment, ending_cleanly, robot_settings
from equiflock.deployment.frames import AIR, MOTOR, opened, read_links, read_numbers
from equiflock.deployment.swarm import Exchange
from equiflock.deployment.verdict import ITSELF, Audit, Change, Received
from equiflock.deployment.world import World
from equiflock.flock import Flock
from equiflock.runtime.checks import InputError
from equiflock.runtime.randomness import stream

ADDED = 3
"""So many robots are added."""
OTHERS = ("tanner-dynamic", "reynolds")
"""What the others fly by in place of the controller: the first of them that it is not."""
WHAT = f"all others: where they are, how they fly, their controller, and {ADDED} more of them"


def audit_swarm(name: str, start: Flock, deployment: Deployment, flown: Deployed) -> Audit:
    """Audit a flight that was flown in lockstep, with its record kept.

    Args:
        name: of the controller.
        start: where robots began.
        deployment: how they flew.
        flown: what came of it, with `keep`.
    """
    robots = [number for number in flown.world.robots if number in flown.log.record]
    sums = _checked_sums(flown)
    changes = []
    for half in (robots[::2], robots[1::2]):
        if half:
            changes += _fly_again(name, start, deployment, flown, half)
    how = (
        f"{len(flown.world.robots)} processes flew {len(flown.log.seconds)} steps, and all that each measured and "
        f"heard is on record: {sums} processes report the SHA-256 of the bytes that reached them, and it is that of "
        "the record. Then half of them, and after that the other half, were started again and told the same bytes, "
        "while the others were elsewhere, flew by another controller, and were more."
    )
    record = tuple(row for number in robots for row in _record(number, flown))
    return Audit(name, how, record, tuple(sorted(changes)), len(flown.log.seconds))


def _fly_again(name: str, start: Flock, deployment: Deployment, flown: Deployed, half: list[int]) -> list[Change]:
    """Tell these robots again what they were told, with all others changed; what became of what they did."""
    record = {number: flown.log.record[number] for number in half}
    steps = 1 + max(max(told) for told in record.values())
    other = next(each for each in OTHERS if each != name.partition(":")[0])
    elsewhere = _elsewhere(start)
    # With the others nothing goes wrong on purpose this time, and nobody who is slow is left behind.
    plain = replace(deployment, failures=None, stall=0, garbage=0, patience=None)
    world = World(elsewhere, load(other), plain.time_step, **plain.rules)
    with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as there:
        settings = robot_settings(other, load(other), elsewhere, plain, Path(there))
        same = robot_settings(name, load(name), start, deployment, Path(here))
        settings |= {number: same[number] for number in half}
        different, largest = dict.fromkeys(half, 0), dict.fromkeys(half, 0.0)
        with ending_cleanly(), Crew(settings, plain.port, plain.waits) as crew:
            for step in range(steps):
                # A robot that was told nothing at a step, as it was late or gone, is told nothing again.
                mine = {number: told[step] for number, told in record.items() if step in told}
                others = {number: data for number, data in world.sensors().items() if number not in record}
                sensors = crew.tell(others | {number: told.sensors for number, told in mine.items()})
                said = crew.gather(AIR, step, sensors)
                # What the half says now reaches nobody: the others hear each other alone.
                air = world.air({number: message for number, message in said.items() if number in others})
                again = {number: told.radio for number, told in mine.items() if told.radio}
                radio = crew.tell({number: air[number] for number in others} | again)
                did = crew.gather(MOTOR, step, radio)
                for number, told in mine.items():
                    gap = _gap(told, said.get(number, b""), did.get(number, b""))
                    if gap is not None:
                        different[number] += 1
                        largest[number] = max(largest[number], gap)
                world.act(world.commands({n: each for n, each in did.items() if n in others}))
    changed = len(settings) - len(half)
    compared = {number: sum(bool(told.said or told.did) for told in record[number].values()) for number in half}
    return [Change(n, WHAT, changed, compared[n], different[n], largest[n]) for n in half]


def _gap(told: Exchange, said: bytes, did: bytes) -> float | None:
    """How far a command is from what it was; None if all that was answered then is the same to the bit."""
    if told.said in (b"", said) and told.did in (b"", did):
        return None
    if told.did in (b"", did):
        return 0.0  # the message alone is another
    before, now = read_numbers(told.did), read_numbers(did)
    return float(np.abs(np.subtract(before, now)).max()) if len(before) == len(now) > 0 else np.inf


def _checked_sums(flown: Deployed) -> int:
    """How many robots report the checksum of what reached them; an error if it is not that of the record."""
    for number, report in flown.reports.items():
        told = flown.log.record.get(number, {})
        if hashlib.sha256(b"".join(each.sensors + each.radio for each in told.values())).hexdigest() != report.received:
            raise InputError(f"agent {number} received other bytes than the world told it: the record proves nothing")
    return len(flown.reports)


def _elsewhere(start: Flock) -> Flock:
    """The same flock in other places with other velocities, and with more agents."""
    rng = stream(0, "swarm audit")
    shape = (1, start.shape[1] + ADDED, start.shape[2])
    spread = max(float(np.ptp(start.positions[0], axis=0).max()), start.comm_radius)
    positions = rng.uniform(-spread, spread, shape) + 3.0 * spread
    return Flock(positions, rng.normal(0.0, start.comm_radius, shape), comm_radius=start.comm_radius)


def _record(number: int, flown: Deployed) -> list[Received]:
    """What a robot measured, and the messages that reached it."""
    found = []
    for step, told in flown.log.record[number].items():
        measured = opened(told.sensors)[2]
        found.append(Received(number, step, ITSELF, len(measured), measured.hex()))
        for link, message in read_links(opened(told.radio)[2]):
            found.append(Received(number, step, link, len(message), message.hex()))
    return found
