"""The demonstration compares controllers on the same flocks, resumes, and writes a self-contained page."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.cli.demo import (
    CONTROLLERS,
    RECIPE,
    Demonstration,
    check_demo_dir,
    demonstrate,
    resume_or_create_training,
    write_demo,
)
from equiflock.controllers.networks.weights import collect_tensors
from equiflock.evaluation.summary import MetricSummary, summarize
from equiflock.plotting.html_report import HtmlReport
from equiflock.scenarios import RandomDisk


def test_the_demonstration_trains_and_flies_all_controllers_from_the_same_start() -> None:
    recipe = replace(RECIPE, epochs=4, validate_every=2, flocks=10, validation_flocks=4)
    found = demonstrate(RandomDisk(flocks=4, seed=1), recipe)
    assert [report.epoch for report in found.epochs] == [1, 2, 3, 4]
    assert tuple(found.runs) == CONTROLLERS
    for run in found.runs.values():
        assert (run.positions[0] == found.runs["tanner"].positions[0]).all()
    assert found.find_disconnected("tanner-dynamic").all()
    assert not found.find_disconnected("tdagnn").any()


def test_contrasting_flocks_are_always_connected_under_the_student_and_end_disconnected_under_the_law() -> None:
    def run(*counts: list[int]) -> Any:
        return SimpleNamespace(series={"component_count": np.array(counts)})

    runs = {"etdagnn": run([1, 1, 1], [1, 2, 1], [1, 1, 1]), "tanner-dynamic": run([1, 1, 1], [2, 3, 2], [5, 7, 1])}
    found = object.__new__(Demonstration)
    object.__setattr__(found, "runs", runs)
    assert found.contrasting_flocks == [0]  # 1 is disconnected in between, and 2 is connected at the end under the law


def test_a_summary_gives_medians_and_quartiles() -> None:
    row = MetricSummary("x", np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert row.quartiles == (2.0, 3.0, 4.0)
    assert row.text == "3 (2, 4)"
    assert MetricSummary("x", np.array([np.inf, np.inf])).text == "inf"


def test_a_run_with_leaders_reports_their_distance() -> None:
    import equiflock as ef
    from equiflock.evaluation.summary import RECORDED_METRICS

    plain = ef.random_disk(1, 20)
    roles = plain.roles.copy()
    roles[:, :2] = ef.Role.LEADER
    led = ef.Flock(plain.positions, plain.velocities, roles)
    names = [row.name for row in summarize(ef.simulate(led, ef.load("tanner"), duration=0.1, record=RECORDED_METRICS))]
    assert any("MLVD" in name for name in names)


def write_no_film(runs: object, path: Path, **_: object) -> Path:
    path.write_bytes(b"")
    return path


TINY = replace(RECIPE, epochs=2, validate_every=1, agents=30, flocks=3, validation_flocks=2, duration=0.1)


@pytest.mark.slow
def test_the_demo_writes_films_runs_and_one_self_contained_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = demonstrate(RandomDisk(flocks=2, agents=30), TINY, duration=0.1)
    folder = tmp_path / "demo"
    with monkeypatch.context() as patch:
        patch.setattr("equiflock.cli.demo.film", write_no_film)
        write_demo(found, folder)
    files = write_demo(found, folder)  # a second demonstration replaces the first
    assert all(path.stat().st_size > 0 for path in files)
    films = ["tanner.mp4", "etdagnn.mp4", "tdagnn.mp4", "tanner-dynamic.mp4"]
    assert [path.name for path in files] == ["report.html", "etdagnn.safetensors", *films]
    html = files[0].read_text()
    assert html.count('class="equiflock-player"') == 1
    assert html.count('<figure class="chart lines">') == 5
    controller = ef.load(str(files[1]))
    assert controller.senses.hops == 3
    assert re.findall(r'(?:src|href)="(?!data:)', html) == []
    assert len(list(folder.glob("*.zarr"))) == 4


@pytest.mark.slow
def test_a_killed_demo_resumes_to_the_same_network_and_flights(tmp_path: Path) -> None:
    recipe = replace(TINY, epochs=20, validate_every=10, checkpoint_every=1, capacity=200)
    disk = RandomDisk(flocks=2, agents=30)
    undisturbed = demonstrate(disk, recipe, duration=0.1)
    folder = tmp_path / "demo" / "demo-training"
    code = "import sys, pathlib; from equiflock import DAgger\n"
    code += "from equiflock.cli.demo import resume_or_create_training\n"
    code += f"resume_or_create_training(pathlib.Path(sys.argv[1]), {recipe!r}).train()"
    process = subprocess.Popen([sys.executable, "-c", code, str(folder)])
    while not list(folder.glob("checkpoints/epoch-*3.safetensors")) and process.poll() is None:
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -9
    check_demo_dir(folder.parent)
    epochs: list[int] = []
    found = demonstrate(disk, recipe, 0.1, on_epoch=lambda report: epochs.append(report.epoch), training=folder)
    assert epochs[0] > 1
    one, two = collect_tensors(found.network), collect_tensors(undisturbed.network)
    assert all(np.array_equal(one[name], two[name]) for name in one)
    assert str(found.epochs) == str(undisturbed.epochs)
    for name, run in found.runs.items():
        assert (run.positions == undisturbed.runs[name].positions).all()


def test_a_demo_with_other_settings_starts_a_new_training(tmp_path: Path) -> None:
    folder = tmp_path / "demo" / "demo-training"
    resume_or_create_training(folder, TINY).train()
    assert resume_or_create_training(folder, TINY).is_finished
    other = resume_or_create_training(folder, replace(TINY, seed=1))
    assert other.recipe.seed == 1
    assert not other.is_finished


def test_a_directory_with_the_name_of_the_training_is_kept_if_it_is_none(tmp_path: Path) -> None:
    (tmp_path / "demo" / "demo-training").mkdir(parents=True)
    (tmp_path / "demo" / "demo-training" / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="contains other files"):
        check_demo_dir(tmp_path / "demo")


def test_a_directory_with_other_files_is_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    found = demonstrate(RandomDisk(flocks=1, agents=30), TINY, duration=0.01)
    with pytest.raises(InputError, match="contains other files"):
        write_demo(found, tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_text_on_a_page_is_escaped(tmp_path: Path) -> None:
    page = HtmlReport("<script>", "a & b")
    page.add_table(["<b>"], [["<i>"]])
    html = page.write(tmp_path / "page.html").read_text()
    assert "<script>" not in html
    assert "&lt;i&gt;" in html
