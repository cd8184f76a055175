"""An experiment is a bag of cells that know nothing of each other: run in parallel, each kept as soon as it is done."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Generator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pandas as pd

from equiflock.checks import InputError, check_count
from equiflock.checksums import DamagedError, read_text, write_text
from equiflock.experiments.pool import in_a_pool

MOST_POOLS = 3
"""How often a pool whose processes die is made again."""


@runtime_checkable
class Cell(Protocol):
    """One piece of an experiment: frozen, with everything that has a say in its result."""

    @property
    def key(self) -> str:
        """Its name among all cells, fit for a file's."""
        ...

    @property
    def labels(self) -> dict[str, Any]:
        """What its rows are marked with in the experiment's table."""
        ...

    def run(self) -> pd.DataFrame:
        """The result, a tidy table."""
        ...


def run_cells(
    cells: Sequence[Cell],
    folder: Path,
    workers: int,
    on_done: Callable[[Cell], object] = lambda cell: None,
    prepare: Callable[[], object] | None = None,
    scheduler: str | None = None,
    on_notice: Callable[[str], object] = lambda text: None,
) -> None:
    """Run the cells whose results are not in `folder` yet, or are damaged.

    Args:
        cells: of one or several experiments.
        folder: of their results.
        workers: how many processes here, if there is no scheduler.
        on_done: called with every cell that is done, or was before.
        prepare: called before every cell, where it runs, such as to register one's own controllers; importable.
        scheduler: the address of a Dask scheduler, such as tcp://10.0.0.1:8786, whose workers run the cells.
        on_notice: called with a line of text about every damaged result.

    A result is written under its final name only when it is whole, as soon as it is there; so whatever happens, no
    finished cell is lost or run again. Results do not depend on who runs the cells.
    """
    check_count("workers", workers)
    folder.mkdir(parents=True, exist_ok=True)
    missing = []
    for cell in cells:
        if is_done(cell, folder, lambda text: on_notice(f"{text}; this cell is computed again")):
            on_done(cell)
        else:
            missing.append(cell)
    if not missing:
        return
    if scheduler is None:
        done = _on_processes(missing, folder, workers, prepare)
    else:
        from equiflock.experiments.cluster import on_dask

        done = on_dask(missing, folder, scheduler, prepare)
    with closing(done):  # so that Ctrl-C in `on_done` ends the processes, too
        for cell in done:
            on_done(cell)


def is_done(cell: Cell, folder: Path, on_damage: Callable[[str], object] = lambda text: None) -> bool:
    """Whether the cell's result is in the folder as it was written; a damaged one is told, and counts as missing."""
    try:
        read_text(path_of(cell, folder))
    except FileNotFoundError:
        return False
    except DamagedError as error:
        on_damage(str(error))
        return False
    return True


def collect(cells: Sequence[Cell], folder: Path) -> pd.DataFrame:
    """The results of all cells in one table, each row marked with its cell's labels."""
    return pd.concat([read_table(path_of(cell, folder)).assign(**cell.labels) for cell in cells], ignore_index=True)


def read_table(path: Path) -> pd.DataFrame:
    """A cell's result; an error if it is not what was written."""
    # Without the last line, rather than with comment="#": a text in the table may have that sign in it.
    return pd.read_csv(io.StringIO(read_text(path)))


def path_of(cell: Cell, folder: Path) -> Path:
    """Named by what the cell is, so that the result of other settings is another file."""
    return folder / f"{cell.key}-{hashlib.sha256(repr(cell).encode()).hexdigest()[:12]}.csv"


def compute(cell: Cell) -> pd.DataFrame:
    """The cell's table, by one thread."""
    from equiflock.imitation.dagger import one_thread

    with one_thread():
        return cell.run()


def keep(table: pd.DataFrame, cell: Cell, folder: Path) -> None:
    """Write a result, with a checksum as its last line."""
    write_text(table.to_csv(index=False, lineterminator="\n"), path_of(cell, folder))


def _on_processes(
    cells: Sequence[Cell], folder: Path, workers: int, prepare: Callable[[], object] | None
) -> Generator[Cell, None, None]:
    """Run cells in so many processes, each of which writes its results itself; yields those that are done.

    If a process dies, such as for want of memory, the cells that are not done are run again in new ones.
    """
    for _ in range(MOST_POOLS):
        missing = [cell for cell in cells if not is_done(cell, folder)]
        try:
            with closing(in_a_pool(_run, [(cell, folder, prepare) for cell in missing], workers)) as done:
                for number in done:
                    yield missing[number]
        except BrokenProcessPool:
            continue
        return
    names = ", ".join(cell.key for cell in cells if not is_done(cell, folder))
    raise InputError(f"processes died {MOST_POOLS} times, perhaps for want of memory; not done: {names}")


def _run(cell: Cell, folder: Path, prepare: Callable[[], object] | None) -> None:
    if prepare is not None:
        prepare()
    keep(compute(cell), cell, folder)
