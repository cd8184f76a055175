"""An experiment is a bag of cells that know nothing of each other: run in parallel, each kept as soon as it is done."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pandas as pd

from equiflock.files import written_whole
from equiflock.types import check_count


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
) -> None:
    """Run the cells whose results are not in `folder` yet, so many at a time.

    Args:
        cells: of one or several experiments.
        folder: of their results.
        workers: how many processes.
        on_done: called with every cell that is done, or was before.
        prepare: called in every process first, such as to register one's own controllers; it must be importable.

    A result is written by the process that made it, under its final name only when it is whole; so whatever happens, no
    finished cell is lost or run again.
    """
    check_count("workers", workers)
    folder.mkdir(parents=True, exist_ok=True)
    for cell in cells:
        if _path(folder, cell).exists():
            on_done(cell)
    missing = [cell for cell in cells if not _path(folder, cell).exists()]
    if not missing:
        return
    context = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(
        min(workers, len(missing)), mp_context=context, initializer=_begin, initargs=(prepare,)
    ) as pool:
        try:
            futures = {pool.submit(_run, cell, folder): cell for cell in missing}
            for future in as_completed(futures):
                future.result()
                on_done(futures[future])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                if process not in others:
                    process.kill()
            raise


def collect(cells: Sequence[Cell], folder: Path) -> pd.DataFrame:
    """The results of all cells in one table, each row marked with its cell's labels."""
    return pd.concat([pd.read_csv(_path(folder, cell)).assign(**cell.labels) for cell in cells], ignore_index=True)


def _path(folder: Path, cell: Cell) -> Path:
    return folder / f"{cell.key}.csv"


def _run(cell: Cell, folder: Path) -> None:
    from equiflock.imitation.dagger import one_thread

    with one_thread():
        table = cell.run()
    with written_whole(_path(folder, cell)) as scratch:
        table.to_csv(scratch, index=False)


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
