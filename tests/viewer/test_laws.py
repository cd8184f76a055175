"""Options of a law change in flight."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.simulation.trajectory import load_trajectories
from equiflock.viewer.flight_archive import save_flights
from equiflock.viewer.setting import EnvironmentSetting, Setting, format_validation_error
from tests.viewer.live_simulations import fly, live_simulation
from tests.viewer.servers import Page


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("reynolds", {"distance": 0.8, "clamp": None}),
        ("cucker-smale", {"beta": 1.0}),
        ("bonding-local", {"half_distance": 0.2, "beta": 0}),
        ("tanner", {"clamp": 5, "clamp_by": "entry", "cut_off": False}),
    ],
)
def test_a_changed_law_takes_effect_at_the_next_step(name: str, options: dict[str, Any]) -> None:
    live, other = live_simulation(controller=name), live_simulation(controller=name)
    for each in (live, other):
        fly(each, 10)
    live.change_law(0, options)
    assert np.array_equal(live.flights[0].flock.positions, other.flights[0].flock.positions)
    fly(live, 1)
    flight = ef.flight(live.flights[0].flock, ef.load(name, **options), orbit=ef.Orbit())
    expected = next(islice(flight, 10, None))
    fly(live, 10)
    assert live.step == 21
    assert np.array_equal(live.flights[0].flock.positions, expected.flock.positions)
    assert np.array_equal(live.flights[0].accelerations, expected.accelerations)


def test_only_the_law_of_the_panel_changes_and_flights_stay_in_lockstep() -> None:
    live, other = (live_simulation(controller="cucker-smale-local", compare="cucker-smale-local") for _ in range(2))
    live.change_law(1, {"beta": 2.0})
    for each in (live, other):
        fly(each, 10)
    assert live.setting.controller_specs == (("cucker-smale-local", {}), ("cucker-smale-local", {"beta": 2.0}))
    assert np.array_equal(live.flights[0].flock.positions, other.flights[0].flock.positions)
    assert not np.array_equal(live.flights[1].flock.positions, other.flights[1].flock.positions)
    with pytest.raises(InputError, match="panel must be below 2"):
        live.change_law(2, {})


@pytest.mark.parametrize("environment", [{}, {"packet_loss": 0.3, "delay": 2}])
def test_a_changed_flight_continues_with_other_options(environment: dict[str, Any]) -> None:
    live = live_simulation(controller="reynolds", scenario="leaders", environment=EnvironmentSetting(**environment))
    live.edges = True
    fly(live, 5)
    live.fail_agents("silent", 3)
    live.remove_agents([tuple(live.flights[0].flock.positions[0, 3])], 1e-6, panel=0)
    conditions = live.flights[0].flock.conditions.copy()
    live.change_law(0, {"separation": 3.0})
    live.make_pictures()
    fly(live, 5)
    assert len(live.make_pictures()[0].links.edges) > 0
    assert np.array_equal(live.flights[0].flock.conditions, conditions)


def test_options_that_fail_in_flight_are_refused_and_the_law_stays(own_registry: None) -> None:
    @ef.controller("brittle")
    def brittle(observations: Any, gain: float = 1.0, root: float = 1.0) -> Any:
        return np.sqrt(np.float64(root)) * (1 / int(gain)) * observations[:, :, 0, 0]

    live, other = (live_simulation(controller="brittle") for _ in range(2))
    for options, message in (({"gain": 0.5}, "ZeroDivisionError"), ({"root": -1.0}, "returned NaN or infinity")):
        with np.errstate(invalid="ignore"), pytest.raises(InputError, match=message):
            live.change_law(0, options)
    assert live.setting.controller_options == {}
    for each in (live, other):
        fly(each, 5)
    assert np.array_equal(live.flights[0].flock.positions, other.flights[0].flock.positions)
    # So is a weight that is not finite down to the shortest distance.
    singular = live_simulation(controller="cucker-smale-singular-local")
    with pytest.raises(InputError, match="must be finite, "):
        singular.change_law(0, {"alpha": 50.0})
    fly(singular, 3)


def test_a_law_with_other_hops_is_shown_before_messages_arrive(own_registry: None) -> None:
    @ef.controller("deep")
    class Deep:
        def __init__(self, hops: int = 1) -> None:
            self.senses = ef.paper_senses("mean", hops=hops)

        def __call__(self, observations: Any) -> Any:
            return -observations[:, :, :, 0].sum(axis=2)

    live = live_simulation(controller="deep", environment=EnvironmentSetting(packet_loss=0.2, delay=1))
    live.edges = True
    fly(live, 4)
    live.change_law(0, {"hops": 3})
    live.make_pictures()
    fly(live, 4)
    assert len(live.make_pictures()[0].links.edges) > 0


@pytest.mark.slow
def test_a_saved_flight_has_the_law_and_the_history_of_its_options(tmp_path: Path) -> None:
    live = live_simulation(controller="reynolds:cohesion=2")
    fly(live, 4)
    live.change_law(0, {"cohesion": 2, "clamp": None})
    fly(live, 4)
    (run,) = live.to_trajectories()
    assert len(run.times) == 9  # the agents are the same, so it is one recording
    (again,) = load_trajectories(save_flights([run], tmp_path, 0.5, lambda *_: None))
    assert again.config["controller"] == "reynolds:cohesion=2:clamp=none"
    assert again.config["law_history"] == [[0, {"cohesion": 2}], [4, {"cohesion": 2, "clamp": None}]]
    assert again.config["setting"]["controller_options"] == {"cohesion": 2, "clamp": None}
    assert ef.load(again.config["controller"]) == ef.load("reynolds", cohesion=2, clamp=None)


def test_options_after_the_name_of_a_law_are_moved_to_the_setting() -> None:
    found = Setting(controller="cucker-smale:beta=1", compare="tanner:clamp=none", compare_options={"cut_off": False})
    assert found.controller_specs == (("cucker-smale", {"beta": 1}), ("tanner", {"clamp": None, "cut_off": False}))
    assert Setting(**found.model_dump()) == found
    assert Setting(controller="etdagnn:3").controller_specs == (("etdagnn:3", {}),)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"controller": "tanner:clamp"}, "options must have the form key=value"),
        ({"controller_options": {"clamp": float("nan")}}, "clamp must be from -1,000,000 to 1,000,000; got nan"),
        ({"controller_options": {"clamp": 10**7}}, "clamp must be from"),
        ({"controller_options": {"clamp": [1.0]}}, "clamp must be a number, true, false or a short text; got [1.0]"),
        ({"controller_options": {"word": "x" * 2000}}, "word must be a number, true, false or a short text; got 'xxx"),
        ({"controller_options": 3}, "controller options: Input should be a valid dictionary"),
        ({"compare_options": {"clamp": 2.0}}, "compare_options requires a second controller"),
    ],
)
def test_options_that_no_law_can_have_are_refused_in_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        Setting(**{"controller": "tanner", **fields})
    line = format_validation_error(error.value)
    assert line.startswith(message)
    assert "\n" not in line


def test_a_page_changes_the_law_of_its_flight_and_unknown_options_are_refused(page: Page) -> None:
    page.start(controller="reynolds:cohesion=2", compare="tanner")
    page.fly(3)
    first = {"options": {}, "controller_options": {"cohesion": 9.5}, "compare_options": {}}
    assert page.ask("change_law", options={"cohesion": 9.5}) == {"event": "done", "changes": first}
    second = {**first, "compare_options": {"clamp": 4}}
    assert page.ask("change_law", panel=1, options={"clamp": 4}) == {"event": "done", "changes": second}
    answer = page.ask("change_law", panel=1, options={"clmap": 4})
    assert answer["event"] == "refused"
    assert "its options are clamp, clamp_by, potential, " in answer["text"]
    assert page.fly(6).step == 6


def test_scenario_and_laws_share_the_pattern_whoever_was_given_it(page: Page) -> None:
    circle = {"pattern": "circle"}
    setting = {"scenario": "formation", "agents": 9, "controller": "formation"}
    for given in ({"options": circle}, {"controller_options": circle}):
        started = page.ask("start", setting={**setting, **given})
        assert (started["setting"]["options"], started["setting"]["controller_options"]) == (circle, circle)
        assert started["warning"] is None
    changes = page.ask("change_law", options={"pattern": "EQ", "gain": 9})["changes"]
    assert (changes["options"], changes["controller_options"]) == ({"pattern": "EQ"}, {"pattern": "EQ", "gain": 9})
    # Without the option, the law has its default, and so has the scenario; other options of the scenario stay.
    page.ask("start", setting={**setting, "options": {**circle, "mean_speed": 2}, "compare": "formation:gain=9"})
    changes = page.ask("change_law", panel=1, options={})["changes"]
    assert changes == {"options": {"mean_speed": 2}, "controller_options": {}, "compare_options": {}}
    unaware = page.ask("start", setting={**setting, "options": circle, "controller": "tanner"})
    assert unaware["setting"]["controller_options"] == {}


def test_a_page_is_warned_if_law_and_scenario_are_given_different_patterns(page: Page) -> None:
    setting = {"scenario": "formation", "options": {"pattern": "circle"}, "agents": 9, "controller": "formation"}
    message = "the pattern of the scenario is 'circle', that of the controller 'EQ': choose the same for both"
    assert page.ask("start", setting={**setting, "controller_options": {"pattern": "EQ"}})["warning"] == message
    assert "warning" not in page.ask("change_law", options={"pattern": "EQ"})
    assert page.ask("scatter") == {"event": "done"}  # which has nothing to do with it
