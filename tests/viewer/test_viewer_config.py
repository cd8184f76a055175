"""Pages can only choose what the server offers."""

from __future__ import annotations

from pathlib import Path

import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.viewer.setting import Setting
from equiflock.viewer.viewer_config import ViewerConfig
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
        ViewerConfig(Setting(controller="tanner", agents=400, comm_radius=0.1)).check_start()


def test_a_scaled_controller_is_offered_if_the_initial_setting_has_it() -> None:
    viewer_config = ViewerConfig(Setting(controller="tanner:time_scale=2:clamp=5.0"))
    assert viewer_config.setting.controller_specs == (("tanner:time_scale=2", {"clamp": 5.0}),)
    assert viewer_config.load("tanner:time_scale=2", {"clamp": 6.0}) == ef.load("tanner", time_scale=2, clamp=6.0)
    (to_dict,) = (law for law in viewer_config.to_dict()["laws"] if law["name"] == "tanner:time_scale=2")
    assert {"clamp_by", "cut_off", "clamp"} <= {option["name"] for option in to_dict["options"]}
    with pytest.raises(InputError, match="controller must be one of"):
        viewer_config.load("tanner:time_scale=3", {})


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
