"""Trainings in a figure and in tables: validation metrics by epoch, and the verdicts on the paper's statements."""

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
    """Draw IVV and IMAN by epoch: medians and quartiles over flocks, each as its median over seeds; and the expert's.

    Args:
        table: epoch, controller, flock, ivv, iman, seed; the expert's rows as those of `equiflock train`.
        path: the PNG file.
    """
    # The expert was validated once, so it is a horizontal line.
    policies = table[table.controller != EXPERT]
    epochs = np.sort(policies.epoch.unique())
    expert = table[table.controller == EXPERT]
    found = build_validation_curves(policies)
    panels = []
    for metric in ("ivv", "iman"):
        curves = {EXPERT: np.full((3, len(epochs)), expert[metric].median())}
        for name in policies.controller.unique():
            curves[name] = found.quartiles(name, metric=metric)
        panels.append(CurvePanel(epochs, "epoch", f"{metric.upper()} (validation)", curves))
    return draw_panels(panels, path)


def format_metrics_table(table: pd.DataFrame, epochs: Sequence[int] = (40, 80, 120, 200, 400)) -> str:
    """IVV / IMAN by epoch in Markdown: the median over seeds of the median over flocks; at the end with the range."""
    expert, policies = table[table.controller == EXPERT], table[table.controller != EXPERT]
    curves = build_validation_curves(policies)
    header = ["IVV / IMAN at epoch", *map(str, epochs), f"range of IVV at {epochs[-1]}"]
    rows = []
    for name in policies.controller.unique():
        # The columns of epochs, then how far training seeds are apart at the last one.
        medians = [[compute_median_at(curves, epoch, metric, name) for metric in ("ivv", "iman")] for epoch in epochs]
        last = curves.at(epochs[-1], "median", name, metric="ivv")
        texts = (f"{ivv:.3f} / {iman:.2f}" for ivv, iman in medians)
        rows.append([f"`{name}`", *texts, f"{last.min():.3f} to {last.max():.3f}"])
    told = f"{expert.ivv.median():.3f} / {expert.iman.median():.2f}"
    rows.append([f"the expert, `{EXPERT}`", *[""] * (len(epochs) - 1), told, ""])
    return format_markdown_table(header, rows)


def format_ledger_table(statements: Sequence[Statement]) -> str:
    """The paper's statements with our rules and verdicts, in Markdown."""
    header = ["", "the paper's statement", "our rule", "verdict", "checks that hold"]
    rows = []
    for s in statements:
        remark = f". {s.remark}" if s.remark else ""
        rows.append([s.id, s.words, s.rule, f"**{s.verdict}**", f"{s.count}{remark}"])
    return format_markdown_table(header, rows, words=True)


def write_training_tables(table: pd.DataFrame, statements: Sequence[Statement], path: str | os.PathLike[str]) -> Path:
    """Write both tables as a Markdown file."""
    with atomic_write(path) as scratch:
        scratch.write_text(f"{format_metrics_table(table)}\n\n{format_ledger_table(statements)}\n", encoding="utf-8")
    return Path(path)
