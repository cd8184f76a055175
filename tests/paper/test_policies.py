"""Networks are trained once under an interpretation, by the first process that needs them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from equiflock._runtime import kernel_cache
from equiflock._runtime.checks import InputError
from equiflock.controllers import load
from equiflock.controllers.networks.weights import collect_tensors
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.learning.recipe import DAgger
from equiflock.learning.training_run import TrainingRun
from equiflock.paper.flocking_experiment import FlockingJob
from equiflock.paper.interpretation import Interpretation
from equiflock.paper.policies import TrainedPolicies
from equiflock.paper.training_experiment import TrainingJob, merge_validation_tables

SMALL = DAgger(epochs=2, agents=12, flocks=2, duration=0.05, updates=2, batch=2, validation_flocks=2, validate_every=1)
INTERPRETATION = Interpretation(velocities="disc", clamp=50, hop_mean="sender", biases="uniform")


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> TrainedPolicies:
    return TrainedPolicies(INTERPRETATION, SMALL, tmp_path_factory.mktemp("reading") / "trainings")


def test_bundled_weights_need_no_training() -> None:
    found, bundled = collect_tensors(TrainedPolicies().load("etdagnn", 3)), collect_tensors(load("etdagnn", seed=3))
    assert all(np.array_equal(found[name], bundled[name]) for name in bundled)


def test_a_flight_trains_what_it_needs_and_the_next_one_finds_it(policies: TrainedPolicies) -> None:
    job = FlockingJob("etdagnn", 5, agents=50, flocks=2, time_step=0.01, duration=0.05, policies=policies)
    assert job.scenario.draw().velocities.shape == (2, 50, 2)
    assert job.scenario.disk.velocities == "disc"  # type: ignore[attr-defined]
    first = job.run()
    (folder,) = policies.folder.glob("etdagnn-5-*")
    recipe = TrainingRun(folder).recipe
    assert (recipe.controller, recipe.expert) == ("etdagnn:hop_mean=sender", "tanner:clamp=50")
    written = (folder / "weights.safetensors").stat().st_mtime_ns
    pd.testing.assert_frame_equal(job.run(), first)
    assert (folder / "weights.safetensors").stat().st_mtime_ns == written


def test_damaged_weights_are_trained_again_to_the_same_bits(policies: TrainedPolicies) -> None:
    path = policies.get_training_run("etdagnn", 5).weights
    before = path.read_bytes()
    path.write_bytes(before[:-8] + b"\0" * 8)
    assert policies.get_training_run("etdagnn", 5).weights.read_bytes() == before


def test_the_tables_of_trainings_are_one_with_the_expert_once(policies: TrainedPolicies) -> None:
    jobs = [TrainingJob(policies, name, 5) for name in PAPER_NETWORKS]
    table = merge_validation_tables(pd.concat([job.run().assign(**job.labels) for job in jobs], ignore_index=True))
    assert list(dict.fromkeys(table.controller)) == ["tanner", *PAPER_NETWORKS]
    assert (table.controller == "tanner").sum() == 2
    assert set(table.seed) == {5}
    assert np.isfinite(table[["ivv", "iman"]]).all(axis=None)


def test_a_worker_without_the_folder_trains_for_itself(
    policies: TrainedPolicies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_cache.get_key_dir()  # that of the compiled kernels stays where it is
    monkeypatch.setenv("EQUIFLOCK_CACHE_DIR", str(tmp_path / "cache"))
    elsewhere = TrainedPolicies(policies.interpretation, policies.recipe, Path("/nowhere/at/all"))
    assert elsewhere == policies
    weights = elsewhere.get_training_run("etdagnn", 5).weights
    home = tmp_path / "cache" / "trainings"
    assert weights.is_relative_to(home)
    assert home.stat().st_mode & 0o777 == 0o700
    # A link in its place is not written through.
    home.rename(tmp_path / "target")
    home.symlink_to(tmp_path / "target")
    with pytest.raises(InputError, match="trainings is a symbolic link or a file, not a folder"):
        elsewhere.get_training_run("etdagnn", 5)


def test_changed_tables_without_checkpoints_are_refused(policies: TrainedPolicies, tmp_path: Path) -> None:
    own = TrainedPolicies(policies.interpretation, policies.recipe, tmp_path / "trainings")
    run, other = own.get_training_run("etdagnn", 5), own.get_training_run("etdagnn", 6)
    shutil.rmtree(run.folder / "checkpoints")
    shutil.copy(other.validation, run.validation)
    with pytest.raises(InputError, match="is damaged: remove it to train again"):
        TrainingJob(own, "etdagnn", 5).run()
