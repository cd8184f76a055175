"""Reference implementation of the frame format, for tests."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class ReadPanel:
    metric_values: tuple[float, ...]
    positions: Any
    velocities: Any
    accelerations: Any
    disks: Any
    edges: Any
    lost_edges: Any
    roles: Any
    groups: Any
    conditions: Any
    has_ended: bool


@dataclass
class ReadFrame:
    step: float
    time: float
    panels: list[ReadPanel]


def unpair(pairs: Any, singles: Any, can_receive: Any) -> Any:
    """Return the edges (receiver, sender) of pairs and singles, sorted."""
    edges = [tuple(edge) for edge in [*pairs.tolist(), *singles.tolist()]]
    edges += [(sender, receiver) for receiver, sender in pairs.tolist() if can_receive[sender]]
    return np.array(sorted(edges), np.int64).reshape(-1, 2)


def read_frame(content: bytes) -> ReadFrame:
    kind, panels, step, time = struct.unpack_from("<IIdd", content)
    assert kind == 5
    at = 24
    frame = ReadFrame(step, time, [])

    def take(kind: str, count: int, columns: int) -> Any:
        nonlocal at
        array = np.frombuffer(content, kind, count * columns, at).reshape(count, columns)
        at += (array.nbytes + 7) // 8 * 8
        return array

    for _ in range(panels):
        agents, disks, has_ended, _, *edges, x, y = struct.unpack_from("<8I2d", content, at)
        metric_values = struct.unpack_from("<6d", content, at + 48)
        at += 96
        origin = np.array([x, y])
        positions = take("<f4", agents, 2) + origin
        velocities, accelerations = take("<f4", agents, 2), take("<f4", agents, 2)
        circles = take("<f4", disks, 3) + np.array([*origin, 0.0])
        index_type = "<u2" if agents <= 65_535 else "<u4"
        pairs, singles, lost_pairs, lost_singles = (take(index_type, count, 2) for count in edges)
        roles, groups, conditions = (take("u1", agents, 1)[:, 0] for _ in range(3))
        can_receive = (roles == 0) & (conditions != 2) & (conditions != 3)  # neither stopped nor drifting
        used, lost = unpair(pairs, singles, can_receive), unpair(lost_pairs, lost_singles, can_receive)
        vectors = positions, velocities, accelerations, circles
        crew = roles, groups, conditions
        frame.panels.append(ReadPanel(metric_values, *vectors, used, lost, *crew, bool(has_ended)))
    assert at == len(content)
    return frame
