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


def read_frame(content: bytes) -> ReadFrame:
    kind, panels, step, time = struct.unpack_from("<IIdd", content)
    assert kind == 4
    at = 24
    frame = ReadFrame(step, time, [])

    def take(kind: str, count: int, columns: int) -> Any:
        nonlocal at
        array = np.frombuffer(content, kind, count * columns, at).reshape(count, columns)
        at += (array.nbytes + 7) // 8 * 8
        return array

    for _ in range(panels):
        agents, edges, lost_edges, disks, has_ended, _, *metric_values = struct.unpack_from("<IIIIII8d", content, at)
        at += 88
        origin = np.array(metric_values[:2])
        positions = take("<f4", agents, 2) + origin
        velocities, accelerations = take("<f4", agents, 2), take("<f4", agents, 2)
        circles = take("<f4", disks, 3) + np.array([*origin, 0.0])
        used, missing = take("<u4", edges, 2), take("<u4", lost_edges, 2)
        roles, groups, conditions = (take("u1", agents, 1)[:, 0] for _ in range(3))
        vectors = positions, velocities, accelerations, circles
        crew = roles, groups, conditions
        frame.panels.append(ReadPanel(tuple(metric_values[2:]), *vectors, used, missing, *crew, bool(has_ended)))
    assert at == len(content)
    return frame
