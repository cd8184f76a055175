"""Arrays on disk that are made part by part, in any order, each part with a checksum of its own.

NAME.npy      an array of S parts, (S, ..) float32, one file for each name
parts/NUMBER  the checksum of one part of all arrays, written once that part is on the disk
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32

from equiflock.runtime import threads
from equiflock.runtime.checksums import checksum
from equiflock.runtime.files import atomic_write

Arrays = Mapping[str, Float32[np.ndarray, "..."]]


@dataclass(frozen=True)
class Survey:
    """What there is of arrays on disk."""

    count: int
    """How many parts there should be."""
    intact: frozenset[int]
    """The parts that are as they were written."""
    damaged: frozenset[int]
    """Those that are not."""

    @property
    def damage(self) -> str:
        """How many of how many are damaged."""
        return f"all {self.count}" if len(self.damaged) == self.count else f"{len(self.damaged)} of {self.count}"


@dataclass(frozen=True)
class PartedArrays:
    """Arrays of these shapes in a folder, all of which have the same number of parts."""

    folder: Path
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def count(self) -> int:
        """S, how many parts there are."""
        return next(iter(self.shapes.values()))[0]

    def survey(self) -> Survey:
        """Read everything and compare it with the checksums."""
        marked = [step for step in range(self.count) if self._mark(step).is_file()]
        if not marked:
            return Survey(self.count, frozenset(), frozenset())
        if any(not self._is_whole(name) for name in self.shapes):
            return Survey(self.count, frozenset(), frozenset(marked))
        arrays = self.opened("r")
        intact = frozenset(step for step in marked if self._mark(step).read_bytes() == _told(arrays, step))
        return Survey(self.count, intact, frozenset(marked) - intact)

    def begin(self, steps: Iterable[int]) -> Arrays:
        """The arrays, to write these parts of them."""
        steps = set(steps)
        self._mark(0).parent.mkdir(exist_ok=True)
        for step in steps:
            self._mark(step).unlink(missing_ok=True)
        if len(steps) < self.count:
            return self.opened("r+")
        return {name: _new(self._path(name), shape) for name, shape in self.shapes.items()}

    def keep(self, arrays: Arrays, step: int) -> None:
        """Let a part that was written reach the disk, and then its mark."""
        for array in arrays.values():
            array.flush()  # type: ignore[attr-defined]
        with atomic_write(self._mark(step)) as scratch:
            scratch.write_bytes(_told(arrays, step))

    def opened(self, mode: Literal["r", "r+"]) -> Arrays:
        """The arrays, read when they are used; the files must be whole."""
        return {
            name: np.memmap(self._path(name), np.float32, mode, len(_header(shape)), shape)
            for name, shape in self.shapes.items()
        }

    @property
    def have_a_file(self) -> bool:
        """Whether at least one file of such arrays is there."""
        return any(self._is_whole(name) for name in self.shapes)

    def remove(self) -> None:
        """Remove all of it."""
        for name in self.shapes:
            self._path(name).unlink(missing_ok=True)
        for step in range(self.count):
            self._mark(step).unlink(missing_ok=True)

    def _is_whole(self, name: str) -> bool:
        """Whether a file begins as it should, and is as long; what is between, the checksums tell."""
        path, header = self._path(name), _header(self.shapes[name])
        if not path.is_file() or path.stat().st_size != len(header) + 4 * int(np.prod(self.shapes[name])):
            return False
        with path.open("rb") as file:
            return file.read(len(header)) == header

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npy"

    def _mark(self, step: int) -> Path:
        return self.folder / "parts" / f"{step}"


def _told(arrays: Arrays, step: int) -> bytes:
    """What the mark of a part says."""
    return f"{checksum(*(array[step].data for array in arrays.values()))}\n".encode()


def _header(shape: tuple[int, ...]) -> bytes:
    """How a file of that shape begins. It is known, so that no damaged one is ever interpreted."""
    content = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(np.dtype(np.float32))
    np.lib.format.write_array_header_1_0(content, {"descr": descr, "fortran_order": False, "shape": shape})
    return content.getvalue()


def _new(path: Path, shape: tuple[int, ...]) -> Any:
    """An array on disk to write to, whose place is taken at once: a full disk is told now, not by a crash later."""
    array = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def fill(
    arrays: Arrays,
    steps: Iterable[int],
    make: Callable[[int], Arrays],
    workers: int,
    on_part: Callable[[int], object],
) -> None:
    """Make these parts of the arrays, several at once, each on one thread of its own.

    Args:
        arrays: to write to.
        steps: the numbers of the parts.
        make: called with the number of a part, returns what it holds, by the arrays' names.
        workers: how many parts are made at once.
        on_part: called with the number of every part that is written.
    """

    def work(step: int) -> int:
        with threads.use(1):
            for name, content in make(step).items():
                arrays[name][step] = content
        return step

    # The last parts first, which take longest, so that no worker is left alone with one at the end.
    waiting = sorted(steps)
    running: set[Future[int]] = set()
    with ThreadPoolExecutor(workers) as pool:
        while waiting or running:
            while waiting and len(running) < workers:
                running.add(pool.submit(work, waiting.pop()))
            # Waiting for a short time only lets Ctrl-C be heard.
            done, running = wait(running, timeout=0.2, return_when="FIRST_COMPLETED")
            for future in done:
                on_part(future.result())
