"""A live flight as files: a folder that `equiflock animate` and `equiflock view` open, with a film in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

from equiflock.runtime.checks import InputError
from equiflock.simulation.trajectory import Trajectory
from equiflock.viewer.scratch_dirs import make_scratch_dir, remove_stale_scratch_dirs

FILM_NAME = "film.mp4"
MAX_FILM_SECONDS = 20.0
"""Seconds of film; a longer flight is shown faster."""
MAX_PENDING_SAVES = 4
"""Flights that may wait to be saved, the one that is being saved included."""

FrameCallback = Callable[[int, int], object]


class FlightArchive:
    """Saves flights one after the other, and keeps a list of those that it saved.

    Half-written folders that a killed server left are removed.

    Args:
        out: the folder that flights are saved to, made if it is not there.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.saved_dirs: dict[str, Path] = {}
        """The folders of saved flights, by their names."""
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="saving")
        self._pending: list[Future[Path]] = []
        self._is_cancelled = False
        remove_stale_scratch_dirs(out)

    @property
    def is_busy(self) -> bool:
        """Whether something is being saved."""
        return any(not work.done() for work in self._pending)

    def cancel_all(self) -> None:
        """Cancel all saving, because the server ends: the present film stops at its next frame and is removed."""
        self._is_cancelled = True
        self._worker.shutdown(wait=False, cancel_futures=True)

    def save(self, runs: Sequence[Trajectory], speed: float, on_frame: FrameCallback) -> Future[Path]:
        """Begin to save flights; the result is their folder. A clear error if too many wait already."""
        self._pending = [work for work in self._pending if not work.done()]
        if len(self._pending) >= MAX_PENDING_SAVES:
            raise InputError(f"{MAX_PENDING_SAVES} flights are being saved: wait for one of them")
        work = self._worker.submit(self._save, runs, speed, on_frame)
        self._pending.append(work)
        return work

    def _save(self, runs: Sequence[Trajectory], speed: float, on_frame: FrameCallback) -> Path:
        # A thread cannot be stopped from outside, so it looks for itself at every frame of the film.
        def on_each(done: int, total: int) -> None:
            if self._is_cancelled:
                raise InputError("the server ends")
            on_frame(done, total)

        remove_stale_scratch_dirs(self.out)
        folder = save_flights(runs, self.out, speed, on_each)
        self.saved_dirs[folder.name] = folder
        return folder


def save_flights(runs: Sequence[Trajectory], out: Path, speed: float, on_frame: FrameCallback) -> Path:
    """Write flights and their film into a new folder in `out`, named by the time of day.

    Args:
        runs: one, or two to be shown side by side.
        out: the folder that holds all saved flights, made if it is not there.
        speed: simulated seconds per second of film; raised if the film would become longer than LONGEST_FILM.
        on_frame: called with (frames drawn, frames in all) of the film.
    """
    from equiflock.report.film import film

    # A controller may be a path; what a folder's name can hold of it is kept.
    names = [re.sub(r"[^\w.-]+", "-", Path(str(run.config["controller"])).stem) for run in runs]
    folder = out / f"{datetime.now():%Y-%m-%d-%H%M%S}-{'-'.join(names)}"
    speed = max(float(runs[0].times[-1]) / MAX_FILM_SECONDS, speed)
    # All is written into a scratch folder and renamed when complete: a folder under its own name is always whole.
    with make_scratch_dir(out) as inside:
        scratch = inside / folder.name
        scratch.mkdir()
        for number, (run, name) in enumerate(zip(runs, names, strict=True), 1):
            run.save(scratch / f"{number}-{name}.zarr")
        (scratch / "config.json").write_text(json.dumps(dict(runs[0].config), indent=2) + "\n")
        film(runs, scratch / FILM_NAME, speed=speed, on_frame=on_frame)
        return scratch.rename(_find_unused_path(folder))


def _find_unused_path(path: Path) -> Path:
    """The path or, if it exists, the first of path-2, path-3, .. that does not."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found
