"""Workers persist between rounds, and a process that dies costs no more than its current job."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from equiflock._runtime.checks import InputError
from equiflock._runtime.executors import PersistentWorkers
from tests._runtime.squares import Square, Whereabouts

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_jobs_from_the_same_processes(workers: int) -> None:
    with PersistentWorkers(workers) as persistent:
        rounds = [persistent.compute_tables([Whereabouts(number) for number in range(6)]) for _ in range(3)]
    for tables in rounds:
        assert [int(table.number[0]) for table in tables] == list(range(6))
    processes = {int(table.process[0]) for tables in rounds for table in tables}
    assert len(processes) <= workers
    assert (processes == {os.getpid()}) == (workers == 1)


def test_a_process_that_dies_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    with PersistentWorkers(2) as persistent:
        jobs = [Whereabouts(0), Whereabouts(1, tmp_path / "death"), Whereabouts(2)]
        tables = persistent.compute_tables(jobs, lambda: done.append(1))
        assert [int(table.number[0]) for table in tables] == [0, 1, 2]
        assert len(done) == 3
        # Each pool takes seconds to start.
        monkeypatch.setattr("equiflock._runtime.executors.MAX_POOLS", 1)
        with pytest.raises(InputError, match="processes died 1 times"):
            persistent.compute_tables([Whereabouts(0, tmp_path / "death", deadly=True)])
    assert multiprocessing.active_children() == []


def test_the_error_of_a_job_is_raised_and_no_process_is_left(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no square today"), PersistentWorkers(2) as persistent:
        persistent.compute_tables([Square(1, tmp_path), Square(2, tmp_path, fails=True)])
    assert multiprocessing.active_children() == []
    with pytest.raises(InputError, match="workers must be"):
        PersistentWorkers(0)
