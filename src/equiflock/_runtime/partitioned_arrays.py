"""Arrays on disk that are written part by part, in any order, with a checksum per part.

NAME.npy      an array of S parts, (S, ..) float32, one file per name
parts/NUMBER  the checksum of settings, number and one part of all arrays, written after the part itself
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

from equiflock._runtime import threads
from equiflock._runtime.checksums import DamagedError, compute_checksum, read_json
from equiflock._runtime.files import atomic_write
from equiflock._runtime.provenance import CONFIG

Arrays = Mapping[str, Float32[np.ndarray, "..."]]


@dataclass(frozen=True)
class PartStatus:
    """Status of the parts on disk: intact, damaged or missing."""

    count: int
    """Total number of parts."""
    intact: frozenset[int]
    """Parts that match their checksums."""
    damaged: frozenset[int]
    """Parts that were written but do not match their checksums."""

    @property
    def damage_summary(self) -> str:
        """Number of damaged parts as text, such as "all 5" or "2 of 5"."""
        return f"all {self.count}" if len(self.damaged) == self.count else f"{len(self.damaged)} of {self.count}"


@dataclass(frozen=True)
class PartitionedArrays:
    """Arrays of these shapes in a directory; their first axis is the part and has the same length in all of them."""

    folder: Path
    shapes: Mapping[str, tuple[int, ...]]
    settings: str
    """Everything that the content depends on; the checksums cover it, so that parts of other settings are detected."""

    @property
    def count(self) -> int:
        """S, the number of parts."""
        return next(iter(self.shapes.values()))[0]

    def check_parts(self) -> PartStatus:
        """Read all parts, compare them with their checksums, and return the status."""
        # A part without a checksum file was never completed: it is missing, not damaged.
        written = [step for step in range(self.count) if self._checksum_path(step).is_file()]
        if not written:
            return PartStatus(self.count, frozenset(), frozenset())
        # A file of the wrong length cannot be mapped, so all of its parts are damaged.
        if not all(map(self._is_complete, self.shapes)):
            return PartStatus(self.count, frozenset(), frozenset(written))
        arrays = self.open_arrays("r")
        intact = frozenset(
            step for step in written if self._checksum_path(step).read_bytes() == self._format_checksum(arrays, step)
        )
        return PartStatus(self.count, intact, frozenset(written) - intact)

    def open_for_writing(self, steps: Iterable[int]) -> Arrays:
        """Map the arrays for writing these parts, and remove their checksums; each is missing until `commit_part`.

        If these are all parts, the files are created anew; otherwise they must have their full length.
        """
        steps = set(steps)
        self._checksum_path(0).parent.mkdir(exist_ok=True)
        # Remove the checksum before overwriting the part, so that an interruption leaves the part missing.
        for step in steps:
            self._checksum_path(step).unlink(missing_ok=True)
        if len(steps) < self.count:
            return self.open_arrays("r+")
        return {name: _create_array(self._path(name), shape) for name, shape in self.shapes.items()}

    def commit_part(self, arrays: Arrays, step: int) -> None:
        """Flush the arrays to disk, then write the checksum of one part atomically."""
        for array in arrays.values():
            array.flush()  # type: ignore[attr-defined]
        with atomic_write(self._checksum_path(step)) as scratch:
            scratch.write_bytes(self._format_checksum(arrays, step))

    def open_arrays(self, mode: Literal["r", "r+"]) -> Arrays:
        """Map the arrays into memory, by name; the caller checks that the files have their full length."""
        return {
            name: np.memmap(self._path(name), np.float32, mode, len(_build_header(shape)), shape)
            for name, shape in self.shapes.items()
        }

    def remove_if_config_damaged(self, on_notice: Callable[[str], object]) -> None:
        """Remove the arrays and config.json, with a notice, if config.json is damaged, as their settings are unknown.

        If no file has the size of these arrays, the directory may hold other data, and nothing is removed.
        """
        path = self.folder / CONFIG
        try:
            if path.exists():
                read_json(path)
        except DamagedError as error:
            if any(map(self._is_complete, self.shapes)):
                on_notice(f"{error}; all data is recomputed")
                arrays, checksums = map(self._path, self.shapes), map(self._checksum_path, range(self.count))
                for each in (path, *arrays, *checksums):
                    each.unlink(missing_ok=True)

    def _is_complete(self, name: str) -> bool:
        """Return whether an array's file has the right header and length; `check_parts` verifies the content."""
        path, header = self._path(name), _build_header(self.shapes[name])
        if not path.is_file() or path.stat().st_size != len(header) + 4 * int(np.prod(self.shapes[name])):
            return False
        with path.open("rb") as file:
            return file.read(len(header)) == header

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npy"

    def _checksum_path(self, step: int) -> Path:
        return self.folder / "parts" / f"{step}"

    def _format_checksum(self, arrays: Arrays, step: int) -> bytes:
        """Return the content of a part's checksum file."""
        identity = f"{self.settings}\n{step}\n".encode()
        return f"{compute_checksum(identity, *(array[step].data for array in arrays.values()))}\n".encode()


def _build_header(shape: tuple[int, ...]) -> bytes:
    """Return the header of an array file of this shape. Headers are compared, never parsed, in case of damage."""
    content = io.BytesIO()
    descr = np.lib.format.dtype_to_descr(np.dtype(np.float32))
    np.lib.format.write_array_header_1_0(content, {"descr": descr, "fortran_order": False, "shape": shape})
    return content.getvalue()


def _create_array(path: Path, shape: tuple[int, ...]) -> Any:
    """Create an array on disk. Allocate its space now, so that a full disk raises an error and no later crash."""
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
    """Compute these parts of the arrays in `workers` threads, with one kernel thread each, the largest index first.

    `make` returns the content of a part by array name; its error is raised here, after the running parts. `on_part` is
    called, in the calling thread, with the index of every written part.
    """

    def work(step: int) -> int:
        with threads.use(1):
            for name, content in make(step).items():
                arrays[name][step] = content
        return step

    # Start with the last parts, which take longest, so that all workers finish at about the same time.
    waiting = sorted(steps)
    running: set[Future[int]] = set()
    with ThreadPoolExecutor(workers) as pool:
        while waiting or running:
            while waiting and len(running) < workers:
                running.add(pool.submit(work, waiting.pop()))
            # A short timeout lets Python handle Ctrl-C.
            done, running = wait(running, timeout=0.2, return_when="FIRST_COMPLETED")
            for future in done:
                on_part(future.result())
