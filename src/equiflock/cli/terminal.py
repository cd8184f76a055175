"""What the commands share: consoles, progress, plugins, and hearing Ctrl-C."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
import tyro
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

from equiflock.cli.plugins import import_plugin as import_plugin
from equiflock.imitation.recipe import DAgger
from equiflock.initial import RandomDisk
from equiflock.types import InputError

if TYPE_CHECKING:
    from equiflock.imitation.dagger import EpochReport

Disk = Annotated[RandomDisk, tyro.conf.arg(name="")]
"""The options of RandomDisk, without a prefix of their own."""

PREPARING = "preparing (the first run compiles the kernels)"
Result = TypeVar("Result")
out = Console()
err = Console(stderr=True)


def whole_numbers(name: str, text: str) -> list[int]:
    """Whole numbers written such as 0-4 or 0,3,7."""
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise InputError(f"{name} must be such as 0-4 or 0,3,7; got {text!r}")
        found.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    if not found or len(set(found)) < len(found):
        raise InputError(f"{name} must be such as 0-4 or 0,3,7, each once; got {text!r}")
    return found


def numbers(name: str, text: str) -> list[float]:
    """Numbers written such as 0.8,1,1.5."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"{name} must be such as 0.8,1,1.5; got {text!r}") from None
    if len(set(found)) < len(found):
        raise InputError(f"{name} must be such as 0.8,1,1.5, each once; got {text!r}")
    return found


def interruptible(work: Callable[[], Result]) -> Result:
    """Do in another thread what may take long in one compiled call, so that Ctrl-C is heard meanwhile."""
    future: Future[Result] = Future()

    def fulfil() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=fulfil, daemon=True).start()
    while not future.done():
        wait([future], timeout=0.2)
    return future.result()


class _Value(ProgressColumn):
    """A number that goes with a task, once it is known."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def render(self, task: Task) -> Text:
        """Name and number."""
        value = task.fields.get(self.name)
        return Text("" if value is None else f"{self.name} {value}")


def progress(*values: str) -> Progress:
    """A progress bar on the terminal, gone when the work is done; use it in a `with`.

    Args:
        values: names of numbers to show beside it, given by `update(task, name=text)`.
    """
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, *map(_Value, values), console=err, transient=True, disable=not err.is_terminal)


def print_table(title: str, *forms: tuple[Sequence[str], Sequence[Sequence[str]]]) -> None:
    """Print the first of these forms of a table, each a header and rows, that the terminal has room for.

    The first column is text, the others are numbers. If there is room for none, names are broken.
    """
    tables = [_table(title, *form, room) for form in forms for room in (1, 0)]
    unbounded = out.options.update(width=10_000)
    fitting = [table for table in tables if out.measure(table, options=unbounded).maximum <= out.width]
    out.print(fitting[0] if fitting else tables[-1])


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, room))
    for number, column in enumerate(header):
        if number == 0:
            table.add_column(column, vertical="bottom", overflow="fold")
        else:
            widest = max([*map(len, column.split("\n")), *(len(row[number]) for row in rows)])
            table.add_column(column, justify="right", vertical="bottom", min_width=widest)
    for row in rows:
        table.add_row(*row)
    return table


def notice(bar: Progress, text: str) -> None:
    """Show a line that the user should know, above the bar where there is one."""
    bar.console.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)


class Training:
    """The bar of a training, and a line for each of its validations."""

    def __init__(self, bar: Progress, recipe: DAgger, visible: bool = True) -> None:
        self.bar = bar
        self.label = f"{recipe.controller}, seed {recipe.seed}"
        self.task = bar.add_task(PREPARING, total=recipe.epochs, visible=visible)

    def epoch(self, report: EpochReport) -> None:
        """Show what came of an epoch."""
        shown: dict[str, Any] = {"loss": f"{report.loss:.3g}"}
        if report.validation is not None:
            for name, values in (("IVV", report.validation.ivv), ("IMAN", report.validation.iman)):
                shown[name] = f"{np.median(values):.3g}"
            self.notice(f"epoch {report.epoch}: {report.validation}")
        self.bar.update(self.task, description=f"training {self.label}", completed=report.epoch, visible=True, **shown)

    def notice(self, text: str) -> None:
        """Show a line that the user should know."""
        # Above the bar where there is one.
        console = self.bar.console if self.bar.console.is_terminal else out
        console.print(f"{self.label}: {text}", highlight=False, markup=False, soft_wrap=True)
