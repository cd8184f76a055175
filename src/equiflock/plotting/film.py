"""Films of flights in the look of the live page, as .mp4, .webp or .gif, with one panel per run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from equiflock._runtime.checks import InputError
from equiflock.plotting.film_camera import compute_window_width as compute_window_width
from equiflock.plotting.film_camera import fit_windows
from equiflock.plotting.film_file import check_film, count_frames, write_frames
from equiflock.plotting.film_frame import (
    FilmFrame,
    compute_film_end,
    count_columns,
    count_legend_rows,
    get_unit,
    list_legend,
    make_layout,
)
from equiflock.plotting.flock_picture import FlockPicture, View
from equiflock.plotting.palettes import get_palette
from equiflock.simulation.trajectory import Trajectory

PANEL_INCHES = 4.8
SMOOTH_SECONDS = 0.5
"""Seconds of film over which the camera's zoom is smooth."""
BORDER = 20.0
"""Distance of the outermost agents from the border of a panel, in units."""


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
    theme: str = "dark",
    on_frame: Callable[[int, int], object] | None = None,
) -> Path:
    """Draw one flock of each run, side by side to the same scale, and write the film.

    Agents are darts with trails, coloured by direction of flight or, if there are several groups, by group; leaders
    have rings, failed agents are grey, obstacles are purple discs. Lines are the edges of the communication graph.
    Below is the velocity variance of each run. The camera fits all agents of all runs; a note gives the grid's spacing
    in communication radii R. Flocks in three dimensions are seen from above.

    Args:
        runs: trajectories of the same duration.
        path: ends in .mp4, .webp or .gif; an existing film is replaced when the new one is complete.
        titles: one per run; defaults to the controllers' names.
        flock: index of the flock in the batch.
        frames_per_second: frame rate of the film.
        speed: simulated seconds per second of film.
        dots_per_inch: resolution; a panel is 4.8 inches wide. More than three panels are in several rows.
        window: width of the visible area, in units of length; by default it follows the extent of the flocks.
        theme: "dark" or "light", as on the live page.
        on_frame: called with (frames drawn, total frames) after every frame.
    """
    check_film(path, speed, frames_per_second, dots_per_inch)
    palette = get_palette(theme)
    if not runs or len({float(run.times[-1]) for run in runs}) > 1:
        durations = ", ".join(f"{float(run.times[-1]):g}" for run in runs) or "no flight"
        raise InputError(f"a film needs one or more flights of the same duration in seconds; got {durations}")
    for run in runs:
        if not 0 <= flock < run.positions.shape[1]:
            raise InputError(f"flock must be from 0 to {run.positions.shape[1] - 1}; got {flock}")
    runs = [run[flock] for run in runs]
    names = titles or [str(run.config.get("controller", "")) for run in runs]

    size = round(PANEL_INCHES * dots_per_inch)
    columns = count_columns(len(runs))
    unit = get_unit(columns, size)
    legend_rows = count_legend_rows(columns * size / unit, len(list_legend(runs, unit, palette)))
    layout = make_layout(len(runs), size, size, legend_rows)
    figure = layout.make_figure(palette)
    frame = FilmFrame(figure, layout, runs, names, palette)
    pictures = [FlockPicture(figure, *cell, palette, unit) for cell in zip(layout.pictures, runs, strict=True)]
    frame.finish([artist for picture in pictures for artist in picture.artists])

    seconds = compute_film_end(runs)
    count = count_frames(seconds / speed, frames_per_second)
    times = np.minimum(np.arange(count) / frames_per_second * speed, seconds)
    centres, widths = fit_windows(runs, times, round(SMOOTH_SECONDS * frames_per_second))
    if window is not None:
        widths = np.full(count, window)
    scales = (size - 2 * BORDER * unit if size > 4 * BORDER * unit else size) / widths
    from_above = "from above, " if runs[0].positions.shape[3] == 3 else ""

    def draw(n: int) -> None:
        for picture, centre in zip(pictures, centres[:, n], strict=True):
            picture.update(float(times[n]), View(centre, float(scales[n])))
        spacing = pictures[0].get_grid_spacing(pictures[0].view)
        note = f"{from_above}grid {spacing if spacing > 1 else ''}R"
        frame.draw(float(times[n]), [picture.get_frame(float(times[n])) for picture in pictures], note)

    return write_frames(path, frame.canvas, draw, count, frames_per_second, on_frame)
