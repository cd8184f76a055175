"""A tiny reproduction, from the flights to a valid, self-contained page."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import equiflock as ef
from equiflock import cli
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.learning.fast_forward import FastForward
from equiflock.paper import report_flights, reproduction, reproduction_report
from equiflock.paper.generalization_experiment import CloningJob, build_cloning_jobs
from equiflock.paper.profile import PROFILES, Profile
from equiflock.paper.report_flights import FILMS
from equiflock.simulation import flight_builder
from tests._runtime.here import work_here
from tests.paper.coarse import CoarseProfile

pytestmark = pytest.mark.slow

TINY = CoarseProfile(
    "quick",
    seeds=(0,),
    flocks=2,
    sizes=(50,),
    sides=(3,),
    fast_forward=FastForward(train_flocks=1, test_flocks=1, steps=5, agents=20),
    cloning_seeds=(0,),
)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attributes: object) -> None:
        self.seen.append(tag)
        if tag not in ("img", "meta", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module", autouse=True)
def short_cloning() -> Iterator[None]:
    """Clone for a tenth of the epochs."""

    def build_short_jobs(profile: Profile, folder: Path) -> list[CloningJob]:
        jobs = build_cloning_jobs(profile, folder)
        return [replace(job, recipe=replace(job.recipe, epochs=job.recipe.epochs // 10)) for job in jobs]

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(reproduction.JOB_BUILDERS, "generalization", build_short_jobs)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "paper"
    write_reproduction = reproduction_report.write_reproduction

    def write_without_flying(*arguments: Any) -> list[Path]:
        with pytest.MonkeyPatch.context() as grounded:
            grounded.setattr(flight_builder, "Flight", None)
            return write_reproduction(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        work_here(patch)
        patch.setattr(reproduction_report, "write_reproduction", write_without_flying)
        patch.setitem(PROFILES, "quick", TINY)
        for name, film in FILMS.items():
            # As many frames as a test needs.
            patch.setitem(FILMS, name, replace(film, duration=0.1 * film.duration, speed=4 * film.speed))
        cli.main(["reproduce", "--profile", "quick", "--out", str(folder), "--workers", "1", "--checks"])
    return folder


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take seconds to draw."""
    monkeypatch.setattr("equiflock.paper.reproduction_report.draw_figures", lambda *_: [])


def test_it_writes_a_ledger_with_every_statement(folder: Path) -> None:
    ledger = json.loads((folder / "ledger.json").read_text())
    expected = ["A1", "A2", "A3", *(f"T{n}" for n in range(1, 10)), "F1", "F2", "F3", "F5", "F6", "L1", "L2"]
    expected += ["O1", "O2", "O3", "O5", *(f"G{n}" for n in range(2, 8))]
    assert [entry["id"] for entry in ledger] == expected  # F4, O4 and G1 need more
    assert all(entry["verdict"] in ("holds", "partly", "does not") for entry in ledger)
    assert all(check["description"] and check["measured"] for entry in ledger for check in entry["checks"])


def test_it_writes_tidy_tables(folder: Path) -> None:
    assert set(pd.read_csv(folder / "flocking.csv").controller) == {"tanner", *PAPER_NETWORKS}
    obstacles = pd.read_csv(folder / "obstacles.csv")
    assert len(obstacles) == 4 * 2 * 2
    assert set(obstacles.columns) == {"flock", "outcome", "seconds", "controller", "seed", "sides", "uses_orbit"}


def test_the_page_is_valid_and_self_contained(folder: Path) -> None:
    html = (folder / "report.html").read_text()
    tags = Tags()
    tags.feed(html)
    assert tags.open == []
    assert tags.seen.count("img") == 3  # pictures of flocks
    assert html.count('<figure class="chart lines">') > 12
    assert html.count('class="equiflock-player"') == 1
    assert html.count('type="radio"') == 3
    assert re.findall(r'(?:src|href)="(?!data:)', html) == []
    ledger = json.loads((folder / "ledger.json").read_text())
    for verdict in ("holds", "partly", "does not"):
        count = sum(entry["verdict"] == verdict for entry in ledger)
        assert (f"</svg>{verdict}: {count}</span></li>" in html) == (count > 0)
    assert "This profile has fewer seeds, flocks and sizes than the paper's experiments" in html.replace("&#x27;", "'")


def test_the_report_is_drawn_from_saved_flights_only(folder: Path) -> None:
    flights = {path.stem for path in (folder / "flights").iterdir()}
    films = {f"{name}-{trained}" for name in report_flights.FILMS for trained in PAPER_NETWORKS}
    courses = {f"course-{sides}" for sides in report_flights.DRAWN_SIDES}
    assert flights == {"connectivity-tanner-dynamic", "connectivity-tdagnn", "flocks", *courses, *films}
    run = report_flights.load_report_flight(folder, "obstacles", "etdagnn")
    assert (run.config["scenario"], run.config["start"]["sides"]) == ("obstacles", 24)
    # The fixture drew it while no flight was possible.
    assert {path.stem for path in folder.glob("*.mp4")} == set(report_flights.FILMS)
    assert len(list(folder.glob("*.png"))) == 12
    with pytest.MonkeyPatch.context() as grounded, pytest.raises(TypeError):
        grounded.setattr(flight_builder, "Flight", None)
        ef.simulate(ef.random_disk(1, 5), ef.load("tanner"), duration=0.01)


def test_a_damaged_flight_is_flown_again(folder: Path, tmp_path: Path) -> None:
    flown, notices = _save_again(folder, tmp_path, lambda flights: shutil.rmtree(flights / "flocks.zarr" / "positions"))
    assert flown == ["flocks"]
    assert len(notices) == 1 and notices[0].endswith("; it is simulated again")


def test_another_flight_in_the_place_of_one_is_flown_again(folder: Path, tmp_path: Path) -> None:
    def swap(flights: Path) -> None:
        shutil.rmtree(flights / "course-12.zarr")
        shutil.copytree(flights / "course-48.zarr", flights / "course-12.zarr")

    flown, notices = _save_again(folder, tmp_path, swap)
    assert flown == ["course-12"]
    path = tmp_path / "flights" / "course-12.zarr"
    assert notices == [f"{path} is another flight, or that of another run; it is simulated again"]


def _save_again(folder: Path, copy: Path, damage: Callable[[Path], object]) -> tuple[list[str], list[str]]:
    """Damage a copy of saved flights, save flights twice, and return the names of simulated ones, and the notices."""
    shutil.copytree(folder / "flights", copy / "flights")
    shutil.copy(folder / "config.json", copy)
    damage(copy / "flights")
    flown: list[str] = []
    notices: list[str] = []
    for _ in range(2):
        report_flights.save_report_flights(TINY, copy, {}, False, flown.append, notices.append)
    return flown, notices


def test_existing_results_are_kept_and_another_profile_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, no_figures: None
) -> None:
    monkeypatch.setitem(PROFILES, "quick", TINY)
    jobs = {path: path.stat().st_mtime_ns for path in (folder / "jobs").iterdir()}
    cli.main(["reproduce", "--out", str(folder), "--only", "flocking", "--no-films"])
    assert {path: path.stat().st_mtime_ns for path in (folder / "jobs").iterdir()} == jobs
    with pytest.raises(SystemExit):
        cli.main(["reproduce", "--profile", "paper", "--out", str(folder)])
    assert "has results of other settings: profile name = quick, not paper" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["reproduce", "--out", str(folder), "--only", "floking"])
    assert "did you mean 'flocking'" in capsys.readouterr().err


@pytest.mark.usefixtures("no_figures")
def test_damaged_jobs_are_computed_again_or_reported(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, jobs_here: None
) -> None:
    monkeypatch.setitem(PROFILES, "quick", TINY)
    copy = tmp_path / "paper"
    shutil.copytree(folder, copy)
    leaders, flocking = (next((copy / "jobs").glob(f"{name}-*.csv")) for name in ("leaders", "flocking"))
    for path in (leaders, flocking):
        path.write_bytes(path.read_bytes()[:-20])
    cli.main(["reproduce", "--out", str(copy), "--only", "flocking", "--no-films", "--workers", "1"])
    errors = capsys.readouterr().err
    assert f"{flocking} is damaged or misplaced: its checksum does not match; this job is computed again" in errors
    assert (
        f"{leaders} is damaged or misplaced: its checksum does not match; leaders is left out until it is run again"
        in errors
    )
    assert flocking.read_bytes() == (folder / "jobs" / flocking.name).read_bytes()
    assert (copy / "flocking.csv").read_bytes() == (folder / "flocking.csv").read_bytes()


def test_force_deletes_earlier_results(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_figures: None
) -> None:
    monkeypatch.setitem(PROFILES, "quick", TINY)
    copy = tmp_path / "paper"
    shutil.copytree(folder, copy)
    cli.main(["reproduce", "--out", str(copy), "--only", "training", "--no-films", "--force"])
    assert not (copy / "jobs").exists()
    assert not (copy / "leaders.csv").exists()


@pytest.mark.usefixtures("no_figures")
def test_another_interpretation_has_its_own_run_directory(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, jobs_here: None
) -> None:
    monkeypatch.setitem(PROFILES, "quick", TINY)
    monkeypatch.chdir(tmp_path)
    asked = ["reproduce", "--interpretation", "leader_velocity=first", "--only", "leaders", "--no-films"]
    cli.main([*asked, "--workers", "1"])
    assert "interpretation: leader_velocity=first" in capsys.readouterr().out
    other = tmp_path / "runs" / "quick-leader_velocity=first"
    assert set(pd.read_csv(other / "leaders.csv").leader_velocity) == {"first"}
    assert "leader_velocity=first" in (other / "report.html").read_text()
    with pytest.raises(SystemExit):
        cli.main([*asked, "--out", str(folder)])
    assert "interpretation leader_velocity = mean, not first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--interpretation", "speed=2"], "an interpretation has no choice 'speed'"),
        (["--search-interpretations", "--only", "leaders"], "--search-interpretations covers all"),
        (["--search-interpretations", "--interpretation", "clamp=150"], "--search-interpretations covers all"),
    ],
)
def test_an_invalid_interpretation_is_refused_before_any_flight(
    options: list[str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["reproduce", "--out", str(tmp_path / "none"), *options])
    assert ended.value.code == 2
    assert error in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
