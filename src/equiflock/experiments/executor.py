"""An experiment is a bag of cells that know nothing of each other: run in parallel, each kept as soon as it is done."""

from __future__ import annotations

import hashlib
import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pandas as pd

from equiflock.files import written_whole
from equiflock.imitation.run import versions
from equiflock.types import InputError, check_count

PATIENCE = 30
"""Seconds to wait for a scheduler, and for its first worker."""


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
        done = _on_dask(missing, folder, scheduler, prepare)
    for cell in done:
        on_done(cell)


def is_done(cell: Cell, folder: Path) -> bool:
    """Whether the cell's result is in the folder."""
    return _path(folder, cell).exists()


def collect(cells: Sequence[Cell], folder: Path) -> pd.DataFrame:
    """The results of all cells in one table, each row marked with its cell's labels."""
    return pd.concat([pd.read_csv(_path(folder, cell)).assign(**cell.labels) for cell in cells], ignore_index=True)


def _path(folder: Path, cell: Cell) -> Path:
    """Named by what the cell is, so that the result of other settings is another file."""
    return folder / f"{cell.key}-{hashlib.sha256(repr(cell).encode()).hexdigest()[:12]}.csv"


def _on_processes(
    cells: Sequence[Cell], folder: Path, workers: int, prepare: Callable[[], object] | None
) -> Iterator[Cell]:
    """Run cells in so many processes, each of which writes its results itself; yields those that are done."""
    context = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    with ProcessPoolExecutor(
        min(workers, len(cells)), mp_context=context, initializer=_begin, initargs=(prepare,)
    ) as pool:
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


def _on_dask(
    cells: Sequence[Cell], folder: Path, scheduler: str, prepare: Callable[[], object] | None
) -> Iterator[Cell]:
    """Run cells on the workers of a Dask scheduler, whose results are written here; yields those that are done.

    A worker that dies has its cells run by others.
    """
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise InputError("--scheduler needs Dask: pip install 'equiflock[cluster]'") from None
    try:
        client = distributed.Client(scheduler, timeout=PATIENCE)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(f"no Dask scheduler answers at {scheduler}: {error}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise InputError(f"the Dask scheduler at {scheduler} has no workers") from None
        for worker, theirs in client.run(versions).items():
            if theirs != versions():
                raise InputError(f"the Dask worker {worker} has {theirs}, here are {versions()}: make them the same")
        names = {_path(folder, cell).stem: cell for cell in cells}
        futures = [client.submit(_compute, cell, prepare, key=name, pure=False) for name, cell in names.items()]
        try:
            for future in distributed.as_completed(futures):
                cell = names[future.key]
                _write(future.result(), _path(folder, cell))
                future.release()
                yield cell
        except distributed.KilledWorker as error:
            raise InputError(f"a cell was given up because workers died of it: {error}") from None
        finally:
            client.cancel(futures)


def _run(cell: Cell, folder: Path) -> None:
    _write(_compute(cell), _path(folder, cell))


def _compute(cell: Cell, prepare: Callable[[], object] | None = None) -> pd.DataFrame:
    from equiflock.imitation.dagger import one_thread

    if prepare is not None:
        prepare()
    with one_thread():
        return cell.run()


def _write(table: pd.DataFrame, path: Path) -> None:
    with written_whole(path) as scratch:
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
