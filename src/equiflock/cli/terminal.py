"""What the commands share: progress, tables, and lists of numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from equiflock.cli.console import err, out
from equiflock.controllers import load
from equiflock.flock import Flock
from equiflock.learning.recipe import DAgger
from equiflock.orbit_technique import Orbit
from equiflock.runtime import compile_progress
from equiflock.runtime.checks import InputError
from equiflock.simulation.flight_builder import flight

if TYPE_CHECKING:
    from equiflock.learning.dagger import EpochReport

SECOND_CTRL_C_HINT = "Ctrl-C again stops at once"
PREPARING_TEXT = "preparing (the first run compiles the kernels)"
MAX_NUMBERS = 10_000
TRIAL_STEPS = 3
REFRESHES_PER_SECOND = 4
"""How often a bar is drawn; each time takes 1.5 ms from the work that it shows."""
MIN_NAME_WIDTH = 12
"""The least width, in characters, to which long names in a table are broken."""


def parse_integers(name: str, text: str) -> list[int]:
    """Whole numbers written such as 0-4 or 0,3,7."""
    # Ranges are counted before they are expanded: 0-999999999 shall not fill the memory.
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise InputError(f"{name} must be such as 0-4 or 0,3,7; got {text!r}")
        numbers = range(int(match[1]), int(match[2] or match[1]) + 1)
        if len(found) + len(numbers) > MAX_NUMBERS:
            raise InputError(f"{name} must be at most {MAX_NUMBERS:,} numbers; got {text!r}")
        found.extend(numbers)
    if not found or len(set(found)) < len(found):
        raise InputError(f"{name} must be such as 0-4 or 0,3,7, each once; got {text!r}")
    return found


def parse_floats(name: str, text: str) -> list[float]:
    """Numbers written such as 0.8,1,1.5."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{name} must be such as 0.8,1,1.5; got {text!r}") from None
    if len(set(found)) < len(found):
        raise InputError(f"{name} must be such as 0.8,1,1.5, each once; got {text!r}")
    return found


def try_controller(start: Flock, controller: str, **rules: Any) -> None:
    """Make a few steps, so that a controller that fails at once does so before jobs are run or files written."""
    list(islice(flight(start, load(controller), **rules), TRIAL_STEPS))


class _DescriptionColumn(TextColumn):
    """A column of a progress bar that shows what is being done: a task, or the compiling of kernels for it."""

    def render(self, task: Task) -> Text:
        """The description of the task, or how far the compiler is."""
        text = None if task.finished else compile_progress.format_progress()
        return super().render(task) if text is None else Text(text)


class _CompilerProgress(Progress):
    """A progress bar that also shows how far the compiler is."""

    def __enter__(self) -> Self:
        self._compiler_display = nullcontext() if self.disable else compile_progress.suppress_progress_output()
        self._compiler_display.__enter__()
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._compiler_display.__exit__(*raised)


class _ValueColumn(ProgressColumn):
    """A column of a progress bar that shows a number of its task, once there is one."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def render(self, task: Task) -> Text:
        """The name and the number, or nothing."""
        value = task.fields.get(self.name)
        return Text("" if value is None else f"{self.name} {value}")


def progress(*values: str) -> Progress:
    """A progress bar on the terminal, which disappears when the work is done; use it in a `with`.

    Args:
        values: names of numbers to show beside it, given by `update(task, name=text)`.
    """
    # On stderr and only on a terminal: output that is sent to a file or another program stays clean.
    columns = _DescriptionColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return _CompilerProgress(
        *columns,
        *map(_ValueColumn, values),
        console=err,
        transient=True,
        disable=not err.is_terminal,
        refresh_per_second=REFRESHES_PER_SECOND,
    )


def print_table(title: str, *layouts: tuple[Sequence[str], Sequence[Sequence[str]]]) -> None:
    """Print the first of these forms of a table, each a header and rows, that the terminal has room for.

    The first column is text, the others are numbers. If there is room for none, long names are broken.
    """
    # Each form first with a space beside its columns, then without.
    for table in (_build_table(title, *form, room) for form in layouts for room in (1, 0)):
        if _measure_width(table) <= out.width:
            out.print(table)
            return
    # Not even the narrowest form fits: break names, down to LEAST_NAME characters.
    header, rows = layouts[-1]
    names = max(len(line) for row in rows for line in row[0].split("\n"))
    left = max(names - (_measure_width(table) - out.width), MIN_NAME_WIDTH)
    out.print(_build_table(title, header, [[_break_name(row[0], left), *row[1:]] for row in rows], 0))


def print_orbit(orbit: Orbit) -> None:
    """Say with which numbers of their own weights avoid obstacles."""
    numbers = ", ".join(f"{each.name} {getattr(orbit, each.name):.3g}" for each in fields(orbit))
    out.print(f"orbit technique of the weights: {numbers}", highlight=False, soft_wrap=True)


def print_text_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], lines: bool = False) -> None:
    """Print a table of words, which are wrapped, with lines between its rows or without."""
    table = Table(title=title, title_justify="left", show_lines=lines)
    _fill_table(table, header, rows)
    out.print(table)


def _build_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], padding: int) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, padding))
    _fill_table(table, header, rows, justify="right", vertical="bottom", no_wrap=True)
    table.columns[0].justify = "left"
    return table


def _fill_table(table: Table, header: Sequence[str], rows: Sequence[Sequence[str]], **style: Any) -> None:
    for column in header:
        table.add_column(column, **style)
    for row in rows:
        table.add_row(*row)


def _measure_width(table: Table) -> int:
    """The width of a table in a terminal of unlimited width."""
    return out.measure(table, options=out.options.update(width=10_000)).maximum


def _break_name(name: str, width: int) -> str:
    """A name in lines of at most that width, broken after / _ . : and - only."""
    lines = [""]
    for piece in re.findall(r"[^/_.:-]*[/_.:-]?", name):
        if lines[-1] and len(lines[-1] + piece) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def print_notice(bar: Progress, text: str) -> None:
    """Show a notice to the user, above the bar where there is one."""
    bar.console.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)


class TrainingProgress:
    """The bar of a training, and a line for each of its validations."""

    def __init__(self, bar: Progress, recipe: DAgger, visible: bool = True) -> None:
        self.bar = bar
        self.label = f"{recipe.controller}, seed {recipe.seed}"
        self.task = bar.add_task(PREPARING_TEXT, total=recipe.epochs, visible=visible)
        self.epochs_done = 0
        """The number of epochs that are done."""

    def epoch(self, report: EpochReport) -> None:
        """Show the results of an epoch."""
        self.epochs_done = report.epoch
        # Loss after every epoch; medians of the validation when there is one, which then also gets a line of its own.
        shown: dict[str, Any] = {"loss": f"{report.loss:.3g}"}
        if report.validation is not None:
            for name, values in (("IVV", report.validation.ivv), ("IMAN", report.validation.iman)):
                shown[name] = f"{np.median(values):.3g}"
            self.print_notice(f"epoch {report.epoch}: {report.validation}")
        self.bar.update(self.task, description=f"training {self.label}", completed=report.epoch, visible=True, **shown)

    @property
    def stop_message(self) -> str:
        """The confirmation of Ctrl-C."""
        return (
            f"finishing {f'epoch {self.epochs_done + 1}' if self.epochs_done else 'this epoch'}; {SECOND_CTRL_C_HINT}"
        )

    def print_notice(self, text: str) -> None:
        """Show a notice about this training to the user."""
        # Above the bar on a terminal; without one, notices are output like any other.
        console = self.bar.console if self.bar.console.is_terminal else out
        console.print(f"{self.label}: {text}", highlight=False, markup=False, soft_wrap=True)
