"""Pages choose among what the server offers, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

import equiflock as ef
from equiflock.runtime.checks import InputError
from equiflock.viewer.exhibit import Exhibit
from equiflock.viewer.setting import Setting
from tests.viewer.servers import running


def test_weights_of_the_command_line_are_offered_and_no_others(tmp_path: Path) -> None:
    source = ef.load("etdagnn", seed=1)
    mine = source.save(tmp_path / "mine.safetensors")  # type: ignore[union-attr]
    other = source.save(tmp_path / "other.safetensors")  # type: ignore[union-attr]
    with running(Exhibit(weights=(mine,))) as server, server.page() as page:
        assert page.welcome["weights"] == [str(mine)]
        assert page.start(controller=str(mine)).step == 0
        assert page.ask("start", setting={"controller": str(other)})["is"] == "refused"


def test_weights_that_do_not_load_are_an_error_before_anything_is_served(tmp_path: Path) -> None:
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"nonsense")
    with pytest.raises(InputError, match="not a safetensors file"):
        Exhibit(weights=(bad,))


def test_a_setting_without_a_flock_is_an_error_before_anything_is_served() -> None:
    with pytest.raises(InputError, match="no start was found"):
        Exhibit(Setting(controller="tanner", agents=400, comm_radius=0.1)).warm_up()


def test_a_controller_with_options_that_the_page_begins_with_is_offered() -> None:
    exhibit = Exhibit(Setting(controller="tanner:clamp=5.0"))
    assert exhibit.load("tanner:clamp=5.0") == ef.load("tanner", clamp=5.0)
    assert "tanner:clamp=5.0" in exhibit.told()["laws"]
    with pytest.raises(InputError, match="controller must be one of"):
        exhibit.load("tanner:clamp=6.0")
