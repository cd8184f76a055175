"""A search for a start can be stopped from another thread, and otherwise finds what it always found."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import equiflock as ef
from equiflock.flock import Flock
from equiflock.runtime.checks import InputError
from equiflock.scenarios import LeaderFollowing, ObstacleCourse, RandomDisk, SearchCancelledError, Stop

# In vain, for seconds: nobody hears anybody so near.
DEAF = RandomDisk(flocks=100, agents=400, comm_radius=0.1)
# Found one after the other, each after a while: nobody is so far aside that he could lead.
UNLED = ObstacleCourse(RandomDisk(agents=110, comm_radius=0.7), sides=200, leaders=3)
# One attempt with many agents.
LARGE = RandomDisk(agents=3_000_000, radius_rule="constant-density")


@pytest.mark.parametrize(
    "draw", [DEAF.draw, LeaderFollowing(DEAF).draw, ObstacleCourse(DEAF).draw, UNLED.draw, LARGE.draw]
)
def test_a_search_ends_soon_after_another_thread_wished_so(draw: Callable[[Stop], Flock]) -> None:
    ef.random_disk(agents=5)  # compiles
    stop = Stop()
    wished: list[float] = []

    def wish() -> None:
        wished.append(time.monotonic())
        stop.set()

    timer = threading.Timer(0.2, wish)
    timer.start()
    with pytest.raises(SearchCancelledError, match="cancelled"):
        draw(stop)
    ended = time.monotonic()
    timer.join()
    assert ended - wished[0] < 1.0  # each takes longer than that if it is not stopped


def test_a_search_that_nobody_wants_any_more_does_not_begin() -> None:
    stop = Stop()
    stop.set()
    with pytest.raises(SearchCancelledError):
        RandomDisk(agents=20).draw(stop)
    assert issubclass(SearchCancelledError, InputError)


@pytest.mark.parametrize("rule", ["quarter-power", "constant-density"])
def test_who_could_stop_it_does_not_change_what_is_found(rule: str) -> None:
    disk = RandomDisk(flocks=3, agents=60, radius_rule=rule)
    for start in (disk, LeaderFollowing(disk), ObstacleCourse(disk, sides=24)):
        alone, watched = start.draw(), start.draw(Stop())
        assert np.array_equal(alone.positions, watched.positions)
        assert np.array_equal(alone.velocities, watched.velocities)
        assert np.array_equal(alone.roles, watched.roles)
