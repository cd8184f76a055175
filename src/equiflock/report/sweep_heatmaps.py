"""Heat maps of a sweep: one panel per controller and combination of values of the remaining axes."""

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

from equiflock.experiments.sweep import AXES, METRICS, list_axes, summarize_sweep
from equiflock.report.style import TEXT_COLOUR
from equiflock.runtime.files import atomic_write

MISSING_COLOUR = "#d9d9d9"
MAX_COLUMNS = 4
MAX_PANELS = 24


def draw_sweep(table: pd.DataFrame, metric: str, path: str | os.PathLike[str]) -> Path:
    """Draw the medians of a metric over the two axes with the most values; cells without flocks are grey.

    Each combination of values of the other axes has a panel, up to `MAX_PANELS`; if there were more, medians are also
    taken over the axes with the fewest values.
    """
    (x_axis, y_axis, *rest), left_out = _choose_axes(table)
    medians = summarize_sweep(table, [x_axis, y_axis, *rest])
    # Panels are in rows of at most MAX_COLUMNS.
    panels = list(medians.groupby(["controller", *rest], dropna=False, sort=False))
    columns = min(len(panels), MAX_COLUMNS)
    rows = -(-len(panels) // columns)
    width = 1.6 + 0.75 * medians[x_axis].nunique(dropna=False)
    height = 1.3 + 0.5 * medians[y_axis].nunique(dropna=False)
    figure = Figure(figsize=(max(width, 3.6) * columns, max(height, 2.4) * rows), dpi=130, layout="constrained")
    # One colour scale for all panels, so that controllers are comparable.
    norm = _make_colour_norm(medians[metric])
    grid = figure.subplots(rows, columns, squeeze=False)
    image = None
    for axes, ((controller, *values), panel_table) in zip(grid.flat, panels, strict=False):
        image = _draw_panel(axes, panel_table, x_axis, y_axis, metric, norm)
        fixed = ", ".join(
            f"{_format_axis_name(axis)} {_format_axis_value(axis, value)}"
            for axis, value in zip(rest, values, strict=True)
        )
        # Several values go on a second line, as a panel is too narrow for them beside the controller's name.
        separator = "" if not rest else ", " if len(rest) == 1 else "\n"
        axes.set_title(f"{controller}{separator}{fixed}", fontsize="medium", color=TEXT_COLOUR)
    # The last row may have fewer panels than columns.
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    assert image is not None
    bar = figure.colorbar(image, ax=grid, shrink=0.9, format="{x:g}")
    suffix = f", median over {', '.join(map(_format_axis_name, left_out))}" if left_out else ""
    figure.suptitle(f"{METRICS[metric]}{suffix}", color=TEXT_COLOUR)
    if isinstance(norm, LogNorm):
        bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        bar.ax.yaxis.set_minor_formatter(NullFormatter())
    with atomic_write(path) as scratch:
        FigureCanvasAgg(figure).print_png(str(scratch))
    return Path(path)


def _draw_panel(axes: Any, panel_table: pd.DataFrame, x_axis: str, y_axis: str, metric: str, norm: Normalize) -> Any:
    """Draw one heat map on `axes`, with the number in every cell, and return its image.

    Missing values on an axis ("no limit") come last.
    """
    values = panel_table.pivot(index=y_axis, columns=x_axis, values=metric)
    # "No limit" is a missing value; sort it after the largest.
    values = values.iloc[values.index.isna().argsort(kind="stable"), values.columns.isna().argsort(kind="stable")]
    image = axes.imshow(np.ma.masked_invalid(values), norm=norm, cmap="viridis", aspect="auto", origin="lower")
    axes.set_facecolor(MISSING_COLOUR)
    axes.set_xticks(range(values.shape[1]), [_format_axis_value(x_axis, x) for x in values.columns])
    axes.set_yticks(range(values.shape[0]), [_format_axis_value(y_axis, y) for y in values.index])
    axes.set(xlabel=_format_axis_name(x_axis), ylabel=_format_axis_name(y_axis))
    # Write each number in a colour that is legible on its cell.
    for (y, x), number in np.ndenumerate(values.to_numpy()):
        is_dark = bool(np.isfinite(number)) and norm(number) < 0.6
        axes.text(
            x,
            y,
            _format_number(number),
            ha="center",
            va="center",
            color="white" if is_dark else TEXT_COLOUR,
            fontsize=8,
        )
    return image


def _choose_axes(table: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the axes to draw, those with most values first, and the axes over which medians are taken.

    The first two are the axes of a map. The others, which need several values, have a panel per value, up to
    MAX_PANELS.
    """
    counts = {axis: table[axis].nunique(dropna=False) for axis in list_axes(table)}
    ordered = sorted(counts, key=lambda axis: -counts[axis])
    # An axis with a single value is drawn only if the map needs it.
    rest = [axis for axis in ordered[2:] if counts[axis] > 1]
    panels = table.controller.nunique()
    panel_axes = []
    for axis in rest:
        panels *= counts[axis]
        if panels > MAX_PANELS:
            break
        panel_axes.append(axis)
    return [*ordered[:2], *panel_axes], rest[len(panel_axes) :]


def _make_colour_norm(values: pd.Series) -> Normalize:
    """Return the colour scale, logarithmic if all values are positive and the largest is over 5 times the smallest."""
    low, high = values.min(), values.max()
    # All values are missing: any scale will do.
    if not np.isfinite(low):
        return Normalize(0.0, 1.0)
    return LogNorm(low, high) if 0.0 < 5 * low < high else Normalize(low, high if high > low else low + 1.0)


def _format_axis_name(axis: str) -> str:
    return AXES.get(axis, axis.replace("_", " "))


def _format_axis_value(axis: str, value: Any) -> str:
    """Return the label of a value on an axis; missing values are "as built" for hops, else "none"."""
    if isinstance(value, str):
        return value
    if value is None or np.isnan(value):
        return "as built" if axis == "hops" else "none"
    return f"{value:g}"


def _format_number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3g}"
