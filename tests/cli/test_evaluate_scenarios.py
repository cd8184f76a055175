"""`equiflock evaluate` with scenarios of plugins."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

from equiflock._runtime.checksums import read_json
from equiflock.cli import terminal as console
from equiflock.evaluation.evaluate import check_reportable
from equiflock.scenarios.registry import make_scenario, scenario_names
from equiflock.simulation.metrics import Effort
from tests.cli.test_evaluate import SMALL, evaluate, failure


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registry: None, jobs_here: None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


OWN_SCENARIO = """
from dataclasses import dataclass, field
import numpy as np
import equiflock as ef

AWAY = ef.Outcome.add("AWAY", "the flock has left its place")


def spread(moment):
    return moment.flock.positions.std(axis=1).max(axis=1)


@ef.scenario("{name}")
@dataclass(frozen=True)
class Leaving:
    disk: ef.RandomDisk = field(default_factory=lambda: ef.RandomDisk(agents=20, max_speed=1.0))
    distance: float = 0.5
    \"\"\"How far the flock must come.\"\"\"
    duration = 1.0
    measures = ("velocity_variance", spread)
    {more}

    def draw(self, stop=None):
        return self.disk.draw(stop)

    def {ending}(self):
        def away(times, flock, flying):
            far = np.linalg.norm(flock.positions.mean(axis=1), axis=-1) > self.distance
            return np.where(far, AWAY, ef.Outcome.FLYING)

        return away
"""
GAPS = """
def first_missing(moment):
    return np.where(np.arange(len(moment.flock)) == 0, np.nan, 1.0)


def all_missing(moment):
    return np.full(len(moment.flock), np.nan)


def negative(moment):
    return np.full(len(moment.flock), -1.0 - moment.time)


"""
FAILS = "figure, success_outcomes = 'endings', (AWAY,)"


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_plugin_scenario_is_evaluated_by_its_outcomes_and_measures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    monkeypatch.setattr(console.out, "width", 200)
    module = f"leaving_{workers}"
    Path(f"{module}.py").write_text(OWN_SCENARIO.format(name=module, more=FAILS, ending="ending"))
    own = ("--scenario", module, "--plugin", f"{module}.py", "--distance", "0.2", "--flocks", "4", "--workers", workers)
    evaluate("etdagnn", *own, "--out", "mine")
    table = pd.read_csv("mine/flights.csv")
    own_columns = {"flock", "outcome", "failed", "seconds", "spread", "controller", "seed"}
    assert set(table.columns) == own_columns | set(Effort._fields)
    assert (table.failed == (table.outcome != "AWAY")).all()
    summary = pd.read_csv("mine/summary.csv").set_index(["controller", "metric"])
    assert summary.share["etdagnn", "ended: away"] == 1.0 - summary.share["etdagnn", "failed"]
    assert summary.interval_low["etdagnn", "failed"] < summary.interval_high["etdagnn", "failed"]
    assert set(table.outcome) <= {"AWAY", "TIME_UP"}
    assert "AWAY" in set(table.outcome)
    assert set(table.controller) >= {"tanner", "etdagnn"}  # all are followers, so the expert can fly
    printed = capsys.readouterr().out
    assert all(word in printed.split() for word in ("failed", "away", "spread,"))
    assert read_json(Path("mine/config.json"))["settings"]["options"]["distance"] == 0.2


def test_measures_of_a_plugin_scenario_get_a_column_and_a_panel(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.out, "width", 200)
    Path("staying.py").write_text(OWN_SCENARIO.format(name="staying", more="", ending="unused"))
    evaluate("etdagnn", "--scenario", "staying:agents=15", "--plugin", "staying.py", "--flocks", "2", "--workers", "1")
    table = pd.read_csv("runs/evaluation/etdagnn-staying/staying.csv")
    assert {"spread", "velocity_variance"} == set(table.metric)
    assert {"spread", "velocity_variance", "ivv"} <= set(
        pd.read_csv("runs/evaluation/etdagnn-staying/flights.csv").columns
    )
    assert len(table[(table.metric == "spread") & (table.controller == "etdagnn")]) == 101
    assert "spread," in capsys.readouterr().out.split()


@pytest.mark.slow
def test_a_measure_may_be_negative_or_nan_on_some_flocks_or_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.out, "width", 200)
    text = GAPS + OWN_SCENARIO.format(name="gaps", more="", ending="unused")
    Path("gaps.py").write_text(text.replace(", spread)", ", first_missing, all_missing, negative)"))
    small = "--flocks", "3", "--duration", "0.1", "--time-step", "0.02", "--workers", "1"
    evaluate("tanner", "tanner-dynamic", "--scenario", "gaps", "--plugin", "gaps.py", *small, "--out", "mine")
    comparison = pd.read_csv("mine/comparison.csv").set_index("metric")
    assert comparison.n[["ivv", "first_missing", "all_missing"]].tolist() == [3, 2, 0]
    assert comparison.difference["first_missing"] == 0.0
    assert comparison.filter(like="difference").loc["all_missing"].isna().all()
    assert "nan" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["failed", "seconds", "ivv", "median", "controller"])
def test_a_measure_must_not_have_the_name_of_another_column(capsys: pytest.CaptureFixture[str], name: str) -> None:
    text = OWN_SCENARIO.format(name="own", more="", ending="unused")
    Path("own.py").write_text(text.replace("spread", name))
    sys.modules.pop("own", None)
    errors = failure(capsys, "etdagnn", "--scenario", "own", "--plugin", "own.py", *SMALL)
    assert f"the measure '{name}' of scenario 'own' has the name of another column of the table: rename it" in errors
    assert not Path("runs").exists()


@pytest.mark.parametrize("name", scenario_names())
def test_the_scenarios_of_the_package_have_no_such_measures(name: str) -> None:
    check_reportable(make_scenario(name))


def test_a_measure_may_be_a_metric_that_every_evaluation_has() -> None:
    text = OWN_SCENARIO.format(name="shaky", more="", ending="unused")
    Path("shaky.py").write_text(text.replace(", spread)", ", 'jerk', 'peak_acceleration_norm')"))
    small = "--flocks", "3", "--duration", "0.1", "--time-step", "0.02", "--workers", "1"
    evaluate("tanner", "tanner-dynamic", "--scenario", "shaky", "--plugin", "shaky.py", *small, "--out", "mine")
    flights = pd.read_csv("mine/flights.csv")
    # A metric of a flight is what its column says, not the last value of the curve.
    assert (flights.peak_acceleration_norm == flights.peak_acceleration).all()
    curves = pd.read_csv("mine/shaky.csv")
    first = curves[(curves.metric == "jerk") & (curves.time == 0.0)]
    assert (first["median"] == 0.0).all()
    assert (flights.jerk > 0.0).all()


def test_a_scenario_without_an_ending_cannot_report_failures(capsys: pytest.CaptureFixture[str]) -> None:
    Path("endless.py").write_text(OWN_SCENARIO.format(name="endless", more="figure = 'endings'", ending="unused"))
    errors = failure(capsys, "etdagnn", "--scenario", "endless", "--plugin", "endless.py", *SMALL)
    assert "scenario 'endless' cannot tell failures: it needs an ending()" in errors
    assert not Path("runs").exists()
