"""Films of flights, as .mp4 or .gif, with one panel per run, and pictures of flocks at single times."""

from __future__ import annotations

import errno
import math
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from imageio_ffmpeg import get_ffmpeg_exe
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import MultipleLocator
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, check_count, check_positive
from equiflock._runtime.files import atomic_write, check_writable
from equiflock.flock import Condition, Flock, Role
from equiflock.graph.radius_graph import radius_graph
from equiflock.observations.orbit import find_observed_edges
from equiflock.outcomes import Outcome
from equiflock.plotting.figures import write_png
from equiflock.plotting.style import (
    ARROW_COLOUR,
    EDGE_COLOUR,
    FAILED_COLOUR,
    FAINT_COLOUR,
    GRID_COLOUR,
    ROLE_COLOURS,
    TEXT_COLOUR,
    get_group_colour,
)
from equiflock.scenarios.obstacle_shapes import obstacle_disks
from equiflock.simulation.metrics import component_count, velocity_variance
from equiflock.simulation.trajectory import Trajectory

PANEL_INCHES = 4.8
CODECS = {
    ".mp4": ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "23", "-preset", "slow", "-movflags", "+faststart"],
    # One palette for the whole film, computed from its frames.
    ".gif": ["-vf", "split[a][b];[a]palettegen=max_colors=64[p];[b][p]paletteuse=dither=none"],
}
FORMATS = tuple(CODECS)
MAX_AGENTS_WITH_EDGES = 5_000
"""Largest flock whose edges are drawn; with more agents the lines would hide them."""


def film(
    runs: Sequence[Trajectory],
    path: str | os.PathLike[str],
    *,
    titles: Sequence[str] | None = None,
    flock: int = 0,
    frames_per_second: int = 30,
    speed: float = 0.5,
    dots_per_inch: int = 110,
    window: float | None = None,
    on_frame: Callable[[int, int], object] | None = None,
) -> Path:
    """Draw one flock of each run, side by side to the same scale, and write the film.

    Followers are orange dots with blue velocity arrows, or have a colour per group if there are several; leaders are
    green, failed agents grey, obstacle agents purple around the disk of their obstacle. Light lines are the edges of
    the communication graph. The camera follows the median position; a note gives the grid's spacing in communication
    radii R. Flocks in three dimensions are seen from above.

    Args:
        runs: trajectories of the same duration.
        path: ends in .mp4 or .gif; an existing film is replaced when the new one is complete.
        titles: one per run; defaults to the controllers' names.
        flock: index of the flock in the batch.
        frames_per_second: frame rate of the film.
        speed: simulated seconds per second of film.
        dots_per_inch: resolution; a panel is 4.8 inches wide.
        window: width of the visible area, in units of length; defaults to `compute_window_width(runs)`.
        on_frame: called with (frames drawn, total frames) after every frame.
    """
    check_film(path, speed, frames_per_second, dots_per_inch)
    if not runs or len({float(run.times[-1]) for run in runs}) > 1:
        durations = ", ".join(f"{float(run.times[-1]):g}" for run in runs) or "no flight"
        raise InputError(f"a film needs one or more flights of the same duration in seconds; got {durations}")
    for run in runs:
        if not 0 <= flock < run.positions.shape[1]:
            raise InputError(f"flock must be from 0 to {run.positions.shape[1] - 1}; got {flock}")
    runs = [run[flock] for run in runs]
    names = titles or [str(run.config.get("controller", "")) for run in runs]
    if window is None:
        window = compute_window_width(runs)
    # Square panels side by side, with room for titles of two lines.
    figure = Figure(figsize=(PANEL_INCHES * len(runs), PANEL_INCHES + 0.55), dpi=dots_per_inch)
    canvas = FigureCanvasAgg(figure)
    grid = figure.subplots(1, len(runs), squeeze=False)[0]
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.01, top=0.88, wspace=0.02)
    panels = [FlockPanel(*cell, window) for cell in zip(grid, runs, names, strict=True)]

    # Stop the film when the last flight has ended.
    ended = max(int(run.steps[0]) * run.time_step for run in runs)
    seconds = min(float(runs[0].times[-1]), ended)

    def draw(film_time: float) -> None:
        for panel in panels:
            panel.draw(min(film_time * speed, seconds))

    return write_frames(path, canvas, draw, seconds / speed, frames_per_second, on_frame)


def write_frames(
    path: str | os.PathLike[str],
    canvas: FigureCanvasAgg,
    draw: Callable[[float], object],
    film_seconds: float,
    frames_per_second: int,
    on_frame: Callable[[int, int], object] | None,
) -> Path:
    """Write a film of the canvas, which `draw` updates to a time of the film, in seconds; the last frame is its end.

    `on_frame` is called with (frames drawn, total frames) after every frame.
    """
    count = max(math.ceil(film_seconds * frames_per_second - 1e-6), 1) + 1  # includes the final state
    # The codec requires even numbers of pixels.
    width, height = (int(v) // 2 * 2 for v in canvas.get_width_height())
    with atomic_write(path) as scratch, _open_encoder(scratch, width, height, frames_per_second) as send:
        for n in range(count):
            draw(n / frames_per_second)
            canvas.draw()
            image = np.asarray(canvas.buffer_rgba())[:height, :width, :3]
            send(np.ascontiguousarray(image).tobytes())
            if on_frame is not None:
                on_frame(n + 1, count)
    return Path(path)


def check_film(path: str | os.PathLike[str], speed: float, frames_per_second: int, dots_per_inch: int) -> None:
    """Raise InputError if the suffix, a number or the directory of a film is invalid."""
    if Path(path).suffix not in FORMATS:
        raise InputError(f"the file name of a film must end in {' or '.join(FORMATS)}; got {Path(path).name!r}")
    check_positive("speed", speed)
    check_count("frames_per_second", frames_per_second)
    if not 20 <= dots_per_inch <= 600:
        raise InputError(f"dots_per_inch must be from 20 to 600; got {dots_per_inch}")
    check_writable(path)


@contextmanager
def _open_encoder(path: Path, width: int, height: int, frames_per_second: int) -> Iterator[Callable[[bytes], object]]:
    """Start ffmpeg, which writes to `path`, and yield a function that sends it a frame (RGB bytes).

    Raise OSError at the end of the block if ffmpeg failed. The process has ended when the block is left.
    """
    source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(frames_per_second), "-i", "-"]
    command = [get_ffmpeg_exe(), "-v", "error", "-y", *source, *CODECS[path.suffix], str(path)]
    # In a new session, Ctrl-C in the terminal does not reach ffmpeg; this process handles it.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    stdin = cast(IO[bytes], process.stdin)
    try:
        # If ffmpeg exits early, the pipe breaks; its exit code is checked below.
        with suppress(BrokenPipeError):
            yield lambda frame: stdin.write(frame)
        _, errors = process.communicate()
        if process.returncode != 0:
            is_full = b"No space left" in errors
            reason = errors.decode(errors="replace").strip().splitlines() or ["ffmpeg failed"]
            raise OSError(errno.ENOSPC if is_full else errno.EIO, f"the film could not be written: {reason[-1]}")
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stderr):
            with suppress(OSError):
                cast(IO[bytes], pipe).close()


class FlockPanel:
    """Picture of a run of one flock, which `draw` updates to a time; `window` is the width of the visible area."""

    def __init__(self, axes: Axes, run: Trajectory, title: str, window: float) -> None:
        self.axes, self.run, self.title, self.window = axes, run, title, window
        self.variance = velocity_variance(run)[:, 0]
        self.component_counts = component_count(run)[:, 0].astype(int)
        self._style_axes()
        # Larger flocks get smaller dots, thinner lines and shorter arrows.
        N = run.positions.shape[2]
        crowding = min(1.0, math.sqrt(100 / N))
        self.edges = LineCollection([], colors=EDGE_COLOUR, linewidths=0.8 * crowding, zorder=1)
        axes.add_collection(self.edges)
        x, y = _get_plane_positions(run, 0).T
        arrows: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1.0, "width": 0.0035 * crowding}
        self.arrows = axes.quiver(x, y, np.zeros(N), np.zeros(N), color=ARROW_COLOUR, zorder=2, **arrows)
        shade = {"color": ROLE_COLOURS[Role.OBSTACLE], "alpha": 0.15, "linewidth": 0, "zorder": 0.5}
        self.disks = [Circle(centre, radius, **shade) for *centre, radius in obstacle_disks(run.flock(0)).tolist()]
        for disk in self.disks:
            axes.add_patch(disk)
        kinds = _get_kind_colours(run)
        self.colours = np.array([to_rgba(kinds[kind]) for kind in _list_agent_kinds(run)])
        size = max(26.0 * crowding**1.5, 1.5)
        self.dots = axes.scatter(x, y, s=size, c=self.colours, zorder=3, linewidths=0)
        # For 100 agents, initial arrows are at most 0.16 windows long and on average at most 0.08.
        speeds = np.sqrt(np.square(run.velocities[0, 0]).sum(axis=-1))[run.roles[0] != Role.OBSTACLE]
        typical = max(float(speeds.max()), 2.0 * float(speeds.mean()), 1e-9)
        self.arrow_length = 0.16 * crowding**1.2 * window / typical
        if run.conditions.any():
            kinds["failed"] = FAILED_COLOUR
        if len(kinds) > 1:
            marks = [axes.scatter([], [], s=26, c=colour, linewidths=0, label=kind) for kind, colour in kinds.items()]
            axes.legend(handles=marks, loc="lower left", fontsize=8, frameon=False, handletextpad=0.1)

    def _style_axes(self) -> None:
        """Add the grid, a note on its spacing, and the label of the outcome."""
        axes, run = self.axes, self.run
        axes.set_aspect("equal")
        # About twelve grid lines, spaced by a multiple of the communication radius.
        spacing = max(1, round(self.window / run.comm_radius / 12))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MultipleLocator(run.comm_radius * spacing))
        note = f"grid: {spacing if spacing > 1 else ''}R" + ("; seen from above" if run.positions.shape[3] == 3 else "")
        axes.text(0.985, 0.012, note, transform=axes.transAxes, ha="right", fontsize=8, color=FAINT_COLOUR)
        background = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 2.0}
        self.outcome_label = axes.text(
            0.5, 0.98, "", transform=axes.transAxes, ha="center", va="top", fontsize=10, bbox=background, zorder=4
        )
        axes.grid(color=GRID_COLOUR, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0, labelbottom=False, labelleft=False)
        for spine in axes.spines.values():
            spine.set_color("#cccccc")

    def draw(self, time: float) -> None:
        """Show the saved frame nearest to `time`, in seconds, and the outcome if the flight has ended by then."""
        frame = int(np.argmin(np.abs(self.run.times - time)))
        positions = _get_plane_positions(self.run, frame)
        # The camera follows the median of the working agents, which stray agents do not move.
        now = self.run.flock(frame)
        middle = np.median(positions[now.working[0] if now.working.any() else now.roles[0] != Role.OBSTACLE], axis=0)
        half = self.window / 2
        self.axes.set_xlim(middle[0] - half, middle[0] + half)
        self.axes.set_ylim(middle[1] - half, middle[1] + half)
        for disk, (*centre, _) in zip(self.disks, obstacle_disks(now).tolist(), strict=True):
            disk.set_center(centre)  # users can move obstacles on the live page
        self.dots.set_offsets(positions)
        working = (now.conditions[0] == Condition.WORKING)[:, None]
        self.dots.set_facecolor(np.where(working, self.colours, to_rgba(FAILED_COLOUR)).tolist())
        self.arrows.set_offsets(positions)
        self.arrows.set_UVC(*(now.velocities[0, :, :2] * self.arrow_length).T)
        if len(positions) <= MAX_AGENTS_WITH_EDGES:
            self.edges.set_segments(list(positions[_find_edges(now, self.run.config.get("obstacles", "nearest"))]))
        # Allow half a step for rounding of times.
        ended = time >= (int(self.run.steps[0]) - 0.5) * self.run.time_step
        outcome = self.run.outcome[0]
        self.outcome_label.set_text(outcome.message if ended and outcome != Outcome.TIME_UP else "")
        self.axes.set_title(
            f"{self.title}\n$t$ = {self.run.times[frame]:.2f} s     velocity variance {self.variance[frame]:.3f}"
            f"     {self.component_counts[frame]} component{'s' if self.component_counts[frame] != 1 else ''}",
            fontsize=11,
            color=TEXT_COLOUR,
        )


def _list_agent_kinds(run: Trajectory) -> list[str]:
    """Return the name of each agent in the legend: its role or, for followers of several groups, its group."""
    roles, groups = run.roles[0], run.groups[0]
    has_groups = len(np.unique(groups[roles == Role.FOLLOWER])) > 1
    return [
        f"group {group}" if has_groups and role == Role.FOLLOWER else Role(role).name.lower()
        for role, group in zip(roles.tolist(), groups.tolist(), strict=True)
    ]


def _get_kind_colours(run: Trajectory) -> dict[str, str]:
    """Return the colour of each name of `_list_agent_kinds` that is present, groups first."""
    present = set(_list_agent_kinds(run))
    colours = {f"group {group}": get_group_colour(group) for group in np.unique(run.groups[0]).tolist()}
    colours |= {role.name.lower(): ROLE_COLOURS[role] for role in Role}
    return {kind: colour for kind, colour in colours.items() if kind in present}


def _get_plane_positions(run: Trajectory, frame: int) -> Float64[np.ndarray, "N 2"]:
    return np.asarray(run.positions[frame, 0, :, :2])


def _find_edges(flock: Flock, obstacles: str) -> NDArray[Any]:
    """Return the edges to draw as pairs of agents (E, 2), each once.

    `obstacles` is the flight's rule: "nearest" has edges to the nearest obstacle agent only, "all" to all in range.
    """
    edges = find_observed_edges(flock) if obstacles == "nearest" else radius_graph(flock).edges(0)
    return np.unique(np.sort(edges, axis=1), axis=0)


def compute_window_width(runs: Sequence[Trajectory]) -> float:
    """Return the width of a window, centred on the median agent, that shows all agents in every frame.

    For a flock that disperses to twice its initial extent, it shows all agents at the start, and most of them later.
    Each run has a single flock.
    """
    widths = [1e-9]
    for run in runs:
        positions = run.positions[:, 0, :, :2]
        flock = positions[:, run.roles[0] != Role.OBSTACLE]
        # Distance of every agent, including obstacle agents, from the median of the flock in each frame.
        reach = np.abs(positions - np.median(flock, axis=1, keepdims=True)).max(axis=-1)
        all_agents, most_agents = reach.max(), np.quantile(np.quantile(reach, 0.9, axis=1), 0.7)
        widths.append(2.15 * float(all_agents if all_agents < 2 * reach[0].max() else max(reach[0].max(), most_agents)))
    return max(widths)


def draw_snapshots(rows: Sequence[Sequence[tuple[Trajectory, str, float]]], path: str | os.PathLike[str]) -> Path:
    """Draw a grid of flocks, all to the same scale, and write it as a PNG file.

    `rows` have equal lengths; each cell is a run of a single flock, a title and a time in seconds.
    """
    # In inches: square panels, each with room for a title above it.
    size, head = 0.8 * PANEL_INCHES, 0.6
    height = (size + head) * len(rows)
    figure = Figure(figsize=(size * len(rows[0]), height), dpi=110)
    grid = figure.subplots(len(rows), len(rows[0]), squeeze=False)
    figure.subplots_adjust(
        left=0.005, right=0.995, bottom=0.05 / height, top=1 - head / height, wspace=0.02, hspace=head / size
    )
    # One window for all panels, so that flocks are comparable.
    window = compute_window_width([run for row in rows for run, _, _ in row])
    for axes_row, row in zip(grid, rows, strict=True):
        for axes, (run, title, time) in zip(axes_row, row, strict=True):
            FlockPanel(axes, run, title, window).draw(time)
    return write_png(figure, path)
