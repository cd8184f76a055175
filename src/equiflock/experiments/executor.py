"""An experiment is a bag of cells that know nothing of each other: run in parallel, each kept as soon as it is done."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pandas as pd

from equiflock.files import written_whole
from equiflock.types import InputError, check_count

LIVES = 3
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
) -> None:
    """Run the cells whose results are not in `folder` yet.

    Args:
        cells: of one or several experiments.
        folder: of their results.
        workers: how many processes here, if there is no scheduler.
        on_done: called with every cell that is done, or was before.
        prepare: called in every process first, such as to register one's own controllers; it must be importable.
        scheduler: the address of a Dask scheduler, such as tcp://10.0.0.1:8786, whose workers run the cells.

    A result is written under its final name only when it is whole, as soon as it is there; so whatever happens, no
    finished cell is lost or run again. Results do not depend on who runs the cells.
    """
    check_count("workers", workers)
    folder.mkdir(parents=True, exist_ok=True)
    for cell in cells:
        if is_done(cell, folder):
            on_done(cell)
    missing = [cell for cell in cells if not is_done(cell, folder)]
    if not missing:
        return
    if scheduler is None:
        done = _on_processes(missing, folder, workers, prepare)
    else:
        from equiflock.experiments.cluster import on_dask

        done = on_dask(missing, folder, scheduler, prepare)
    for cell in done:
        on_done(cell)


def is_done(cell: Cell, folder: Path) -> bool:
    """Whether the cell's result is in the folder."""
    return path_of(cell, folder).exists()


def collect(cells: Sequence[Cell], folder: Path) -> pd.DataFrame:
    """The results of all cells in one table, each row marked with its cell's labels."""
    return pd.concat([pd.read_csv(path_of(cell, folder)).assign(**cell.labels) for cell in cells], ignore_index=True)


def path_of(cell: Cell, folder: Path) -> Path:
    """Named by what the cell is, so that the result of other settings is another file."""
    return folder / f"{cell.key}-{hashlib.sha256(repr(cell).encode()).hexdigest()[:12]}.csv"


def compute(cell: Cell) -> pd.DataFrame:
    """The cell's table, by one thread."""
    from equiflock.imitation.dagger import one_thread

    with one_thread():
        return cell.run()


def keep(table: pd.DataFrame, cell: Cell, folder: Path) -> None:
    """Write a result."""
    with written_whole(path_of(cell, folder)) as scratch:
        table.to_csv(scratch, index=False)


def _on_processes(
    cells: Sequence[Cell], folder: Path, workers: int, prepare: Callable[[], object] | None
) -> Iterator[Cell]:
    """Run cells in so many processes, each of which writes its results itself; yields those that are done.

    If a process dies, such as for want of memory, the cells that are not done are run again in new ones.
    """
    for _ in range(LIVES):
        missing = [cell for cell in cells if not is_done(cell, folder)]
        try:
            yield from _in_a_pool(missing, folder, min(workers, len(missing)), prepare)
        except BrokenProcessPool:
            continue
        return
    names = ", ".join(cell.key for cell in cells if not is_done(cell, folder))
    raise InputError(f"processes died {LIVES} times, perhaps for want of memory; not done: {names}")


def _in_a_pool(
    cells: Sequence[Cell], folder: Path, workers: int, prepare: Callable[[], object] | None
) -> Iterator[Cell]:
    context = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(prepare,)) as pool:
        try:
            futures = {pool.submit(_run, cell, folder): cell for cell in cells}
            for future in as_completed(futures):
                future.result()
                yield futures[future]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                if process not in others:
                    process.kill()
            raise


def _run(cell: Cell, folder: Path) -> None:
    keep(compute(cell), cell, folder)


def _begin(prepare: Callable[[], object] | None) -> None:
    """In every process: no life after the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    if prepare is not None:
        prepare()
