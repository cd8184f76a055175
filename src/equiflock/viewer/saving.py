"""A live flight as files: a folder that `equiflock animate` and `equiflock view` open, with a film in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from equiflock.files import written_whole
from equiflock.trajectory import Trajectory

FILM = "film.mp4"
LONGEST_FILM = 20.0
"""Seconds; a longer flight is shown faster."""


def save_flights(runs: Sequence[Trajectory], out: Path, on_frame: Callable[[int, int], object]) -> Path:
    """Write flights and their film into a new folder in `out`, named by the time of day.

    Args:
        runs: one, or two to be shown side by side.
        out: made if it is not there.
        on_frame: called with (frames drawn, frames in all) of the film.
    """
    from equiflock.report.film import film

    names = [re.sub(r"[^\w.-]+", "-", Path(str(run.config["controller"])).stem) for run in runs]
    folder = _unused(out / f"{datetime.now():%Y-%m-%d-%H%M%S}-{'-'.join(names)}")
    speed = max(float(runs[0].times[-1]) / LONGEST_FILM, 0.5)
    with written_whole(folder) as scratch:
        scratch.mkdir()
        for number, (run, name) in enumerate(zip(runs, names, strict=True), 1):
            run.save(scratch / f"{number}-{name}.zarr")
        (scratch / "config.json").write_text(json.dumps(dict(runs[0].config), indent=2) + "\n")
        film(runs, scratch / FILM, speed=speed, on_frame=on_frame)
    return folder


def _unused(path: Path) -> Path:
    """The path, or the first with a number after it that nothing has."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found
