"""A page is told every scenario that there is, a plugin's too, and the options of each."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import equiflock as ef
from equiflock.scenarios import scenario, scenario_names
from equiflock.viewer.offered import offered_scenarios


def test_all_scenarios_are_told_in_the_order_of_their_names() -> None:
    assert [told["name"] for told in offered_scenarios(())] == sorted(scenario_names())


def test_options_are_numbers_and_switches_with_defaults_and_help(own_registry: None) -> None:
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
        limit: float = math.inf

        def draw(self, stop: object = None) -> ef.Flock:
            return self.disk.draw()

    (told,) = (each for each in offered_scenarios(("agents",)) if each["name"] == "parade")
    assert told["help"] == "Agents in rows."
    assert told["options"] == [
        {"name": "rows", "kind": "whole", "default": 3, "help": "How many rows there are."},
        {"name": "gap", "kind": "number", "default": 1.0, "help": ""},
        {"name": "marching", "kind": "switch", "default": True, "help": "Whether they march."},
    ]


def test_a_class_without_docstrings_or_source_is_told_without_help(own_registry: None) -> None:
    names: dict[str, object] = {"dataclass": dataclass}
    exec("@dataclass(frozen=True)\nclass Bare:\n    gap: float = 2.0\n    def draw(self, stop=None): ...", names)
    scenario("bare")(names["Bare"])  # type: ignore[type-var]
    (told,) = (each for each in offered_scenarios(()) if each["name"] == "bare")
    assert told["help"] == ""
    assert told["options"] == [{"name": "gap", "kind": "number", "default": 2.0, "help": ""}]
