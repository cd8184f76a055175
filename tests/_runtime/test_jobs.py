"""Jobs run once each, whatever happens, and results of different settings never mix."""

from __future__ import annotations

import multiprocessing
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import DamagedError
from equiflock._runtime.executors import run_jobs
from equiflock._runtime.jobs import get_result_path, read_results, read_table, write_result
from tests._runtime.squares import Fragile, Puzzled, Square, make_ready, refuse
from tests.damage import empty, flip_a_bit

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("workers", [1, 2])
def test_jobs_run_in_parallel_and_are_collected_in_order(tmp_path: Path, workers: int) -> None:
    jobs = [Square(n, tmp_path) for n in (3, 1, 2)]
    done: list[str] = []
    run_jobs(jobs, tmp_path / "jobs", workers, lambda job: done.append(job.key))
    assert sorted(done) == ["square-1", "square-2", "square-3"]
    assert read_results(jobs, tmp_path / "jobs").to_dict("list") == {"square": [9, 1, 4], "number": [3, 1, 2]}


def test_a_finished_job_is_never_run_again_and_one_that_failed_is(tmp_path: Path, jobs_here: None) -> None:
    with pytest.raises(InputError, match="no square today"):
        run_jobs([Square(1, tmp_path), Square(2, tmp_path, fails=True)], tmp_path / "jobs", 1)
    assert [path.name.rsplit("-", 1)[0] for path in (tmp_path / "jobs").iterdir()] == ["square-1"]
    run_jobs([Square(1, tmp_path), Square(2, tmp_path)], tmp_path / "jobs", 1)
    assert (tmp_path / "1").read_text() == "x"
    assert (tmp_path / "2").read_text() == "xx"


def test_a_process_that_dies_has_its_jobs_run_again(tmp_path: Path) -> None:
    jobs = [Fragile(1, tmp_path), Square(2, tmp_path)]
    run_jobs(jobs, tmp_path / "jobs", 2)
    assert read_results(jobs, tmp_path / "jobs").square.tolist() == [1, 4]
    with pytest.raises(
        InputError, match=r"worker processes died 3 times, perhaps for lack of memory: .*; not done: square-3"
    ):
        run_jobs([Fragile(3, tmp_path, always=True)], tmp_path / "jobs", 1)


@pytest.mark.parametrize("damage", [flip_a_bit, empty], ids=lambda damage: damage.__name__)
def test_a_damaged_result_is_reported_and_computed_again(tmp_path: Path, damage: Any, jobs_here: None) -> None:
    jobs = [Square(1, tmp_path), Square(2, tmp_path)]
    run_jobs(jobs, tmp_path / "jobs", 1)
    before = {path: path.read_bytes() for path in (tmp_path / "jobs").iterdir()}
    path = get_result_path(jobs[1], tmp_path / "jobs")
    damage(path, random.Random(0))
    notices: list[str] = []
    run_jobs(jobs, tmp_path / "jobs", 1, on_notice=notices.append)
    assert notices == [f"{path} is damaged or misplaced: its checksum does not match; this job is computed again"]
    assert (tmp_path / "1").read_text() == "x"
    assert (tmp_path / "2").read_text() == "xx"
    assert {path: path.read_bytes() for path in (tmp_path / "jobs").iterdir()} == before


def test_the_result_of_another_job_is_reported_and_computed_again(tmp_path: Path, jobs_here: None) -> None:
    jobs = [Square(1, tmp_path), Square(2, tmp_path)]
    run_jobs(jobs, tmp_path / "jobs", 1)
    before = read_results(jobs, tmp_path / "jobs")
    other, own = (get_result_path(job, tmp_path / "jobs") for job in jobs)
    own.write_bytes(other.read_bytes())
    with pytest.raises(DamagedError):
        read_results(jobs, tmp_path / "jobs")
    notices: list[str] = []
    run_jobs(jobs, tmp_path / "jobs", 1, on_notice=notices.append)
    assert len(notices) == 1 and notices[0].startswith(f"{own} is damaged or misplaced")
    pd.testing.assert_frame_equal(read_results(jobs, tmp_path / "jobs"), before)


def test_a_table_comes_back_as_it_would_from_plain_csv(tmp_path: Path) -> None:
    table = pd.DataFrame(
        {
            "number": [0.1 + 0.2, 1e-300, np.pi * 1e17, np.nan],
            "text": ["a # b", "ö", "", "x,y"],
            "count": [1, 2, 3, 4],
            "share": [True, False, True, True],
        }
    )
    table.to_csv(tmp_path / "plain.csv", index=False)
    job = Square(1, tmp_path)
    write_result(table, job, tmp_path)
    plain = pd.read_csv(tmp_path / "plain.csv")
    pd.testing.assert_frame_equal(read_table(job, tmp_path), plain, check_exact=True)
    assert get_result_path(job, tmp_path).read_bytes().startswith((tmp_path / "plain.csv").read_bytes())


def test_prepare_runs_before_the_jobs_and_may_raise(tmp_path: Path) -> None:
    jobs = [Puzzled(1, tmp_path)]
    with pytest.raises(InputError, match="not like this"):
        run_jobs(jobs, tmp_path / "jobs", 1, prepare=refuse)
    run_jobs(jobs, tmp_path / "jobs", 1, prepare=make_ready)
    assert read_results(jobs, tmp_path / "jobs").prepared.tolist() == ["yes"]


def test_a_caller_that_stops_halfway_leaves_no_process(tmp_path: Path) -> None:
    def stop(job: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs([Square(n, tmp_path) for n in range(5)], tmp_path / "jobs", 2, stop)
    assert multiprocessing.active_children() == []
