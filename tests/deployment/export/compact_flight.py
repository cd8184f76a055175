"""Exported agents with compact messages compared with the package's agent, which decodes the same messages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

import equiflock as ef
from equiflock.deployment.export.program import read_program
from equiflock.deployment.package_agent import PackageAgent
from equiflock.deployment.wire_format import OBSTACLE_GROUP, CompactFormat, Message, make_zero_hops
from equiflock.flock import FOLLOWER, OBSTACLE, Flock

TIME_STEP = 0.01


class DecodingAgent(PackageAgent):
    """The package's agent for packets that `CompactFormat` decodes."""

    def __init__(self, compact: CompactFormat, controller: Any, **settings: Any) -> None:
        super().__init__(controller, **settings)
        self.compact = compact
        self.packets: dict[int, list[bytes]] = {}

    def begin(self, position: Sequence[float], velocity: Sequence[float]) -> bytes:
        self.packets = {}
        return super().begin(position, velocity)

    def receive(self, message: bytes) -> None:
        sender = int.from_bytes(message[4:6], "little")
        arrived = self.packets.setdefault(sender, [])
        arrived.append(message)
        if len(arrived) == self.compact.packets:
            own = self._own_message
            decoded = self.compact.decode(arrived, own.position, own.velocity)
            assert isinstance(decoded, Message)
            self._received[sender] = decoded


def compare(
    controller: Any,
    start: Flock,
    make: Callable[[int, int], Any],
    compact: CompactFormat,
    orbit: Any = None,
    steps: int = 4,
) -> float:
    """Fly exported agents, and give the package's agents the same packets.

    Return the largest difference of accelerations relative to `Program.compute_magnitude`.
    """
    D, senses, worst = start.shape[2], controller.senses, 0.0
    program, groups, flock = read_program(controller, D, orbit), start.groups[0], start
    settings: dict[str, Any] = {"period": TIME_STEP, "dimensions": D, "comm_radius": start.comm_radius}
    settings["orbit"] = None if program.orbit is None else asdict(program.orbit)
    followers = [int(number) for number in np.flatnonzero(start.roles[0] == FOLLOWER)]
    agents = {i: make(i, int(groups[i])) for i in followers}
    references = {i: DecodingAgent(compact, controller, number=i, group=int(groups[i]), **settings) for i in followers}
    links = ef.radius_graph(flock)
    for step in range(steps):
        links = links if senses.topology == "fixed" else ef.radius_graph(flock)
        sent, accelerations = encode_others(start, flock, compact, step), np.zeros(start.shape[1:])
        for i, agent in agents.items():
            state = flock.positions[0, i].astype(np.float32), flock.velocities[0, i].astype(np.float32)
            sent[i] = as_packets(agent.begin(*state))
            references[i].begin(*state)
        for i, agent in agents.items():
            for packet in itertools.chain.from_iterable(sent[j] for j in links.neighbours(0, i)):
                assert agent.receive(packet) is None
                references[i].receive(packet)
            accelerations[i], wanted = agent.end(), references[i].end()
            magnitude = program.compute_magnitude(read_observations(agent, senses), TIME_STEP)
            worst = max(worst, float((np.abs(accelerations[i] - wanted) / magnitude).max()))
        positions = flock.positions + TIME_STEP * flock.velocities
        velocities = flock.velocities + TIME_STEP * np.clip(accelerations, -20.0, 20.0)
        flock = Flock(positions, velocities, *start.arrays[2:], comm_radius=start.comm_radius)
    return worst


def encode_others(start: Flock, flock: Flock, compact: CompactFormat, step: int) -> dict[int, list[bytes]]:
    """Return the packets of leaders and obstacle agents."""
    silent = make_zero_hops(compact.senses, compact.dimensions)
    packets = {}
    for j in np.flatnonzero(start.roles[0] != FOLLOWER):
        group = OBSTACLE_GROUP if start.roles[0, j] == OBSTACLE else int(start.groups[0, j])
        state = flock.positions[0, j].astype(np.float32), flock.velocities[0, j].astype(np.float32)
        packets[int(j)] = compact.encode(Message(int(j), step, *state, silent, group))
    return packets


def as_packets(message: Any) -> list[bytes]:
    """Return the packets of what `begin` returned."""
    return [message] if isinstance(message, bytes) else message


def read_observations(agent: Any, senses: ef.Senses) -> Any:
    """Return the observations (K, C, D) of an exported agent."""
    if hasattr(agent, "read_observations"):
        return agent.read_observations(senses.hops, senses.width)
    return agent.observations
