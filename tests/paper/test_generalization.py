"""The statements on generalization hold on tables made as the paper describes them, and fail on their opposites."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch

from equiflock._runtime import kernel_cache
from equiflock._runtime.checks import InputError
from equiflock.controllers.loading import make_network
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.learning.fast_forward import FastForward, FastForwardData
from equiflock.learning.recipe import Cloning
from equiflock.paper.generalization_experiment import CloningJob, build_generalization_statements, compute_mean_weight


def verdicts(table: pd.DataFrame) -> dict[str, str]:
    return {statement.id: statement.verdict for statement in build_generalization_statements(table)}


def clonings(numbers: Callable[[str, int], dict[str, float]]) -> pd.DataFrame:
    """Ten epochs of two seeds."""
    return pd.DataFrame(
        [
            {"controller": name, "seed": seed, "epoch": epoch, **numbers(name, epoch)}
            for name in PAPER_NETWORKS
            for seed in (0, 1)
            for epoch in range(11)
        ]
    )


def cloning_as_described(name: str, epoch: int) -> dict[str, float]:
    place = PAPER_NETWORKS.index(name)
    return {
        "gap": 1e-5 * epoch,
        "bound": (160.0, 150.0, 140.0, 70.0)[place] + 0.1 * epoch,
        "data_bound": 1000.0 if place < 2 else 100.0,
        "largest_dimension": 16 if name == "etdagnn" else 33,
        "norm_sum": 5.0 + 0.1 * place,
        "mean_weight": 0.3 if name == "etdagnn" else 0.2,
        "train_tuples": 30_150,
        "test_tuples": 50_250,
    }


def test_generalization_as_the_paper_describes_it_holds_and_its_opposite_does_not() -> None:
    assert verdicts(clonings(cloning_as_described)) == {f"G{n}": "holds" for n in range(1, 8)}

    def opposite(name: str, epoch: int) -> dict[str, float]:
        place = PAPER_NETWORKS.index(name)
        return {
            "gap": 0.5 - 0.01 * epoch,
            "bound": 50.0 + 40.0 * place + 0.1 * epoch,
            "data_bound": 100.0,
            "largest_dimension": 17,
            "norm_sum": 2.0**place,
            "mean_weight": 0.1 if name == "etdagnn" else 0.2,
            "train_tuples": 40_000,
            "test_tuples": 40_000,
        }

    assert verdicts(clonings(opposite)) == {f"G{n}": "does not" for n in range(1, 8)}


@pytest.mark.parametrize(("odd", "expected"), [(1, "holds"), (2, "partly")])
def test_the_data_bounds_of_most_data_sets_decide(odd: int, expected: str) -> None:
    table = clonings(cloning_as_described)
    table = pd.concat([table, table[table.seed == 0].assign(seed=2)])
    table.loc[(table.seed < odd) & (table.data_bound > 100.0), "data_bound"] = 9000.0
    assert verdicts(table)["G5"] == expected


def test_weights_as_large_as_those_of_etdagnn_are_not_smaller() -> None:
    table = clonings(cloning_as_described)
    table.loc[table.controller == "tdagnn", "mean_weight"] = 0.3
    g7 = build_generalization_statements(table)[-1]
    assert [check.description for check in g7.checks if not check.holds] == ["mean |weight|: tdagnn below etdagnn"]


def test_the_mean_weight_is_that_of_all_trainable_weights() -> None:
    trained, fixed = torch.nn.Linear(2, 1), torch.nn.Linear(3, 1).requires_grad_(False)
    with torch.no_grad():
        trained.weight.copy_(torch.tensor([[1.0, -2.0]]))
        trained.bias.fill_(-6.0)
    assert compute_mean_weight(torch.nn.Sequential(trained, fixed)) == 3.0


def test_a_bound_that_never_moves_has_no_correlation_with_the_gap() -> None:
    table = clonings(cloning_as_described).assign(bound=100.0)
    assert verdicts(table)["G6"] == "does not"


def test_the_papers_counts_are_not_asked_of_smaller_data() -> None:
    table = clonings(cloning_as_described).assign(train_tuples=1_206, test_tuples=2_010)
    assert "G1" not in verdicts(table)


@pytest.mark.slow
def test_a_cloning_notes_the_mean_weight_of_every_epoch(tmp_path: Path) -> None:
    data = FastForward(train_flocks=1, test_flocks=1, steps=5, agents=20)
    recipe = Cloning("etdagnn", seed=3, epochs=1, warm_up=1)
    table = CloningJob(recipe, data, tmp_path / "fast-forward").run()
    assert table.mean_weight[0] == compute_mean_weight(make_network("etdagnn", 3))
    assert table.mean_weight[1] != table.mean_weight[0]


@pytest.mark.slow
def test_a_worker_without_the_folder_generates_the_data_in_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_cache.get_key_dir()  # that of the compiled kernels stays where it is
    monkeypatch.setenv("EQUIFLOCK_CACHE_DIR", str(tmp_path / "cache"))
    data = FastForward(train_flocks=1, test_flocks=1, steps=5, agents=20)
    job = CloningJob(Cloning("etdagnn", seed=3, epochs=1, warm_up=1), data, Path("/nowhere/at/all"))
    job.run()
    home = tmp_path / "cache" / "fast-forward"
    (folder,) = home.iterdir()
    assert FastForwardData.open(folder).recipe == data
    assert folder.stat().st_mode & 0o777 == 0o700
    # A link in its place is not written through.
    folder.rename(tmp_path / "target")
    folder.symlink_to(tmp_path / "target")
    with pytest.raises(InputError, match="is a symbolic link or a file, not a folder"):
        job.run()
