"""Figure and Markdown tables of trainings: validation metrics by epoch, and verdicts on the paper's statements."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from equiflock.experiments.paper.ledger import Statement
from equiflock.experiments.paper.training import build_validation_curves, compute_median_at
from equiflock.learning.recipe import EXPERT
from equiflock.report.curve_panels import CurvePanel, draw_panels
from equiflock.report.html_report import format_markdown_table
from equiflock.runtime.files import atomic_write


def draw_training(table: pd.DataFrame, path: str | os.PathLike[str]) -> Path:
    """Draw IVV and IMAN by epoch beside the expert's: quartiles over flocks, each the median over seeds.

    IVV is the integral of velocity variance, IMAN that of the mean acceleration norm.

    Args:
        table: columns epoch, controller, flock, ivv, iman, seed; with the expert's rows, as `equiflock train` has them.
        path: the PNG file.
    """
    # The expert is validated once and drawn as a horizontal line.
    policies = table[table.controller != EXPERT]
    epochs = np.sort(policies.epoch.unique())
    expert = table[table.controller == EXPERT]
    validation_curves = build_validation_curves(policies)
    panels = []
    for metric in ("ivv", "iman"):
        curves = {EXPERT: np.full((3, len(epochs)), expert[metric].median())}
        for name in policies.controller.unique():
            curves[name] = validation_curves.quartiles(name, metric=metric)
        panels.append(CurvePanel(epochs, "epoch", f"{metric.upper()} (validation)", curves))
    return draw_panels(panels, path)


def format_metrics_table(table: pd.DataFrame, epochs: Sequence[int] = (40, 80, 120, 200, 400)) -> str:
    """Return a Markdown table of IVV / IMAN at `epochs`: medians over seeds of medians over flocks, a row per network.

    The last column is the range over seeds of IVV at the last of `epochs`; the last row is the expert. IVV is the
    integral of velocity variance, IMAN that of the mean acceleration norm.
    """
    expert, policies = table[table.controller == EXPERT], table[table.controller != EXPERT]
    curves = build_validation_curves(policies)
    header = ["IVV / IMAN at epoch", *map(str, epochs), f"range of IVV at {epochs[-1]}"]
    rows = []
    for name in policies.controller.unique():
        # One column per epoch, then the range over seeds at the last epoch.
        medians = [[compute_median_at(curves, epoch, metric, name) for metric in ("ivv", "iman")] for epoch in epochs]
        last = curves.at(epochs[-1], "median", name, metric="ivv")
        texts = (f"{ivv:.3f} / {iman:.2f}" for ivv, iman in medians)
        rows.append([f"`{name}`", *texts, f"{last.min():.3f} to {last.max():.3f}"])
    expert_cell = f"{expert.ivv.median():.3f} / {expert.iman.median():.2f}"
    rows.append([f"the expert, `{EXPERT}`", *[""] * (len(epochs) - 1), expert_cell, ""])
    return format_markdown_table(header, rows)


def format_ledger_table(statements: Sequence[Statement]) -> str:
    """Return the paper's statements with rules, verdicts and numbers of checks that hold, as a Markdown table."""
    header = ["", "the paper's statement", "our rule", "verdict", "checks that hold"]
    rows = []
    for statement in statements:
        checks = f"{statement.summary}. {statement.remark}" if statement.remark else statement.summary
        rows.append([statement.id, statement.text, statement.rule, f"**{statement.verdict}**", checks])
    return format_markdown_table(header, rows, align_left=True)


def write_training_tables(table: pd.DataFrame, statements: Sequence[Statement], path: str | os.PathLike[str]) -> Path:
    """Write the tables of metrics and of statements as a Markdown file, replacing an existing one. Return its path."""
    with atomic_write(path) as scratch:
        scratch.write_text(f"{format_metrics_table(table)}\n\n{format_ledger_table(statements)}\n", encoding="utf-8")
    return Path(path)
