"""Figure of `equiflock bench`: the time of a step by its parts, with the machine's limit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from equiflock.experiments.bench import LoopTiming, MachineLimits
from equiflock.report.style import GRID_COLOUR, TEXT_COLOUR
from equiflock.runtime.files import atomic_write

PART_COLOURS = {"sort": "#999999", "observations": "#0072b2", "policy": "#e69f00", "integration": "#009e73"}
REST_COLOUR = "#dddddd"


def draw_bench(timings: Sequence[LoopTiming], limits: MachineLimits, path: str | os.PathLike[str]) -> Path:
    """Draw the step time of every flock size as a stacked bar of its parts, in ns per agent, and write a PNG file.

    A mark on each bar is the lower bound by the machine's arithmetic or memory, whichever is larger.
    """
    figure = Figure(figsize=(8.5, 3.8), dpi=130, layout="constrained")
    axes = figure.subplots()
    # Stack the measured parts.
    places = np.arange(len(timings))
    below = np.zeros(len(timings))
    for part, colour in PART_COLOURS.items():
        heights = np.array([getattr(timing, part) for timing in timings])
        axes.bar(places, heights, 0.62, bottom=below, color=colour, label=part)
        below += heights
    # The step time beyond the parts; timings are noisy, so the difference may be negative.
    rest = np.maximum([timing.step for timing in timings] - below, 0.0)
    axes.bar(places, rest, 0.62, bottom=below, color=REST_COLOUR, label="rest: Python between kernels, checks")
    # The lower bound by arithmetic or by memory, whichever is larger.
    least = [limits.compute_lower_bound(timing)[0] for timing in timings]
    axes.hlines(
        least, places - 0.36, places + 0.36, color=TEXT_COLOUR, linewidth=1.6, label="lower bound of this machine"
    )
    axes.set_xticks(places, [f"{timing.flocks} x {timing.agents:,}" for timing in timings])
    axes.set(xlabel="flocks x agents", ylabel=f"ns per agent and step, {timings[0].threads} threads")
    axes.grid(axis="y", color=GRID_COLOUR)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    with atomic_write(path) as scratch:
        FigureCanvasAgg(figure).print_png(str(scratch))
    return Path(path)
