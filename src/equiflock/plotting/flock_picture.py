"""Picture of one flock in the look of the live page: darts, trails, links, obstacles and the grid."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from equiflock.flock import Condition, Flock, Role
from equiflock.graph.radius_graph import radius_graph
from equiflock.observations.orbit import find_observed_edges
from equiflock.plotting.palettes import Palette, colour_by_heading
from equiflock.plotting.sprites import DART, DISC, LEFT_HALF, SEGMENT, Sprites
from equiflock.scenarios.obstacle_shapes import obstacle_disks
from equiflock.simulation.trajectory import Trajectory

MAX_AGENTS_WITH_EDGES = 5_000
"""Largest flock whose edges are drawn; with more agents the lines would hide them."""
TRAIL_SECONDS = 1.44
"""Duration of a trail, in simulated seconds."""
MAX_TRAIL_SEGMENTS, MOST_SEGMENTS, LEAST_SEGMENTS = 16_000, 24, 4
"""Most segments of all trails, and most and least of one."""
MIN_DART, MAX_DART = 5.0, 26.0
"""Limits of the length of a dart, in units."""
MIN_GRID = 40.0
"""Least distance between grid lines, in units."""
FOLD = 0.04
"""Lightness by which the halves of a dart differ from its colour."""


@dataclass(frozen=True)
class View:
    """Visible area: its centre in the world, and pixels per unit of length."""

    centre: Float64[np.ndarray, " 2"]
    scale: float


class FlockPicture:
    """Draws a run of one flock into a rectangle of a figure of 72 dots per inch, as animated artists.

    `update` moves the artists to a time; `artists` are to be drawn in their order. `unit` is the number of pixels of
    the lengths that do not depend on the scale, such as line widths; one unit is a css pixel of the page.
    """

    def __init__(self, figure: Figure, box: Bbox, run: Trajectory, palette: Palette, unit: float = 1.0) -> None:
        self.run, self.box, self.palette, self.unit = run, box, palette, unit
        self.paths = np.asarray(run.positions[:, 0, :, :2], np.float64)
        self.roles = run.roles[0]
        self.group_colours = _get_group_colours(run, palette)
        self.drawn_frame = -1
        N = self.paths.shape[1]
        crowding = min(1.0, math.sqrt(100 / N))
        ink, thin = to_rgba(palette.ink), unit

        def add(shape: Any, zorder: float, width: float = 0.0, edge: Any = "none") -> Sprites:
            artist = Sprites(shape, box, zorder, width, edge)
            figure.add_artist(artist)
            return artist

        self.grid = add(SEGMENT, 0, thin, to_rgba(palette.grid))
        self.disks = add(DISC, 1, 1.5 * unit, to_rgba(palette.obstacle))
        self.trails = add(SEGMENT, 2, max(1.4 * crowding, 0.6) * unit)
        self.edges = add(SEGMENT, 3, max(crowding, 0.5) * unit, to_rgba(palette.edge))
        self.posts = add(DISC, 4)
        self.stopped = add(DISC, 5)
        self.silent = add(DART, 6, 1.5 * unit, to_rgba(palette.failed))
        self.followers, self.follower_halves = add(DART, 7), add(LEFT_HALF, 7)
        self.rings = add(DISC, 8, 1.25 * unit, ink)
        self.outlines = add(DART, 9, 2.5 * unit, ink)
        self.leaders, self.leader_halves = add(DART, 10), add(LEFT_HALF, 10)
        self.artists = (
            *(self.grid, self.disks, self.trails, self.edges, self.posts, self.stopped, self.silent),
            *(self.followers, self.follower_halves, self.rings, self.outlines, self.leaders, self.leader_halves),
        )

    def get_frame(self, time: float) -> int:
        """Return the index of the last saved frame at or before a time, in seconds, or 0."""
        rounding = 1e-6 * self.run.time_step
        return max(int(np.searchsorted(self.run.times, time + rounding, side="right")) - 1, 0)

    def update(self, time: float, view: View) -> None:
        """Show the flock at a time, in seconds; between two saved frames agents are on the line between them."""
        frame = self.get_frame(time)
        self.view = view
        following = min(frame + 1, len(self.paths) - 1)
        span = float(self.run.times[following] - self.run.times[frame])
        share = min(max((time - float(self.run.times[frame])) / span, 0.0), 1.0) if span > 0 else 0.0
        positions = (1 - share) * self.paths[frame] + share * self.paths[following]
        velocities = (1 - share) * self.run.velocities[frame, 0, :, :2] + share * self.run.velocities[
            following, 0, :, :2
        ]
        now = self.run.flock(frame)
        places = self.to_pixels(positions)
        # As on the page: 0.16 units of length at a scale of 100; darts shrink more slowly than distances.
        self.size = self.unit * min(max(1.6 * math.sqrt(view.scale / self.unit), MIN_DART), MAX_DART)
        self._place_grid()
        self._place_obstacles(now, places)
        self._place_trails(frame, time, positions)
        self._place_edges(frame, now, places)
        self._place_agents(now.conditions[0], places, np.asarray(velocities, np.float64))

    def to_pixels(self, positions: Float64[np.ndarray, "*N 2"]) -> Float64[np.ndarray, "*N 2"]:
        """Return the pixels of points of the world."""
        middle = np.array([(self.box.x0 + self.box.x1) / 2, (self.box.y0 + self.box.y1) / 2])
        return np.asarray(middle + (positions - self.view.centre) * self.view.scale)

    def get_grid_spacing(self, view: View) -> int:
        """Return the distance between grid lines in communication radii, a power of 2."""
        radius = self.run.comm_radius * view.scale / self.unit
        return int(2 ** max(math.ceil(math.log2(MIN_GRID / radius)), 0))

    def _place_grid(self) -> None:
        spacing = self.get_grid_spacing(self.view) * self.run.comm_radius
        half = np.array([self.box.width, self.box.height]) / 2 / self.view.scale
        starts: list[NDArray[Any]] = []
        ends: list[NDArray[Any]] = []
        for axis in (0, 1):
            low, high = self.view.centre - half, self.view.centre + half
            at = np.arange(math.ceil(low[axis] / spacing), math.floor(high[axis] / spacing) + 1) * spacing
            for corner, points in ((low, starts), (high, ends)):
                line = np.tile(corner, (len(at), 1))
                line[:, axis] = at
                points.append(line)
        first, last = self.to_pixels(np.concatenate(starts)), self.to_pixels(np.concatenate(ends))
        self.grid.place(first, last - first)

    def _place_obstacles(self, now: Flock, places: Float64[np.ndarray, "N 2"]) -> None:
        disks = obstacle_disks(now)
        self.disks.place(self.to_pixels(disks[:, :2]), _along_x(disks[:, 2] * self.view.scale), self.palette.disk)
        posts = places[self.roles == Role.OBSTACLE]
        radii = np.full(len(posts), self.unit + self.size / 8)
        self.posts.place(posts, _along_x(radii), to_rgba(self.palette.obstacle))

    def _place_trails(self, frame: int, time: float, positions: Float64[np.ndarray, "N 2"]) -> None:
        """Draw the paths of the last TRAIL_SECONDS, which fade with their age."""
        times, moving = self.run.times, self.roles != Role.OBSTACLE
        count = min(max(MAX_TRAIL_SEGMENTS // max(int(moving.sum()), 1), LEAST_SEGMENTS), MOST_SEGMENTS)
        # Saved frames at multiples of a stride: a trail keeps its corners as it fades.
        step = float(times[1] - times[0]) if len(times) > 1 else 1.0
        stride = max(math.ceil(TRAIL_SECONDS / count / step - 1e-9), 1)
        oldest = int(np.searchsorted(times, time - TRAIL_SECONDS))
        frames = np.arange(-(-oldest // stride) * stride, frame + 1, stride)
        if len(frames) == 0:
            self.trails.place(np.zeros((0, 2)), np.zeros((0, 2)))
            return
        corners = np.concatenate([self.paths[frames][:, moving], positions[None, moving]])
        vertices = self.to_pixels(corners)
        steps = np.diff(vertices, axis=0)
        ages = time - np.append(times[frames[1:]], time)
        strengths = np.clip(1.0 - ages / TRAIL_SECONDS, 0.0, 1.0) ** 2
        colours = np.empty((*steps.shape[:2], 4))
        if self.group_colours is None:
            ways = np.hypot(steps[..., 0], steps[..., 1])
            headings = steps / np.maximum(ways, 1e-300)[..., None]
            colours[..., :3] = colour_by_heading(self.palette, headings.reshape(-1, 2)).reshape(*steps.shape[:2], 3)
        else:
            colours[..., :3] = self.group_colours[moving]
        failed = self.run.flock(frame).conditions[0][moving] != Condition.WORKING
        colours[:, failed, :3] = to_rgb(self.palette.failed)
        colours[..., 3] = self.palette.trail * strengths[:, None]
        self.trails.place(vertices[:-1].reshape(-1, 2), steps.reshape(-1, 2), lines=colours.reshape(-1, 4))

    def _place_edges(self, frame: int, now: Flock, places: Float64[np.ndarray, "N 2"]) -> None:
        if len(places) > MAX_AGENTS_WITH_EDGES:
            return
        if frame != self.drawn_frame:
            self.links = find_drawn_edges(now, self.run.config.get("obstacles", "nearest"))
            self.drawn_frame = frame
        first, last = places[self.links[:, 0]], places[self.links[:, 1]]
        self.edges.place(first, last - first)

    def _place_agents(
        self, conditions: NDArray[Any], places: Float64[np.ndarray, "N 2"], velocities: Float64[np.ndarray, "N 2"]
    ) -> None:
        """Draw darts; failed agents are grey: a disc if stopped, a dart if drifting, a hollow dart if silent."""
        speeds = np.hypot(*velocities.T)
        headings = np.where(speeds[:, None] > 0, velocities / np.maximum(speeds, 1e-300)[:, None], [1.0, 0.0])
        failed, grey = conditions != Condition.WORKING, to_rgba(self.palette.failed)
        dark, light = (self._colour_agents(velocities, failed, -FOLD), self._colour_agents(velocities, failed, FOLD))

        stopped, silent = conditions == Condition.STOPPED, conditions == Condition.SILENT
        self.stopped.place(places[stopped], _along_x(np.full(int(stopped.sum()), self.size / 3)), grey)
        self.silent.place(places[silent], self.size * headings[silent], to_rgba(self.palette.background))
        flying = ~stopped & ~silent & (self.roles != Role.OBSTACLE)
        leads = flying & (self.roles == Role.LEADER) & ~failed
        follows = flying & ~leads
        self.followers.place(places[follows], self.size * headings[follows], dark[follows])
        self.follower_halves.place(places[follows], self.size * headings[follows], light[follows])
        self.rings.place(places[leads], _along_x(np.full(int(leads.sum()), self.size + 4.6 * self.unit)))
        larger = 1.5 * self.size * headings[leads]
        self.outlines.place(places[leads], larger)
        self.leaders.place(places[leads], larger, dark[leads])
        self.leader_halves.place(places[leads], larger, light[leads])

    def _colour_agents(
        self, velocities: Float64[np.ndarray, "N 2"], failed: NDArray[np.bool_], lighter: float
    ) -> Float64[np.ndarray, "N 3"]:
        """Return the colours of agents by heading or by group, lighter by some lightness; failed ones are grey."""
        if self.group_colours is None:
            colours = colour_by_heading(self.palette, velocities, lighter)
        else:
            colours = np.clip(self.group_colours + lighter, 0.0, 1.0)
        return np.where(failed[:, None], np.clip(np.array(to_rgb(self.palette.failed)) + lighter, 0.0, 1.0), colours)


def list_groups(run: Trajectory) -> list[int]:
    """Return the numbers of the groups of a run of one flock in ascending order, without those of obstacle agents."""
    return [int(group) for group in np.unique(run.groups[0][run.roles[0] != Role.OBSTACLE])]


def find_drawn_edges(flock: Flock, obstacles: str) -> NDArray[Any]:
    """Return the edges to draw as pairs of agents (E, 2), each once.

    `obstacles` is the flight's rule: "nearest" has edges to the nearest obstacle agent only, "all" to all in range.
    """
    edges = find_observed_edges(flock) if obstacles == "nearest" else radius_graph(flock).edges(0)
    return np.unique(np.sort(edges, axis=1), axis=0)


def _get_group_colours(run: Trajectory, palette: Palette) -> Float64[np.ndarray, "N 3"] | None:
    """Return the colour of each agent by its group, or None if all agents are in the same group."""
    present = list_groups(run)
    if len(present) < 2:
        return None
    colours = {group: palette.group_colour(place) for place, group in enumerate(present)}
    return np.array([colours.get(int(group), np.zeros(3)) for group in run.groups[0]])


def _along_x(lengths: Float64[np.ndarray, " N"]) -> Float64[np.ndarray, "N 2"]:
    """Return vectors of these lengths along the x axis."""
    return np.column_stack([lengths, np.zeros_like(lengths)])
