"""Reference implementation of the frame format, for tests."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from equiflock.plotting.player.overlay import NO_OVERLAY, MarkArrays, OverlayState


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
    hides_edges: bool
    overlay: OverlayState = NO_OVERLAY


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
    assert kind == 6
    at = 24
    frame = ReadFrame(step, time, [])

    def take(kind: str, count: int, columns: int) -> Any:
        nonlocal at
        array = np.frombuffer(content, kind, count * columns, at).reshape(count, columns)
        at += (array.nbytes + 7) // 8 * 8
        return array

    for _ in range(panels):
        agents, disks, has_ended, marks, *edges, outcome, too_many, x, y = struct.unpack_from("<10I2d", content, at)
        *metric_values, success, outcome_time = struct.unpack_from("<8d", content, at + 56)
        at += 120
        origin = np.array([x, y])
        positions = take("<f4", agents, 2) + origin
        velocities, accelerations = take("<f4", agents, 2), take("<f4", agents, 2)
        circles = take("<f4", disks, 3) + np.array([*origin, 0.0])
        numbers, codes = take("<f4", marks, 4).astype(float), take("u1", marks, 4)
        numbers[:, :2] += origin
        numbers[codes[:, 1] == 2, 2:] += origin
        index_type = "<u2" if agents <= 65_535 else "<u4"
        pairs, singles, lost_pairs, lost_singles = (take(index_type, count, 2) for count in edges)
        roles, groups, conditions = (take("u1", agents, 1)[:, 0] for _ in range(3))
        can_receive = (roles == 0) & (conditions != 2) & (conditions != 3)  # neither stopped nor drifting
        used, lost = unpair(pairs, singles, can_receive), unpair(lost_pairs, lost_singles, can_receive)
        vectors = positions, velocities, accelerations, circles
        crew = roles, groups, conditions
        frame.panels.append(
            ReadPanel(tuple(metric_values), *vectors, used, lost, *crew, bool(has_ended), bool(too_many))
        )
        frame.panels[-1].overlay = OverlayState(MarkArrays(numbers, codes), success, outcome, outcome_time)
    assert at == len(content)
    return frame
