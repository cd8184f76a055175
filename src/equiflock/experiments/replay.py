"""A cell of an experiment flown again, to be watched: cells keep their numbers, not their flights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from equiflock.checks import InputError
from equiflock.checksums import DamagedError, read_json
from equiflock.experiments.evaluation import Evaluated, evaluation_cells
from equiflock.experiments.executor import Cell, path_of
from equiflock.experiments.obstacle_avoidance import ObstacleCell
from equiflock.experiments.reproduction import PROFILES, RUN_IN_CELLS, cells_of
from equiflock.provenance import CONFIG
from equiflock.trajectory import Trajectory

MOST_BYTES = 256 * 2**20
FRAME_SECONDS = 0.01


def find_cell(path: Path, plugin: str = "") -> Any:
    """The cell whose result a file is: FOLDER/cells/NAME.csv in a folder of `equiflock reproduce` or `evaluate`.

    `plugin` is the checksum of the plugin that was imported, if any.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    path = path.resolve()
    if path.parent.name != "cells":
        raise InputError(f"{path} is not a cell of an experiment: those are in its folder, as cells/*.csv")
    for cell in _cells_of_folder(path.parent.parent, plugin):
        if path_of(cell, path.parent) == path:
            found = cell.cell if isinstance(cell, Evaluated) else cell
            if not hasattr(found, "fly"):
                raise InputError(f"{path} is the result of a training, which has no flight to watch")
            return found
    raise InputError(
        f"{path} is not a cell of the experiment in {path.parent.parent}, or one of another version, other weights or "
        "another plugin (name it with --plugin)"
    )


def fly_again(path: Path, plugin: str = "") -> Trajectory:
    """The flight that a cell's result was taken from, with as many frames as fit into some memory."""
    cell = find_cell(path, plugin)
    start = cell.start()
    duration = cell.longest if isinstance(cell, ObstacleCell) else cell.duration
    wanted = max(round(FRAME_SECONDS / cell.time_step), 1)
    bytes_in_all = 3 * start.positions.nbytes * duration / cell.time_step
    run: Trajectory = cell.fly(start, keep_every=max(wanted, math.ceil(bytes_in_all / MOST_BYTES)))
    return run


def _cells_of_folder(folder: Path, plugin: str) -> Sequence[Cell]:
    """All cells of the experiments that a folder is for, as its config tells."""
    try:
        config = read_json(folder / CONFIG)
        if "profile" in config:
            profile = PROFILES[config["profile"]["name"]]
            data = (folder / "fast-forward").resolve()
            return [cell for name in RUN_IN_CELLS for cell in cells_of(name, profile, data)]
        return evaluation_cells(**config["settings"], plugin=plugin)
    except DamagedError:
        raise
    except (OSError, ValueError, TypeError, KeyError):
        raise InputError(
            f"{folder} is not a folder of equiflock reproduce or evaluate: their cells can be flown again"
        ) from None
