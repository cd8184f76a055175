"""The generalization experiment in four figures, as the paper has them; bands are the range over training seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float64

from equiflock.controllers.trained import TRAINED
from equiflock.experiments.generalization import CloningCurves, standardized
from equiflock.report.figures import Panel, draw_panels

LOSSES = {"train_loss": "training loss", "test_loss": "test loss"}
TERMS = {
    "data_bound": r"data bound $\beta$",
    "coefficient": r"coefficient $48 D / \sqrt{m}$",
    "norm_sum": r"$\sum_l \ln \max\{1, |W_l|_F\}$",
    "root": r"square root $\sqrt{S}$",
}


def draw_losses(table: pd.DataFrame, path: Path) -> Path:
    """Training and test loss by epoch, a panel for each controller."""
    curves = CloningCurves(table)
    panels = []
    for name in TRAINED:
        lines = {label: _range(curves.of(quantity, name)) for quantity, label in LOSSES.items()}
        panels.append(Panel(curves.epochs, "epoch", "loss", lines, title=name))
    return draw_panels(panels, path)


def draw_bounds(table: pd.DataFrame, path: Path) -> Path:
    """The bound and, thousands of times smaller, the empirical gap by epoch, for every controller."""
    curves = CloningCurves(table)
    labels = {"bound": "generalization bound", "gap": "empirical gap"}
    return draw_panels([_by_controller(curves, name, label) for name, label in labels.items()], path)


def draw_terms(table: pd.DataFrame, path: Path) -> Path:
    """The terms in which the bounds of the controllers differ, by epoch."""
    curves = CloningCurves(table)
    return draw_panels([_by_controller(curves, name, label) for name, label in TERMS.items()], path)


def draw_correlation(table: pd.DataFrame, path: Path) -> Path:
    """Bound and gap by epoch, each less its mean and by its standard deviation, a panel for each controller."""
    curves = CloningCurves(table)
    panels = []
    for name in TRAINED:
        lines = {
            label: _range(standardized(curves.of(quantity, name)[:, 1:]))
            for quantity, label in {"bound": "bound", "gap": "empirical gap"}.items()
        }
        correlation = curves.correlation(name)
        title = f"{name}: ρ = {np.median(correlation):.2f} [{correlation.min():.2f}, {correlation.max():.2f}]"
        panels.append(Panel(curves.epochs[1:], "epoch", "standard deviations", lines, "linear", title=title))
    return draw_panels(panels, path)


def _by_controller(curves: CloningCurves, quantity: str, label: str) -> Panel:
    lines = {name: _range(curves.of(quantity, name)) for name in TRAINED}
    return Panel(curves.epochs, "epoch", label, lines, "log" if quantity == "data_bound" else "linear")


def _range(values: Float64[np.ndarray, "S X"]) -> Float64[np.ndarray, "3 X"]:
    """The least, the median and the largest over seeds."""
    return np.stack([values.min(axis=0), np.median(values, axis=0), values.max(axis=0)])


FIGURES: dict[str, Callable[[pd.DataFrame, Path], Path]] = {
    "generalization-losses.png": draw_losses,
    "generalization-bound.png": draw_bounds,
    "generalization-terms.png": draw_terms,
    "generalization-correlation.png": draw_correlation,
}
