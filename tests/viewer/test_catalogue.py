"""A page is told every scenario that there is, a plugin's too, and the options of each."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import equiflock as ef
from equiflock.controllers.trained import bundled_names
from equiflock.scenarios import scenario, scenario_names
from equiflock.viewer.catalogue import list_laws, list_scenarios


def test_all_scenarios_are_told_in_the_order_of_their_names() -> None:
    assert [told["name"] for told in list_scenarios(())] == sorted(scenario_names())


def test_options_are_numbers_switches_and_choices_with_defaults_and_help(own_registry: None) -> None:
    @scenario("parade")
    @dataclass(frozen=True)
    class Parade:
        """Agents in `rows`.

        More that nobody needs in a menu.
        """

        disk: ef.RandomDisk = field(default_factory=ef.RandomDisk)
        """The flocks."""
        rows: int = 3
        """How many
        rows there are."""
        gap: float = 1.0
        agents: int = 10
        """Chosen elsewhere."""
        marching: bool = True
        """Whether they `march`."""
        tune: str = "slow"
        drum: Literal["loud", "soft"] | str = "soft"
        flag: Literal["red"] | None = None
        limit: float = math.inf

        def draw(self, stop: object = None) -> ef.Flock:
            return self.disk.draw()

    (told,) = (each for each in list_scenarios(("agents",)) if each["name"] == "parade")
    assert told["help"] == "Agents in rows."
    assert told["options"] == [
        {"name": "rows", "kind": "whole", "default": 3, "choices": [], "help": "How many rows there are."},
        {"name": "gap", "kind": "number", "default": 1.0, "choices": [], "help": ""},
        {"name": "marching", "kind": "switch", "default": True, "choices": [], "help": "Whether they march."},
        {"name": "drum", "kind": "choice", "default": "soft", "choices": ["loud", "soft"], "help": ""},
    ]


def test_a_class_without_docstrings_or_source_is_told_without_help(own_registry: None) -> None:
    names: dict[str, object] = {"dataclass": dataclass}
    exec("@dataclass(frozen=True)\nclass Bare:\n    gap: float = 2.0\n    def draw(self, stop=None): ...", names)
    scenario("bare")(names["Bare"])  # type: ignore[type-var]
    (told,) = (each for each in list_scenarios(()) if each["name"] == "bare")
    assert told["help"] == ""
    assert told["options"] == [{"name": "gap", "kind": "number", "default": 2.0, "choices": [], "help": ""}]


def law(name: str) -> dict[str, Any]:
    return next(told for told in list_laws(ef.controller_names()) if told["name"] == name)


def test_all_laws_are_told_in_the_order_of_their_names_and_no_network() -> None:
    names = [told["name"] for told in list_laws(ef.controller_names())]
    assert names == sorted(names)
    assert {"reynolds", "tanner", "cucker-smale", "cucker-smale-local"} <= set(names)
    assert not set(names) & set(bundled_names())


def test_a_law_is_told_with_its_numbers_choices_and_switches() -> None:
    told = law("tanner")
    assert told["help"].startswith("The centralized expert: the velocity sum runs over the whole flock")
    kinds = {option["name"]: (option["kind"], option["default"], option["choices"]) for option in told["options"]}
    assert kinds["clamp_by"] == ("choice", "norm", ["norm", "entry"])
    assert kinds["cut_off"] == ("switch", True, [])
    assert kinds["clamp"] == ("number", 100.0, [])
    assert list(kinds)[-1] == "clamp"  # a limit that may be left out
    marks = {option["name"]: (option["may_be_none"], option["above_zero"]) for option in told["options"]}
    assert (marks["clamp"], marks["cut_off"]) == ((True, True), (False, False))
    assert not any(option["above_zero"] for option in law("reynolds")["options"] if option["name"] != "clamp")
    assert [option["name"] for option in law("reynolds")["options"]][:2] == ["alignment", "cohesion"]


def test_options_of_other_kinds_keep_their_defaults(own_registry: None) -> None:
    @ef.controller("wander")
    def wander(
        observations: Any,
        gain: Any = 2,
        steps: int = 3,
        most: float | None = None,
        count: int | None = None,
        place: str | float | tuple[float, ...] | None = None,
        side: Literal["left", "right"] | str = "left",
        whose: Literal["mine"] | None = None,
        far: float = math.inf,
        where: tuple[float, float] = (0.0, 0.0),
        word: str = "any",
        nothing: Any = None,
    ) -> Any:
        """Go somewhere.

        More that nobody needs on a page.
        """

    told = law("wander")
    assert told["help"] == "Go somewhere."
    found = [(option["name"], option["kind"], option["default"]) for option in told["options"]]
    assert found == [
        ("gain", "number", 2),
        ("steps", "whole", 3),
        ("side", "choice", "left"),
        ("most", "number", None),
        ("count", "whole", None),
    ]


def test_a_goal_which_is_a_point_has_no_slider_and_a_pattern_is_a_menu() -> None:
    assert "goal" not in [option["name"] for option in law("gu-leader")["options"]]
    (pattern,) = (option for option in law("formation")["options"] if option["name"] == "pattern")
    assert (pattern["kind"], pattern["choices"]) == ("choice", ["vee", "circle"])
    (scene,) = (each for each in list_scenarios(()) if each["name"] == "formation")
    (pattern,) = (option for option in scene["options"] if option["name"] == "pattern")
    assert (pattern["kind"], pattern["choices"]) == ("choice", ["vee", "circle"])
