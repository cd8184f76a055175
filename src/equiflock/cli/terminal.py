"""What commands print: consoles, progress bars, tables and notices; and parsing of number lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

from equiflock._runtime.checks import InputError

if TYPE_CHECKING:
    from equiflock.learning.recipe import DAgger
    from equiflock.learning.validation import EpochReport
    from equiflock.observations.orbit import Orbit

out = Console()
err = Console(stderr=True)
SECOND_CTRL_C_HINT = "press Ctrl-C again to stop immediately"
PREPARING_TEXT = "preparing (the first run compiles the kernels)"
MAX_NUMBERS = 10_000
REFRESHES_PER_SECOND = 4
"""Refresh rate of progress bars; a refresh takes 1.5 ms."""
MIN_NAME_WIDTH = 12
"""Least width, in characters, of names that are broken into lines in a table."""


@contextmanager
def progress(*values: str) -> Iterator[Progress]:
    """Show progress bars on stderr until the block ends; none if stderr is no terminal, so that files stay clean.

    Beside a bar are the `values` that `update(task, name=text)` sets, such as the loss. While kernels are compiled, the
    compiler's progress replaces the descriptions.
    """
    from equiflock._runtime.compile_progress import suppress_progress_output

    columns = _DescriptionColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    bar = Progress(
        *columns,
        *map(_ValueColumn, values),
        console=err,
        transient=True,
        disable=not err.is_terminal,
        refresh_per_second=REFRESHES_PER_SECOND,
    )
    with nullcontext() if bar.disable else suppress_progress_output(), bar:
        yield bar


class _DescriptionColumn(TextColumn):
    """Column that shows the task's description or, while kernels are compiled for it, the compiler's progress."""

    def render(self, task: Task) -> Text:
        """Return the description or the compiler's progress."""
        from equiflock._runtime.compile_progress import format_progress

        text = None if task.finished else format_progress()
        return super().render(task) if text is None else Text(text)


class _ValueColumn(ProgressColumn):
    """Column that shows a value of its task once it has one."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def render(self, task: Task) -> Text:
        """Return name and value, or an empty text."""
        value = task.fields.get(self.name)
        return Text("" if value is None else f"{self.name} {value}")


def print_table(title: str, *layouts: tuple[Sequence[str], Sequence[Sequence[str]]]) -> None:
    """Print the first layout of a table, each a header and rows, that fits the width of the terminal.

    The first column is text, the others are numbers. If no layout fits, even without padding, long names are broken
    into lines.
    """
    for table in (_build_table(title, *layout, padding) for layout in layouts for padding in (1, 0)):
        if _measure_width(table) <= out.width:
            out.print(table)
            return
    header, rows = layouts[-1]
    name_width = max(len(line) for row in rows for line in row[0].split("\n"))
    max_width = max(name_width - (_measure_width(table) - out.width), MIN_NAME_WIDTH)
    out.print(_build_table(title, header, [[_break_name(row[0], max_width), *row[1:]] for row in rows], 0))


def print_column_blocks(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], keys: int = 1, group: int = 1
) -> None:
    """Print a table of numbers with as many columns side by side as fit the terminal, and the others below.

    The first `keys` columns, the rows' names, are repeated in each block. Each `group` of the other columns stays
    together. Long names are broken into lines.
    """
    out.print(Text(title, style="table.title"))
    tables = []
    # Names take at most two fifths of the width, or as little as possible if not even one group fits beside them.
    for name_width in (2 * out.width // 5, MIN_NAME_WIDTH):
        named = [_align_top([_break_name(row[0], name_width), *row[1:]]) for row in rows]
        for columns in _divide_columns(len(header), keys, group):
            tables = [_fit_block(header, named, block) for block in columns]
            if all(_measure_width(table) <= out.width for table in tables):
                break
        else:
            continue
        break
    for table in tables:
        out.print(table)


def _align_top(row: Sequence[str]) -> list[str]:
    """Return the cells of a row, all with as many lines, so that their first lines are level."""
    lines = max(cell.count("\n") for cell in row)
    return [cell + "\n" * (lines - cell.count("\n")) for cell in row]


def _divide_columns(columns: int, keys: int, group: int) -> Iterator[list[list[int]]]:
    """Yield divisions of a table's columns into 1, 2, .. blocks of about equal size, each with the key columns."""
    groups = [range(first, min(first + group, columns)) for first in range(keys, columns, group)]
    for count in range(1, len(groups) + 1):
        # Blocks of equal size, the last ones smaller by one group.
        size, larger = divmod(len(groups), count)
        ends = [place * size + min(place, larger) for place in range(count + 1)]
        yield [[*range(keys), *chain.from_iterable(groups[first:last])] for first, last in pairwise(ends)]


def _fit_block(header: Sequence[str], rows: Sequence[Sequence[str]], columns: Sequence[int]) -> Table:
    """Return a table of these columns, without padding if it is wider than the terminal with it."""
    parts = [header[column] for column in columns], [[row[column] for column in columns] for row in rows]
    table = _build_table("", *parts, 1)
    return table if _measure_width(table) <= out.width else _build_table("", *parts, 0)


def print_text_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], lines: bool = False) -> None:
    """Print a table of text, which is wrapped; `lines` draws lines between rows."""
    table = Table(title=title, title_justify="left", show_lines=lines)
    _fill_table(table, header, rows)
    out.print(table)


def _build_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], padding: int) -> Table:
    """Return a table of numbers whose cells are not wrapped; `padding` is the blanks beside each cell."""
    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, padding=(0, padding))
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


def print_orbit(orbit: Orbit, controller: str = "") -> None:
    """Print the parameters of the orbit technique that come with the weights, of a controller if there are several."""
    parameters = ", ".join(f"{each.name} {getattr(orbit, each.name):.3g}" for each in fields(orbit))
    owner = controller or "the weights"
    out.print(f"orbit technique of {owner}: {parameters}", highlight=False, markup=False, soft_wrap=True)


def print_paths(paths: Iterable[Path]) -> None:
    """Print the paths of written files, one per line."""
    for path in paths:
        out.print(f"  {path}", highlight=False, markup=False, soft_wrap=True)


def print_line(text: str) -> None:
    """Print a text as it is, without wrapping it."""
    out.print(text, highlight=False, markup=False, soft_wrap=True)


def print_warning(text: str | None) -> None:
    """Print a warning on stderr in one line; nothing for None."""
    if text is not None:
        err.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)


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

    def show_epoch(self, report: EpochReport) -> None:
        """Show the loss of an epoch; if it has a validation, show medians of IVV and IMAN and print a line."""
        import numpy as np

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


def parse_integers(name: str, text: str) -> list[int]:
    """Parse a list of integers from 0 on, such as 0-4 (both included) or 0,3,7, in the given order.

    Raise InputError, which names the option `name`, for invalid text, repeated values, or more than MAX_NUMBERS.
    """
    # Limit the size before expanding a range: 0-999999999 must not fill the memory.
    integers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        part_range = range(int(match[1]), int(match[2] or match[1]) + 1) if match is not None else range(0)
        if not part_range:
            raise InputError(f"{name} must be a list of integers such as 0-4 or 0,3,7; got {text!r}")
        if len(integers) + len(part_range) > MAX_NUMBERS:
            raise InputError(f"{name} must have at most {MAX_NUMBERS:,} values; got {text!r}")
        integers.extend(part_range)
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
