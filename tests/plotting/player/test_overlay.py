"""An overlay has what a scenario declares, within limits, and nothing for flights of unknown scenarios."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock.plotting.player import overlay as overlay_module
from equiflock.plotting.player.overlay import KINDS, SHAPES, Overlay, load_overlay
from equiflock.scenarios.obstacle_shapes import add_obstacle, wall


@pytest.fixture(scope="module")
def formed() -> ef.Trajectory:
    scenario = ef.make_scenario("formation", agents=12, pattern="circle", spacing=0.5)
    law = ef.load("formation:pattern=circle:spacing=0.5")
    config = {"scenario": "formation", "start": {"pattern": "circle", "spacing": 0.5, "agents": 12, "orbit": {}}}
    return ef.simulate(scenario.draw(), law, duration=6.0, keep_every=20, ending=scenario.ending(), config=config)


def test_a_saved_flight_shows_its_scenario_with_its_options(formed: ef.Trajectory) -> None:
    state = load_overlay(formed).make_state(formed.flock(-1))
    assert 0.5 < state.success <= 1.0
    assert len(state.marks.numbers) == 12
    assert state.marks.codes.tolist() == [[KINDS.index("place"), SHAPES.index("point"), 1, 0]] * 12
    np.testing.assert_allclose(state.marks.numbers[:, :2], formed.flock(-1).positions[0], atol=0.2)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"scenario": "unknown"},
        {"scenario": "formation:x"},
        {"scenario": 3, "start": 5},
        {"scenario": "formation", "start": {"pattern": "x"}},
        {"scenario": "goal", "start": {"dimensions": 3}},
    ],
)
def test_a_flight_of_an_unknown_scenario_shows_nothing(formed: ef.Trajectory, config: dict[str, Any]) -> None:
    state = load_overlay(replace(formed, config=config)).make_state(formed.flock(0))
    assert math.isnan(state.success)
    assert len(state.marks.numbers) == 0


def test_walls_are_marks_of_any_scenario() -> None:
    flock = add_obstacle(ef.random_disk(1, 10), wall((9.0, 0.0), (9.0, 2.0), spacing=0.5))
    marks = Overlay().collect_marks(flock)
    assert marks.numbers.tolist() == [[9.0, 0.0, 9.0, 2.0]]
    assert marks.codes.tolist() == [[KINDS.index("wall"), SHAPES.index("segment"), 0, 0]]


def test_large_flocks_have_no_marks_and_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    overlay, flock = Overlay(ef.make_scenario("formation")), ef.random_disk(1, 30)
    monkeypatch.setattr(overlay_module, "MAX_MARKS", 29)
    monkeypatch.setattr(overlay_module, "MAX_MEASURED_AGENTS", 29)
    state = overlay.make_state(flock)
    assert len(state.marks.numbers) == 0
    assert math.isnan(state.success)


def test_the_texts_name_groups_success_and_outcomes() -> None:
    texts = Overlay(ef.make_scenario("goal")).to_dict()
    assert texts["group_names"] == ["uninformed", "informed"]
    assert texts["success"] == {"text": "{} R to the goal", "unit": "number"}
    outcomes = {each["text"]: each["is_success"] for each in texts["outcomes"].values()}
    assert (outcomes["arrived"], outcomes["hit obstacle"]) == (True, False)
    unknown = Overlay().to_dict()
    assert (unknown["success"], unknown["group_names"]) == (None, [])
    assert {each["is_success"] for each in unknown["outcomes"].values()} == {None}
