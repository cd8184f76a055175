"""Pages can only choose what the server offers, which it describes for their forms."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.trained import DESCRIPTIONS, bundled_names, bundled_weights_path
from equiflock.scenarios import scenario, scenario_names
from equiflock.viewer.setting import Setting
from equiflock.viewer.viewer_config import ViewerConfig, list_laws, list_scenarios
from tests.viewer.servers import running


def test_weights_of_the_command_line_are_offered_and_no_others(tmp_path: Path) -> None:
    source = ef.load("etdagnn", seed=1)
    mine = ef.save(source, tmp_path / "mine.safetensors")
    other = ef.save(source, tmp_path / "other.safetensors")
    with running(ViewerConfig(weights=(mine,))) as server, server.page() as page:
        assert page.welcome["weights"] == [str(mine)]
        assert page.start(controller=str(mine)).step == 0
        assert page.ask("start", setting={"controller": str(other)})["event"] == "refused"


def test_invalid_weights_raise_an_error_before_the_server_starts(tmp_path: Path) -> None:
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"nonsense")
    with pytest.raises(InputError, match="not a safetensors file"):
        ViewerConfig(weights=(bad,))


@pytest.mark.usefixtures("short_searches")
@pytest.mark.slow
def test_a_setting_without_initial_conditions_raises_an_error_before_the_server_starts() -> None:
    with pytest.raises(InputError, match="no initial conditions found"):
        ViewerConfig(Setting(controller="tanner", agents=400, comm_radius=0.1)).setting.draw()


def test_a_scaled_controller_is_offered_if_the_initial_setting_has_it() -> None:
    viewer_config = ViewerConfig(Setting(controller="tanner:time_scale=2:clamp=5.0"))
    assert viewer_config.setting.controller_specs == (("tanner:time_scale=2", {"clamp": 5.0}),)
    assert viewer_config.load("tanner:time_scale=2", {"clamp": 6.0}) == ef.load("tanner", time_scale=2, clamp=6.0)
    (to_dict,) = (law for law in viewer_config.welcome["laws"] if law["name"] == "tanner:time_scale=2")
    assert {"clamp_by", "cut_off", "clamp"} <= {option["name"] for option in to_dict["options"]}
    with pytest.raises(InputError, match="controller must be one of"):
        viewer_config.load("tanner:time_scale=3", {})


@pytest.mark.parametrize(
    ("name", "options"), [("nosuch", {}), ("x" * 1000, {}), ("tanner", {"x" * 900: 1}), ("etdagnn", {"hops": 2})]
)
def test_errors_on_unknown_names_fit_into_a_notice_of_the_page(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as error:
        ViewerConfig().load(name, options)
    assert len(str(error.value)) < 280


def test_text_options_must_be_offered_or_part_of_the_initial_setting(own_registry: None) -> None:
    ef.feature("soft", vector="position")(lambda square: 1.0 / (1.0 + square))
    plain, begun = ViewerConfig(), ViewerConfig(Setting(controller="tanner:potential=soft"))
    assert plain.load("tanner", {"clamp_by": "entry"}) == ef.load("tanner", clamp_by="entry")
    assert begun.load("tanner", {"potential": "soft", "clamp": 2.0}) == ef.load("tanner", potential="soft", clamp=2.0)
    for viewer_config, name in ((plain, "tanner"), (begun, "tanner-dynamic")):
        with pytest.raises(
            InputError, match=f"potential of {name} can only be set when the server is started; got 'soft'"
        ):
            viewer_config.load(name, {"potential": "soft"})


def test_patterns_are_names_or_a_few_capital_letters() -> None:
    viewer_config = ViewerConfig()
    for pattern in ("vee", "circle", "EQ", "ABCDEFGHIJKL"):
        assert viewer_config.load("formation", {"pattern": pattern}) == ef.load("formation", pattern=pattern)
    for pattern in ("eq", "EQ ", "EQ\n", "", "A" * 13, "A/B", "Ä", "/etc/passwd"):
        with pytest.raises(
            InputError, match=r"pattern of formation must be one of 'vee', 'circle', or a word that matches"
        ):
            viewer_config.load("formation", {"pattern": pattern})
    with pytest.raises(InputError, match=r"clamp_by of tanner must be one of 'norm', 'entry'; got 'EQ'"):
        viewer_config.load("tanner", {"clamp_by": "EQ"})


def test_an_exception_of_a_plugins_controller_is_reported_in_one_line(own_registry: None) -> None:
    @ef.controller("brittle")
    class Brittle:
        senses = ef.paper_senses("mean", hops=1)

        def __init__(self, gain: float = 1.0) -> None:
            self.gain = 1.0 / gain

        def __call__(self, observations: object) -> object: ...

    with pytest.raises(InputError, match="controller 'brittle' cannot be made: ZeroDivisionError"):
        ViewerConfig().load("brittle", {"gain": 0.0})


def test_scenarios_are_listed_in_alphabetical_order() -> None:
    assert [entry["name"] for entry in list_scenarios(())] == sorted(scenario_names())


def without_pattern(options: list[dict[str, object]]) -> list[dict[str, object]]:
    assert all(option["safe_pattern"] == "" for option in options)
    return [{name: value for name, value in option.items() if name != "safe_pattern"} for option in options]


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
        drum: Literal["hard", "soft"] | str = "soft"
        flag: Literal["red"] | None = None
        limit: float = math.inf

        def draw(self, stop: object = None) -> ef.Flock:
            return self.disk.draw()

    (entry,) = (each for each in list_scenarios(("agents",)) if each["name"] == "parade")
    assert entry["help"] == "Agents in rows."
    assert without_pattern(entry["options"]) == [
        {
            "name": "rows",
            "kind": "integer",
            "default": 3,
            "choices": [],
            "help": "How many rows there are.",
        },
        {"name": "gap", "kind": "number", "default": 1.0, "choices": [], "help": ""},
        {
            "name": "marching",
            "kind": "boolean",
            "default": True,
            "choices": [],
            "help": "Whether they march.",
        },
        {
            "name": "drum",
            "kind": "choice",
            "default": "soft",
            "choices": ["hard", "soft"],
            "help": "",
        },
    ]


def test_a_class_without_docstrings_or_source_has_no_help(own_registry: None) -> None:
    names: dict[str, object] = {"dataclass": dataclass}
    exec("@dataclass(frozen=True)\nclass Bare:\n    gap: float = 2.0\n    def draw(self, stop=None): ...", names)
    scenario("bare")(names["Bare"])  # type: ignore[type-var]
    (entry,) = (each for each in list_scenarios(()) if each["name"] == "bare")
    assert entry["help"] == ""
    assert without_pattern(entry["options"]) == [
        {"name": "gap", "kind": "number", "default": 2.0, "choices": [], "help": ""}
    ]


def law(name: str) -> dict[str, Any]:
    return next(entry for entry in list_laws(ef.controller_names()) if entry["name"] == name)


def test_laws_are_listed_in_alphabetical_order_without_networks() -> None:
    names = [entry["name"] for entry in list_laws(ef.controller_names())]
    assert names == sorted(names)
    assert {"reynolds", "tanner", "cucker-smale", "cucker-smale-local"} <= set(names)
    assert not set(names) & set(bundled_names())


def test_every_network_has_a_description(tmp_path: Path) -> None:
    assert set(DESCRIPTIONS) == set(bundled_names())
    path = tmp_path / "mine.safetensors"
    shutil.copy(bundled_weights_path("etdagnn"), path)
    networks = ViewerConfig(weights=(path,)).welcome["networks"]
    assert networks[str(path)] == "A file of weights: etdagnn, trained on tanner in flocking."
    assert networks["etdagnn-robust"] == DESCRIPTIONS["etdagnn-robust"]


def test_a_law_is_listed_with_its_options() -> None:
    entry = law("tanner")
    assert entry["help"].startswith("The centralized expert: the velocity sum runs over the whole flock")
    kinds = {option["name"]: (option["kind"], option["default"], option["choices"]) for option in entry["options"]}
    assert kinds["clamp_by"] == ("choice", "norm", ["norm", "entry"])
    assert kinds["cut_off"] == ("boolean", True, [])
    assert kinds["clamp"] == ("number", 100.0, [])
    assert list(kinds)[-2:] == ["clamp", "velocity_gain"]  # numbers that may be left out
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
