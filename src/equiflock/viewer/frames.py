"""The binary format of frames, which the page draws.

All little-endian, every part beginning at a multiple of 8 bytes:

    frame   uint32 kind = 3, uint32 pictures, float64 step, float64 time, then its pictures, one for each panel
    picture uint32 agents N, edges E, lost edges L, disks M, 1 if the flight has ended, else 0, and 0
            float64 origin x, y; velocity variance, components, minimum separation, mean acceleration norm
            float32 positions (N, 2), velocities (N, 2), accelerations (N, 2), disks (M, 3): x, y, radius
            uint32 edges (E, 2), lost edges (L, 2): receiver and sender of a message
            uint8 roles (N,)
            uint8 groups (N,): 255 for obstacle agents, 254 for group 254 and all beyond
            uint8 conditions (N,)

The accelerations are those that, held, lead where each agent's body takes it next: the page draws by them between
frames. Positions, those of disks too, are relative to the picture's origin. It is the flock's middle, so float32 is
exact enough wherever the flock has flown to.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from equiflock.flock import NO_GROUP, Flock, Role, Vectors
from equiflock.senses.graph import Graph, compute_connectivity, radius_graph
from equiflock.senses.observed_edges import find_observed_edges
from equiflock.simulation import metrics

FRAME_HEADER = struct.Struct("<IIdd")
PICTURE_HEADER = struct.Struct("<IIIIII6d")
FORMAT_VERSION = 3
NO_GROUP_BYTE, LAST_GROUP_BYTE = 255, 254
"""The byte of an agent in no group, and that of group 254 and all beyond."""
MAX_EDGES = 300_000
"""Beyond this many edges none are drawn: the lines would only hide the agents."""

Edges = Int64[np.ndarray, "edges 2"]
"""Messages as rows (receiver, sender)."""


class Links(NamedTuple):
    """Who hears whom."""

    edges: Edges
    """The messages that are used now."""
    lost_edges: Edges
    """Those that would be used if all messages arrived at once, and did not."""


NO_EDGES: Edges = np.empty((0, 2), np.int64)
NO_LINKS = Links(NO_EDGES, NO_EDGES)


@dataclass(frozen=True, eq=False)
class FlockPicture:
    """One flock to draw.

    Attributes:
        flock: a batch of one; a flock in three dimensions is seen from above.
        accelerations: (1, N, D), what the agents are commanded to do next; None if nothing comes next.
        disks: (M, 3), x, y and radius.
        links: the messages to draw.
        has_ended: whether the flight has ended, so that its velocities move nobody any more.
        held_accelerations: (1, N, D), the accelerations that, held, lead where the agents' bodies take them next; `accelerations` if
            left out.
    """

    flock: Flock
    accelerations: Vectors | None
    disks: Float64[np.ndarray, "M 3"]
    links: Links = NO_LINKS
    has_ended: bool = False
    held_accelerations: Vectors | None = None

    @property
    def metric_values(self) -> tuple[float, float, float, float]:
        """Velocity variance, components, minimum separation and mean acceleration norm (NaN if there is none)."""
        # As `metrics.mean_acceleration_norm`, which takes a moment; a picture has no moment.
        effort = math.nan
        if self.accelerations is not None:
            norms = np.sqrt(np.square(self.accelerations[0, self.flock.working[0]]).sum(axis=1))
            effort = float(norms.mean()) if len(norms) > 0 else 0.0
        measured = (
            metrics.velocity_variance(self.flock),
            metrics.component_count(self.flock),
            metrics.minimum_separation(self.flock),
        )
        variance, components, separation = (float(values[0]) for values in measured)
        return variance, components, separation, effort


def build_links(
    flock: Flock, message_graph: Graph | None = None, fixed_graph: Graph | None = None, obstacles: str = "nearest"
) -> Links:
    """Who hears whom, and which messages are missing; none if there are more than can be drawn apart.

    Args:
        flock: a batch of one.
        message_graph: who uses a message of whom, the obstacle rule left out; everybody who is within reach if left out.
        fixed_graph: the graph of t = 0, for a controller of fixed topology.
        obstacles: which obstacle agents a follower hears, the "nearest" or "all".
    """
    # Degrees count the edges, and need no memory for them.
    if fixed_graph is None and compute_connectivity(flock).degrees.sum() > MAX_EDGES:
        return NO_LINKS
    # Those who would hear each other if all messages arrived: not who is deaf, nor of whom nothing is sent.
    within_reach = _drop_failed_agents(fixed_graph, flock) if fixed_graph is not None else radius_graph(flock)
    all_edges = _apply_obstacle_rule(flock, within_reach, obstacles)
    if message_graph is None:
        return Links(all_edges, NO_EDGES)
    edges = _apply_obstacle_rule(flock, message_graph, obstacles)
    # An edge as one number, so that rows can be looked up.
    N = flock.shape[1]
    missing = ~np.isin(all_edges @ [N, 1], edges @ [N, 1])
    return Links(edges, all_edges[missing])


def _drop_failed_agents(graph: Graph, flock: Flock) -> Graph:
    """The graph without the messages of agents that send nothing, and those to agents that hear nobody."""
    if flock.all_working:
        return graph
    hears = flock.effective_roles[0] == Role.FOLLOWER
    receivers, senders = graph.drop_senders(flock.muted).edges(0).T
    kept = hears[receivers]
    starts = np.zeros_like(graph.starts)
    np.cumsum(np.bincount(receivers[kept], minlength=len(hears)), out=starts[1:])
    return Graph(starts, senders[kept], graph.shape)


def _apply_obstacle_rule(flock: Flock, graph: Graph, obstacles: str) -> Edges:
    edges: Edges = find_observed_edges(flock, graph) if obstacles == "nearest" else graph.edges(0)
    return edges


def pack_frame(step: int, time: float, pictures: Sequence[FlockPicture]) -> bytes:
    """A frame as bytes, in the format above."""
    parts = [FRAME_HEADER.pack(FORMAT_VERSION, len(pictures), step, time)]
    for picture in pictures:
        parts += _pack_picture(picture)
    return b"".join(parts)


def _pack_picture(picture: FlockPicture) -> list[bytes]:
    """A picture as bytes, in the order of the format above."""
    flock = picture.flock
    places = flock.positions[0, :, :2]
    # The origin is the middle of the flock proper; subtract it in float64, before positions become float32.
    origin = places[flock.roles[0] != Role.OBSTACLE].mean(axis=0)
    disks = picture.disks - [*origin, 0.0] if len(picture.disks) else picture.disks
    edges, lost_edges = picture.links
    sizes = len(places), len(edges), len(lost_edges), len(disks), picture.has_ended, 0
    # After the last frame of a saved flight there is no acceleration: arrows of no length.
    held_accelerations = picture.accelerations if picture.held_accelerations is None else picture.held_accelerations
    next_step = np.zeros_like(flock.positions) if held_accelerations is None else held_accelerations
    vectors = places - origin, flock.velocities[0, :, :2], next_step[0, :, :2], disks
    # Group numbers fill an int32, a byte is enough to choose colours by.
    groups = np.where(flock.groups[0] == NO_GROUP, NO_GROUP_BYTE, np.minimum(flock.groups[0], LAST_GROUP_BYTE))
    return [
        PICTURE_HEADER.pack(*sizes, *origin, *picture.metric_values),
        *(_pack_array(array, "<f4") for array in vectors),
        _pack_array(edges, "<u4"),
        _pack_array(lost_edges, "<u4"),
        _pack_array(flock.roles[0], "u1"),
        _pack_array(groups, "u1"),
        _pack_array(flock.conditions[0], "u1"),
    ]


def _pack_array(array: NDArray[Any], kind: str) -> bytes:
    """The array's bytes, and zeros up to a multiple of 8."""
    content = array.astype(kind).tobytes()
    return content + bytes(-len(content) % 8)
