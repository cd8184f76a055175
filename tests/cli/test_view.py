"""`equiflock view`: its initial setting, the served page, and one-line errors."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.cli.plugins import import_plugin
from equiflock.cli.view import View
from equiflock.viewer.setting import Setting
from tests.cli.commands import failure

PLUGIN = '''
from dataclasses import dataclass, field
import equiflock as ef

@ef.scenario("crawl")
@dataclass(frozen=True)
class Crawl:
    """A flock that hardly moves."""

    disk: ef.RandomDisk = field(default_factory=lambda: ef.RandomDisk(max_speed=0.1))
    brisk: bool = False
    """Whether it moves a little faster."""

    def draw(self, stop=None):
        return self.disk.draw(stop)
'''


def setting(**options: object) -> Setting:
    return View(**{"controller": "tanner", **options})._make_viewer_config().setting  # type: ignore[arg-type]


def test_a_scenario_is_named_with_its_options() -> None:
    found = setting(scenario="obstacles:sides=48:leaders=3", agents=60)
    assert (found.scenario, found.options, found.agents) == ("obstacles", {"sides": 48, "leaders": 3}, 60)
    assert (found.draw().roles == ef.Role.OBSTACLE).sum() == 48


def test_agents_seed_and_radius_may_be_options_of_the_scenario() -> None:
    found = setting(scenario="flocking:agents=30:seed=4:comm_radius=1.5")
    assert (found.agents, found.seed, found.comm_radius, found.options) == (30, 4, 1.5, {})


@pytest.mark.parametrize(
    ("scenario", "text"),
    [
        ("obstacle", "scenario must be one of .*; did you mean 'obstacles'?"),
        ("obstacles:sides=2", "sides must be a whole number of at least 3; got 2"),
        ("obstacles:side=2", "scenario 'obstacles' has no option 'side'"),
        ("obstacles:", "options must have the form key=value"),
        ("flocking:agents=many", "agents: Input should be a valid integer"),
    ],
)
def test_an_invalid_scenario_is_a_one_line_error(scenario: str, text: str) -> None:
    with pytest.raises(InputError, match=text) as error:
        setting(scenario=scenario)
    assert "\n" not in str(error.value)


def test_a_law_is_named_with_its_options() -> None:
    found = setting(controller="cucker-smale:beta=1", compare="reynolds:cohesion=8:clamp=none")
    assert found.controller_specs == (("cucker-smale", {"beta": 1}), ("reynolds", {"cohesion": 8, "clamp": None}))


@pytest.mark.parametrize(
    ("controller", "text"),
    [
        ("cucker-smale:bet=1", "its options are clamp, strength, beta"),
        ("cucker-smale:beta=-1", "beta must be a finite number of at least 0"),
        ("cucker-smale:beta=inf", "beta must be from -1,000,000 to 1,000,000; got inf"),
        ("cucker-smale:", "options must have the form key=value"),
    ],
)
def test_an_invalid_law_is_a_one_line_error(controller: str, text: str) -> None:
    with pytest.raises(InputError, match=text) as error:
        setting(controller=controller)
    assert "\n" not in str(error.value)


def test_a_scenario_of_a_plugin_is_offered_with_its_options(own_registry: None, tmp_path: Path) -> None:
    (tmp_path / "crawling.py").write_text(PLUGIN)
    import_plugin(str(tmp_path / "crawling.py"))
    viewer_config = View(controller="tanner", scenario="crawl:brisk=true")._make_viewer_config()
    (to_dict,) = (each for each in viewer_config.welcome["scenarios"] if each["name"] == "crawl")
    option = {
        "name": "brisk",
        "kind": "boolean",
        "default": False,
        "choices": [],
        "safe_pattern": "",
        "help": "Whether it moves a little faster.",
    }
    assert {name: to_dict[name] for name in ("name", "help", "options", "suitable_controllers")} == {
        "name": "crawl",
        "help": "A flock that hardly moves.",
        "options": [option],
        "suitable_controllers": [],
    }
    assert viewer_config.setting.options == {"brisk": True}
    assert abs(viewer_config.setting.draw().velocities).max() <= 0.2


@pytest.mark.slow
def test_view_takes_the_next_port_serves_the_page_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "equiflock", "view", "--no-browser", "--port", str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        try:
            assert process.stdout is not None
            found = re.search(r"http://127.0.0.1:\d+/", process.stdout.readline())
            assert found is not None
            with urllib.request.urlopen(found[0]) as answer:
                assert b"<title>equiflock</title>" in answer.read()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0
    assert f"port {port} is in use" in errors
    assert "Traceback" not in errors


def test_a_run_directory_is_refused_in_favour_of_its_jobs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = tmp_path / "jobs" / "some.csv"
    job.parent.mkdir()
    job.touch()
    table = tmp_path / "flocking.csv"
    table.touch()
    assert f"name one of its jobs, such as {job}" in failure(capsys, "view", str(tmp_path))
    assert "must be a file jobs/*.csv in a run directory" in failure(capsys, "view", str(table))


def test_a_missing_extra_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("equiflock.viewer")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'equiflock[view]'" in failure(capsys, "view")
