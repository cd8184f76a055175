"""The paper's four figures of the generalization experiment, and its table; bands are ranges over training seeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float64

from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.experiments.curves import Curves
from equiflock.experiments.paper.generalization import compute_correlation, standardize
from equiflock.report.curve_panels import CurvePanel, draw_panels
from equiflock.report.html_report import format_markdown_table

LOSS_LABELS = {"train_loss": "training loss", "test_loss": "test loss"}
TERM_LABELS = {
    "data_bound": r"data bound $\beta$",
    "coefficient": r"coefficient $48 D / \sqrt{m}$",
    "norm_sum": r"$\sum_l \ln \max\{1, |W_l|_F\}$",
    "root": r"square root $\sqrt{S}$",
}


def draw_losses(table: pd.DataFrame, path: Path) -> Path:
    """Draw training and test loss by epoch, a panel for each of the paper's networks."""
    curves = Curves(table, over="epoch")
    panels = []
    for name in PAPER_NETWORKS:
        lines = {label: _compute_range(curves.get_curve(quantity, name)) for quantity, label in LOSS_LABELS.items()}
        limits = 0.0, 1.05 * max(line.max() for line in lines.values())
        panels.append(
            CurvePanel(curves.x, "epoch", "loss", lines, "linear", limits, title=name, has_overlapping_lines=True)
        )
    return draw_panels(panels, path)


def draw_bounds(table: pd.DataFrame, path: Path) -> Path:
    """Draw the generalization bound and the empirical gap (test loss - training loss) by epoch, a curve per network."""
    curves = Curves(table, over="epoch")
    labels = {"bound": "generalization bound", "gap": "empirical gap"}
    return draw_panels([_build_controller_panel(curves, name, label) for name, label in labels.items()], path)


def draw_terms(table: pd.DataFrame, path: Path) -> Path:
    """Draw the four terms of the generalization bound in which the networks differ, by epoch."""
    curves = Curves(table, over="epoch")
    return draw_panels([_build_controller_panel(curves, name, label) for name, label in TERM_LABELS.items()], path)


def draw_correlation(table: pd.DataFrame, path: Path) -> Path:
    """Draw the standardized bound and gap (mean 0, standard deviation 1) by epoch, a panel for each network.

    Epoch 0 is left out. Titles give the correlation of bound and gap, median and range over training seeds.
    """
    curves = Curves(table, over="epoch")
    panels = []
    for name in PAPER_NETWORKS:
        # Epoch 0, before the first update, is left out, as it is of the correlation.
        lines = {
            label: _compute_range(standardize(curves.get_curve(quantity, name)[:, 1:]))
            for quantity, label in {"bound": "bound", "gap": "empirical gap"}.items()
        }
        correlation = compute_correlation(curves, name)
        title = f"{name}: ρ = {np.median(correlation):.2f} [{correlation.min():.2f}, {correlation.max():.2f}]"
        panels.append(CurvePanel(curves.x[1:], "epoch", "standard deviations", lines, "linear", title=title))
    return draw_panels(panels, path)


def _build_controller_panel(curves: Curves, quantity: str, label: str) -> CurvePanel:
    """Return a panel of one quantity by epoch, with a curve for each of the paper's networks."""
    lines = {name: _compute_range(curves.get_curve(quantity, name)) for name in PAPER_NETWORKS}
    # Data bounds of sum and mean aggregation differ by orders of magnitude; other lines may coincide.
    scale: Literal["linear", "log"] = "log" if quantity == "data_bound" else "linear"
    return CurvePanel(
        curves.x, "epoch", label, lines, scale, has_overlapping_lines=quantity in ("bound", "data_bound", "coefficient")
    )


def _compute_range(values: Float64[np.ndarray, "S X"]) -> Float64[np.ndarray, "3 X"]:
    """Return minimum, median and maximum over seeds."""
    return np.stack([values.min(axis=0), np.median(values, axis=0), values.max(axis=0)])


def format_bound_rows(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the generalization bound and its terms, a row per network.

    Values are medians over training seeds at the last epoch.
    """
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
        [
            name,
            *(
                f"{np.median(curves.last(column, name)):{number_format}}"
                for column, (_, number_format) in columns.items()
            ),
        ]
        for name in PAPER_NETWORKS
    ]
    return ["controller", *(label for label, _ in columns.values())], rows


def format_bound_table(table: pd.DataFrame) -> str:
    """Return the table of `format_bound_rows` in Markdown."""
    header, rows = format_bound_rows(table)
    return format_markdown_table(header, [[f"`{row[0]}`", *row[1:]] for row in rows])


FIGURES: dict[str, Callable[[pd.DataFrame, Path], Path]] = {
    "generalization-losses.png": draw_losses,
    "generalization-bound.png": draw_bounds,
    "generalization-terms.png": draw_terms,
    "generalization-correlation.png": draw_correlation,
}
