"""Films of one flock in space: drones above the ground with attitudes, trails and links, seen by a turning camera."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Line3DCollection
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock.flock import Role
from equiflock.graph.radius_graph import radius_graph
from equiflock.plotting.film import MAX_AGENTS_WITH_EDGES, check_film, write_frames
from equiflock.plotting.style import ARROW_COLOUR, FAINT_COLOUR, ROLE_COLOURS, TEXT_COLOUR
from equiflock.simulation.metrics import component_count, velocity_variance
from equiflock.simulation.trajectory import Trajectory

FIGURE_INCHES = 6.4, 6.0
TRAIL_SECONDS = 3.0
TRAIL_PARTS = 12
"""Segments of a trail, each fainter than the one before it."""
ARM_SHARE = 0.019
"""Length of a drawn arm, in widths of the window: far longer than that of a real drone, so that tilts are visible."""
ELEVATION, FIRST_AZIMUTH, TURN_PER_SECOND = 24.0, -62.0, 4.0
"""Camera angles in degrees, and degrees by which the camera turns per second of film."""
GRID_LINES = 10
"""Number of squares of the ground along each side."""
GROUND_COLOUR, GRID_COLOUR, SHADOW_COLOUR, LINK_COLOUR = "#f4f6f8", "#d9dee5", "#b9c1cc", "#78aad6"
FARTHEST_OPACITY = 0.35
"""Opacity of the drone that is farthest from the camera; the nearest is opaque."""


def film_3d(
    run: Trajectory,
    path: str | os.PathLike[str],
    *,
    flock: int = 0,
    frames_per_second: int = 25,
    speed: float = 2.0,
    dots_per_inch: int = 120,
    on_frame: Callable[[int, int], object] | None = None,
) -> Path:
    """Draw one flock of a flight in space, and write the film.

    Drones are orange crosses in their attitude, or dots if the body has none; behind them are their trails, between
    them the edges of the communication graph, and below them their shadows on the ground, z = 0. The camera follows the
    flock and turns slowly. Raise InputError if the flight has neither three dimensions nor heights.

    Args:
        run: a flight with D = 3, or with the heights of drones in its body state.
        path: ends in .mp4 or .gif; an existing film is replaced when the new one is complete.
        flock: index of the flock in the batch.
        frames_per_second: frame rate of the film.
        speed: simulated seconds per second of film.
        dots_per_inch: resolution; the film is 6.4 inches wide.
        on_frame: called with (frames drawn, total frames) after every frame.
    """
    check_film(path, speed, frames_per_second, dots_per_inch)
    if not 0 <= flock < run.positions.shape[1]:
        raise InputError(f"flock must be from 0 to {run.positions.shape[1] - 1}; got {flock}")
    scene = SpaceScene(run[flock], dots_per_inch)
    seconds = float(run.times[-1])

    def draw(film_time: float) -> None:
        scene.draw(min(film_time * speed, seconds), FIRST_AZIMUTH + TURN_PER_SECOND * film_time)

    return write_frames(path, scene.canvas, draw, seconds / speed, frames_per_second, on_frame)


class SpaceScene:
    """Picture of a run of one flock in space, which `draw` updates to a time and an angle of the camera."""

    def __init__(self, run: Trajectory, dots_per_inch: int) -> None:
        self.run = run
        self.points = get_space_positions(run)
        self.variance = velocity_variance(run)[:, 0]
        self.component_counts = component_count(run)[:, 0].astype(int)
        self.centres = np.median(self.points, axis=1)
        spread = np.abs(self.points - self.centres[:, None])[..., :2].max(axis=(1, 2))
        self.width = 2.6 * max(float(np.quantile(spread, 0.9)), 0.5 * run.comm_radius)
        self.top = 1.03 * max(float(self.points[..., 2].max()), 0.3 * self.width)

        figure = Figure(figsize=FIGURE_INCHES, dpi=dots_per_inch)
        self.canvas = FigureCanvasAgg(figure)
        # matplotlib does not declare the types of axes in space.
        axes: Any = figure.add_axes((-0.12, -0.03, 1.24, 1.08), projection="3d", computed_zorder=False)
        self.axes = axes
        self.axes.set_axis_off()
        self.axes.set_proj_type("persp", focal_length=0.6)
        title: dict[str, Any] = {"ha": "center", "va": "top", "color": TEXT_COLOUR}
        self.title = figure.text(0.5, 0.975, "", fontsize=12, **title)
        self.subtitle = figure.text(0.5, 0.925, "", fontsize=9.5, family="monospace", **title)
        self.grid_step = _round_length(self.width / GRID_LINES)
        note = f"grid: {self.grid_step:g} m"
        figure.text(0.975, 0.02, note, ha="right", fontsize=8.5, color=FAINT_COLOUR)

        N = self.points.shape[1]
        crowding = min(1.0, math.sqrt(100 / N))
        self.ground = axes.plot_surface(*np.zeros((3, 2, 2)), color=GROUND_COLOUR, shade=False, zorder=0)
        self.grid = self._add_lines(GRID_COLOUR, 0.7, 1)
        self.edges = self._add_lines(LINK_COLOUR, 0.7 * crowding, 3)
        self.trails = self._add_lines(ARROW_COLOUR, 1.3 * crowding, 4)
        self.arms = self._add_lines(ROLE_COLOURS[Role.FOLLOWER], 1.7 * crowding, 5)
        self.shadows = axes.scatter(
            [], [], [], s=9 * crowding, c=SHADOW_COLOUR, linewidths=0, zorder=2, depthshade=False
        )
        self.dots = axes.scatter(
            [], [], [], s=7 * crowding, c=ROLE_COLOURS[Role.FOLLOWER], linewidths=0, zorder=6, depthshade=False
        )

    def _add_lines(self, colour: str, width: float, order: int) -> Any:
        """Add an empty collection of lines to the axes and return it."""
        lines = Line3DCollection(np.zeros((1, 2, 3)), colors=colour, linewidths=width, zorder=order)
        self.axes.add_collection3d(lines, autolim=False)
        return lines

    def draw(self, time: float, azimuth: float) -> None:
        """Draw the saved frame nearest to `time`, in seconds, seen from an azimuth in degrees."""
        frame = int(np.argmin(np.abs(self.run.times - time)))
        points, (x, y, _) = self.points[frame], self.centres[frame]
        half = self.width / 2
        self.axes.set_xlim(x - half, x + half)
        self.axes.set_ylim(y - half, y + half)
        self.axes.set_zlim(0.0, self.top)
        self.axes.set_box_aspect((1.0, 1.0, self.top / self.width), zoom=1.17)
        self.axes.view_init(ELEVATION, azimuth)

        self._draw_ground(x, y)
        if len(points) <= MAX_AGENTS_WITH_EDGES:
            pairs = np.unique(np.sort(radius_graph(self.run.flock(frame)).edges(0), axis=1), axis=0)
            self.edges.set_segments(points[pairs])
            # Long links are fainter, so that the nearest ones stand out.
            lengths = np.linalg.norm(points[pairs[:, 0]] - points[pairs[:, 1]], axis=1) / self.run.comm_radius
            self.edges.set_color(_fade(LINK_COLOUR, 0.6 * (1.0 - lengths) + 0.15))
        self._draw_trails(frame)
        self._draw_drones(frame, azimuth)
        self.shadows._offsets3d = (points[:, 0], points[:, 1], np.zeros(len(points)))

        count = self.component_counts[frame]
        self.title.set_text(str(self.run.config.get("controller", "")).partition(":")[0] + f", {len(points)} drones")
        self.subtitle.set_text(
            f"t = {self.run.times[frame]:5.1f} s   velocity variance {self.variance[frame]:.4f}   "
            f"{count} component{'s' if count != 1 else ''}"
        )

    def _draw_ground(self, x: float, y: float) -> None:
        """Draw the ground around a point, with lines at multiples of the grid step."""
        step, half = self.grid_step, self.width / 2
        xs, ys = (np.arange(math.ceil((c - half) / step), (c + half) // step + 1) * step for c in (x, y))
        corners = [
            [x - half, y - half, 0.0],
            [x + half, y - half, 0.0],
            [x + half, y + half, 0.0],
            [x - half, y + half, 0.0],
        ]
        self.ground.set_verts([corners])
        along_y = [[[at, y - half, 0.0], [at, y + half, 0.0]] for at in xs]
        along_x = [[[x - half, at, 0.0], [x + half, at, 0.0]] for at in ys]
        self.grid.set_segments(along_y + along_x)

    def _draw_trails(self, frame: int) -> None:
        """Draw the paths of the last TRAIL_SECONDS, which fade with their age."""
        since = self.run.times[frame] - TRAIL_SECONDS
        frames = np.unique(np.linspace(np.searchsorted(self.run.times, since), frame, TRAIL_PARTS + 1).astype(int))
        paths = self.points[frames]
        segments = np.stack([paths[:-1], paths[1:]], axis=2)  # (parts, N, 2, 3)
        N = segments.shape[1]
        ages = (self.run.times[frame] - self.run.times[frames[1:]]) / TRAIL_SECONDS
        self.trails.set_segments(segments.reshape(-1, 2, 3))
        self.trails.set_color(_fade(ARROW_COLOUR, np.repeat(0.6 * (1.0 - ages), N)))

    def _draw_drones(self, frame: int, azimuth: float) -> None:
        """Draw the drones from the farthest to the nearest, which is opaque."""
        points = self.points[frame]
        across, up, around = math.cos(math.radians(ELEVATION)), math.sin(math.radians(ELEVATION)), math.radians(azimuth)
        nearness = points @ np.array([across * math.cos(around), across * math.sin(around), up])
        order = np.argsort(nearness)
        shares = (nearness[order] - nearness.min()) / max(float(np.ptp(nearness)), 1e-9)
        colours = _fade(ROLE_COLOURS[Role.FOLLOWER], FARTHEST_OPACITY + (1.0 - FARTHEST_OPACITY) * shares)
        self.dots._offsets3d = tuple(points[order].T)
        self.dots.set_facecolor(colours)
        attitudes = self.run.body_state.get("quaternion")
        if attitudes is not None:
            self.arms.set_segments(self._make_arms(points[order], attitudes[frame, 0, order]))
            self.arms.set_color(np.repeat(colours, 2, axis=0))

    def _make_arms(self, points: Float64[np.ndarray, "N 3"], quaternions: NDArray[Any]) -> Float64[np.ndarray, "L 2 3"]:
        """Return the two lines of each drone's cross, in the plane of its rotors."""
        length = ARM_SHARE * self.width
        diagonals = length * np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0]]) / math.sqrt(2.0)
        arms = np.einsum("nij,aj->nai", rotation_matrices(quaternions), diagonals)
        segments = np.stack([points[:, None] - arms, points[:, None] + arms], axis=2)
        return np.asarray(segments.reshape(-1, 2, 3))


def get_space_positions(run: Trajectory) -> Float64[np.ndarray, "F N 3"]:
    """Return the positions of a run of one flock in space; for D = 2 the third coordinate is the height in its state.

    Raise InputError if there are no heights.
    """
    positions = run.positions[:, 0]
    if positions.shape[2] == 3:
        return np.asarray(positions)
    if "height" not in run.body_state:
        raise InputError("a film in space needs a flight with D = 3, or drones with a height; got D = 2")
    return np.concatenate([positions, run.body_state["height"][:, 0, :, None]], axis=2)


def rotation_matrices(quaternions: NDArray[Any]) -> Float64[np.ndarray, "N 3 3"]:
    """Return the rotation matrices of unit quaternions (N, 4), (x, y, z, w)."""
    x, y, z, w = np.asarray(quaternions, np.float64).T
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)),
        (2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)),
        (2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)),
    )
    return np.asarray(np.moveaxis(np.array(rows), 2, 0))


def _fade(colour: str, opacities: NDArray[Any]) -> Float64[np.ndarray, "L 4"]:
    """Return a colour with each of these opacities, as RGBA rows."""
    return np.column_stack([np.tile(to_rgb(colour), (len(opacities), 1)), np.clip(opacities, 0.0, 1.0)])


def _round_length(length: float) -> float:
    """Return 1, 2 or 5 times a power of ten, the nearest at or above a length."""
    power = 10.0 ** math.floor(math.log10(length))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= length * (1.0 - 1e-9))
