"""What a scenario measures, over time: a panel for each measure, a curve for each controller."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pandas as pd

from equiflock.experiments.curves import Curves
from equiflock.report.figures import Panel, draw_panels


def draw_measures(table: pd.DataFrame, path: str | os.PathLike[str], measures: Sequence[str]) -> Path:
    """Draw quartiles over flocks, over time.

    Args:
        table: of `curve_table`s, with columns controller and seed.
        path: of the PNG file.
        measures: their names.
    """
    curves = Curves(table)
    panels = []
    for measure in measures:
        lines = {name: curves.quartiles(name, metric=measure) for name in table.controller.unique()}
        # Numbers of which there are only a few, such as components, are not worth a logarithm.
        narrow = bool(min(line.min() for line in lines.values()) >= 0.1 * max(line.max() for line in lines.values()))
        scale: Literal["linear", "log"] = "linear" if narrow else "log"
        panels.append(Panel(curves.x, "time (s)", measure.replace("_", " "), lines, scale, nested=bool(narrow)))
    return draw_panels(panels, path)
