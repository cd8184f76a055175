"""Figures: medians as lines, interquartile ranges as bands."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from equiflock.report.style import GRID, INK, colour, line_style


def curves_over_time(
    times: Float64[np.ndarray, " F"],
    panels: Mapping[str, Mapping[str, Float64[np.ndarray, "F B"]]],
    path: str | os.PathLike[str],
    *,
    scale: Literal["linear", "log"] = "log",
) -> Path:
    """Draw one panel per quantity, in it one curve per controller: the median over flocks, and the IQR.

    Args:
        times: of the frames, in seconds.
        panels: label of the vertical axis -> controller -> values (F, B).
        path: of the PNG file.
        scale: of the vertical axis.
    """
    figure = Figure(figsize=(5.2 * len(panels), 3.6), dpi=130, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    for axes, (label, curves) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for controller, values in curves.items():
            low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=1)
            if scale == "log":  # zero has no place on it: the curve ends there, the band reaches to the curve's least
                middle, high = (np.where(curve > 0, curve, np.nan) for curve in (middle, high))
                low = np.fmax(low, np.nanmin(middle, initial=np.inf))
            style: dict[str, Any] = {"color": colour(controller), "linestyle": line_style(controller)}
            axes.plot(times, middle, label=controller, linewidth=1.8, **style)
            axes.fill_between(times, low, high, color=colour(controller), alpha=0.18, linewidth=0)
        axes.set(xlabel="time (s)", ylabel=label, yscale=scale, xlim=(times[0], times[-1]))
        axes.grid(color=GRID)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK)
        axes.legend(frameon=False)
    canvas.print_png(str(path))
    return Path(path)
