"""The binary format of the frames that the server sends to a page, and what they show.

All values are little-endian, and every array starts at a multiple of 8 bytes:

    frame   uint32 format version = 6, uint32 pictures, float64 step, float64 time, then one picture for each panel
    picture uint32 agents N, disks M, 1 if the flight has ended, else 0, and marks K
            uint32 pairs and singles of the edges, pairs and singles of the lost edges
            uint32 outcome, a code of `Outcome`, 0 for none yet, and 1 if there are too many edges to list any, else 0
            float64 origin x, y; velocity variance, components, minimum separation, mean acceleration norm,
                RMS acceleration, peak acceleration norm; number of success; time of the outcome (NaN for none)
            float32 positions (N, 2), velocities (N, 2), accelerations (N, 2), disks (M, 3): x, y, radius
            float32 marks (K, 4), uint8 codes of marks (K, 4): see `overlay.MarkArrays`
            uint16 pairs and singles of the edges, then of the lost edges, (.., 2) each; uint32 if N > 65,535
            uint8 roles (N,)
            uint8 groups (N,): 255 for obstacle agents, 254 for groups from 254 on
            uint8 conditions (N,)

An edge is a message, its receiver and its sender. A single is an edge whose sender could receive, but does not receive
from the receiver. A pair stands for the edges in both directions, or for one edge whose sender cannot receive: only
followers that neither stopped nor drift can.

The accelerations are constant accelerations that reproduce the motion of each agent's body to the next frame; the page
extrapolates with them between frames. Positions, including those of disks and marks, are relative to the picture's
origin, the flock's centre, so float32 is precise enough however far the flock has flown.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from equiflock.flock import NO_GROUP, Flock, Role, Vectors
from equiflock.graph.edge_pairs import Edges, pair_edges, subtract_edges
from equiflock.graph.radius_graph import Graph, compute_connectivity, radius_graph
from equiflock.observations.orbit import find_observed_edges
from equiflock.plotting.player.overlay import NO_OVERLAY, SHAPES, MarkArrays, OverlayState
from equiflock.simulation import metrics

FRAME_HEADER = struct.Struct("<IIdd")
PICTURE_HEADER = struct.Struct("<10I10d")
FORMAT_VERSION = 6
FLOAT32_BITS = 24
"""Significant bits of a float32."""
MAX_SHORT_AGENTS = 65_535
"""Agents that uint16 can index: browsers do not draw a line to index 65,535."""
NO_GROUP_BYTE, LAST_GROUP_BYTE = 255, 254
"""Byte of an agent without group, and of groups from 254 on."""
MAX_EDGES = 300_000
"""With more edges none are drawn: the lines would hide the agents."""


class Links(NamedTuple):
    """Edges of the communication graph to draw."""

    edges: Edges
    """Messages in use."""
    lost_edges: Edges
    """Messages that would be in use with an ideal radio, but did not arrive."""
    too_many: bool = False
    """Whether there are more than MAX_EDGES, none of which is listed."""


NO_EDGES: Edges = np.empty((0, 2), np.int64)
NO_LINKS = Links(NO_EDGES, NO_EDGES)


@dataclass(frozen=True, eq=False)
class FlockPicture:
    """One flock to draw, a batch of one; of a flock in three dimensions x and y are drawn."""

    flock: Flock
    accelerations: Vectors | None
    """(1, N, D), commanded accelerations, the last ones once the flight has ended; None if there never were any."""
    disks: Float64[np.ndarray, "M 3"]
    """x, y and radius of each disk obstacle."""
    links: Links = NO_LINKS
    has_ended: bool = False
    """Whether the flight has ended, so that the agents stand still."""
    held_accelerations: Vectors | None = None
    """(1, N, D), constant accelerations that reproduce the motion to the next frame; `accelerations` by default."""
    overlay: OverlayState = NO_OVERLAY
    """What the scenario shows with the flock."""

    @property
    def metric_values(self) -> tuple[float, float, float, float, float, float]:
        """Velocity variance, number of components, minimum separation; mean, RMS and peak of commanded accelerations.

        Mean and RMS are over working leaders and followers, 0 if all agents have failed; the peak is over all leaders
        and followers. The three are NaN without accelerations.
        """
        measured = metrics.velocity_variance, metrics.component_count, metrics.minimum_separation
        variance, components, separation = (float(measure(self.flock)[0]) for measure in measured)
        return variance, components, separation, *self._measure_accelerations()

    def _measure_accelerations(self) -> tuple[float, float, float]:
        """Return mean, RMS and peak as the metrics of these names, which take a moment."""
        if self.accelerations is None:
            return math.nan, math.nan, math.nan
        squares = np.square(self.accelerations[0]).sum(axis=1)
        working = squares[self.flock.working[0]]
        peak = math.sqrt(squares[self.flock.roles[0] != Role.OBSTACLE].max(initial=0.0))
        if len(working) == 0:
            return 0.0, 0.0, peak
        return float(np.sqrt(working).mean()), math.sqrt(working.mean()), peak


def build_links(
    flock: Flock,
    compute_message_graph: Callable[[Flock], Graph] | None = None,
    fixed_graph: Graph | None = None,
    obstacles: str = "nearest",
) -> Links:
    """Return the messages in use and those that were lost.

    Both are empty, and `too_many` is set, if the graph with an ideal radio has more than MAX_EDGES edges. These graphs
    are then not computed, as a dense flock has millions of edges.

    Args:
        flock: a batch of one.
        compute_message_graph: returns the messages in use before the obstacle rule; by default they are those of an
            ideal radio, none of them lost.
        fixed_graph: communication graph of t = 0, for a controller with fixed topology; it then replaces the radius
            graph as the graph of an ideal radio.
        obstacles: obstacle rule: a follower observes the "nearest" obstacle agent within the radius, or "all".
    """
    if _has_too_many_edges(flock, fixed_graph):
        return Links(NO_EDGES, NO_EDGES, too_many=True)
    # The graph with an ideal radio: without receivers that receive nothing and senders that send nothing.
    ideal_graph = _drop_failed_agents(fixed_graph, flock) if fixed_graph is not None else radius_graph(flock)
    all_edges = _apply_obstacle_rule(flock, ideal_graph, obstacles)
    if compute_message_graph is None:
        return Links(all_edges, NO_EDGES)
    edges = _apply_obstacle_rule(flock, compute_message_graph(flock), obstacles)
    return Links(edges, subtract_edges(all_edges, edges, flock.shape[1]))


def _has_too_many_edges(flock: Flock, fixed_graph: Graph | None) -> bool:
    """Return whether the graph of an ideal radio has more than MAX_EDGES edges; it takes no memory for them."""
    edges = compute_connectivity(flock).degrees.sum() if fixed_graph is None else len(fixed_graph.senders)
    return bool(edges > MAX_EDGES)


def _drop_failed_agents(graph: Graph, flock: Flock) -> Graph:
    """Return the graph without messages that failures stop; the graph itself if all agents work.

    Silent and stopped agents send nothing; only followers that neither stopped nor drift receive.
    """
    if flock.all_working:
        return graph
    can_receive = flock.effective_roles[0] == Role.FOLLOWER
    receivers, senders = graph.drop_senders(flock.muted).edges(0).T
    kept = can_receive[receivers]
    starts = np.zeros_like(graph.starts)
    np.cumsum(np.bincount(receivers[kept], minlength=len(can_receive)), out=starts[1:])
    return Graph(starts, senders[kept], graph.shape)


def _apply_obstacle_rule(flock: Flock, graph: Graph, obstacles: str) -> Edges:
    """Return the edges of a graph; with the rule "nearest", without all but each receiver's nearest obstacle agent."""
    if obstacles == "nearest" and (flock.roles[0] == Role.OBSTACLE).any():
        return find_observed_edges(flock, graph)
    return graph.edges(0)


def pack_frame(step: int, time: float, pictures: Sequence[FlockPicture], significant_bits: int = FLOAT32_BITS) -> bytes:
    """Return a frame with one picture for each panel as bytes, in the format of this module's docstring.

    With fewer `significant_bits` the positions, velocities and accelerations are rounded, and compress better.
    """
    parts = [FRAME_HEADER.pack(FORMAT_VERSION, len(pictures), step, time)]
    for picture in pictures:
        parts += _pack_picture(picture, significant_bits)
    return b"".join(parts)


def _pack_picture(picture: FlockPicture, significant_bits: int) -> list[bytes]:
    """Return the header and the arrays of a picture as bytes."""
    flock = picture.flock
    places = flock.positions[0, :, :2]
    # The origin is the flock's centre without obstacle agents; subtract it in float64, before conversion to float32.
    origin = places[flock.roles[0] != Role.OBSTACLE].mean(axis=0)
    disks = picture.disks - [*origin, 0.0] if len(picture.disks) else picture.disks
    can_receive = flock.effective_roles[0] == Role.FOLLOWER
    links = picture.links
    edge_lists = *pair_edges(links.edges, can_receive), *pair_edges(links.lost_edges, can_receive)
    index_type = "<u2" if len(places) <= MAX_SHORT_AGENTS else "<u4"
    marks, success, outcome, outcome_time = picture.overlay
    counts = len(places), len(disks), picture.has_ended, len(marks.numbers), *map(len, edge_lists)
    values = *origin, *picture.metric_values, success, outcome_time
    # A saved flight of one frame has no accelerations: send zeros.
    held_accelerations = picture.accelerations if picture.held_accelerations is None else picture.held_accelerations
    next_step = np.zeros_like(flock.positions) if held_accelerations is None else held_accelerations
    vectors = places - origin, flock.velocities[0, :, :2], next_step[0, :, :2], disks
    # Group numbers are int32; a byte is enough to select colours.
    groups = np.where(flock.groups[0] == NO_GROUP, NO_GROUP_BYTE, np.minimum(flock.groups[0], LAST_GROUP_BYTE))
    return [
        PICTURE_HEADER.pack(*counts, outcome, links.too_many, *values),
        *(_pack_array(_round_floats(array, significant_bits), "<f4") for array in vectors),
        _pack_array(_move_marks(marks, origin), "<f4"),
        _pack_array(marks.codes, "u1"),
        *(_pack_array(edges, index_type) for edges in edge_lists),
        _pack_array(flock.roles[0], "u1"),
        _pack_array(groups, "u1"),
        _pack_array(flock.conditions[0], "u1"),
    ]


def _move_marks(marks: MarkArrays, origin: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers of marks, with positions relative to the origin: the second half is one of segments only."""
    is_segment = marks.codes[:, 1:2] == SHAPES.index("segment")
    offsets = np.concatenate([np.tile(origin, (len(is_segment), 1)), is_segment * origin], axis=1)
    return np.asarray(marks.numbers - offsets)


def _round_floats(array: NDArray[Any], significant_bits: int) -> NDArray[Any]:
    """Return numbers as float32, rounded to `significant_bits`."""
    numbers = array.astype("<f4")
    if significant_bits < FLOAT32_BITS:
        dropped = FLOAT32_BITS - significant_bits
        half, mask = np.uint32(1 << (dropped - 1)), np.uint32(2**32 - (1 << dropped))
        numbers = ((numbers.view("<u4") + half) & mask).view("<f4")
    return numbers


def _pack_array(array: NDArray[Any], dtype: str) -> bytes:
    """Return the bytes of an array, converted to `dtype` and zero-padded to a multiple of 8 bytes."""
    content = array.astype(dtype).tobytes()
    return content + bytes(-len(content) % 8)
