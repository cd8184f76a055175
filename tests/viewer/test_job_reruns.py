"""Flights behind the results of jobs, simulated again."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equiflock._runtime.checks import InputError
from equiflock._runtime.jobs import get_result_path, read_table, write_result
from equiflock._runtime.provenance import write_config
from equiflock.evaluation.evaluate import build_evaluation_jobs
from equiflock.paper.flocking_experiment import FlockingJob
from equiflock.paper.interpretation import Interpretation
from equiflock.paper.obstacle_experiment import ObstacleJob
from equiflock.paper.profile import PROFILES
from equiflock.paper.reproduction import EXPERIMENTS, build_jobs
from equiflock.simulation.metrics import velocity_variance
from equiflock.viewer import job_reruns
from equiflock.viewer.job_reruns import find_job, rerun_flight

SETTINGS: dict[str, Any] = {
    "controller": "tanner",
    "scenario": "flocking",
    "options": {"agents": 20, "flocks": 3},
    "time_step": 0.01,
    "duration": 2.0,
    "baselines": ["etdagnn"],
}


@pytest.fixture
def evaluated(tmp_path: Path) -> Path:
    """Path of the first result of a small evaluation."""
    write_config(tmp_path, "evaluation", {"settings": SETTINGS})
    job = build_evaluation_jobs(**SETTINGS)[0]
    (tmp_path / "jobs").mkdir()
    write_result(job.run(), job, tmp_path / "jobs")
    return get_result_path(job, tmp_path / "jobs")


def test_the_flight_is_the_one_that_the_numbers_were_taken_from(evaluated: Path) -> None:
    run = rerun_flight(evaluated)
    table = read_table(build_evaluation_jobs(**SETTINGS)[0], evaluated.parent).query("metric == 'velocity_variance'")
    assert np.allclose(np.median(velocity_variance(run), axis=1), table["median"])


def test_frames_are_kept_as_far_as_memory_goes(evaluated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = len(rerun_flight(evaluated).times)
    assert frames == 201
    monkeypatch.setattr(job_reruns, "MAX_FRAME_BYTES", 48 * 60 * 20)
    assert len(rerun_flight(evaluated).times) == 21


def test_every_flying_job_of_the_reproduction_is_found_by_its_file(tmp_path: Path) -> None:
    interpretation = Interpretation(velocities="disc", awareness="flock")
    profile = replace(PROFILES["quick"], interpretation=interpretation)
    write_config(tmp_path, "reproduction", {"profile": {"name": "quick", "interpretation": asdict(interpretation)}})
    (tmp_path / "jobs").mkdir()
    for experiment in EXPERIMENTS:
        job: Any = build_jobs(experiment, profile, tmp_path)[-1]
        path = get_result_path(job, tmp_path / "jobs")
        path.touch()
        if experiment in ("training", "generalization"):
            with pytest.raises(InputError, match="a training"):
                find_job(path)
        else:
            found: object = find_job(path)
            assert found == job


def test_a_course_is_flown_until_it_ends() -> None:
    job = ObstacleJob("etdagnn", 0, sides=12, uses_orbit=True, flocks=2)
    run = job.fly(job.draw_start(), keep_every=10)
    table = job.run()
    assert [outcome.name for outcome in run.outcome] == table.outcome.tolist()


def test_files_that_are_not_results_of_jobs_are_refused(evaluated: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        find_job(evaluated.with_name("other.csv"))
    elsewhere = tmp_path / "elsewhere" / "jobs"
    elsewhere.mkdir(parents=True)
    for folder, text in (
        (elsewhere, "not a run directory of equiflock"),
        (evaluated.parent, "is not the result of a job"),
    ):
        path = get_result_path(FlockingJob("tanner", None, agents=20, flocks=7), folder)
        path.touch()
        with pytest.raises(InputError, match=text):
            find_job(path)


def test_a_damaged_config_is_an_error(evaluated: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config\.json is damaged"):
        find_job(evaluated)
