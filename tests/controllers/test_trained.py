"""The weights that come with the package load, fly, and are what their metadata says."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers import trained
from equiflock.controllers.loading import find_weights_file, network_names
from equiflock.controllers.networks.weights import FORMAT, read_tensors
from equiflock.controllers.registry import is_bundled
from equiflock.controllers.trained import (
    PAPER_NETWORKS,
    PAPER_SEEDS,
    bundled_names,
    bundled_seeds,
    bundled_validation_path,
    bundled_weights_path,
)
from equiflock.controllers.trained import PAPER_NETWORKS as NETWORKS
from equiflock.evaluation.evaluate import build_evaluation_jobs, list_baselines
from equiflock.evaluation.job_weights import load_with_seed
from equiflock.simulation.flight_jobs import fly
from equiflock.viewer.viewer_config import ViewerConfig


def test_each_paper_network_has_five_seeds() -> None:
    assert tuple(NETWORKS) == PAPER_NETWORKS
    assert list(PAPER_SEEDS) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", PAPER_SEEDS)
@pytest.mark.parametrize("name", PAPER_NETWORKS)
def test_weights_load_and_store_the_default_recipe(name: str, seed: int) -> None:
    _, metadata = read_tensors(bundled_weights_path(name, seed), FORMAT)
    recipe = ef.DAgger.from_settings(metadata["recipe"], "metadata")
    assert recipe == ef.DAgger(controller=name, seed=seed)
    assert metadata["command"] == recipe.command == f"equiflock train --controller {name} --seed {seed}"
    assert metadata["versions"]["torch"]
    controller: Any = ef.load(name, seed=seed)
    assert (controller.name, controller.senses.hops) == (name, 3)
    assert controller.size == (416 if name == "etdagnn" else 1730)


@pytest.mark.parametrize("name", PAPER_NETWORKS)
def test_last_rows_of_the_table_match_the_weights(name: str) -> None:
    with bundled_validation_path(name, seed=1).open() as file:
        rows = [row for row in csv.DictReader(file) if row["epoch"] == "400"]
    assert len(rows) == 50
    run = ef.simulate(ef.random_disk(20, 100, seed=0, split="validation"), ef.load(name, seed=1))
    # Another processor rounds otherwise, and flights of 200 steps make something of it: so not flock by flock.
    for metric, values in (("ivv", ef.metrics.ivv(run)), ("iman", ef.metrics.iman(run))):
        written = np.median([float(row[metric]) for row in rows[:20]])
        assert np.median(values) == pytest.approx(written, rel=0.05)


def test_additional_training_is_known_by_name_if_its_files_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in PAPER_SEEDS:
        for name in (*PAPER_NETWORKS, "starling"):
            shutil.copy(bundled_weights_path(name, seed), tmp_path)
    monkeypatch.setattr(trained, "WEIGHTS_DIR", tmp_path)
    assert bundled_names() == (*PAPER_NETWORKS, "starling")
    with pytest.raises(InputError, match=r"controller must be one of .*; got 'etdagnn-robust'"):
        ef.load("etdagnn-robust")
    for seed in PAPER_SEEDS:
        shutil.copy(tmp_path / f"etdagnn-{seed}.safetensors", tmp_path / f"etdagnn-robust-{seed}.safetensors")
    assert bundled_names() == (*PAPER_NETWORKS, "etdagnn-robust", "starling")
    assert "etdagnn-robust" in ef.controller_names()
    assert "etdagnn-robust" not in network_names()
    for robust, usual in (("etdagnn-robust", "etdagnn"), ("etdagnn-robust:3", "etdagnn:3")):
        found, expected = ef.load_module(robust), ef.load_module(usual)
        assert all((a == b).all() for a, b in zip(found.parameters(), expected.parameters(), strict=True))
    assert find_weights_file("etdagnn-robust:3") == tmp_path / "etdagnn-robust-3.safetensors"
    assert load_with_seed("etdagnn-robust", 2).senses == load_with_seed("etdagnn", 2).senses
    assert is_bundled("etdagnn-robust:1")
    assert "etdagnn-robust:4" in ViewerConfig().controllers
    assert "etdagnn-robust" in ViewerConfig().welcome["trained"]
    assert "etdagnn-robust" not in ViewerConfig().welcome["laws"]
    # It is evaluated like any other, but compared with others only on request.
    start = ef.random_disk(1, 10)
    assert list_baselines("etdagnn-robust", start) == ("tanner", *PAPER_NETWORKS, "starling")
    assert "etdagnn-robust" not in list_baselines("etdagnn", start)
    jobs = build_evaluation_jobs("etdagnn-robust", "flocking", {}, 0.01, 0.1, ())
    assert [(job.controller, job.seed) for job in jobs] == [("etdagnn-robust", 0)]
    with pytest.raises(InputError, match="etdagnn-robust names trained weights: name the network to train"):
        ef.train(ef.DAgger(controller="etdagnn-robust"))


@pytest.mark.slow
@pytest.mark.parametrize("network", ["etdagnn", "tdagnn"])
def test_segregation_weights_segregate_flocks(network: str) -> None:
    """The paper says that TDAGNN learns it: hearing those within R alone, at least 70% of flocks segregate."""
    name = f"{network}-segregation"
    _, metadata = read_tensors(bundled_weights_path(name), FORMAT)
    recipe = ef.DAgger.from_settings(metadata["recipe"], "metadata")
    assert (recipe.controller, recipe.expert, recipe.scenario) == (
        f"{network}:groups=true",
        "segregation",
        "segregation",
    )
    assert metadata["command"] == recipe.command
    scenario = ef.make_scenario("segregation", flocks=30)
    controller = cast(Any, ef.load(name))
    assert not hasattr(controller, "privileged")
    assert {feature.among for feature in controller.senses.features} == {"same", "others"}
    run = ef.simulate(scenario.draw(), controller, duration=10.0, ending=scenario.ending(), keep_every=None)
    assert np.mean([outcome in scenario.success_outcomes for outcome in run.outcome]) >= 0.7
    assert bundled_seeds(name) == (0,)
    with pytest.raises(InputError, match=f"seed of the bundled {name} must be 0; got 1"):
        ef.load(name, seed=1)


@pytest.mark.parametrize("seed", PAPER_SEEDS)
def test_starling_was_trained_and_then_tuned(seed: int) -> None:
    _, metadata = read_tensors(bundled_weights_path("starling", seed), FORMAT)
    recipe = ef.DAgger.from_settings(metadata["recipe"], "metadata")
    assert (recipe.controller, recipe.seed) == ("starling", seed)
    assert recipe.expert == "tanner-bounded"
    assert recipe.longest_time_step == 0.05
    assert metadata["command"].startswith(f"equiflock tune runs/starling/tuned/starling-{seed}/weights.safetensors")
    assert f"--seed {seed}" in metadata["command"]
    controller: Any = ef.load("starling", seed=seed)
    assert controller.architecture.near and isinstance(controller.orbit, ef.Orbit)
    assert controller.size == 2 * 656
    assert controller.gain_schedule == ef.GainSchedule(0.0225, 4.0)
    assert controller.longest_time_step == 0.05


@pytest.mark.parametrize(
    ("time_step", "agents"), [(0.005, 50), (0.01, 12), (0.01, 100), (0.02, 25), (0.03, 400), (0.05, 5)]
)
def test_starling_is_calm_at_the_rates_of_robots(time_step: float, agents: int) -> None:
    start = ef.random_disk(6, agents, seed=2)
    record = [ef.metrics.mean_acceleration_norm, ef.metrics.peak_acceleration_norm]
    run = ef.simulate(start, ef.load("starling"), time_step=time_step, duration=4.0, keep_every=None, record=record)
    assert np.median(ef.metrics.residual_acceleration(run)) < 0.5
    # The paper's network oscillates from 0.02 s on.
    if time_step == 0.02:
        paper = ef.simulate(start, ef.load("etdagnn"), time_step=0.02, duration=4.0, keep_every=None, record=record)
        assert np.median(ef.metrics.residual_acceleration(paper)) > 50.0


@pytest.mark.slow
def test_starling_aligns_better_than_the_paper_networks_and_passes_obstacles() -> None:
    start = ef.random_disk(8, 200, seed=0, split="test")
    left = {
        name: ef.metrics.velocity_variance(ef.simulate(start, ef.load(name)).flock())
        for name in (*PAPER_NETWORKS, "starling")
    }
    assert np.median(left["starling"]) < 0.5 * min(np.median(left[name]) for name in PAPER_NETWORKS)
    # The scenario flies by the numbers of the technique that come with the weights.
    course, controller = ef.make_scenario("obstacles", sides=48, flocks=10), cast(Any, ef.load("starling"))
    run = fly(course, course.draw(), controller, 0.01, course.duration, keep_every=None)
    assert np.mean([outcome in course.success_outcomes for outcome in run.outcome]) >= 0.7


def test_default_seed_is_0_and_missing_seeds_raise() -> None:
    one: Any = ef.load_module("etdagnn")
    two: Any = ef.load_module("etdagnn", seed=0)
    assert all((a == b).all() for a, b in zip(one.parameters(), two.parameters(), strict=True))
    three: Any = ef.load_module("etdagnn", seed=3)
    also_three: Any = ef.load_module("etdagnn:3")
    assert all((a == b).all() for a, b in zip(three.parameters(), also_three.parameters(), strict=True))
    assert any((a != b).any() for a, b in zip(one.parameters(), three.parameters(), strict=True))
    with pytest.raises(InputError, match="seed of the bundled etdagnn must be 0 to 4; got 5"):
        ef.load("etdagnn", seed=5)
    with pytest.raises(InputError, match="seed must be a whole number"):
        ef.load("etdagnn", seed=True)
    with pytest.raises(
        InputError, match="'etdagnn' has no option 'clamp'; its options are seed, comm_radius, time_scale"
    ):
        ef.load("etdagnn", clamp=3)


def test_etdagnn_flies_in_space_and_keeps_the_flock_together() -> None:
    start = ef.random_disk(2, 60, dimensions=3)
    run = ef.simulate(start, ef.load("etdagnn"))
    variance = ef.metrics.velocity_variance(run)
    assert (variance[-1] < 0.1 * variance[0]).all()


def test_bundled_names_cannot_be_registered(own_registry: None) -> None:
    with pytest.raises(InputError, match="'etdagnn' is already registered"):
        ef.controller("etdagnn")(lambda observations: observations[:, :, 0, 0])
