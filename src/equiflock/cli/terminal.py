"""Shared by the commands: progress bars, tables, notices, and parsing of number lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
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

from equiflock._runtime import compile_progress
from equiflock._runtime.checks import InputError
from equiflock.controllers import load
from equiflock.flock import Flock
from equiflock.learning.recipe import DAgger
from equiflock.observations.orbit import Orbit
from equiflock.simulation.flight_builder import flight

if TYPE_CHECKING:
    from equiflock.learning.validation import EpochReport


# Rich consoles on standard output and standard error.

out = Console()
err = Console(stderr=True)


SECOND_CTRL_C_HINT = "press Ctrl-C again to stop immediately"
PREPARING_TEXT = "preparing (the first run compiles the kernels)"
MAX_NUMBERS = 10_000
TRIAL_STEPS = 3
REFRESHES_PER_SECOND = 4
"""Refresh rate of progress bars; a refresh takes 1.5 ms."""
MIN_NAME_WIDTH = 12
"""Least width, in characters, of names that are broken into lines in a table."""


def parse_integers(name: str, text: str) -> list[int]:
    """Parse a list of integers from 0 on, such as 0-4 (both included) or 0,3,7, in the given order.

    Raise InputError, which names the option `name`, for invalid text, repeated values, or more than MAX_NUMBERS.
    """
    # Limit the size before expanding a range: 0-999999999 must not fill the memory.
    integers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise InputError(f"{name} must be a list of integers such as 0-4 or 0,3,7; got {text!r}")
        part_range = range(int(match[1]), int(match[2] or match[1]) + 1)
        if len(integers) + len(part_range) > MAX_NUMBERS:
            raise InputError(f"{name} must have at most {MAX_NUMBERS:,} values; got {text!r}")
        integers.extend(part_range)
    if not integers:
        raise InputError(f"{name} must be a list of integers such as 0-4 or 0,3,7; got {text!r}")
    if len(set(integers)) < len(integers):
        raise InputError(f"{name} must list each value once; got {text!r}")
    return integers


def parse_floats(name: str, text: str) -> list[float]:
    """Parse a list of numbers such as 0.8,1,1.5. Raise InputError for invalid text or repeated values."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{name} must be a list of numbers such as 0.8,1,1.5; got {text!r}") from None
    if len(set(numbers)) < len(numbers):
        raise InputError(f"{name} must list each value once; got {text!r}")
    return numbers


def try_controller(start: Flock, controller: str, **flight_options: Any) -> None:
    """Simulate TRIAL_STEPS steps, so that a broken controller raises its error before jobs are run or files written."""
    list(islice(flight(start, load(controller), **flight_options), TRIAL_STEPS))


class _DescriptionColumn(TextColumn):
    """Column that shows the task's description or, while kernels are compiled for it, the compiler's progress."""

    def render(self, task: Task) -> Text:
        """Return the description or the compiler's progress."""
        text = None if task.finished else compile_progress.format_progress()
        return super().render(task) if text is None else Text(text)


class _CompilerProgress(Progress):
    """Progress display that takes over the output of the compiler's progress."""

    def __enter__(self) -> Self:
        self._compiler_display = nullcontext() if self.disable else compile_progress.suppress_progress_output()
        self._compiler_display.__enter__()
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._compiler_display.__exit__(*raised)


class _ValueColumn(ProgressColumn):
    """Column that shows a value of its task, such as the loss, once it has one."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def render(self, task: Task) -> Text:
        """Return name and value, or nothing."""
        value = task.fields.get(self.name)
        return Text("" if value is None else f"{self.name} {value}")


def progress(*values: str) -> Progress:
    """Return a context manager that shows progress bars on stderr until the work is done; none if it is no terminal.

    Args:
        values: names of values to show beside a bar, which `update(task, name=text)` sets.
    """
    # On stderr and only on a terminal, so that output to a file or a pipe stays clean.
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
    """Print the first layout of a table, each a header and rows, that fits the width of the terminal.

    The first column is text, the others are numbers. If no layout fits, long names are broken into lines.
    """
    # Try each layout with padding between columns, then without.
    for table in (_build_table(title, *layout, padding) for layout in layouts for padding in (1, 0)):
        if _measure_width(table) <= out.width:
            out.print(table)
            return
    # Not even the narrowest layout fits: break names, down to MIN_NAME_WIDTH characters.
    header, rows = layouts[-1]
    name_width = max(len(line) for row in rows for line in row[0].split("\n"))
    max_width = max(name_width - (_measure_width(table) - out.width), MIN_NAME_WIDTH)
    out.print(_build_table(title, header, [[_break_name(row[0], max_width), *row[1:]] for row in rows], 0))


def print_orbit(orbit: Orbit) -> None:
    """Print the parameters of the orbit technique that come with the weights."""
    parameters = ", ".join(f"{each.name} {getattr(orbit, each.name):.3g}" for each in fields(orbit))
    out.print(f"orbit technique of the weights: {parameters}", highlight=False, soft_wrap=True)


def print_text_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], lines: bool = False) -> None:
    """Print a table of text, which is wrapped; `lines` draws lines between rows."""
    table = Table(title=title, title_justify="left", show_lines=lines)
    _fill_table(table, header, rows)
    out.print(table)


def _build_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], padding: int) -> Table:
    """Return a table of numbers whose cells are not wrapped; `padding` is the blanks beside each cell."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, padding))
    _fill_table(table, header, rows, justify="right", vertical="bottom", no_wrap=True)
    table.columns[0].justify = "left"
    return table


def _fill_table(table: Table, header: Sequence[str], rows: Sequence[Sequence[str]], **style: Any) -> None:
    """Add columns, with this style, and rows to a table."""
    for column in header:
        table.add_column(column, **style)
    for row in rows:
        table.add_row(*row)


def _measure_width(table: Table) -> int:
    """Return the width of a table in a terminal of unlimited width."""
    return out.measure(table, options=out.options.update(width=10_000)).maximum


def _break_name(name: str, width: int) -> str:
    """Return a name broken into lines of at most `width` characters, after / _ . : or - only.

    Parts without such a character may be longer.
    """
    lines = [""]
    for part in re.findall(r"[^/_.:-]*[/_.:-]?", name):
        if lines[-1] and len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def print_notice(bar: Progress, text: str) -> None:
    """Print a notice on stderr, above the progress bars."""
    bar.console.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)


class TrainingProgress:
    """Progress bar of a training, with a printed line for each validation."""

    def __init__(self, bar: Progress, recipe: DAgger, visible: bool = True) -> None:
        self.bar = bar
        self.label = f"{recipe.controller}, seed {recipe.seed}"
        self.task = bar.add_task(PREPARING_TEXT, total=recipe.epochs, visible=visible)
        self.epochs_done = 0
        """Number of finished epochs."""

    def show_epoch(self, report: EpochReport) -> None:
        """Show the loss of an epoch; if it has a validation, show medians of IVV and IMAN and print a line.

        IVV is the integral of velocity variance, IMAN that of the mean acceleration norm.
        """
        self.epochs_done = report.epoch
        values: dict[str, Any] = {"loss": f"{report.loss:.3g}"}
        if report.validation is not None:
            for name, metric in (("IVV", report.validation.ivv), ("IMAN", report.validation.iman)):
                values[name] = f"{np.median(metric):.3g}"
            self.print_notice(f"epoch {report.epoch}: {report.validation}")
        self.bar.update(self.task, description=f"training {self.label}", completed=report.epoch, visible=True, **values)

    @property
    def stop_message(self) -> str:
        """Confirmation of Ctrl-C."""
        epoch = f"epoch {self.epochs_done + 1}" if self.epochs_done else "this epoch"
        return f"finishing {epoch}; {SECOND_CTRL_C_HINT}"

    def print_notice(self, text: str) -> None:
        """Print a notice about this training, above the bar on a terminal, else on standard output."""
        console = self.bar.console if self.bar.console.is_terminal else out
        console.print(f"{self.label}: {text}", highlight=False, markup=False, soft_wrap=True)
