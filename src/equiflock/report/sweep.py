"""A sweep as heat maps: one panel for each controller and each value of the third axis."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from equiflock.experiments.sweep import AXES, METRICS, summary
from equiflock.report.style import INK
from equiflock.runtime.files import atomic_write

MISSING = "#d9d9d9"
MOST_COLUMNS = 4


def draw_sweep(table: pd.DataFrame, metric: str, path: str | os.PathLike[str]) -> Path:
    """Draw the medians of a metric over the two axes of most values; grey where no flocks could be drawn."""
    found = summary(table)
    across, down, rest = _axes(found)
    # A panel for each controller and value of the third axis, in rows of at most MOST_COLUMNS.
    panels = list(found.groupby(["controller", rest], dropna=False, sort=False))
    columns = min(len(panels), MOST_COLUMNS)
    rows = -(-len(panels) // columns)
    width = 1.6 + 0.75 * found[across].nunique()
    height = 1.3 + 0.5 * found[down].nunique(dropna=False)
    figure = Figure(figsize=(max(width, 3.6) * columns, max(height, 2.4) * rows), dpi=130, layout="constrained")
    # One scale of colours for all panels, so that controllers can be compared.
    norm = _norm(found[metric])
    grid = figure.subplots(rows, columns, squeeze=False)
    image = None
    for axes, ((controller, value), part) in zip(grid.flat, panels, strict=False):
        values = part.pivot(index=down, columns=across, values=metric)
        image = axes.imshow(np.ma.masked_invalid(values), norm=norm, cmap="viridis", aspect="auto", origin="lower")
        axes.set_facecolor(MISSING)
        axes.set_xticks(range(values.shape[1]), [_label(x) for x in values.columns])
        axes.set_yticks(range(values.shape[0]), [_label(y) for y in values.index])
        axes.set(xlabel=AXES[across], ylabel=AXES[down])
        fixed = f", {AXES[rest]} {_label(value)}" if found[rest].nunique(dropna=False) > 1 else ""
        axes.set_title(f"{controller}{fixed}", fontsize="medium", color=INK)
        # The number itself in every cell, in an ink that can be read on its colour.
        for (y, x), number in np.ndenumerate(values.to_numpy()):
            bright = bool(np.isfinite(number)) and norm(number) < 0.6
            axes.text(x, y, _number(number), ha="center", va="center", color="white" if bright else INK, fontsize=8)
    # The last row may have fewer panels than columns.
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    assert image is not None
    bar = figure.colorbar(image, ax=grid, shrink=0.9, format="{x:g}")
    figure.suptitle(METRICS[metric], color=INK)
    if isinstance(norm, LogNorm):
        bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        bar.ax.yaxis.set_minor_formatter(NullFormatter())
    with atomic_write(path) as scratch:
        FigureCanvasAgg(figure).print_png(str(scratch))
    return Path(path)


def _axes(found: pd.DataFrame) -> tuple[str, str, str]:
    """The three axes of a sweep, agents, radius and hops, that of most values first."""
    across, down, rest = sorted(AXES, key=lambda axis: -found[axis].nunique(dropna=False))
    return across, down, rest


def _norm(values: pd.Series) -> Normalize:
    """A scale of colours, logarithmic where positive numbers differ by more than a factor of 5."""
    least, most = values.min(), values.max()
    # No number at all: any scale will do.
    if not np.isfinite(least):
        return Normalize(0.0, 1.0)
    return LogNorm(least, most) if 0.0 < 5 * least < most else Normalize(least, most if most > least else least + 1.0)


def _label(value: Any) -> str:
    return "as built" if value is None or np.isnan(value) else f"{value:g}"


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3g}"
