"""A cell can be watched: what is flown again is what its numbers were taken from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equiflock.checks import InputError
from equiflock.checksums import write_json
from equiflock.experiments import replay
from equiflock.experiments.evaluation import evaluation_cells
from equiflock.experiments.executor import keep, path_of, read_table
from equiflock.experiments.flocking import FlockingCell
from equiflock.experiments.obstacle_avoidance import ObstacleCell
from equiflock.experiments.replay import find_cell, fly_again
from equiflock.experiments.reproduction import PROFILES, RUN_IN_CELLS, cells_of
from equiflock.metrics import velocity_variance

SETTINGS: dict[str, Any] = {
    "controller": "tanner",
    "scenario": "flocking",
    "agents": 20,
    "flocks": 3,
    "sides": 24,
    "time_step": 0.01,
}


@pytest.fixture
def evaluated(tmp_path: Path) -> Path:
    """The folder of a small evaluation with the results of its first cell."""
    write_json({"settings": SETTINGS}, tmp_path / "config.json")
    cell = evaluation_cells(**SETTINGS)[0]
    (tmp_path / "cells").mkdir()
    keep(cell.run(), cell, tmp_path / "cells")
    return path_of(cell, tmp_path / "cells")


def test_the_flight_is_the_one_that_the_numbers_were_taken_from(evaluated: Path) -> None:
    run = fly_again(evaluated)
    table = read_table(evaluated).query("metric == 'velocity_variance'")
    assert np.allclose(np.median(velocity_variance(run), axis=1), table["median"])


def test_frames_are_kept_as_far_as_memory_goes(evaluated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = len(fly_again(evaluated).times)
    assert frames == 201
    monkeypatch.setattr(replay, "MOST_BYTES", 48 * 60 * 20)
    assert len(fly_again(evaluated).times) == 21


def test_every_flying_cell_of_the_reproduction_is_found_by_its_file(tmp_path: Path) -> None:
    write_json({"profile": {"name": "quick"}}, tmp_path / "config.json")
    (tmp_path / "cells").mkdir()
    for experiment in RUN_IN_CELLS:
        cell = cells_of(experiment, PROFILES["quick"], (tmp_path / "fast-forward").resolve())[-1]
        path = path_of(cell, tmp_path / "cells")
        path.touch()
        if experiment == "generalization":
            with pytest.raises(InputError, match="a training"):
                find_cell(path)
        else:
            assert find_cell(path) == cell


def test_a_course_is_flown_until_it_ends() -> None:
    cell = ObstacleCell("etdagnn", 0, 12, True, flocks=2)
    run = cell.fly(cell.start(), keep_every=10)
    table = cell.run()
    assert [outcome.name for outcome in run.outcome] == table.outcome.tolist()


def test_what_is_no_cell_is_refused(evaluated: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        find_cell(evaluated.with_name("other.csv"))
    elsewhere = tmp_path / "elsewhere" / "cells"
    elsewhere.mkdir(parents=True)
    for folder, text in ((elsewhere, "not a folder of equiflock reproduce"), (evaluated.parent, "is not a cell")):
        path = path_of(FlockingCell("tanner", None, 20, flocks=7), folder)
        path.touch()
        with pytest.raises(InputError, match=text):
            find_cell(path)


def test_a_damaged_config_is_told(evaluated: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config\.json is damaged"):
        find_cell(evaluated)
