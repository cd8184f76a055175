"""A sweep is a table with a row for every flock of every point, and a heat map of it."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import equiflock as ef
from equiflock import cli
from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import compute_file_checksum
from equiflock._runtime.jobs import get_result_path, is_done, write_result
from equiflock.controllers.loading import make_network
from equiflock.controllers.networks.weights import write_weights
from equiflock.controllers.trained import bundled_weights_path
from equiflock.evaluation import sweep as report
from equiflock.evaluation.flight_statistics import DISCONNECTED
from equiflock.evaluation.sweep import METRIC_TITLES, SweepJob, build_sweep_jobs, draw_sweep, summarize_sweep
from equiflock.simulation import metrics


def test_a_point_is_what_a_flight_of_its_flocks_gives() -> None:
    table = SweepJob("etdagnn", 1, agents=40, comm_radius=1.2, hops=None, flocks=3, duration=0.5).run()
    start = ef.random_disk(3, 40, split="test", comm_radius=1.2, disk_radius=40**0.25)
    run = ef.simulate(start, ef.load("etdagnn", seed=1), duration=0.5, comm_radius=1.2)
    assert np.allclose(table.ivv, metrics.ivv(run))
    assert np.allclose(table.iman, metrics.iman(run))
    assert np.allclose(table.final_velocity_variance, metrics.velocity_variance(run)[-1])
    assert np.allclose(table[list(metrics.Effort._fields)].T, metrics.effort(run))
    assert (table.iman_realised == table.iman).all()
    assert table.flock.tolist() == [0, 1, 2]


def test_a_point_with_a_body_that_is_not_ideal_has_what_the_body_did() -> None:
    environment = ef.Environment(body=ef.DoubleIntegrator(max_acceleration=5.0))
    job = SweepJob("etdagnn", 0, agents=20, comm_radius=1.0, hops=None, flocks=2, duration=0.2, environment=environment)
    table = job.run()
    run = ef.simulate(
        ef.random_disk(2, 20, split="test"), ef.load("etdagnn", seed=0), duration=0.2, environment=environment
    )
    assert np.allclose(table.iman_realised, metrics.iman_realised(run))
    assert (table.iman_realised < table.iman).all()


def test_results_with_the_columns_of_another_version_are_computed_again(tmp_path: Path) -> None:
    (job,) = build_sweep_jobs(["tanner"], [0], [10], [1.0], [None], flocks=1, duration=0.1)
    old = replace(job, result_version=1)
    write_result(job.run().drop(columns=["jerk"]), old, tmp_path)
    assert is_done(old, tmp_path)
    assert not is_done(job, tmp_path)


def test_all_radii_of_a_sweep_have_the_disk_of_the_controllers_unit() -> None:
    for name, comm_radius, epochs, disk_radius in (
        ("tanner", 0.7, 0, 2.0),
        ("etdagnn", 1.5, 0, 2.0),
        ("etdagnn:comm_radius=4", 3.0, 0, 8.0),
        ("tdagnn", 2.0, 1, 2.0),
    ):
        job = SweepJob(name, 0, agents=16, comm_radius=comm_radius, hops=None, epochs=epochs)
        assert job.disk_options == {"comm_radius": comm_radius, "disk_radius": disk_radius}


@pytest.mark.usefixtures("short_searches")
@pytest.mark.slow
def test_a_point_without_such_flocks_says_why() -> None:
    table = SweepJob("tanner", 0, agents=10, comm_radius=0.01, hops=None, flocks=1).run()
    assert table[list(METRIC_TITLES)].isna().all(axis=None)
    assert "min_degree" in table.remark[0]


def test_a_network_may_be_trained_for_its_point(tmp_path: Path) -> None:
    job = SweepJob("etdagnn", 0, agents=15, comm_radius=1.0, hops=2, epochs=1, flocks=2, duration=0.1)
    assert job.make_controller().senses.hops == 2
    assert job.run().ivv.notna().all()


def test_the_grid_is_every_combination_once() -> None:
    jobs = build_sweep_jobs(["tdagnn", "etdagnn"], [0, 1], [10, 20], [1.0, 2.0], [None])
    assert len({job.key for job in jobs}) == len(jobs) == 16
    assert [job.agents for job in jobs[:8]] == [20] * 8  # those that take longest first


def test_the_summary_has_a_median_for_every_point_over_flocks_and_seeds() -> None:
    table = pd.DataFrame(
        {
            "controller": "a",
            "seed": [0, 0, 1, 1],
            "flock": [0, 1, 0, 1],
            "agents": 10,
            "comm_radius": 1.0,
            "hops": None,
            "ivv": [1.0, 2.0, 3.0, 9.0],
            "iman": 1.0,
            "iman_realised": 1.0,
            "final_velocity_variance": 1.0,
            **dict.fromkeys(metrics.Effort._fields, 1.0),
            "disconnected": [1.0, 0.0, 0.0, 0.0],
        }
    )
    found = summarize_sweep(table).set_index("metric")
    assert list(found.index) == list(METRIC_TITLES)
    assert set(found.n) == set(found.trainings) == {2}
    ivv = found.loc["ivv"]
    assert (ivv["lower"], ivv["median"], ivv["upper"]) == (1.75, 2.5, 4.5)
    # The flocks are resampled with all of their trainings: either flock alone, or both.
    assert (ivv.interval_low, ivv.interval_high) == (2.0, 5.5)
    assert (ivv.smallest_training, ivv.largest_training) == (1.5, 6.0)
    assert ivv.interquartile_mean == 2.5
    share = found.loc["disconnected"]
    assert (share["share"], share.smallest_training, share.largest_training) == (0.25, 0.0, 0.5)
    assert share.interval_low < 0.25 < share.interval_high
    assert np.isnan(share["median"])


@pytest.mark.parametrize("metric", ["ivv", DISCONNECTED])  # a median and a share
def test_heat_maps_are_drawn_with_points_missing(metric: str, tmp_path: Path) -> None:
    rows = [
        {
            "controller": name,
            "seed": 0,
            "flock": 0,
            "agents": n,
            "comm_radius": r,
            "hops": K,
            **dict.fromkeys(METRIC_TITLES, n * r / 100),
        }
        for name in ("a", "b")
        for n in (10, 20, 40)
        for r in (1.0, 2.0)
        for K in (1, 2)
    ]
    table = pd.DataFrame(rows)
    table.loc[3, list(METRIC_TITLES)] = np.nan
    draw_sweep(table, metric, tmp_path / "map.png")
    draw_sweep(table[:1].assign(**dict.fromkeys(METRIC_TITLES, np.nan)), metric, tmp_path / "empty.png")
    assert (tmp_path / "map.png").read_bytes()[:4] == b"\x89PNG"


def grid_of(axes: dict[str, list[Any]]) -> pd.DataFrame:
    """The table of a sweep over these axes, whose metrics are numbers from 0 on."""
    points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    usual = {"controller": "a", "seed": 0, "flock": 0, "agents": 10, "comm_radius": 1.0, "hops": None}
    return pd.DataFrame(
        [{**usual, **point, **dict.fromkeys(METRIC_TITLES, float(i))} for i, point in enumerate(points)]
    )


def panels_of(table: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[Any]]:
    """The title of a heat map, and its panels."""
    figure = Figure(layout="constrained")

    def make_figure(figsize: tuple[float, float], **_: object) -> Figure:
        figure.set_size_inches(figsize)
        return figure

    monkeypatch.setattr(report, "Figure", make_figure)
    draw_sweep(table, "ivv", tmp_path / "map.png")
    return figure.get_suptitle(), [axes for axes in figure.axes if axes.get_title() and axes.get_visible()]


def test_a_map_is_over_the_two_axes_of_most_values_with_a_panel_for_each_combination_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = grid_of(
        {"packet_loss": [0.0, 0.1, 0.2], "delay": [0, 1], "max_acceleration": [3.0, 5.0, 10.0, None], "noise": [0.0]}
    )
    title, panels = panels_of(table, tmp_path, monkeypatch)
    assert [axes.get_title() for axes in panels] == ["a, delay 0", "a, delay 1"]
    assert {(axes.get_xlabel(), axes.get_ylabel()) for axes in panels} == {("max acceleration", "packet loss")}
    assert [label.get_text() for label in panels[0].get_xticklabels()] == ["3", "5", "10", "none"]
    assert title == f"{METRIC_TITLES['ivv']}: lower is better"
    # Every number of the table is in its place: (packet_loss, delay, max_acceleration) counts up.
    shown = [[text.get_text() for text in axes.texts] for axes in panels]
    assert shown == [[str(8 * i + 4 * d + j) for i in range(3) for j in range(4)] for d in range(2)]


@pytest.mark.slow
def test_too_many_panels_are_medians_over_the_axes_of_fewest_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many: dict[str, list[Any]] = {
        "packet_loss": [0.0, 0.1, 0.2, 0.3, 0.4, 0.5],
        "delay": [0, 1, 2, 3, 4],
        "noise": [0.0, 0.1, 0.2, 0.3],
    }
    table = grid_of(
        {**many, "agents": [10, 20, 30], "body": ["double-integrator", "unicycle"], "send_interval": [1, 2, 3]}
    )
    title, panels = panels_of(table, tmp_path, monkeypatch)
    assert len(panels) == 12
    assert panels[0].get_title() == "a\nnoise 0, agents 10"
    assert title == f"{METRIC_TITLES['ivv']}, median over send interval, body: lower is better"
    here = (table.packet_loss == 0.0) & (table.delay == 0) & (table.noise == 0.0) & (table.agents == 10)
    assert float(panels[0].texts[0].get_text()) == pytest.approx(table[here].ivv.median(), rel=1e-3)


def test_a_cell_of_a_map_has_the_interval_below_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pd.concat([grid_of({"agents": [10, 20]}).assign(flock=flock, ivv=flock + 1.5) for flock in range(8)])
    _, (panel,) = panels_of(table, tmp_path, monkeypatch)
    row = summarize_sweep(table, ["agents"], ["ivv"]).iloc[0]
    assert [text.get_text() for text in panel.texts[:2]] == [
        f"{row['median']:.2f}",
        f"({row.interval_low:.2f}, {row.interval_high:.2f})",
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--hops", "1-4"], "--hops has no effect without --epochs"),
        (["--agents", "ten"], "agents must be a list of integers such as 0-4 or 0,3,7; got 'ten'"),
        (["--comm-radius", "1,x"], "comm_radius must be a list of numbers such as 0.8,1,1.5; got '1,x'"),
        (["--controller", "etdagn"], "did you mean"),
        (["--comm-radius", "-1"], "comm_radius must be"),
        (["--controller", "tanner,tanner"], "controller must list each controller once"),
        (["--epochs", "1", "--controller", "tanner"], "tanner has no weights to train"),
        (["--metric", "ivw"], "metric must be one of 'ivv', 'iman', 'iman_realised', 'final_velocity_variance', "),
    ],
)
def test_bad_grids_are_refused_before_anything_is_flown(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["sweep", "--out", str(tmp_path / "sweep"), *options])
    assert stop.value.code == 2
    assert words in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "sweep").exists()


SMALL = "sweep", "--controller", "tanner", "--flocks", "2", "--workers", "1"


def test_a_sweep_grows_in_its_folder(tmp_path: Path, jobs_here: None) -> None:
    def sweep(agents: str) -> None:
        cli.main([*SMALL, "--agents", agents, "--out", str(tmp_path)])

    sweep("10,20")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "jobs").iterdir()}
    sweep("10,20,30")
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "jobs").iterdir()}
    assert len(after) == 3
    assert before.items() <= after.items()
    summary = pd.read_csv(tmp_path / "summary.csv")
    assert summary[summary.metric == "ivv"].agents.tolist() == [10, 20, 30]


def test_weights_in_a_file_are_known_by_their_content(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    write_weights(make_network("etdagnn", seed=0), path)
    (job,) = build_sweep_jobs([str(path)], [0, 1], [10], [1.0], [None])  # a file has no seeds
    assert job.make_controller().senses.hops == 3
    write_weights(make_network("etdagnn", seed=1), path)
    with pytest.raises(InputError, match="is missing, or differs from the file that the sweep started with"):
        job.make_controller()
    assert build_sweep_jobs([str(path)], [0], [10], [1.0], [None]) != [job]


def test_weights_in_the_units_of_a_robot_are_known_by_their_content_and_have_their_seeds() -> None:
    names = ["etdagnn:comm_radius=4:time_scale=16", "etdagnn:seed=3:comm_radius=4:time_scale=16"]
    jobs = build_sweep_jobs(names, [1, 2], [10], [4.0], [None], duration=1.6, time_step=0.16, flocks=2)
    assert [job.checksum for job in jobs] == [
        compute_file_checksum(bundled_weights_path("etdagnn", seed)) for seed in (1, 2, 3)
    ]
    assert len({job.key for job in jobs}) == 3
    start = ef.random_disk(2, 10, split="test", comm_radius=4.0)
    for job, seed in zip(jobs, (1, 2, 3), strict=True):
        controller = ef.load("etdagnn", seed=seed, comm_radius=4.0, time_scale=16.0)
        run = ef.simulate(start, controller, time_step=0.16, duration=1.6)
        np.testing.assert_array_equal(job.run().ivv, metrics.ivv(run))


def test_a_sweep_without_any_flocks_fails_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], jobs_here: None
) -> None:
    alone = [*SMALL, "--agents", "1"]
    with pytest.raises(SystemExit):
        cli.main([*alone, "--out", str(tmp_path / "sweep")])
    assert (
        "no initial conditions were found at any grid point: agents must be more than min_degree = 2"
        in capsys.readouterr().err.replace("\n", " ")
    )


@pytest.mark.slow
def test_a_damaged_job_of_a_sweep_is_reported_and_computed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], jobs_here: None
) -> None:
    small = [*SMALL, "--agents", "10,20", "--out", str(tmp_path)]
    cli.main(small)
    before = (tmp_path / "sweep.csv").read_bytes()
    jobs = sorted((tmp_path / "jobs").iterdir())
    content = jobs[0].read_bytes()
    for damaged in (content[:-20], content.replace(b"0", b"1", 1), b""):
        jobs[0].write_bytes(damaged)
        capsys.readouterr()
        cli.main(small)
        notice = f"{jobs[0]} is damaged or misplaced: its checksum does not match; this job is computed again\n"
        assert capsys.readouterr().err == notice
        assert (tmp_path / "sweep.csv").read_bytes() == before


def test_weights_of_the_package_are_known_by_their_content(monkeypatch: pytest.MonkeyPatch) -> None:
    (job,) = build_sweep_jobs(["etdagnn"], [0], [10], [1.0], [None])
    assert job.make_controller().senses.hops == 3
    monkeypatch.setattr(
        "equiflock.controllers.loading.bundled_weights_path", lambda name, seed: bundled_weights_path(name, 1)
    )
    assert build_sweep_jobs(["etdagnn"], [0], [10], [1.0], [None]) != [job]
    with pytest.raises(InputError, match="is missing, or differs from the file that the sweep started with"):
        job.make_controller()
    (trained,) = build_sweep_jobs(["etdagnn"], [0], [10], [1.0], [2], epochs=1)
    assert trained.checksum == ""  # it flies none of them


def test_a_controller_that_fails_in_its_first_flight_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, own_registry: None
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    law = "import equiflock as ef\n\n@ef.controller('hopeless')\ndef hopeless(z):\n    return z['no']\n"
    (tmp_path / "hopeless_law.py").write_text(law)
    plugin = ["--controller", "tanner,hopeless", "--plugin", str(tmp_path / "hopeless_law.py")]
    with pytest.raises(SystemExit):
        cli.main(["sweep", *plugin, "--agents", "10", "--flocks", "2", "--out", str(tmp_path / "sweep")])
    assert "failed: IndexError: " in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()


def test_force_starts_again(tmp_path: Path, jobs_here: None) -> None:
    for agents, force in (("10", []), ("20", ["--force"])):
        cli.main([*SMALL, "--agents", agents, *force, "--out", str(tmp_path / "sweep")])
    assert len(list((tmp_path / "sweep" / "jobs").iterdir())) == 1


def test_results_of_another_plugin_are_others_but_not_of_the_package_s_own(tmp_path: Path, own_registry: None) -> None:
    ef.controller("mine")(lambda observations: observations[:, :, 0, 0])
    one, two = (
        [
            get_result_path(job, tmp_path)
            for job in build_sweep_jobs(["tanner", "mine"], [0], [10], [1.0], [None], plugin=plugin)
        ]
        for plugin in ("one", "two")
    )
    assert [a == b for a, b in zip(one, two, strict=True)] == [True, False]
