"""Figure of a scenario's measures over time: one panel per measure, one curve per controller."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pandas as pd

from equiflock.experiments.curves import Curves
from equiflock.report.curve_panels import CurvePanel, draw_panels


def draw_measure_curves(table: pd.DataFrame, path: str | os.PathLike[str], measures: Sequence[str]) -> Path:
    """Draw the median and the quartiles over flocks of each measure over time, a panel per measure.

    The y axis is linear if all values are within a factor of ten, else logarithmic.

    Args:
        table: rows of `build_curve_table`, with columns controller and seed.
        path: the PNG file.
        measures: the names of the measures.
    """
    curves = Curves(table)
    panels = []
    for measure in measures:
        lines = {name: curves.quartiles(name, metric=measure) for name in table.controller.unique()}
        # Values within a factor of ten, such as component counts, get a linear axis.
        narrow = bool(min(line.min() for line in lines.values()) >= 0.1 * max(line.max() for line in lines.values()))
        scale: Literal["linear", "log"] = "linear" if narrow else "log"
        panels.append(
            CurvePanel(
                curves.x, "time (s)", measure.replace("_", " "), lines, scale, has_overlapping_lines=bool(narrow)
            )
        )
    return draw_panels(panels, path)
