"""Threads share out work evenly and are chosen by argument or environment."""

from __future__ import annotations

import os
import time

import pytest

from equiflock._runtime import threads
from equiflock._runtime.checks import InputError


def test_parts_cover_everything_once_and_are_not_too_small() -> None:
    with threads.use(4):
        assert threads.split_range(100, 10) == [(0, 25), (25, 50), (50, 75), (75, 100)]
        assert threads.split_range(25, 10) == [(0, 12), (12, 25)]
        assert threads.split_range(3, 10) == [(0, 3)]


def test_results_come_in_the_order_of_the_parts() -> None:
    with threads.use(3):
        assert threads.run_parallel(lambda a, b: a * b, [(1, 2), (3, 4), (5, 6)]) == [2, 12, 30]


def test_an_error_in_any_part_is_raised_after_all_have_finished() -> None:
    done = []

    def work(n: int) -> None:
        if n == 1:
            raise InputError("one")
        time.sleep(0.1 * n)
        done.append(n)

    with pytest.raises(InputError, match="one"):
        threads.run_parallel(work, [(0,), (1,), (2,)])
    assert sorted(done) == [0, 2]


def test_the_environment_sets_the_number_and_use_overrides_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQUIFLOCK_THREADS", "3")
    assert threads.count() == 3
    with threads.use(1):
        assert threads.count() == 1
    assert threads.count() == 3
    monkeypatch.setenv("EQUIFLOCK_THREADS", "many")
    with pytest.raises(InputError, match="EQUIFLOCK_THREADS must be an integer of at least 1; got 'many'"):
        threads.count()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_has_threads_of_its_own() -> None:
    threads.run_parallel(abs, [(-1,), (-2,)])
    child = os.fork()
    if child == 0:
        os._exit(0 if threads.run_parallel(abs, [(-1,), (-2,)]) == [1, 2] else 1)
    assert os.waitpid(child, 0)[1] == 0
