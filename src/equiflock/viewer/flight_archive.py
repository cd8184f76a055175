"""Saves live flights: each as a directory with a film, which `equiflock animate` and `equiflock view` open.

An unfinished save is a hidden, locked scratch directory; later saves and servers remove those of killed processes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

from equiflock._runtime.checks import InputError
from equiflock._runtime.scratch_directory import make_scratch_directory, remove_abandoned_directories
from equiflock.simulation.trajectory import Trajectory, write_checksums

FILM_NAME = "film.mp4"
MAX_FILM_SECONDS = 20.0
"""Maximum duration of the film; a longer flight is sped up."""
MAX_PENDING_SAVES = 4
"""Maximum number of unfinished saves, including the running one."""
SCRATCH_PREFIX = ".saving-"

FrameCallback = Callable[[int, int], object]
"""Called with (frames drawn, total frames) of the film."""


class FlightArchive:
    """Saves flights in the directory `out`, one after the other in a worker thread."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.saved_dirs: dict[str, Path] = {}
        """Directories of the flights that this archive has saved, by their names; not those of earlier servers."""
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="saving")
        self._pending: list[Future[Path]] = []
        self._is_cancelled = False
        remove_abandoned_directories(out, SCRATCH_PREFIX)

    @property
    def is_busy(self) -> bool:
        """Whether a save is queued or running."""
        return any(not future.done() for future in self._pending)

    def cancel_all(self) -> None:
        """Cancel all saves without waiting: queued ones now, and the running one at its film's next frame."""
        self._is_cancelled = True
        self._worker.shutdown(wait=False, cancel_futures=True)

    def save(self, runs: Sequence[Trajectory], speed: float, on_frame: FrameCallback) -> Future[Path]:
        """Queue a call of `save_flights` in the worker thread and return the future of its directory.

        Raise InputError if MAX_PENDING_SAVES are queued or running.
        """
        self._pending = [future for future in self._pending if not future.done()]
        if len(self._pending) >= MAX_PENDING_SAVES:
            raise InputError(f"{MAX_PENDING_SAVES} flights are being saved, which is the maximum: wait for one of them")
        future = self._worker.submit(self._save, runs, speed, on_frame)
        self._pending.append(future)
        return future

    def _save(self, runs: Sequence[Trajectory], speed: float, on_frame: FrameCallback) -> Path:
        """Save flights and add their directory to `saved_dirs`; raise InputError if cancelled."""

        # A thread cannot be killed, so it checks for cancellation at every frame of the film.
        def on_frame_unless_cancelled(done: int, total: int) -> None:
            if self._is_cancelled:
                raise InputError("the server is shutting down")
            on_frame(done, total)

        folder = save_flights(runs, self.out, speed, on_frame_unless_cancelled)
        self.saved_dirs[folder.name] = folder
        return folder


def save_flights(runs: Sequence[Trajectory], out: Path, speed: float, on_frame: FrameCallback) -> Path:
    """Write flights and their film into a new directory in `out`, and return its path.

    The directory is named by local date and time and the controllers, with -2, -3 .. appended if the name is taken. It
    has a NUMBER-CONTROLLER.zarr for each flight, their checksums, config.json (of the first flight) and film.mp4, which
    shows `speed` simulated seconds per second, or more if it would be longer than MAX_FILM_SECONDS. It appears when all
    files are complete, and not at all after an error.
    """
    from equiflock.plotting.film import film

    # A controller may be a path: replace characters that a file name should not have.
    names = [re.sub(r"[^\w.-]+", "-", Path(str(run.config["controller"])).stem) for run in runs]
    folder = out / f"{datetime.now():%Y-%m-%d-%H%M%S}-{'-'.join(names)}"
    speed = max(float(runs[0].times[-1]) / MAX_FILM_SECONDS, speed)
    with make_scratch_directory(out, SCRATCH_PREFIX) as scratch_dir:
        scratch = scratch_dir / folder.name
        scratch.mkdir()
        for number, (run, name) in enumerate(zip(runs, names, strict=True), 1):
            run.save(scratch / f"{number}-{name}.zarr")
        (scratch / "config.json").write_text(json.dumps(dict(runs[0].config), indent=2) + "\n")
        write_checksums(scratch)
        film(runs, scratch / FILM_NAME, speed=speed, on_frame=on_frame)
        return scratch.rename(_find_unused_path(folder))


def _find_unused_path(path: Path) -> Path:
    """Return the path or, if it exists, the first of path-2, path-3, .. that does not."""
    number, candidate = 1, path
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
