"""Figures of curves: medians as lines, interquartile ranges as bands."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Float64, Int
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from equiflock.report.style import GRID_COLOUR, TEXT_COLOUR, get_line_colour, get_line_style
from equiflock.runtime.files import atomic_write


@dataclass(frozen=True)
class CurvePanel:
    """One panel of curves over time or epochs.

    Each curve is (3, X): the lower end of its band, its line, and the upper end; names are controllers or others.
    """

    x: Float[np.ndarray, " X"] | Int[np.ndarray, " X"]
    x_label: str
    y_label: str
    curves: Mapping[str, Float64[np.ndarray, "3 X"]]
    y_scale: Literal["linear", "log"] = "log"
    y_limits: tuple[float, float] | None = None
    x_ticks: tuple[int, ...] | None = None
    """If given, the horizontal axis is logarithmic with these ticks, and every point of a curve has a marker."""
    title: str | None = None
    has_overlapping_lines: bool = False
    """Whether lines may coincide: then each is thinner than those before, so that all can be seen."""


def compute_quartiles(values: Float64[np.ndarray, "X S"]) -> Float64[np.ndarray, "3 X"]:
    """The quartiles over the second axis, flocks, as a curve of a `CurvePanel`."""
    return np.asarray(np.quantile(values, (0.25, 0.5, 0.75), axis=1))


def draw_panels(panels: Sequence[CurvePanel], path: str | os.PathLike[str]) -> Path:
    """Draw panels side by side and write them as a PNG file."""
    width = 5.2 if len(panels) < 4 else 4.0
    figure = Figure(figsize=(width * len(panels), 3.6), dpi=130, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for place, (controller, (low, middle, high)) in enumerate(panel.curves.items()):
            # A logarithmic axis has no zero: the curve has a gap there, and the band reaches to the curve's least.
            if panel.y_scale == "log":
                middle, high = (np.where(curve > 0, curve, np.nan) for curve in (middle, high))
                low = np.where(low > 0, low, np.nanmin(middle, initial=np.inf))
            style: dict[str, Any] = {"color": get_line_colour(controller), "linestyle": get_line_style(controller)}
            marker = "o" if panel.x_ticks or len(panel.x) == 1 else None
            # Nested lines: the first is the thickest, and the last has the usual width.
            thick = 1.8 + 1.4 * (len(panel.curves) - 1 - place) * panel.has_overlapping_lines
            axes.plot(panel.x, middle, label=controller, linewidth=thick, marker=marker, markersize=4, **style)
            axes.fill_between(panel.x, low, high, color=get_line_colour(controller), alpha=0.18, linewidth=0)
        axes.set(xlabel=panel.x_label, ylabel=panel.y_label, yscale=panel.y_scale)
        if panel.title is not None:
            axes.set_title(panel.title, fontsize="medium")
        # A single point would have limits of no width.
        if len(panel.x) > 1:
            axes.set_xlim(panel.x[0], panel.x[-1])
        else:
            axes.set_xticks(panel.x)
        # Epochs are whole numbers.
        if not panel.x_ticks and len(panel.x) > 1 and np.issubdtype(panel.x.dtype, np.integer):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if panel.y_limits is not None:
            axes.set_ylim(panel.y_limits)
        if panel.x_ticks:
            axes.set_xscale("log")
            axes.set_xticks(panel.x_ticks, [str(tick) for tick in panel.x_ticks])
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.minorticks_off()
        if panel.y_scale == "log":
            # Ticks at powers of ten only, if there are many of them, else at 1, 2 and 5.
            least, most = axes.get_ylim()
            steps = (1.0,) if most > 1000 * least else (1.0, 2.0, 5.0)
            axes.yaxis.set_major_locator(LogLocator(subs=steps, numticks=20))
            axes.yaxis.set_major_formatter("{x:,g}")
            axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(color=GRID_COLOUR)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=TEXT_COLOUR)
        axes.legend(frameon=False)
    with atomic_write(path) as scratch:
        canvas.print_png(str(scratch))
    return Path(path)
