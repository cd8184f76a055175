"""Lists of scenarios and laws with their options, including those of plugins."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import equiflock as ef
from equiflock.controllers.trained import bundled_names
from equiflock.scenarios import scenario, scenario_names
from equiflock.viewer.viewer_config import list_laws, list_scenarios


def test_scenarios_are_listed_in_alphabetical_order() -> None:
    assert [entry["name"] for entry in list_scenarios(())] == sorted(scenario_names())


def test_options_are_numbers_booleans_and_choices_with_defaults_and_help(own_registry: None) -> None:
    @scenario("parade")
    @dataclass(frozen=True)
    class Parade:
        """Agents in `rows`.

        More that the menu omits.
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

    (entry,) = (each for each in list_scenarios(("agents",)) if each["name"] == "parade")
    assert entry["help"] == "Agents in rows."
    assert entry["options"] == [
        {"name": "rows", "kind": "integer", "default": 3, "choices": [], "help": "How many rows there are."},
        {"name": "gap", "kind": "number", "default": 1.0, "choices": [], "help": ""},
        {"name": "marching", "kind": "boolean", "default": True, "choices": [], "help": "Whether they march."},
        {"name": "drum", "kind": "choice", "default": "soft", "choices": ["loud", "soft"], "help": ""},
    ]


def test_a_class_without_docstrings_or_source_has_no_help(own_registry: None) -> None:
    names: dict[str, object] = {"dataclass": dataclass}
    exec("@dataclass(frozen=True)\nclass Bare:\n    gap: float = 2.0\n    def draw(self, stop=None): ...", names)
    scenario("bare")(names["Bare"])  # type: ignore[type-var]
    (entry,) = (each for each in list_scenarios(()) if each["name"] == "bare")
    assert entry["help"] == ""
    assert entry["options"] == [{"name": "gap", "kind": "number", "default": 2.0, "choices": [], "help": ""}]


def law(name: str) -> dict[str, Any]:
    return next(entry for entry in list_laws(ef.controller_names()) if entry["name"] == name)


def test_laws_are_listed_in_alphabetical_order_without_networks() -> None:
    names = [entry["name"] for entry in list_laws(ef.controller_names())]
    assert names == sorted(names)
    assert {"reynolds", "tanner", "cucker-smale", "cucker-smale-local"} <= set(names)
    assert not set(names) & set(bundled_names())


def test_a_law_is_listed_with_its_options() -> None:
    entry = law("tanner")
    assert entry["help"].startswith("The centralized expert: the velocity sum runs over the whole flock")
    kinds = {option["name"]: (option["kind"], option["default"], option["choices"]) for option in entry["options"]}
    assert kinds["clamp_by"] == ("choice", "norm", ["norm", "entry"])
    assert kinds["cut_off"] == ("boolean", True, [])
    assert kinds["clamp"] == ("number", 100.0, [])
    assert list(kinds)[-1] == "clamp"  # a limit that may be left out
    marks = {option["name"]: (option["may_be_none"], option["must_be_positive"]) for option in entry["options"]}
    assert (marks["clamp"], marks["cut_off"]) == ((True, True), (False, False))
    assert not any(option["must_be_positive"] for option in law("reynolds")["options"] if option["name"] != "clamp")
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

        More that the page omits.
        """

    entry = law("wander")
    assert entry["help"] == "Go somewhere."
    options = [(option["name"], option["kind"], option["default"]) for option in entry["options"]]
    assert options == [
        ("gain", "number", 2),
        ("steps", "integer", 3),
        ("side", "choice", "left"),
        ("most", "number", None),
        ("count", "integer", None),
    ]


def test_a_goal_has_no_slider_and_a_pattern_is_a_menu() -> None:
    assert "goal" not in [option["name"] for option in law("gu-leader")["options"]]
    (pattern,) = (option for option in law("formation")["options"] if option["name"] == "pattern")
    assert (pattern["kind"], pattern["choices"]) == ("choice", ["vee", "circle"])
    (scene,) = (each for each in list_scenarios(()) if each["name"] == "formation")
    (pattern,) = (option for option in scene["options"] if option["name"] == "pattern")
    assert (pattern["kind"], pattern["choices"]) == ("choice", ["vee", "circle"])
