"""`equiflock evaluate`: table and figure, run directories, and one-line errors."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import equiflock as ef
from equiflock import cli
from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import compute_checksum, compute_file_checksum, read_json
from equiflock._runtime.jobs import is_done, write_result
from equiflock.cli import terminal as console
from equiflock.controllers.trained import PAPER_NETWORKS, bundled_weights_path
from equiflock.evaluation.evaluate import (
    EvaluationJob,
    build_evaluation_jobs,
    format_label,
    format_labels,
    format_run_dir_name,
    list_baselines,
)
from equiflock.paper.flocking_experiment import FlockingJob
from equiflock.simulation import metrics
from tests.cli.commands import forgetting_plugins

SMALL = ("--flocks", "3", "--agents", "30", "--time-step", "0.02", "--duration", "0.6", "--workers", "1")
LAW = """
import equiflock as ef

@ef.controller("{name}")
def law(observations):
    if {fails}:
        raise ValueError("no idea")
    return -5.0 * observations[:, :, 0, 0]
"""


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registry: None, jobs_here: None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def evaluate(*arguments: str) -> None:
    cli.main(["evaluate", *arguments])


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        evaluate(*arguments)
    assert caught.value.code == 2
    errors = capsys.readouterr().err
    *notices, error = errors.splitlines()
    assert error.startswith("equiflock: ")
    assert all("needs a controller that" in notice for notice in notices)
    return error


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ef.scenario_names())
def test_a_controller_is_compared_with_the_baselines_under_its_own_name(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    scenario: str,
) -> None:
    if scenario != "flocking":
        request.getfixturevalue("no_curves")
    monkeypatch.setattr(console.out, "width", 80)
    shutil.copy(bundled_weights_path("etdagnn", 2), "mine.safetensors")
    evaluate("mine.safetensors", "--scenario", scenario, *SMALL, "--out", "mine")
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("mine.safetensors", "etdagnn", "tdagnn-tf-mean"))
    assert max(map(len, printed.splitlines())) <= 80
    assert "…" not in printed
    table = pd.read_csv(tmp_path / "mine" / "flights.csv")
    assert table.controller.iloc[0] == "mine.safetensors"
    assert "starling" in set(table.controller)
    summary = pd.read_csv(tmp_path / "mine" / "summary.csv")
    assert set(summary.n) == {3}
    assert ((summary.interval_low <= summary["median"]) | summary["median"].isna()).all()
    if scenario in ("flocking", "obstacles"):  # curves, and bars of endings
        assert (tmp_path / "mine" / f"{scenario}.png").read_bytes()[:4] == b"\x89PNG"
    assert "settings controller = mine.safetensors, not starling" in failure(
        capsys, "starling", "--scenario", scenario, *SMALL, "--out", "mine"
    )


@pytest.mark.usefixtures("no_curves")
def test_metrics_of_whole_flights_match_a_simulation(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.out, "width", 400)
    evaluate("etdagnn", *SMALL, "--out", "mine")
    table = pd.read_csv("mine/summary.csv")
    found = table[table.controller == "etdagnn"].set_index("metric")
    run = ef.simulate(ef.random_disk(3, 30, split="test"), ef.load("etdagnn"), time_step=0.02, duration=0.6)
    expected = {
        "ivv": metrics.ivv(run),
        "iman": metrics.iman(run),
        "peak_acceleration": metrics.peak_acceleration_norm(run).max(axis=0),
        **metrics.effort(run)._asdict(),
        "smallest_separation": metrics.minimum_separation(run).min(axis=0),
        "component_count": metrics.component_count(run)[-1],
        "velocity_variance": metrics.velocity_variance(run)[-1],
    }
    for name, values in expected.items():
        assert found["median"][name] == pytest.approx(np.median(values)), name
        assert found.upper[name] == pytest.approx(np.quantile(values, 0.75)), name
    printed = capsys.readouterr().out
    assert "iman_realised" not in found.index
    for word in (
        "IVV",
        "IMAN",
        "RMS",
        "peak",
        "residual",
        "jerk",
        "smallest",
        "separation",
        "components",
        "discon-",
        "variance",
    ):
        assert word in printed.split()
    row = found.loc["peak_acceleration"]
    assert f"{row['median']:.0f} ({row.interval_low:.0f}, {row.interval_high:.0f})" in printed
    assert sum(line.startswith("  etdagnn ") for line in printed.splitlines()) == 1  # although it is of the package
    assert "intervals of fewer than 6 flocks are too narrow" in printed


@pytest.mark.usefixtures("no_curves")
def test_a_body_that_is_not_ideal_has_the_iman_of_what_it_did(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.out, "width", 200)
    evaluate("etdagnn", "tanner", *SMALL, "--duration", "0.4", "--max-acceleration", "5", "--out", "mine")
    flights = pd.read_csv("mine/flights.csv")
    found = flights[flights.controller == "etdagnn"]
    start, body = ef.random_disk(3, 30, split="test"), ef.DoubleIntegrator(max_acceleration=5.0)
    run = ef.simulate(start, ef.load("etdagnn"), time_step=0.02, duration=0.4, body=body)
    assert np.allclose(found.iman_realised, metrics.iman_realised(run))
    assert (found.iman_realised < found.iman).all()
    assert "realised" in capsys.readouterr().out.split()


def test_flights_that_end_have_their_effort() -> None:
    options = (("agents", 20), ("flocks", 2))
    job = EvaluationJob("etdagnn", 0, "obstacles", options, 0.02, 1.0, "etdagnn", "")
    table, run = job.run(), job.fly(job.draw_start())
    assert np.allclose(table[list(metrics.Effort._fields)].T, metrics.effort(run))
    assert "ivv" not in table


def test_results_with_the_columns_of_another_version_are_computed_again(tmp_path: Path) -> None:
    (job,) = build_evaluation_jobs("tanner", "flocking", {"agents": 10, "flocks": 1}, 0.02, 0.1, ())
    old = replace(job, result_version=1)
    write_result(job.run().drop(columns=["jerk"]), old, tmp_path)
    assert is_done(old, tmp_path)
    assert not is_done(job, tmp_path)


@pytest.mark.usefixtures("no_curves")
def test_several_controllers_are_compared_with_the_first_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.out, "width", 100)
    evaluate("tanner-dynamic", "tanner", "cucker-smale", *SMALL, "--duration", "0.2", "--flocks", "6")
    folder = tmp_path / "runs" / "evaluation" / "tanner-dynamic-tanner-cucker-smale-flocking"
    flights = pd.read_csv(folder / "flights.csv")
    assert list(dict.fromkeys(flights.controller)) == ["tanner-dynamic", "tanner", "cucker-smale"]
    table = pd.read_csv(folder / "comparison.csv")
    assert set(table.controller) == {"tanner", "cucker-smale"}
    assert set(table.compared_with) == {"tanner-dynamic"}
    ivv = flights.pivot(index="flock", columns="controller", values="ivv")
    row = table[(table.controller == "tanner") & (table.metric == "ivv")].squeeze()
    assert row.difference == pytest.approx((ivv["tanner"] - ivv["tanner-dynamic"]).median())
    assert row.improvement == (ivv["tanner"] < ivv["tanner-dynamic"]).mean()
    # More separation is better, so the probabilities of an improvement are the opposite ones.
    separation = flights.pivot(index="flock", columns="controller", values="smallest_separation")
    row = table[(table.controller == "tanner") & (table.metric == "smallest_separation")].squeeze()
    ties = (separation["tanner"] == separation["tanner-dynamic"]).mean()
    assert row.improvement == (separation["tanner"] > separation["tanner-dynamic"]).mean() + ties / 2
    printed = capsys.readouterr().out
    assert "difference from tanner-dynamic on the same flocks" in printed
    assert max(map(len, printed.splitlines())) <= 100
    assert "too narrow" not in printed


@pytest.mark.parametrize(("names", "got"), [((), "got none"), (("tanner", "tanner"), "got tanner tanner")])
def test_controllers_are_named_once(capsys: pytest.CaptureFixture[str], names: tuple[str, ...], got: str) -> None:
    assert f"expected one or more controllers, each once; {got}" in failure(capsys, *names)


@pytest.mark.usefixtures("no_curves")
@pytest.mark.slow
def test_baselines_are_in_the_units_of_the_controller(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.out, "width", 80)
    shutil.copy(bundled_weights_path("etdagnn", 2), "mine.safetensors")
    units, metres = ":comm_radius=4:time_scale=16", ("--comm-radius", "4", "--disk-radius", "9.6")
    times = "--time-step", "0.32", "--duration", "6.4", "--max-speed", "0.75", "--min-separation", "0.4"
    evaluate(f"mine.safetensors{units}", *SMALL, *metres, *times)
    table = [line for line in capsys.readouterr().out.splitlines() if "runs/" not in line]
    assert max(map(len, table)) <= 80
    (folder,) = (tmp_path / "runs" / "evaluation").iterdir()
    assert folder.name.endswith(
        f"{compute_file_checksum(Path('mine.safetensors'))[:12]}-comm_radius=4-time_scale=16-flocking"
    )
    found = read_json(folder / "config.json")["weights"]
    assert found["mine.safetensors" + units] == compute_file_checksum(bundled_weights_path("etdagnn", 2))
    assert found["etdagnn" + units] == compute_file_checksum(bundled_weights_path("etdagnn", 0))
    flown = pd.read_csv(folder / "flights.csv")
    names = "mine.safetensors", "tanner", *PAPER_NETWORKS, "starling"
    assert set(flown.controller) == {f"{name}{units}" for name in names}
    # L^2 / tau times the value in the controller's own units.
    one = flown[flown.controller == "etdagnn" + units].ivv.median()
    run = ef.simulate(
        ef.random_disk(3, 30, split="test", disk_radius=2.4), ef.load("etdagnn"), time_step=0.02, duration=0.4
    )
    assert one == pytest.approx(np.median(metrics.ivv(run)), rel=1e-3)


@pytest.mark.usefixtures("no_curves")
@pytest.mark.slow
def test_a_foreign_table_among_the_jobs_is_reported_and_computed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = "tanner", "cucker-smale", *SMALL, "--duration", "0.1", "--out", "run"
    evaluate(*small)
    table = Path("run/flocking.csv").read_bytes()
    tanner, other = (next(Path("run/jobs").glob(f"{name}-*.csv")) for name in ("tanner", "cucker-smale"))
    text = "flock,ivv\n0,0.5\n"
    foreign = text + f"# checksum {compute_checksum(text.encode())}\n"
    for content in (foreign.encode(), text.encode(), b"", other.read_bytes()):
        tanner.write_bytes(content)
        capsys.readouterr()
        evaluate(*small)
        assert capsys.readouterr().err == (
            f"{tanner} is damaged or misplaced: its checksum does not match; this job is computed again\n"
        )
        assert Path("run/flocking.csv").read_bytes() == table


def test_another_spelling_of_a_controller_is_no_baseline_of_itself() -> None:
    start = ef.random_disk(1, 30)
    names = list_baselines("etdagnn:time_scale=16:comm_radius=4", start)
    assert names == tuple(
        f"{name}:comm_radius=4:time_scale=16" for name in ("tanner", *PAPER_NETWORKS, "starling") if name != "etdagnn"
    )
    assert len(list_baselines("etdagnn:seed=3:comm_radius=4", start)) == 6
    assert "starling" not in list_baselines("starling", start)
    (job, *_) = build_evaluation_jobs("etdagnn:seed=3:comm_radius=4", "flocking", {}, 0.01, 0.1, ())
    assert (job.seed, job.checksum) == (None, compute_file_checksum(bundled_weights_path("etdagnn", 3)))


def test_curves_match_the_reproduction() -> None:
    job = FlockingJob("etdagnn", 0, agents=20, flocks=2, time_step=0.02)
    options = (("agents", 20), ("flocks", 2))
    evaluated = EvaluationJob("etdagnn", 0, "flocking", options, 0.02, 2.0, "etdagnn", "")
    expected = job.run().drop(columns="flocks")  # the reproduction also keeps values of single flocks
    curves = evaluated.run()[: 2 * 101]
    pd.testing.assert_frame_equal(curves[expected.columns], expected, check_exact=True)


@pytest.mark.usefixtures("no_curves")
@pytest.mark.slow
def test_evaluations_of_different_weights_have_different_run_directories(tmp_path: Path) -> None:
    files = []
    for seed in (1, 2):
        files.append(tmp_path / f"run-{seed}" / "weights.safetensors")
        files[-1].parent.mkdir()
        shutil.copy(bundled_weights_path("etdagnn", seed), files[-1])
    names = [format_run_dir_name([str(path)], "flocking") for path in files]
    assert names == [
        f"run-{seed}-weights-{compute_file_checksum(path)[:12]}-flocking" for seed, path in enumerate(files, start=1)
    ]
    assert format_run_dir_name(["etdagnn:3"], "leaders") == "etdagnn-3-leaders"
    assert format_run_dir_name(["etdagnn:3", "tanner"], "leaders") == "etdagnn-3-tanner-leaders"
    assert len(format_run_dir_name([f"etdagnn:{seed}" for seed in range(100)], "leaders")) < 40
    assert format_labels([*map(str, files), "tanner"]) == [
        "run-1/weights.safetensors",
        "run-2/weights.safetensors",
        "tanner",
    ]
    assert format_labels(["a/mine.safetensors", "b/mine.safetensors"]) == ["a/mine.safetensors", "b/mine.safetensors"]
    assert format_label(str(files[0])) == "run-1/weights.safetensors"
    assert format_label(f"{files[0]}:comm_radius=5") == "run-1/weights.safetensors:comm_radius=5"
    evaluate(str(files[0]), "tanner", *SMALL)
    shutil.copy(files[1], files[0])  # trained again
    evaluate(str(files[0]), "tanner", *SMALL)
    assert len(list((tmp_path / "runs" / "evaluation").iterdir())) == 2


@pytest.mark.usefixtures("no_curves")
@pytest.mark.slow
def test_the_config_has_settings_and_weights(capsys: pytest.CaptureFixture[str]) -> None:
    Path("config_law.py").write_text(LAW.format(name="config-law", fails=False))
    evaluate("config-law", "--plugin", "config_law.py", *SMALL)
    config = read_json(Path("runs/evaluation/config-law-flocking/config.json"))
    assert config["settings"]["options"]["agents"] == 30
    assert config["weights"]["etdagnn"] == compute_file_checksum(bundled_weights_path("etdagnn", 0))
    other = failure(capsys, "config-law", "--plugin", "config_law.py", *SMALL, "--flocks", "4")
    assert "has results of other settings: settings options flocks = 3, not 4;" in other
    evaluate("config-law", "--plugin", "config_law.py", *SMALL, "--flocks", "4", "--force")


@pytest.mark.usefixtures("no_curves")
@pytest.mark.slow
def test_changed_weights_of_the_package_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate("tanner", *SMALL)
    other = {f"{name}-0": bundled_weights_path(name, 1) for name in ("etdagnn",)}

    def changed(name: str, seed: int = 0) -> Path:
        return other.get(f"{name}-{seed}") or bundled_weights_path(name, seed)

    monkeypatch.setattr("equiflock.controllers.loading.bundled_weights_path", changed)
    assert "settings: weights etdagnn = " in failure(capsys, "tanner", *SMALL)


@pytest.mark.usefixtures("no_curves")
@pytest.mark.parametrize(
    ("name", "fails", "workers"),
    [("at_once", "True", "2"), ("in_a_while", "abs(observations[:, :, 0, 0]).max() < 3", "1")],
)
def test_an_exception_of_a_controller_is_a_one_line_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, fails: str, workers: str
) -> None:
    Path(f"{name}.py").write_text(LAW.format(name=name, fails=fails))
    options = (name, "--plugin", f"{name}.py", *SMALL, "--flocks", "4")
    with forgetting_plugins(tmp_path):
        assert "failed: ValueError: no idea" in failure(capsys, *options, "--workers", workers)
    assert not list(tmp_path.glob(f"runs/evaluation/*/jobs/{name}-*.csv"))  # those of others may be done, and stay
    Path(f"{name}.py").write_text(LAW.format(name=name, fails="False"))
    with forgetting_plugins(tmp_path):
        evaluate(*options)


def test_invalid_settings_leave_no_run_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failure(capsys, "tdagnn", "--scenario", "leaders", "--agents", "2")
    assert not (tmp_path / "runs").exists()


def test_a_job_refuses_changed_weights(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    shutil.copy(bundled_weights_path("etdagnn", 1), path)
    (own,) = build_evaluation_jobs(str(path), "flocking", {"agents": 20, "flocks": 2}, 0.02, 2.0, baselines=())
    shutil.copy(bundled_weights_path("etdagnn", 2), path)
    with pytest.raises(InputError, match="is missing, or differs from the file that the evaluation started with"):
        own.run()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--scenario", "floking"), "got 'floking'; did you mean 'flocking'?"),
        (("--scenario", "flocking", "--sides", "6"), "scenario 'flocking' has no option 'sides'; it has agents, "),
        (("--scenario", "leaders:sides=6"), "scenario 'leaders' has no option 'sides'; it has agents, "),
        (("--scenario", "obstacles:sides"), "options must have the form key=value:key=value, each key once"),
        (("--scenario", "obstacles:sides=two"), "sides must be a whole number of at least 3; got 'two'"),
        (("--scenario", "obstacles:orbit=true"), "orbit must be an equiflock.Orbit, or None; got True"),
        (
            ("--scenario", "merging", "--gap", "0.5"),
            "gap must be above 1, so that the groups start out of each other's range",
        ),
        (("--scenario", "corridor", "--disks", "0"), "disks must be a whole number of at least 1; got 0"),
        (("--time-step", "0"), "time_step must be a finite number above 0; got 0.0"),
    ],
)
def test_invalid_options_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    assert text in failure(capsys, "etdagnn", *arguments)
    assert not (tmp_path / "runs").exists()
