"""Films of flights: mp4 or gif, one panel per run."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from imageio_ffmpeg import write_frames
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from numpy.typing import NDArray

from equiflock.files import written_whole
from equiflock.graph import radius_graph
from equiflock.metrics import component_count, velocity_variance
from equiflock.report.style import ARROW_COLOUR, EDGE_COLOUR, GRID, INK, ROLE_COLOURS
from equiflock.trajectory import Trajectory
from equiflock.types import Flock, InputError, Role, check_count, check_positive

FORMATS = (".mp4", ".gif")
PANEL_INCHES = 4.8
CODECS: dict[str, dict[str, Any]] = {
    ".mp4": {
        "codec": "libx264",
        "pix_fmt_out": "yuv420p",
        "output_params": ["-crf", "23", "-preset", "slow"],
    },
    # One palette for the whole film, made from its own colours.
    ".gif": {
        "codec": "gif",
        "pix_fmt_out": "pal8",
        "output_params": ["-vf", "split[a][b];[a]palettegen=max_colors=64[p];[b][p]paletteuse=dither=none"],
    },
}


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
    """Draw one flock of each run, side by side on the same scale, and write the film.

    Agents are orange dots with blue velocity arrows, light lines join those who hear each other; leaders are green,
    obstacle agents purple. The camera follows the middle of the flock; the grid has the communication radius as
    its unit. Flocks in space are seen from above.

    Args:
        runs: trajectories of the same duration.
        path: ends in .mp4 or .gif; an existing film is replaced once the new one is whole.
        titles: one per run; the controllers' names if left out.
        flock: which flock of the batch.
        frames_per_second: of the film.
        speed: simulated seconds per second of film.
        dots_per_inch: each panel is 4.8 inches wide.
        window: the width of what is seen, in units of length; chosen for the runs by `window_for` if left out.
        on_frame: called with (frames drawn, frames in all), for progress.
    """
    target = Path(path)
    if target.suffix not in FORMATS:
        raise InputError(f"a film's name must end in {' or '.join(FORMATS)}; got {target.name!r}")
    check_positive("speed", speed)
    check_count("frames_per_second", frames_per_second)
    if not runs or len({float(run.times[-1]) for run in runs}) > 1:
        raise InputError("a film needs flights of the same duration, at least one")
    for run in runs:
        if not 0 <= flock < run.positions.shape[1]:
            raise InputError(f"flock must be from 0 to {run.positions.shape[1] - 1}; got {flock}")
    names = titles or [str(run.config.get("controller", "")) for run in runs]
    if window is None:
        window = window_for(runs, flock)
    figure = Figure(figsize=(PANEL_INCHES * len(runs), PANEL_INCHES + 0.55), dpi=dots_per_inch)
    canvas = FigureCanvasAgg(figure)
    grid = figure.subplots(1, len(runs), squeeze=False)[0]
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.01, top=0.88, wspace=0.02)
    panels = [_Panel(*part, flock, window) for part in zip(grid, runs, names, strict=True)]

    seconds = float(runs[0].times[-1])
    count = max(round(seconds / speed * frames_per_second), 1) + 1
    width, height = (int(v) // 2 * 2 for v in canvas.get_width_height())
    with written_whole(target) as scratch, closing(_writer(scratch, (width, height), frames_per_second)) as writer:
        for n in range(count):
            for panel in panels:
                panel.draw(min(n / frames_per_second * speed, seconds))
            canvas.draw()
            image = np.asarray(canvas.buffer_rgba())[:height, :width, :3]
            writer.send(np.ascontiguousarray(image))
            if on_frame is not None:
                on_frame(n + 1, count)
    return target


def _writer(path: Path, size: tuple[int, int], frames_per_second: int) -> Generator[None, Any, None]:
    writer: Generator[None, Any, None] = write_frames(
        str(path), size, fps=frames_per_second, macro_block_size=2, quality=None, **CODECS[path.suffix]
    )
    writer.send(None)
    return writer


class _Panel:
    """One run's picture, updated frame by frame."""

    def __init__(self, axes: Axes, run: Trajectory, title: str, flock: int, window: float) -> None:
        self.axes, self.run, self.flock, self.window = axes, run, flock, window
        self.variance = velocity_variance(run)[:, flock]
        self.groups = component_count(run)[:, flock].astype(int)
        self.title = title
        axes.set_aspect("equal")
        axes.xaxis.set_major_locator(MultipleLocator(run.radius * max(1, round(window / 12))))
        axes.yaxis.set_major_locator(MultipleLocator(run.radius * max(1, round(window / 12))))
        axes.grid(color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0, labelbottom=False, labelleft=False)
        for spine in axes.spines.values():
            spine.set_color("#cccccc")
        self.edges = LineCollection([], colors=EDGE_COLOUR, linewidths=0.8, zorder=1)
        axes.add_collection(self.edges)
        N = run.positions.shape[2]
        size = float(np.clip(2200 / N, 2, 26))
        colours = [ROLE_COLOURS[Role(role)] for role in run.roles[flock].tolist()]
        x, y = _plane(run, 0, flock).T
        self.arrows = axes.quiver(
            x,
            y,
            np.zeros(N),
            np.zeros(N),
            color=ARROW_COLOUR,
            angles="xy",
            scale_units="xy",
            scale=1.0,
            width=0.0035,
            zorder=2,
        )
        self.dots = axes.scatter(x, y, s=size, c=colours, zorder=3, linewidths=0)
        # Arrows as long as a sixth of the window for the fastest agent at the start.
        speeds = np.sqrt(np.square(run.velocities[0, flock]).sum(axis=-1))
        self.arrow_length = 0.16 * window / max(float(speeds.max()), 1e-9)

    def draw(self, time: float) -> None:
        frame = int(np.argmin(np.abs(self.run.times - time)))
        places = _plane(self.run, frame, self.flock)
        middle = np.median(places, axis=0)
        half = self.window / 2
        self.axes.set_xlim(middle[0] - half, middle[0] + half)
        self.axes.set_ylim(middle[1] - half, middle[1] + half)
        now = self.run.flock(frame)[self.flock]
        self.dots.set_offsets(places)
        self.arrows.set_offsets(places)
        self.arrows.set_UVC(*(now.velocities[0, :, :2] * self.arrow_length).T)
        self.edges.set_segments(list(places[_pairs(now, self.run.radius)]))
        self.axes.set_title(
            f"{self.title}\n$t$ = {self.run.times[frame]:.2f} s     velocity variance {self.variance[frame]:.3f}"
            f"     {self.groups[frame]} group{'s' if self.groups[frame] > 1 else ''}",
            fontsize=11,
            color=INK,
        )


def _plane(run: Trajectory, frame: int, flock: int) -> Float64[np.ndarray, "N 2"]:
    return np.asarray(run.positions[frame, flock, :, :2])


def _pairs(flock: Flock, radius: float) -> NDArray[Any]:
    """Each edge once."""
    edges = np.sort(radius_graph(flock, radius).edges(0), axis=1)
    return np.unique(edges, axis=0)


def window_for(runs: Sequence[Trajectory], flock: int) -> float:
    """A width that shows the whole flock at the start, and most of it, should it burst, for most of the time."""
    widths = []
    for run in runs:
        places = run.positions[:, flock, :, :2]
        reach = np.abs(places - np.median(places, axis=1, keepdims=True)).max(axis=-1)
        widths.append(2.15 * max(reach[0].max(), np.quantile(np.quantile(reach, 0.9, axis=1), 0.7)))
    return float(max(*widths, 1e-9))
