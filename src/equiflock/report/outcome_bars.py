"""Figure of flight outcomes: one bar per controller, divided by outcome."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from equiflock.outcomes import Outcome
from equiflock.report.style import GRID_COLOUR, TEXT_COLOUR, assign_outcome_colours, choose_text_colour
from equiflock.runtime.files import atomic_write

MIN_LABELLED_SHARE = 0.06
"""Least share of a bar that has room for a label."""


def draw_outcome_bars(table: pd.DataFrame, path: str | os.PathLike[str], success_outcomes: Sequence[Outcome]) -> Path:
    """Draw a bar for each controller, divided by the outcomes of its flights; outcomes that did not occur are left out.

    Args:
        table: a row for every flight, with columns controller and outcome.
        path: the PNG file.
        success_outcomes: the outcomes that count as success; they are drawn first.
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
                text_colour = choose_text_colour(colour)
                axes.text(
                    first + share / 2, place, f"{share:.0%}", ha="center", va="center", color=text_colour, fontsize=8
                )
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
    with atomic_write(path) as scratch:
        FigureCanvasAgg(figure).print_png(str(scratch))
    return Path(path)
