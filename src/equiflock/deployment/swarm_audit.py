"""The locality audit of a swarm: every byte that a robot received is on record, and it is flown again from these alone.

In a second flight half of the robots are fresh processes that are told exactly what they were told before, while
everything else is another: the others are elsewhere, fly otherwise, run another controller, and there are more of them.
In a third flight the halves change places. What a robot says and does must be the same to the bit: whatever else it
could have looked at, on the network or on the disk, was not what it was.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from equiflock.controllers import load
from equiflock.deployment.crew import Crew
from equiflock.deployment.deploying import Deployed, Deployment, robot_settings
from equiflock.deployment.frames import AIR, MOTOR, opened, read_links, read_numbers
from equiflock.deployment.verdict import Audit, Change, Received
from equiflock.deployment.world import World
from equiflock.flock import Flock
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
    changes = []
    for half in (robots[::2], robots[1::2]):
        if half:
            changes += _fly_again(name, start, deployment, flown, half)
    how = (
        f"{len(flown.world.robots)} processes flew {len(flown.log.seconds)} steps, and every byte that reached one is "
        "below. Then half of them, and after that the other half, were started again and told the same bytes, while "
        "the others were elsewhere, flew by another controller, and were more."
    )
    record = tuple(row for number in robots for row in _record(number, flown))
    return Audit(name, how, record, tuple(sorted(changes)), len(flown.log.seconds))


def _fly_again(name: str, start: Flock, deployment: Deployment, flown: Deployed, half: list[int]) -> list[Change]:
    """Tell these robots again what they were told, with all others changed; what became of what they did."""
    record = {number: flown.log.record[number] for number in half}
    steps = max(len(told) for told in record.values())
    other = next(each for each in OTHERS if each != name.partition(":")[0])
    elsewhere = _elsewhere(start)
    # Nothing goes wrong on purpose this time.
    plain = replace(deployment, failures=None, stall=0, garbage=0)
    world = World(elsewhere, load(other), plain.time_step, **plain.rules)
    with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as there:
        settings = robot_settings(other, load(other), elsewhere, plain, Path(there))
        same = robot_settings(name, load(name), start, plain, Path(here))
        settings |= {number: same[number] for number in half}
        different, largest = dict.fromkeys(half, 0), dict.fromkeys(half, 0.0)
        with Crew(settings, plain.port, plain.patience) as crew:
            for step in range(steps):
                mine = {number: told[step] for number, told in record.items() if step < len(told)}
                sensors = world.sensors() | {number: told[0] for number, told in mine.items()}
                crew.tell(sensors)
                said = crew.gather(AIR, step, sensors)
                # What the half says now reaches nobody: the others hear each other alone.
                radio = world.air({number: message for number, message in said.items() if number not in mine})
                crew.tell(radio | {number: told[1] for number, told in mine.items()})
                did = crew.gather(MOTOR, step, sensors)
                for number, (_, _, message, command) in mine.items():
                    if (said.get(number), did.get(number)) != (message, command):
                        different[number] += 1
                        gap = np.subtract(read_numbers(did.get(number, command)), read_numbers(command))
                        largest[number] = max(largest[number], float(np.abs(gap).max()))
                world.act(world.commands({n: each for n, each in did.items() if n not in mine}))
    changed = len(settings) - len(half)
    return [Change(n, WHAT, changed, len(record[n]), different[n], largest[n]) for n in half]


def _elsewhere(start: Flock) -> Flock:
    """The same flock in other places with other velocities, and with more agents."""
    rng = stream(0, "swarm audit")
    shape = (1, start.shape[1] + ADDED, start.shape[2])
    spread = max(float(np.ptp(start.positions[0], axis=0).max()), start.comm_radius)
    positions = rng.uniform(-spread, spread, shape) + 3.0 * spread
    return Flock(positions, rng.normal(0.0, start.comm_radius, shape), comm_radius=start.comm_radius)


def _record(number: int, flown: Deployed) -> list[Received]:
    """The messages that reached a robot."""
    found = []
    for sensors, radio, _, _ in flown.log.record.get(number, ()):
        _, step, _ = opened(sensors)
        for link, message in read_links(opened(radio)[2]):
            found.append(Received(number, step, link, len(message), message.hex()))
    return found
