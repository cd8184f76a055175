"""Pictures of flocks at single times."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from equiflock.report.film import PANEL_INCHES, FlockPanel, compute_window_width
from equiflock.runtime.files import atomic_write
from equiflock.simulation.trajectory import Trajectory


def draw_snapshots(rows: Sequence[Sequence[tuple[Trajectory, str, float]]], path: str | os.PathLike[str]) -> Path:
    """Draw a grid of flocks, all to the same scale, and write it as a PNG file.

    Args:
        rows: the grid, with rows of equal length; each cell is a run of a single flock, a title and a time in seconds.
        path: the PNG file.
    """
    # In inches: square panels, each with room for a title above it.
    size, head = 0.8 * PANEL_INCHES, 0.6
    height = (size + head) * len(rows)
    figure = Figure(figsize=(size * len(rows[0]), height), dpi=110)
    canvas = FigureCanvasAgg(figure)
    grid = figure.subplots(len(rows), len(rows[0]), squeeze=False)
    figure.subplots_adjust(
        left=0.005, right=0.995, bottom=0.05 / height, top=1 - head / height, wspace=0.02, hspace=head / size
    )
    # One window for all panels, so that flocks are comparable.
    window = compute_window_width([run for row in rows for run, _, _ in row])
    for axes_row, row in zip(grid, rows, strict=True):
        for axes, (run, title, time) in zip(axes_row, row, strict=True):
            FlockPanel(axes, run, title, window).draw(time)
    with atomic_write(path) as scratch:
        canvas.print_png(str(scratch))
    return Path(path)
