"""Training by gradients through flights: it lowers its objective, resumes with the same bits, refuses bad settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import equiflock as ef
from equiflock import cli
from equiflock._runtime.checks import InputError
from equiflock.controllers.trained import bundled_weights_path
from equiflock.learning.recipe import DAgger
from equiflock.learning.rollout_training import parse_objective
from equiflock.learning.training import make_trainer
from equiflock.learning.training_run import TrainingRun

SMALL: dict[str, Any] = {
    "algorithm": "rollout",
    "agents": 12,
    "flocks": 4,
    "batch": 4,
    "duration": 0.2,
    "horizon": 10,
    "learning_rate": 1e-3,
    "validation_flocks": 2,
    "epochs": 4,
    "checkpoint_every": 2,
}


def make_recipe(**options: Any) -> ef.DAgger:
    return ef.DAgger(**{**SMALL, **options})


def test_it_lowers_the_objective() -> None:
    losses: list[float] = []
    # One flock, so that the objectives of epochs are comparable.
    recipe = make_recipe(epochs=30, flocks=1, objective="variance", validate_every=100, learning_rate=5e-3)
    network = ef.train(recipe, on_epoch=lambda report: losses.append(report.loss))
    assert losses[-1] < 0.9 * losses[0]
    start = ef.random_disk(4, 12, seed=5)
    variance = {
        name: ef.metrics.velocity_variance(ef.simulate(start, controller, duration=0.2))[-1].mean()
        for name, controller in {"trained": network, "new": make_trainer(recipe).network}.items()
    }
    assert variance["trained"] < variance["new"]


def test_a_resumed_training_has_the_same_bits(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    TrainingRun.create(whole, make_recipe()).train()
    # It stops after the second epoch.
    calls = iter([False, False, True])
    with pytest.raises(KeyboardInterrupt):
        TrainingRun.create(parts, make_recipe()).train(should_stop=lambda: next(calls))
    assert len(TrainingRun(parts).checkpoints) == 1
    TrainingRun(parts).train()
    for name in ("weights.safetensors", "metrics.csv", "validation.csv"):
        assert (whole / name).read_bytes() == (parts / name).read_bytes(), name
    assert np.isfinite(pd.read_csv(whole / "metrics.csv").loss).all()


def test_the_command_trains_from_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    weights, run = str(bundled_weights_path("etdagnn")), str(tmp_path / "run")
    cli.main(["train", *options, "--from", weights, "--out", run])
    assert "weights:" in capsys.readouterr().out
    assert "--algorithm rollout" in TrainingRun(tmp_path / "run").recipe.command


def test_a_recipe_of_dagger_does_not_store_the_fields_of_rollouts() -> None:
    assert not {"algorithm", "objective", "horizon"} & ef.DAgger().settings.keys()
    recipe = make_recipe(objective="variance")
    assert DAgger.from_settings(recipe.settings, "a file") == recipe


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "ppo"}, "algorithm must be one of 'dagger', 'rollout'"),
        ({"algorithm": "dagger"}, "horizon belongs to the algorithm 'rollout'"),
        ({"horizon": 0}, "horizon must be a whole number of at least 1"),
        ({"objective": "varance"}, "objective must be one of 'variance', 'effort', 'leaders'; got 'varance'; did you"),
        ({"objective": "leaders"}, "the objective 'leaders' needs a leader in every flock"),
        ({"agents": "10-12"}, "agents must be a number, not a range"),
        ({"packet_loss": 0.1}, "gradients pass only through an ideal radio"),
        ({"scenario": "obstacles"}, "gradients pass only through flocks without obstacle agents"),
    ],
)
def test_wrong_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_trainer(make_recipe(**options))


def test_leaders_are_an_objective_of_flocks_with_leaders() -> None:
    recipe = make_recipe(scenario="leaders", objective="leaders+0.0001*effort", epochs=2)
    assert make_trainer(recipe).run_epoch().loss > 0
    assert [term.weight for term in parse_objective(recipe.objective)] == [1.0, 0.0001]
