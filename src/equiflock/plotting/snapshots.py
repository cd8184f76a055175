"""Pictures of flocks at single times, in the look of the live page's light theme."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from matplotlib.text import Text
from matplotlib.transforms import Bbox, IdentityTransform

from equiflock.plotting.figures import write_png
from equiflock.plotting.film_camera import fit_windows
from equiflock.plotting.film_frame import Layout, get_unit
from equiflock.plotting.flock_picture import FlockPicture, View
from equiflock.plotting.palettes import PALETTES
from equiflock.simulation.metrics import component_count
from equiflock.simulation.trajectory import Trajectory

PANEL, HEAD, BORDER = 400, 40, 20
"""Width of a panel in pixels, and in units the height of its title and the distance of agents from its border."""


def draw_snapshots(rows: Sequence[Sequence[tuple[Trajectory, str, float]]], path: str | os.PathLike[str]) -> Path:
    """Draw a grid of flocks, all to the same scale, and write it as a PNG file.

    `rows` have equal lengths; each cell is a run of a single flock, a title and a time in seconds.
    """
    palette, columns = PALETTES["light"], len(rows[0])
    unit = get_unit(columns, PANEL)
    head = round(HEAD * unit)
    height = (PANEL + head) * len(rows)
    nowhere = Bbox.null()
    figure = Layout(unit, PANEL * columns, height, (), nowhere, nowhere).make_figure(palette)
    cells = [(across, down, *cell) for down, row in enumerate(rows) for across, cell in enumerate(row)]
    # One width for all panels, so that flocks are comparable.
    windows = [fit_windows([run], np.array([time])) for _, _, run, _, time in cells]
    scale = (PANEL - 2 * BORDER * unit) / max(float(widths[0]) for _, widths in windows)
    for (across, down, run, title, time), (centres, _) in zip(cells, windows, strict=True):
        top = height - down * (PANEL + head) - head
        box = Bbox.from_extents(across * PANEL, top - PANEL, (across + 1) * PANEL, top)
        picture = FlockPicture(figure, box, run, palette, unit)
        picture.update(time, View(centres[0, 0], scale))
        for artist in picture.artists:
            artist.set_animated(False)
        count = int(component_count(run)[picture.get_frame(time), 0])
        notes = (title, f"t = {time:.2f} s, {count} component{'s' * (count != 1)}")
        for text, colour, drop, size in ((notes[0], palette.text, 7, 14), (notes[1], palette.faint, 24, 12)):
            note = Text(
                box.x0 + 8 * unit, top + (HEAD - drop) * unit, text, color=colour, fontsize=size * unit, va="top"
            )
            note.set_transform(IdentityTransform())
            figure.add_artist(note)
    return write_png(figure, path)


def draw_image(run: Trajectory, size: int = PANEL) -> UInt8[np.ndarray, "size size 3"]:
    """Return a square picture of the last frame of a run of a single flock, with trails."""
    palette, time, unit = PALETTES["light"], float(run.times[-1]), get_unit(1, size)
    nowhere, box = Bbox.null(), Bbox.from_bounds(0, 0, size, size)
    figure = Layout(unit, size, size, (), nowhere, nowhere).make_figure(palette)
    centres, widths = fit_windows([run], np.array([time]))
    picture = FlockPicture(figure, box, run, palette, unit)
    picture.update(time, View(centres[0, 0], (size - 2 * BORDER * unit) / float(widths[0])))
    for artist in picture.artists:
        artist.set_animated(False)
    canvas: Any = figure.canvas
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
