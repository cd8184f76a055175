"""Figures of curves with bands, such as medians with interquartile ranges, and of outcomes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from equiflock._runtime.files import atomic_write
from equiflock.outcomes import Outcome
from equiflock.plotting.curve_panel import CurvePanel
from equiflock.plotting.style import (
    GRID_COLOUR,
    TEXT_COLOUR,
    assign_line_colours,
    assign_outcome_colours,
    choose_text_colour,
    get_line_style,
)

MIN_LABELLED_SHARE = 0.06
"""Least share of a bar that has room for a label."""
MAX_LEGEND_ROWS, MAX_LEGEND_COLUMNS = 6, 7
"""Most names of a legend inside a single panel, and most in a row above all panels."""
FIGURE_WIDTH = 9.4
"""Width of a figure of several panels, in inches: shown 830 pixels wide, its text has about 12 pixels."""
BAR_SHARE = 0.03
"""Distance of the bars of ranges at the right of a panel, in widths of the curves."""


def write_png(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure as a PNG file, replacing an existing one when it is complete. Return its path."""
    with atomic_write(path) as scratch:
        FigureCanvasAgg(figure).print_png(str(scratch))
    return Path(path)


def draw_panels(panels: Sequence[CurvePanel], path: str | os.PathLike[str]) -> Path:
    """Draw panels, two or three side by side, and write them as a PNG file. Return its path.

    Panels with the same curves have one legend above them; panels with the same quantity share the y axis. On a
    logarithmic y axis, values that are not positive are gaps in a curve; a band ends at its curve's minimum there.
    """
    columns = 2 if len(panels) in (2, 4) else min(len(panels), 3)
    rows = -(-len(panels) // columns)
    names = list(panels[0].curves)
    is_crowded = len(panels) > 1 or len(names) > MAX_LEGEND_ROWS
    has_common_legend = is_crowded and all(list(panel.curves) == names for panel in panels)
    shares_y = len({(panel.y_label, panel.y_scale, panel.y_limits) for panel in panels}) == 1
    figure = Figure(figsize=(5.6 if columns == 1 else FIGURE_WIDTH, 3.3 * rows), dpi=130, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=shares_y).ravel()
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for place, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
        _draw_curves(axes, panel)
        axes.set(xlabel=panel.x_label, yscale=panel.y_scale)
        if place % columns == 0 or not shares_y:
            axes.set_ylabel(panel.y_label)
        if panel.title is not None:
            axes.set_title(panel.title, fontsize="medium")
        _set_x_axis(axes, panel)
        if panel.y_limits is not None:
            axes.set_ylim(panel.y_limits)
        if panel.y_scale == "log":
            # Ticks at powers of ten over more than three decades, else also at 2 and 5.
            low_limit, high_limit = axes.get_ylim()
            steps = (1.0,) if high_limit > 1000 * low_limit else (1.0, 2.0, 5.0)
            axes.yaxis.set_major_locator(LogLocator(subs=steps, numticks=20))
            axes.yaxis.set_major_formatter("{x:,g}")
            axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(color=GRID_COLOUR)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=TEXT_COLOUR)
        if not has_common_legend:
            axes.legend(frameon=False)
    if has_common_legend:
        lines, labels = figure.axes[0].get_legend_handles_labels()
        ncols = min(len(names), MAX_LEGEND_COLUMNS)
        figure.legend(lines, labels, loc="outside upper center", ncols=ncols, frameon=False)
    return write_png(figure, path)


def _draw_curves(axes: Axes, panel: CurvePanel) -> None:
    """Draw the lines and bands of a panel."""
    marker = "o" if panel.x_ticks or len(panel.x) == 1 else None
    colours = assign_line_colours(panel.curves)
    for place, (name, (low, middle, high)) in enumerate(panel.curves.items()):
        if panel.y_scale == "log":
            middle, high = (np.where(curve > 0, curve, np.nan) for curve in (middle, high))
            low = np.where(low > 0, low, np.nanmin(middle, initial=np.inf))
        # The first of overlapping lines is the thickest; the last has the default width.
        width = 1.8 + 1.1 * (len(panel.curves) - 1 - place) * panel.has_overlapping_lines
        colour, style = colours[name], get_line_style(name)
        axes.plot(
            panel.x, middle, label=name, linewidth=width, marker=marker, markersize=4, color=colour, linestyle=style
        )
        if panel.shows_range_at_end:
            at = panel.x[-1] + BAR_SHARE * (place + 1) * (panel.x[-1] - panel.x[0])
            limits = np.array([[middle[-1] - low[-1]], [high[-1] - middle[-1]]])
            axes.errorbar(at, middle[-1], limits, color=colour, marker="o", markersize=3.5, capsize=3, linewidth=1.6)
        else:
            axes.fill_between(panel.x, low, high, color=colour, alpha=0.18, linewidth=0)


def _set_x_axis(axes: Axes, panel: CurvePanel) -> None:
    """Set limits and ticks of the x axis: logarithmic with given ticks, or linear, with integer ticks for epochs."""
    if len(panel.x) == 1:  # limits of a single point would have zero width
        axes.set_xticks(panel.x)
    else:
        bars = (len(panel.curves) + 1) * panel.shows_range_at_end * BAR_SHARE * (panel.x[-1] - panel.x[0])
        axes.set_xlim(panel.x[0], panel.x[-1] + bars)
        if not panel.x_ticks and np.issubdtype(panel.x.dtype, np.integer):
            ticks = MaxNLocator(integer=True).tick_values(panel.x[0], panel.x[-1])
            axes.set_xticks(ticks[(ticks >= panel.x[0]) & (ticks <= panel.x[-1])])
    if panel.x_ticks:
        axes.set_xscale("log")
        axes.set_xticks(panel.x_ticks, [str(tick) for tick in panel.x_ticks])
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.minorticks_off()


def draw_outcome_bars(table: pd.DataFrame, path: str | os.PathLike[str], success_outcomes: Sequence[Outcome]) -> Path:
    """Draw a bar for each controller, divided by the outcomes of its flights, successes first, and write a PNG file.

    `table` has a row for every flight, with columns controller and outcome.
    """
    names = list(dict.fromkeys(table.controller))
    occurred = set(table.outcome)
    outcomes = [outcome for outcome in Outcome.all() if outcome.name in occurred]
    colours = assign_outcome_colours(outcomes, success_outcomes)
    figure = Figure(figsize=(7.2, 1.1 + 0.42 * len(names)), dpi=130, layout="constrained")
    axes = figure.subplots()
    # Each outcome starts where the previous one ends in every bar.
    ends = np.zeros(len(names))
    for outcome, colour in colours.items():
        shares = np.array([(table[table.controller == name].outcome == outcome.name).mean() for name in names])
        label = outcome.name.replace("_", " ").lower()
        axes.barh(names, shares, left=ends, color=colour, height=0.7, label=label)
        for place, (share, first) in enumerate(zip(shares, ends, strict=True)):
            if share >= MIN_LABELLED_SHARE:
                style: dict[str, Any] = {"ha": "center", "va": "center", "color": choose_text_colour(colour)}
                axes.text(first + share / 2, place, f"{share:.0%}", fontsize=8, **style)
        ends += shares
    # The first controller is at the top, as in the table.
    axes.invert_yaxis()
    axes.set(xlim=(0.0, 1.0), xlabel="share of flights")
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.grid(axis="x", color=GRID_COLOUR)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(colors=TEXT_COLOUR)
    axes.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper center", ncols=len(colours), frameon=False)
    return write_png(figure, path)
