"""The generalization experiment in four figures, as the paper has them; bands are the range over training seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float64

from equiflock.controllers.trained import TRAINED
from equiflock.experiments.curves import Curves
from equiflock.experiments.paper.generalization import correlation, standardized
from equiflock.report.figures import Panel, draw_panels
from equiflock.report.page import markdown_table

LOSSES = {"train_loss": "training loss", "test_loss": "test loss"}
TERMS = {
    "data_bound": r"data bound $\beta$",
    "coefficient": r"coefficient $48 D / \sqrt{m}$",
    "norm_sum": r"$\sum_l \ln \max\{1, |W_l|_F\}$",
    "root": r"square root $\sqrt{S}$",
}


def draw_losses(table: pd.DataFrame, path: Path) -> Path:
    """Training and test loss by epoch, a panel for each controller."""
    curves = Curves(table, over="epoch")
    panels = []
    for name in TRAINED:
        lines = {label: _range(curves.of(quantity, name)) for quantity, label in LOSSES.items()}
        limits = 0.0, 1.05 * max(line.max() for line in lines.values())
        panels.append(Panel(curves.x, "epoch", "loss", lines, "linear", limits, title=name, nested=True))
    return draw_panels(panels, path)


def draw_bounds(table: pd.DataFrame, path: Path) -> Path:
    """The bound and, far smaller, the empirical gap by epoch, for every controller."""
    curves = Curves(table, over="epoch")
    labels = {"bound": "generalization bound", "gap": "empirical gap"}
    return draw_panels([_by_controller(curves, name, label) for name, label in labels.items()], path)


def draw_terms(table: pd.DataFrame, path: Path) -> Path:
    """The terms in which the bounds of the controllers differ, by epoch."""
    curves = Curves(table, over="epoch")
    return draw_panels([_by_controller(curves, name, label) for name, label in TERMS.items()], path)


def draw_correlation(table: pd.DataFrame, path: Path) -> Path:
    """Bound and gap by epoch, each less its mean and by its standard deviation, a panel for each controller."""
    curves = Curves(table, over="epoch")
    panels = []
    for name in TRAINED:
        lines = {
            label: _range(standardized(curves.of(quantity, name)[:, 1:]))
            for quantity, label in {"bound": "bound", "gap": "empirical gap"}.items()
        }
        found = correlation(curves, name)
        title = f"{name}: ρ = {np.median(found):.2f} [{found.min():.2f}, {found.max():.2f}]"
        panels.append(Panel(curves.x[1:], "epoch", "standard deviations", lines, "linear", title=title))
    return draw_panels(panels, path)


def _by_controller(curves: Curves, quantity: str, label: str) -> Panel:
    lines = {name: _range(curves.of(quantity, name)) for name in TRAINED}
    scale: Literal["linear", "log"] = "log" if quantity == "data_bound" else "linear"
    return Panel(curves.x, "epoch", label, lines, scale, nested=quantity in ("bound", "data_bound", "coefficient"))


def _range(values: Float64[np.ndarray, "S X"]) -> Float64[np.ndarray, "3 X"]:
    """The least, the median and the largest over seeds."""
    return np.stack([values.min(axis=0), np.median(values, axis=0), values.max(axis=0)])


def bound_rows(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the bound and its terms at the last epoch, medians over training seeds."""
    curves = Curves(table, over="epoch")
    columns: dict[str, tuple[str, str]] = {
        "bound": ("bound, as proven", ".1f"),
        "bound_as_printed": ("as printed", ".1f"),
        "gap": ("empirical gap", ".1e"),
        "train_loss": ("training loss", ".4f"),
        "data_bound": ("β", ",.0f"),
        "lipschitz": ("C", ".4f"),
        "largest_dimension": ("D", ".0f"),
        "coefficient": ("48 D / √m", ".2f"),
        "norm_sum": ("Σ ln max(1, ‖W‖)", ".2f"),
        "root": ("√S", ".2f"),
    }
    rows = [
        [name, *(f"{np.median(curves.last(column, name)):{form}}" for column, (_, form) in columns.items())]
        for name in TRAINED
    ]
    return ["controller", *(label for label, _ in columns.values())], rows


def bound_table(table: pd.DataFrame) -> str:
    """The same in Markdown."""
    header, rows = bound_rows(table)
    return markdown_table(header, [[f"`{row[0]}`", *row[1:]] for row in rows])


FIGURES: dict[str, Callable[[pd.DataFrame, Path], Path]] = {
    "generalization-losses.png": draw_losses,
    "generalization-bound.png": draw_bounds,
    "generalization-terms.png": draw_terms,
    "generalization-correlation.png": draw_correlation,
}
