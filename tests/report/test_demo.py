"""The demonstration's folder holds a page that needs nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import equiflock as ef
from equiflock.experiments.demo import RECIPE, demonstrate
from equiflock.initial import RandomDisk
from equiflock.report.demo import write_demo
from equiflock.report.page import Page
from equiflock.types import InputError

TINY = replace(RECIPE, epochs=2, validate_every=1, agents=30, flocks=3, validation_flocks=2, duration=0.1)


def test_the_demo_writes_films_runs_and_one_self_contained_page(tmp_path: Path) -> None:
    found = demonstrate(RandomDisk(flocks=2, agents=30), TINY, duration=0.1)
    folder = tmp_path / "demo"
    for _ in range(2):  # a second demonstration replaces the first
        files = write_demo(found, folder)
    films = ["tanner.mp4", "etdagnn.mp4", "tdagnn.mp4", "tanner-dynamic.mp4"]
    assert [path.name for path in files] == ["report.html", "etdagnn.safetensors", *films]
    html = files[0].read_text()
    assert html.count("<video") == 4
    assert html.count("<img") == 2
    pilot = ef.load(str(files[1]))
    assert pilot.hops == 3
    assert re.findall(r'(?:src|href)="(?!data:)', html) == []
    assert len(list(folder.glob("*.zarr"))) == 4


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    found = demonstrate(RandomDisk(flocks=1, agents=30), TINY, duration=0.0)
    with pytest.raises(InputError, match="holds something else"):
        write_demo(found, tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_text_on_a_page_is_escaped(tmp_path: Path) -> None:
    page = Page("<script>", "a & b")
    page.table(["<b>"], [["<i>"]])
    html = page.write(tmp_path / "page.html").read_text()
    assert "<script>" not in html
    assert "&lt;i&gt;" in html
