"""The page of an evaluation: its flights are saved, its verdict follows from the table."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from equiflock import cli
from equiflock.evaluation.evaluation_report import compare_by_metric, describe_standings
from equiflock.simulation import flight_builder

pytestmark = pytest.mark.slow
SMALL = ("--flocks", "7", "--agents", "15", "--time-step", "0.02", "--duration", "0.3", "--workers", "1")


def evaluate(*arguments: str) -> str:
    cli.main(["evaluate", *arguments, *SMALL, "--out", "run"])
    return Path("run/report.html").read_text()


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs_here: None) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_page_shows_one_flock_of_each_controller_and_is_written_again_without_flights(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    html = evaluate("starling")
    saved = {path.stem for path in Path("run/flights").iterdir()}
    assert saved == {"starling", "tanner", "etdagnn", "tdagnn", "tdagnn-tf", "tdagnn-tf-mean"}
    assert html.count('class="equiflock-player"') == 2
    assert html.count('"group":"evaluation"') == 2  # one scrubber moves both
    assert re.findall(r'"title":"([^"]*)"', html)[:2] == ["starling", "tanner"]
    assert html.index('class="equiflock-player"') < html.index('class="verdict"') < html.index('class="chart')
    with monkeypatch.context() as grounded:
        grounded.setattr(flight_builder, "Flight", None)
        grounded.setattr("equiflock.cli.evaluate.try_controller", lambda *_, **__: None)
        assert evaluate("starling") == html
    shutil.rmtree("run/flights/tanner.zarr/positions")
    assert evaluate("starling") == html
    notice = "run/flights/tanner.zarr is a damaged trajectory: its checksum does not match; it is simulated again\n"
    assert capsys.readouterr().err == notice


@pytest.mark.usefixtures("no_curves")
def test_flights_that_end_have_bars_of_their_outcomes() -> None:
    html = evaluate("starling", "etdagnn", "--scenario", "obstacles")
    flights = pd.read_csv("run/flights.csv")
    group = html.partition('<p class="bar-label">failed</p>')[2].partition('class="bar-group"')[0]
    for name, rows in flights.groupby("controller"):
        assert f'<span class="name">{name}</span><span class="value">{rows.failed.mean():.0%} (' in group


def make_comparison(intervals: Sequence[tuple[float, float]]) -> pd.DataFrame:
    rows = [
        {"controller": f"c{k}", "metric": "ivv", "n": 9, "improvement_low": low, "improvement_high": high}
        for k, (low, high) in enumerate(intervals)
    ]
    return pd.DataFrame(rows)


def test_the_verdict_counts_the_others_whose_intervals_leave_out_a_half() -> None:
    chips = compare_by_metric(make_comparison([(0.0, 0.4), (0.1, 0.49), (0.6, 1.0), (0.4, 0.6)]), "ivv")
    expected = ["better than c0", "better than c1", "worse than c2", "not distinguishable from c3"]
    assert [str(chip) for chip in chips] == expected
    row = {"controller": "mine", "metric": "ivv", "n": 9, "trainings": 1, "median": 2.0}
    summary = pd.DataFrame([{**row, "interval_low": 1.0, "interval_high": 3.0}])
    assert describe_standings("mine", "ivv", chips, summary) == (
        "The median IVV of mine is 2 (1, 3). By IVV it is better than 2, worse than 1 and not distinguishable from 1 "
        "of 4 other controllers."
    )
    assert describe_standings("mine", "ivv", [], summary) == "The median IVV of mine is 2 (1, 3)."
