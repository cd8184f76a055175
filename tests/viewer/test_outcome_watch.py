"""A live flight shows when its scenario's ending reports an outcome, and flies on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import equiflock as ef
from equiflock.outcomes import Outcome
from equiflock.viewer.outcome_watch import OutcomeWatch
from tests.viewer.live_simulations import fly, live_simulation


@dataclass(frozen=True)
class UntilLate:
    """An ending that reports PASSED from 0.1 s on, or raises an error."""

    fails: bool = False

    def __call__(self, times: Any, flock: ef.Flock, flying: Any) -> Any:
        if self.fails:
            raise ValueError("no")
        return np.where(times >= 0.1, Outcome.PASSED, Outcome.FLYING)


@dataclass(frozen=True)
class Late:
    """Flocks with that ending."""

    disk: ef.RandomDisk = field(default_factory=ef.RandomDisk)
    fails: bool = False
    success_outcomes = (Outcome.PASSED,)

    def ending(self) -> UntilLate:
        return UntilLate(self.fails)

    def draw(self, stop: Any = None) -> ef.Flock:
        return self.disk.draw(stop)


def test_the_first_outcome_is_shown_and_a_scattered_flock_is_judged_anew(own_registry: None) -> None:
    ef.scenario("late")(Late)
    live = live_simulation(scenario="late", compare="tanner")
    fly(live, 5)
    assert [picture.overlay.outcome for picture in live.make_pictures()] == [Outcome.FLYING] * 2
    fly(live, 15)
    for picture in live.make_pictures():
        assert picture.overlay.outcome == Outcome.PASSED
        assert 0.1 <= picture.overlay.outcome_time <= 0.2
    assert live.to_dict()["overlay"]["outcomes"][int(Outcome.PASSED)]["is_success"] is True
    live.scatter()
    assert live.make_pictures()[0].overlay.outcome == Outcome.FLYING
    fly(live, 15)
    assert live.make_pictures()[0].overlay.outcome_time < 0.2


def test_an_ending_that_fails_does_not_stop_the_flight(own_registry: None) -> None:
    ef.scenario("late")(Late)
    live = live_simulation(scenario="late", options={"fails": True})
    fly(live, 3)
    assert live.make_pictures()[0].overlay.outcome == Outcome.FLYING


def test_large_flocks_are_not_judged() -> None:
    watch = OutcomeWatch(ef.make_scenario("formation"))
    positions = np.zeros((1, 2001, 2))
    watch.update(0.0, ef.Flock(positions, positions.copy()))
    assert watch.outcome == Outcome.FLYING


def test_another_pattern_changes_marks_success_and_outcome() -> None:
    live = live_simulation(scenario="formation", controller="formation", agents=12)
    before = live.make_pictures()[0].overlay.marks.numbers
    fly(live, 400)
    formed = live.make_pictures()[0].overlay
    assert formed.success > 0.9
    assert live.to_dict()["overlay"]["outcomes"][formed.outcome]["text"] == "formed"
    live.change_law(0, {"pattern": "circle"})
    changed = live.make_pictures()[0].overlay
    assert changed.success < 0.5
    assert changed.outcome == Outcome.FLYING
    assert np.ptp(changed.marks.numbers[:, 0]) < np.ptp(before[:, 0])
