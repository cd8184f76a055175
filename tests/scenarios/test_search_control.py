"""A search for a start can be stopped from another thread, and gives the same result if it is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.flock import Flock
from equiflock.scenarios import LeaderFollowing, ObstacleCourse, RandomDisk, SearchCancelledError, Stop

# Takes seconds and finds nothing: R is as small as the least distance.
SPARSE = RandomDisk(flocks=100, agents=400, comm_radius=0.1, disk_radius=4.5)
# Draws flock after flock in vain: no agent is far enough to the side to lead past so large an obstacle.
UNLED = ObstacleCourse(RandomDisk(agents=110, comm_radius=0.7, disk_radius=3.2), sides=200, leaders=3)
# One attempt with many agents.
LARGE = RandomDisk(agents=3_000_000, radius_rule="constant-density")


@pytest.mark.parametrize(
    "draw", [SPARSE.draw, LeaderFollowing(SPARSE).draw, ObstacleCourse(SPARSE).draw, UNLED.draw, LARGE.draw]
)
def test_a_search_ends_soon_after_another_thread_requests_it(draw: Callable[[Stop], Flock]) -> None:
    ef.random_disk(agents=5)  # compiles
    stop = Stop()
    requested: list[float] = []

    def request() -> None:
        requested.append(time.monotonic())
        stop.set()

    timer = threading.Timer(0.2, request)
    timer.start()
    with pytest.raises(SearchCancelledError, match="cancelled"):
        draw(stop)
    ended = time.monotonic()
    timer.join()
    assert ended - requested[0] < 1.0  # each takes longer than that if it is not stopped


def test_a_search_that_is_stopped_before_it_starts_raises_an_error() -> None:
    stop = Stop()
    stop.set()
    with pytest.raises(SearchCancelledError):
        RandomDisk(agents=20).draw(stop)
    assert issubclass(SearchCancelledError, InputError)


@pytest.mark.parametrize("rule", ["quarter-power", "constant-density"])
def test_a_stop_object_does_not_change_the_result_of_a_search(rule: str) -> None:
    disk = RandomDisk(flocks=3, agents=60, radius_rule=rule)
    for start in (disk, LeaderFollowing(disk), ObstacleCourse(disk, sides=24)):
        alone, watched = start.draw(), start.draw(Stop())
        assert np.array_equal(alone.positions, watched.positions)
        assert np.array_equal(alone.velocities, watched.velocities)
        assert np.array_equal(alone.roles, watched.roles)
