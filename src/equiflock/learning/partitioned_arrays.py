"""Arrays on disk that are written part by part, in any order, with a checksum for each part.

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
from equiflock.runtime.checksums import DamagedError, compute_checksum, read_json
from equiflock.runtime.files import atomic_write
from equiflock.runtime.provenance import CONFIG

Arrays = Mapping[str, Float32[np.ndarray, "..."]]


@dataclass(frozen=True)
class PartStatus:
    """Which parts of the arrays are on disk and intact."""

    count: int
    """The number of parts of the whole arrays."""
    intact: frozenset[int]
    """The parts that match their checksums."""
    damaged: frozenset[int]
    """The parts that were written but do not match."""

    @property
    def damage_summary(self) -> str:
        """The number of damaged parts as text, such as "all 5" or "2 of 5"."""
        return f"all {self.count}" if len(self.damaged) == self.count else f"{len(self.damaged)} of {self.count}"


@dataclass(frozen=True)
class PartitionedArrays:
    """Arrays of these shapes in a folder, whose first axis counts their parts, the same number for all."""

    folder: Path
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def count(self) -> int:
        """S, how many parts there are."""
        return next(iter(self.shapes.values()))[0]

    def check_parts(self) -> PartStatus:
        """Read everything and compare it with the checksums."""
        # A part without a mark was never finished: it is missing, not damaged.
        marked = [step for step in range(self.count) if self._checksum_path(step).is_file()]
        if not marked:
            return PartStatus(self.count, frozenset(), frozenset())
        # A file of the wrong length cannot be mapped, so nothing of it can be used.
        if any(not self._is_complete(name) for name in self.shapes):
            return PartStatus(self.count, frozenset(), frozenset(marked))
        arrays = self.open_arrays("r")
        intact = frozenset(
            step for step in marked if self._checksum_path(step).read_bytes() == _format_checksum(arrays, step)
        )
        return PartStatus(self.count, intact, frozenset(marked) - intact)

    def open_for_writing(self, steps: Iterable[int]) -> Arrays:
        """Open the arrays to write these parts; they count as missing until `commit_part` is called."""
        steps = set(steps)
        self._checksum_path(0).parent.mkdir(exist_ok=True)
        # A mark goes before its part is overwritten: an interruption then leaves the part missing.
        for step in steps:
            self._checksum_path(step).unlink(missing_ok=True)
        # Some parts are there already: keep them.
        if len(steps) < self.count:
            return self.open_arrays("r+")
        return {name: _create_array(self._path(name), shape) for name, shape in self.shapes.items()}

    def commit_part(self, arrays: Arrays, step: int) -> None:
        """Flush a part that was written to the disk, and then write its mark."""
        for array in arrays.values():
            array.flush()  # type: ignore[attr-defined]
        with atomic_write(self._checksum_path(step)) as scratch:
            scratch.write_bytes(_format_checksum(arrays, step))

    def open_arrays(self, mode: Literal["r", "r+"]) -> Arrays:
        """The arrays, mapped into memory; the files must have their full length."""
        return {
            name: np.memmap(self._path(name), np.float32, mode, len(_build_header(shape)), shape)
            for name, shape in self.shapes.items()
        }

    @property
    def has_complete_file(self) -> bool:
        """Whether at least one file of these arrays is there with its full length."""
        return any(self._is_complete(name) for name in self.shapes)

    def remove_if_config_damaged(self, on_notice: Callable[[str], object]) -> None:
        """Remove the arrays and the folder's config, with a notice, if the config is damaged: nobody knows their kind.

        Where no file has these arrays' size, the folder may be somebody else's, and everything is left as it is.
        """
        path = self.folder / CONFIG
        try:
            if path.exists():
                read_json(path)
        except DamagedError as error:
            if self.has_complete_file:
                on_notice(f"{error}; all of the data is made again")
                path.unlink()
                self.remove()

    def remove(self) -> None:
        """Remove the arrays and all marks."""
        for name in self.shapes:
            self._path(name).unlink(missing_ok=True)
        for step in range(self.count):
            self._checksum_path(step).unlink(missing_ok=True)

    def _is_complete(self, name: str) -> bool:
        """Whether a file has the right header and length; its content is checked by the checksums."""
        path, header = self._path(name), _build_header(self.shapes[name])
        if not path.is_file() or path.stat().st_size != len(header) + 4 * int(np.prod(self.shapes[name])):
            return False
        with path.open("rb") as file:
            return file.read(len(header)) == header

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npy"

    def _checksum_path(self, step: int) -> Path:
        return self.folder / "parts" / f"{step}"


def _format_checksum(arrays: Arrays, step: int) -> bytes:
    """The content of a part's mark: its checksum."""
    return f"{compute_checksum(*(array[step].data for array in arrays.values()))}\n".encode()


def _build_header(shape: tuple[int, ...]) -> bytes:
    """The header of a file of that shape. It is compared, never parsed, so that a damaged one does no harm."""
    content = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(np.dtype(np.float32))
    np.lib.format.write_array_header_1_0(content, {"descr": descr, "fortran_order": False, "shape": shape})
    return content.getvalue()


def _create_array(path: Path, shape: tuple[int, ...]) -> Any:
    """A new array on disk. Its space is allocated at once, so that a full disk is an error now, not a crash later."""
    array = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def fill_parts(
    arrays: Arrays,
    steps: Iterable[int],
    make: Callable[[int], Arrays],
    workers: int,
    on_part: Callable[[int], object],
) -> None:
    """Make these parts of the arrays, several at once, each on one thread of its own.

    Args:
        arrays: the arrays to write to.
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
            # Waiting only for a short time lets Python handle Ctrl-C.
            done, running = wait(running, timeout=0.2, return_when="FIRST_COMPLETED")
            for future in done:
                on_part(future.result())
