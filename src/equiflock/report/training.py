"""Trainings in a figure and in tables: validation metrics by epoch, and what comes of the paper's statements."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from equiflock.experiments.paper.ledger import Statement
from equiflock.experiments.paper.training import Curves
from equiflock.learning.recipe import EXPERT
from equiflock.report.figures import Panel, draw_panels
from equiflock.runtime.files import atomic_write


def draw_training(table: pd.DataFrame, path: str | os.PathLike[str]) -> Path:
    """Draw IVV and IMAN by epoch: medians and quartiles over flocks, each as its median over seeds; and the expert's.

    Args:
        table: epoch, controller, flock, ivv, iman, seed; the expert's rows as those of `equiflock train`.
        path: of the PNG file.
    """
    pupils = table[table.controller != EXPERT]
    epochs = np.sort(pupils.epoch.unique())
    expert = table[table.controller == EXPERT]
    found = Curves(pupils)
    panels = []
    for metric in ("ivv", "iman"):
        curves = {EXPERT: np.full((3, len(epochs)), expert[metric].median())}
        for name in pupils.controller.unique():
            curves[name] = np.array(
                [[found.median(metric, name, e, q) for e in epochs.tolist()] for q in (0.25, 0.5, 0.75)]
            )
        panels.append(Panel(epochs, "epoch", f"{metric.upper()} (validation)", curves))
    return draw_panels(panels, path)


def metrics_table(table: pd.DataFrame, epochs: Sequence[int] = (40, 80, 120, 200, 400)) -> str:
    """IVV / IMAN by epoch in Markdown: the median over seeds of the median over flocks; at the end with the range."""
    expert, pupils = table[table.controller == EXPERT], table[table.controller != EXPERT]
    curves = Curves(pupils)
    lines = [
        "| IVV / IMAN at epoch | " + " | ".join(map(str, epochs)) + f" | range of IVV at {epochs[-1]} |",
        "|---|" + "--:|" * (len(epochs) + 1),
    ]
    for name in pupils.controller.unique():
        jobs = [
            f"{curves.median('ivv', name, epoch):.3f} / {curves.median('iman', name, epoch):.2f}" for epoch in epochs
        ]
        last = curves.at("ivv", name, epochs[-1])
        lines.append(f"| `{name}` | " + " | ".join(jobs) + f" | {last.min():.3f} to {last.max():.3f} |")
    lines.append(
        f"| the expert, `{EXPERT}` |"
        + " |" * (len(epochs) - 1)
        + f" {expert.ivv.median():.3f} / {expert.iman.median():.2f} | |"
    )
    return "\n".join(lines)


def ledger_table(statements: Sequence[Statement]) -> str:
    """The statements and what came of them, in Markdown."""
    lines = ["| | the paper's statement | our rule | verdict | checks that hold |", "|---|---|---|---|---|"]
    for s in statements:
        remark = f". {s.remark}" if s.remark else ""
        lines.append(f"| {s.id} | {s.words} | {s.rule} | **{s.verdict}** | {s.count}{remark} |")
    return "\n".join(lines)


def write_tables(table: pd.DataFrame, statements: Sequence[Statement], path: str | os.PathLike[str]) -> Path:
    """Write both tables as a Markdown file."""
    with atomic_write(path) as scratch:
        scratch.write_text(f"{metrics_table(table)}\n\n{ledger_table(statements)}\n", encoding="utf-8")
    return Path(path)
