"""The files of examples/ are short, run, are shown by docs/extending.md, and work on the command line."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import equiflock as ef
from equiflock import cli
from equiflock.flock import Condition, Role

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "extending.md").read_text()
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MAX_LINES = 80
SHORTENED = {
    "animate": ("--dots-per-inch", "40", "--frames-per-second", "5"),
    "evaluate": ("--workers", "1", "--flocks", "2", "--duration", "1"),
    "simulate": ("--flocks", "2"),
    "sweep": ("--workers", "1", "--flocks", "2"),
}
"""Options that make a command take seconds."""


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registry: None) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", "examples", ignore=shutil.ignore_patterns("__pycache__"))


def test_the_page_shows_each_example_with_a_link_to_its_file() -> None:
    headings = re.findall(r"^## (.*)", PAGE, flags=re.MULTILINE)
    blocks = re.findall(
        r"^\[examples/(\S+)\]\(\.\./examples/\1\):\n\n```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE
    )
    assert len(headings) == len(blocks) == PAGE.count("```python\n")
    assert dict(blocks) == {path.name: path.read_text() for path in EXAMPLES}
    for heading, word in zip(
        headings, ("law", "torch network", "feature", "scenario", "body", "metric", "expert"), strict=True
    ):
        assert word in heading


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_one_short_file_that_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES
    runpy.run_path(f"examples/{path.name}", run_name="__main__")
    assert capsys.readouterr().out


def test_the_example_of_a_metric_counts_working_agents_only() -> None:
    polarization = runpy.run_path("examples/my_metric.py")["polarization"]
    # The working agents fly right and up, one that drifts left, and an obstacle agent stands. Then none works.
    velocities = [[[2.0, 0.0], [0.0, 3.0], [0.0, 0.0], [-1.0, 0.0]]] * 2
    flocks = ef.Flock(
        np.arange(16.0).reshape(2, 4, 2),
        velocities,
        roles=[[Role.FOLLOWER, Role.LEADER, Role.OBSTACLE, Role.FOLLOWER]] * 2,
        obstacles=[[-1, -1, 0, -1]] * 2,
        conditions=[[0, 0, 0, Condition.DRIFTING], [Condition.DRIFTING, Condition.SILENT, 0, Condition.DRIFTING]],
    )
    assert polarization(SimpleNamespace(flock=flocks)) == pytest.approx([np.sqrt(0.5), 0.0])


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_commands_of_the_page_run(path: Path, monkeypatch: pytest.MonkeyPatch, jobs_here: None) -> None:
    monkeypatch.delitem(sys.modules, path.stem, raising=False)
    for line in re.findall(rf"^equiflock .*examples/{path.name}.*", PAGE, flags=re.MULTILINE):
        _, command, *options = shlex.split(line)
        cli.main([command, *options, *SHORTENED.get(command, ())])


def test_every_command_of_the_page_uses_an_example() -> None:
    lines = re.findall(r"^equiflock .*", PAGE, flags=re.MULTILINE)
    assert all(re.search(r"--plugin examples/\w+\.py ", line) for line in lines)
