"""The training statements are judged by tables alone: on tables made for it, each can hold and each can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from equiflock._runtime.checks import InputError
from equiflock.controllers.trained import PAPER_NETWORKS, PAPER_SEEDS
from equiflock.paper.training_experiment import EPOCHS, build_training_statements, read_bundled_tables, read_validation


def table(ivv: Callable[[str, int], float], iman: Callable[[str, int], float]) -> pd.DataFrame:
    """Two seeds, five flocks around the given medians."""
    rows = [
        (epoch, name, flock, ivv(name, epoch) * (0.98 + 0.01 * flock), iman(name, epoch) * (0.98 + 0.01 * flock), seed)
        for name in PAPER_NETWORKS
        for epoch in EPOCHS
        for flock in range(5)
        for seed in (0, 1)
    ]
    return pd.DataFrame(rows, columns=["epoch", "controller", "flock", "ivv", "iman", "seed"])


def as_the_paper_says_ivv(name: str, epoch: int) -> float:
    if name == "etdagnn":
        return {40: 1.5, 80: 0.25}.get(epoch, 0.22)
    return {"tdagnn": 0.34, "tdagnn-tf": 0.28, "tdagnn-tf-mean": 0.24}[name]


def as_the_paper_says_iman(name: str, epoch: int) -> float:
    if name == "tdagnn-tf":
        return 50.0 if epoch <= 160 else 7.0 if epoch < 320 else 5.0
    if name == "etdagnn" and epoch == 40:
        return 4.6
    # The mean-aggregation controllers are 0.64 apart at 40 and 0.3 from 80 on, and both rise by 0.32.
    return {"tdagnn": 6.0, "tdagnn-tf-mean": 3.92 + 0.001 * epoch}.get(name, 4.22 + 0.001 * epoch)


def test_what_the_paper_describes_holds() -> None:
    found = build_training_statements(table(as_the_paper_says_ivv, as_the_paper_says_iman))
    assert {statement.id: statement.verdict for statement in found} == {f"T{n}": "holds" for n in range(1, 10)}
    assert [len(statement.checks) for statement in found] == [8, 2, 10, 10, 2, 1, 3, 1, 13]


def test_the_opposite_does_not() -> None:
    ivv = {"tdagnn": 1.0, "tdagnn-tf": 2.0, "tdagnn-tf-mean": 8.0, "etdagnn": 9.0}

    def iman(name: str, epoch: int) -> float:
        if name in ("tdagnn", "tdagnn-tf"):
            return 1.0 if name == "tdagnn" else 0.5 if epoch <= 280 else 2.0
        if name == "etdagnn":
            return 9.0 - 0.001 * epoch
        return 9.0 if epoch == 40 else 14.0 - 0.01 * epoch

    found = build_training_statements(table(lambda name, epoch: ivv[name], iman))
    assert {s.id: s.verdict for s in found} == {f"T{n}": "does not" for n in range(1, 10)}


T6 = "IVV at 400: tdagnn-tf-mean - etdagnn"
T8 = "IVV: lower quartile of etdagnn at 120 below upper quartile of tdagnn at 400"
RATE = "rise of IMAN from 80 to 400: tdagnn-tf-mean - etdagnn"


@pytest.mark.parametrize(
    ("id", "metric", "name", "epoch", "value", "failing"),
    [
        ("T4", "iman", "tdagnn-tf", 280, 6.01, []),
        ("T4", "iman", "tdagnn-tf", 280, 5.99, ["IMAN at 280: tdagnn below tdagnn-tf"]),
        ("T4", "iman", "tdagnn-tf", 320, 5.99, []),
        ("T4", "iman", "tdagnn-tf", 320, 6.01, ["IMAN at 320: tdagnn-tf below tdagnn"]),
        ("T6", "ivv", "tdagnn-tf-mean", 400, 0.2301, []),
        ("T6", "ivv", "tdagnn-tf-mean", 400, 0.2299, [T6]),
        ("T6", "ivv", "tdagnn-tf-mean", 400, 0.2699, []),
        ("T6", "ivv", "tdagnn-tf-mean", 400, 0.2701, [T6]),
        ("T8", "ivv", "etdagnn", 120, 0.346, []),
        ("T8", "ivv", "etdagnn", 120, 0.347, [T8]),
        ("T9", "iman", "etdagnn", 200, 4.759, []),
        ("T9", "iman", "etdagnn", 200, 4.761, ["IMAN: apart at 200 by no more than at 40"]),
        ("T9", "iman", "etdagnn", 200, 3.481, []),
        ("T9", "iman", "etdagnn", 200, 3.479, ["IMAN: apart at 200 by no more than at 40"]),
        ("T9", "iman", "etdagnn", 400, 4.669, []),
        ("T9", "iman", "etdagnn", 400, 4.671, [RATE]),
        ("T9", "iman", "etdagnn", 400, 4.569, [RATE]),
        ("T9", "iman", "etdagnn", 400, 4.299, ["IMAN of etdagnn: at 80 below that at 400", RATE]),
        ("T9", "iman", "tdagnn-tf-mean", 40, 5.0, ["IMAN at 40: tdagnn-tf-mean below etdagnn"]),
    ],
)
def test_a_rule_fails_just_beyond_its_limits(
    id: str, metric: str, name: str, epoch: int, value: float, failing: list[str]
) -> None:
    made = table(as_the_paper_says_ivv, as_the_paper_says_iman)
    rows = (made.controller == name) & (made.epoch == epoch)
    made.loc[rows, metric] = value * (0.98 + 0.01 * made.flock[rows])
    (found,) = (statement for statement in build_training_statements(made) if statement.id == id)
    assert [check.description for check in found.checks if not check.holds] == failing


def test_the_conclusions_claim_is_against_all_three_others_and_the_abstracts_against_tdagnn_alone() -> None:
    def slower(name: str, epoch: int) -> float:
        return 0.32 if (name, epoch) == ("etdagnn", 120) else as_the_paper_says_ivv(name, epoch)

    found = {s.id: s.verdict for s in build_training_statements(table(slower, as_the_paper_says_iman))}
    assert (found["T7"], found["T8"]) == ("partly", "holds")


def test_mean_aggregation_controllers_within_the_gap_of_the_others_would_contradict_the_iqrs() -> None:
    def between(name: str, epoch: int) -> float:
        return {"tdagnn": 6.0, "tdagnn-tf": 5.0}.get(name, 5.5)

    found = {s.id: s for s in build_training_statements(table(as_the_paper_says_ivv, between))}
    assert not found["T2"].checks[1].holds


def test_the_bundled_tables_are_complete() -> None:
    whole = read_bundled_tables()
    policies = whole[whole.controller != "tanner"]
    assert len(policies) == len(PAPER_NETWORKS) * len(PAPER_SEEDS) * len(EPOCHS) * 50
    assert sorted(policies.epoch.unique()) == list(EPOCHS)
    assert len(whole) - len(policies) == 50
    assert np.isfinite(whole[["ivv", "iman"]]).all(axis=None)


@pytest.mark.parametrize(
    ("content", "text"), [(None, "is not a readable validation table"), ("a,b\n1,2\n", "must have the columns epoch")]
)
def test_an_invalid_table_is_refused(tmp_path: Path, content: str | None, text: str) -> None:
    path = tmp_path / "validation.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=text):
        read_validation(path, 0)


def test_the_difference_at_epoch_400_is_also_reported_without_its_floor() -> None:
    found = build_training_statements(table(lambda name, epoch: 0.24 if "mean" in name else 0.238, lambda *_: 4.0))
    t6 = next(statement for statement in found if statement.id == "T6")
    (without,) = t6.further_checks
    assert (t6.verdict, without.holds) == ("does not", True)
    assert "without the floor: 0.00200 (0.00196, 0.00204), holds" in t6.details


def test_every_check_of_the_bundled_trainings_has_an_interval() -> None:
    checks = [check for each in build_training_statements(read_bundled_tables()) for check in each.checks]
    assert len(checks) == 50
    for check in checks:
        assert check.estimate is not None
        value, low, high, flocks = check.estimate
        assert low <= value <= high and low < high
        assert flocks == 50
