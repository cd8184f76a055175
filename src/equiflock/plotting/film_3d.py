"""Films of one flock in space: drones above the ground with attitudes, trails and links, seen by a turning camera."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64
from matplotlib.colors import to_rgb
from mpl_toolkits.mplot3d.art3d import Line3DCollection
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock.graph.radius_graph import radius_graph
from equiflock.plotting.film_camera import fit_windows
from equiflock.plotting.film_file import check_film, count_frames, write_frames
from equiflock.plotting.film_frame import FilmFrame, get_unit, make_layout
from equiflock.plotting.flock_picture import MAX_AGENTS_WITH_EDGES
from equiflock.plotting.palettes import colour_by_heading, get_palette
from equiflock.simulation.trajectory import Trajectory

PANEL_INCHES = 6.4, 5.2
TRAIL_SECONDS = 3.0
TRAIL_PARTS = 12
"""Segments of a trail, each fainter than the one before it."""
ARM_SHARE = 0.019
"""Length of a drawn arm, in widths of the window: far longer than that of a real drone, so that tilts are visible."""
ELEVATION, FIRST_AZIMUTH, TURN_PER_SECOND = 24.0, -62.0, 4.0
"""Camera angles in degrees, and degrees by which the camera turns per second of film."""
GRID_LINES = 10
"""Number of squares of the ground along each side."""
GROUND_SHARE = 1.15
"""Width of the ground over that of the flock."""
FARTHEST_OPACITY = 0.45
"""Opacity of the drone that is farthest from the camera; the nearest is opaque."""


def film_3d(
    run: Trajectory,
    path: str | os.PathLike[str],
    *,
    flock: int = 0,
    frames_per_second: int = 25,
    speed: float = 2.0,
    dots_per_inch: int = 120,
    theme: str = "dark",
    on_frame: Callable[[int, int], object] | None = None,
) -> Path:
    """Draw one flock of a flight in space, and write the film.

    Drones are crosses in their attitude, or dots if the body has none, coloured by their heading as seen from above;
    behind them are their trails, between them the edges of the communication graph, and below them their shadows on
    the ground, z = 0. The camera fits the flock and turns slowly. Below is the velocity variance. Raise InputError if
    the flight has neither three dimensions nor heights.

    Args:
        run: a flight with D = 3, or with the heights of drones in its body state.
        path: ends in .mp4, .webp or .gif; an existing film is replaced when the new one is complete.
        flock: index of the flock in the batch.
        frames_per_second: frame rate of the film.
        speed: simulated seconds per second of film.
        dots_per_inch: resolution; the film is 6.4 inches wide.
        theme: "dark" or "light", as on the live page.
        on_frame: called with (frames drawn, total frames) after every frame.
    """
    check_film(path, speed, frames_per_second, dots_per_inch)
    if not 0 <= flock < run.positions.shape[1]:
        raise InputError(f"flock must be from 0 to {run.positions.shape[1] - 1}; got {flock}")
    scene = SpaceScene(run[flock], dots_per_inch, theme)
    seconds = float(run.times[-1])
    count = count_frames(seconds / speed, frames_per_second)

    def draw(n: int) -> None:
        film_time = n / frames_per_second
        scene.draw(min(film_time * speed, seconds), FIRST_AZIMUTH + TURN_PER_SECOND * film_time)

    return write_frames(path, scene.frame.canvas, draw, count, frames_per_second, on_frame)


class SpaceScene:
    """Picture of a run of one flock in space, which `draw` updates to a time and an angle of the camera."""

    def __init__(self, run: Trajectory, dots_per_inch: int, theme: str = "dark") -> None:
        self.run, self.palette = run, get_palette(theme)
        self.points = get_space_positions(run)
        centres, widths = fit_windows([run], run.times, smoothing=len(run.times) // 10)
        self.centres, self.widths = centres[0], GROUND_SHARE * widths
        self.top = 1.03 * max(float(self.points[..., 2].max()), 0.3 * float(self.widths.max()))
        self.grid_step = _round_length(float(self.widths.max()) / GRID_LINES)

        width, height = (round(inches * dots_per_inch) for inches in PANEL_INCHES)
        layout = make_layout(1, width, height, legend_rows=1)
        figure = layout.make_figure(self.palette)
        N = self.points.shape[1]
        name = str(run.config.get("controller", "")).partition(":")[0]
        self.frame = FilmFrame(figure, layout, [run], [f"{name}, {N} drones" if name else f"{N} drones"], self.palette)
        # matplotlib does not declare the types of axes in space.
        box = layout.pictures[0]
        place = (-0.12, box.y0 / layout.height, 1.24, 1.06 * box.height / layout.height)
        axes: Any = figure.add_axes(place, projection="3d", computed_zorder=False)
        self.axes = axes
        axes.set_axis_off()
        axes.patch.set_visible(False)
        axes.set_proj_type("persp", focal_length=0.6)

        crowding = min(1.0, math.sqrt(100 / N)) * get_unit(1, width) * max(1.0, width / 640)
        ground = tuple(0.5 * np.array(to_rgb(self.palette.background)) + 0.5 * np.array(to_rgb(self.palette.hairline)))
        self.ground = axes.plot_surface(*np.zeros((3, 2, 2)), color=ground, shade=False, zorder=0)
        self.grid = self._add_lines(self.palette.hairline, 1.0, 1)
        self.edges = self._add_lines(self.palette.edge, crowding, 3)
        self.trails = self._add_lines(self.palette.edge, 1.6 * crowding, 4)
        self.arms = self._add_lines(self.palette.edge, 2.4 * crowding, 5)
        dots: dict[str, Any] = {"linewidths": 0, "depthshade": False}
        self.shadows = axes.scatter([], [], [], s=9 * crowding, c=self.palette.failed, alpha=0.5, zorder=2, **dots)
        self.dots = axes.scatter([], [], [], s=9 * crowding, c=self.palette.ink, zorder=6, **dots)
        for artist in axes.collections:
            artist.set_clip_box(box)
        axes.set_animated(True)
        self.frame.finish([axes])

    def _add_lines(self, colour: str, width: float, order: int) -> Any:
        """Add an empty collection of lines to the axes and return it."""
        lines = Line3DCollection(np.zeros((1, 2, 3)), colors=colour, linewidths=width, zorder=order)
        self.axes.add_collection3d(lines, autolim=False)
        return lines

    def draw(self, time: float, azimuth: float) -> None:
        """Draw the saved frame nearest to `time`, in seconds, seen from an azimuth in degrees."""
        frame = int(np.argmin(np.abs(self.run.times - time)))
        points, (x, y), width = self.points[frame], self.centres[frame], float(self.widths[frame])
        self.width = width
        self.axes.set_xlim(x - width / 2, x + width / 2)
        self.axes.set_ylim(y - width / 2, y + width / 2)
        self.axes.set_zlim(0.0, self.top)
        self.axes.set_box_aspect((1.0, 1.0, self.top / width), zoom=1.14)
        self.axes.view_init(ELEVATION, azimuth)

        self._draw_ground(x, y)
        if len(points) <= MAX_AGENTS_WITH_EDGES:
            pairs = np.unique(np.sort(radius_graph(self.run.flock(frame)).edges(0), axis=1), axis=0)
            self.edges.set_segments(points[pairs])
            # Long links are fainter, so that the nearest ones stand out.
            lengths = np.linalg.norm(points[pairs[:, 0]] - points[pairs[:, 1]], axis=1) / self.run.comm_radius
            colour = np.tile(to_rgb(self.palette.edge[:7]), (len(pairs), 1))
            self.edges.set_color(_fade(colour, 0.4 * (1.0 - lengths) + 0.08))
        self._draw_trails(frame)
        self._draw_drones(frame, azimuth)
        self.shadows._offsets3d = (points[:, 0], points[:, 1], np.zeros(len(points)))
        self.frame.draw(time, [frame], f"grid {self.grid_step:g} m")

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
        spans = np.maximum(np.diff(self.run.times[frames]), 1e-12)
        velocities = (segments[:, :, 1, :2] - segments[:, :, 0, :2]) / spans[:, None, None]
        colours = colour_by_heading(self.palette, velocities.reshape(-1, 2))
        self.trails.set_color(_fade(colours, np.repeat(self.palette.trail * (1.0 - ages), N)))

    def _draw_drones(self, frame: int, azimuth: float) -> None:
        """Draw the drones from the farthest to the nearest, which is opaque."""
        points = self.points[frame]
        across, up, around = math.cos(math.radians(ELEVATION)), math.sin(math.radians(ELEVATION)), math.radians(azimuth)
        nearness = points @ np.array([across * math.cos(around), across * math.sin(around), up])
        order = np.argsort(nearness)
        shares = (nearness[order] - nearness.min()) / max(float(np.ptp(nearness)), 1e-9)
        headings = np.asarray(self.run.velocities[frame, 0, order, :2], np.float64)
        opacities = FARTHEST_OPACITY + (1.0 - FARTHEST_OPACITY) * shares
        colours = _fade(colour_by_heading(self.palette, headings), opacities)
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


def _fade(colours: Float64[np.ndarray, "L 3"], opacities: NDArray[Any]) -> Float64[np.ndarray, "L 4"]:
    """Return colours with these opacities, as RGBA rows."""
    return np.column_stack([colours, np.clip(opacities, 0.0, 1.0)])


def _round_length(length: float) -> float:
    """Return 1, 2 or 5 times a power of ten, the nearest at or above a length."""
    power = 10.0 ** math.floor(math.log10(length))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= length * (1.0 - 1e-9))
