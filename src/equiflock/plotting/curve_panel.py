"""Panels of curves with bands as data, which `figures` draws as PNG and `svg_charts` as SVG."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Float64, Int


@dataclass(frozen=True)
class CurvePanel:
    """One panel of curves over time or epochs.

    `curves` maps a controller's name, or another label, to (3, X): the lower end of the band, the line, the upper end.
    """

    x: Float[np.ndarray, " X"] | Int[np.ndarray, " X"]
    x_label: str
    y_label: str
    curves: Mapping[str, Float64[np.ndarray, "3 X"]]
    y_scale: Literal["linear", "log"] = "log"
    y_limits: tuple[float, float] | None = None
    x_ticks: tuple[int, ...] | None = None
    """Ticks of a logarithmic x axis, with a marker at every point; None for a linear axis."""
    title: str | None = None
    shows_range_at_end: bool = False
    """Whether the bands, which would hide lines, are bars at the right instead: those of the last point."""
    has_overlapping_lines: bool = False
    """Whether lines may coincide; each is then drawn thinner than the one before, so that all are visible."""


def compute_quartiles(values: Float64[np.ndarray, "X S"]) -> Float64[np.ndarray, "3 X"]:
    """Return the quartiles over the second axis, the flocks, as a curve of a `CurvePanel`."""
    return np.asarray(np.quantile(values, (0.25, 0.5, 0.75), axis=1))
