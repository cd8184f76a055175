"""docs/controller.md flies the test flocks of docs/reproduction.md, so that numbers on both pages can be compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import starling
from equiflock.flock import ARRAY_NAMES
from equiflock.paper.profile import PROFILES
from equiflock.paper.reproduction import build_jobs
from equiflock.scenarios import make_scenario

FEW = 3
"""Flocks that are compared: every flock has its random stream."""
TABLES = {"flocking": "sizes", "leaders": "leaders", "obstacles": "obstacles"}
"""Tables of docs/controller.md by the experiment of the paper with the same flocks."""


@pytest.mark.parametrize("experiment", TABLES)
def test_the_tables_of_the_controller_page_fly_the_test_flocks_of_the_reproduction(experiment: str) -> None:
    profile = replace(PROFILES["paper"], flocks=FEW, seeds=(0,))
    jobs: dict[Any, Any] = {_get_size(job): job for job in build_jobs(experiment, profile, Path())}
    compared = 0
    for column in starling.TABLES[TABLES[experiment]].columns.values():
        start = make_scenario(column.scenario, flocks=FEW).draw()
        options = dict(option.split("=") for option in column.scenario.split(":")[1:])
        job = jobs.get(int(next(iter(options.values()), 0)))
        if job is None:  # the page has flocks of 800 agents, too
            continue
        assert (column.time_step, column.duration) == (job.time_step, job.duration)
        other = job.draw_start()
        assert all(np.array_equal(getattr(start, name), getattr(other, name)) for name in ARRAY_NAMES)
        compared += 1
    assert compared == {"flocking": 4, "leaders": 1, "obstacles": 4}[experiment]


def _get_size(job: Any) -> int:
    """Return the number that tells a job's flocks from those of others: agents, sides of the obstacle, or none."""
    return {"flocking": job.agents, "leaders": 0, "obstacles": getattr(job, "sides", 0)}[job.experiment]
