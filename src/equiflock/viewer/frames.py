"""What the page is sent to draw: a frame, as compact bytes.

All little-endian, every part beginning at a multiple of 8 bytes:

    frame   uint32 kind = 1, uint32 panels, float64 step, float64 time, then its panels
    panel   uint32 agents N, edges E, disks M, and 1 if the flight has ended, else 0
            float64 origin x, y; velocity variance, components, minimum separation, mean acceleration norm
            float32 positions (N, 2), velocities (N, 2), accelerations (N, 2), disks (M, 3): x, y, radius
            uint32 edges (E, 2)
            uint8 roles (N,)

Positions, those of disks too, are relative to the panel's origin. It is the flock's middle, so float32 is exact enough
wherever the flock has flown to.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from equiflock.flock import Flock, Role, Vectors
from equiflock.senses.graph import Graph, radius_graph, survey
from equiflock.simulation import metrics

FRAME = struct.Struct("<IIdd")
PANEL = struct.Struct("<IIII6d")
KIND = 1
MOST_EDGES = 150_000
"""More lines than that would only hide the agents."""


@dataclass(frozen=True, eq=False)
class Panel:
    """One flock to draw.

    Attributes:
        flock: of a single flock; one in space is seen from above.
        accelerations: (1, N, D), what the agents do next; None if nothing comes next.
        disks: (M, 3), x, y and radius.
        edges: (E, 2), pairs of agents to join by lines.
        still: whether the flight has ended, so that velocities are only what they were then.
    """

    flock: Flock
    accelerations: Vectors | None
    disks: Float64[np.ndarray, "M 3"]
    edges: Int64[np.ndarray, "E 2"] | None = None
    still: bool = False

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """Velocity variance, components, minimum separation and mean acceleration norm (NaN if there is none)."""
        effort = math.nan
        if self.accelerations is not None:
            member = self.flock.roles[0] != Role.OBSTACLE
            effort = float(np.sqrt(np.square(self.accelerations[0, member]).sum(axis=1)).mean())
        measured = (
            metrics.velocity_variance(self.flock),
            metrics.component_count(self.flock),
            metrics.minimum_separation(self.flock),
        )
        variance, components, separation = (float(values[0]) for values in measured)
        return variance, components, separation, effort


def edges_of(flock: Flock, fixed: Graph | None = None) -> Int64[np.ndarray, "edges 2"]:
    """Who hears whom, each pair once; nothing at all if these are too many to be told apart.

    Of obstacle agents a follower hears the nearest.

    Args:
        flock: of a single flock.
        fixed: who hears whom for ever, should that be so.
    """
    if fixed is None and survey(flock)[0].sum() > 2 * MOST_EDGES:
        return np.empty((0, 2), np.int64)
    edges, (positions,), (roles,) = (fixed or radius_graph(flock)).edges(0), flock.positions, flock.roles
    receivers, senders = edges.T
    rim = roles[senders] == Role.OBSTACLE
    squares = np.square(positions[receivers[rim]] - positions[senders[rim]]).sum(axis=1)
    order = np.argsort(squares, kind="stable")
    _, nearest = np.unique(receivers[rim][order], return_index=True)
    # Two followers hear each other; a leader is only heard.
    pairs = ~rim & ((receivers < senders) | (roles[senders] == Role.LEADER))
    return np.concatenate([edges[pairs], edges[rim][order][nearest]])


def pack_frame(step: int, time: float, panels: Sequence[Panel]) -> bytes:
    """The bytes of a frame."""
    parts = [FRAME.pack(KIND, len(panels), step, time)]
    for panel in panels:
        parts += _pack_panel(panel)
    return b"".join(parts)


def _pack_panel(panel: Panel) -> list[bytes]:
    places = panel.flock.positions[0, :, :2]
    origin = places[panel.flock.roles[0] != Role.OBSTACLE].mean(axis=0)
    edges = np.empty((0, 2)) if panel.edges is None else panel.edges
    disks = panel.disks - [*origin, 0.0] if len(panel.disks) else panel.disks
    sizes = len(places), len(edges), len(disks), panel.still
    next_step = np.zeros_like(panel.flock.positions) if panel.accelerations is None else panel.accelerations
    vectors = places - origin, panel.flock.velocities[0, :, :2], next_step[0, :, :2], disks
    return [
        PANEL.pack(*sizes, *origin, *panel.numbers),
        *(_padded(array, "<f4") for array in vectors),
        _padded(edges, "<u4"),
        _padded(panel.flock.roles[0], "u1"),
    ]


def _padded(array: NDArray[Any], kind: str) -> bytes:
    """The array's bytes, and zeros up to a multiple of 8."""
    content = array.astype(kind).tobytes()
    return content + bytes(-len(content) % 8)
