"""Pages choose among what the server offers, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import equiflock as ef
from equiflock.runtime.checks import InputError
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
        assert page.ask("start", setting={"controller": str(other)})["is"] == "refused"


def test_weights_that_do_not_load_are_an_error_before_anything_is_served(tmp_path: Path) -> None:
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"nonsense")
    with pytest.raises(InputError, match="not a safetensors file"):
        ViewerConfig(weights=(bad,))


@pytest.mark.usefixtures("short_searches")
@pytest.mark.slow
def test_a_setting_without_a_flock_is_an_error_before_anything_is_served() -> None:
    with pytest.raises(InputError, match="no start was found"):
        ViewerConfig(Setting(controller="tanner", agents=400, comm_radius=0.1)).check_start()


def test_a_controller_in_units_of_robots_is_offered_if_the_page_begins_with_it() -> None:
    viewer_config = ViewerConfig(Setting(controller="tanner:time_scale=2:clamp=5.0"))
    assert viewer_config.setting.controller_specs == (("tanner:time_scale=2", {"clamp": 5.0}),)
    assert viewer_config.load("tanner:time_scale=2", {"clamp": 6.0}) == ef.load("tanner", time_scale=2, clamp=6.0)
    (to_dict,) = (law for law in viewer_config.to_dict()["laws"] if law["name"] == "tanner:time_scale=2")
    assert {"clamp_by", "cut_off", "clamp"} <= {option["name"] for option in to_dict["options"]}
    with pytest.raises(InputError, match="controller must be one of"):
        viewer_config.load("tanner:time_scale=3", {})


def test_a_page_chooses_no_words_but_those_that_are_offered_or_that_the_server_began_with(own_registry: None) -> None:
    ef.feature("soft", vector="position")(lambda square: 1.0 / (1.0 + square))
    plain, begun = ViewerConfig(), ViewerConfig(Setting(controller="tanner:potential=soft"))
    assert plain.load("tanner", {"clamp_by": "entry"}) == ef.load("tanner", clamp_by="entry")
    assert begun.load("tanner", {"potential": "soft", "clamp": 2.0}) == ef.load("tanner", potential="soft", clamp=2.0)
    for viewer_config, name in ((plain, "tanner"), (begun, "tanner-dynamic")):
        with pytest.raises(InputError, match=f"potential of {name} is chosen when the server is started; got 'soft'"):
            viewer_config.load(name, {"potential": "soft"})


def test_a_page_chooses_patterns_by_name_or_in_a_few_capital_letters() -> None:
    viewer_config = ViewerConfig()
    for pattern in ("vee", "circle", "EQ", "ABCDEFGHIJKL"):
        assert viewer_config.load("formation", {"pattern": pattern}) == ef.load("formation", pattern=pattern)
    for pattern in ("eq", "EQ ", "EQ\n", "", "A" * 13, "A/B", "Ä", "/etc/passwd"):
        with pytest.raises(InputError, match=r"pattern of formation must be one of 'vee', 'circle', or a word such as"):
            viewer_config.load("formation", {"pattern": pattern})
    with pytest.raises(InputError, match=r"clamp_by of tanner must be one of 'norm', 'entry'; got 'EQ'"):
        viewer_config.load("tanner", {"clamp_by": "EQ"})


def test_whatever_a_controller_of_a_plugin_raises_is_told_in_one_line(own_registry: None) -> None:
    @ef.controller("brittle")
    class Brittle:
        senses = ef.paper_senses("mean", hops=1)

        def __init__(self, gain: float = 1.0) -> None:
            self.gain = 1.0 / gain

        def __call__(self, observations: object) -> object: ...

    with pytest.raises(InputError, match="controller 'brittle' cannot be made: ZeroDivisionError"):
        ViewerConfig().load("brittle", {"gain": 0.0})
