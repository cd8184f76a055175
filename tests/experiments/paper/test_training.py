"""The training statements are judged by tables alone: on tables made for it, each can hold and each can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from equiflock.controllers.trained import SEEDS, TRAINED
from equiflock.experiments.paper.training import EPOCHS, read_validation, trained_tables, training_statements
from equiflock.runtime.checks import InputError


def table(ivv: Callable[[str, int], float], iman: Callable[[str, int], float]) -> pd.DataFrame:
    """Two seeds, five flocks around the given medians."""
    rows = [
        (epoch, name, flock, ivv(name, epoch) * (0.98 + 0.01 * flock), iman(name, epoch) * (0.98 + 0.01 * flock), seed)
        for name in TRAINED
        for epoch in EPOCHS
        for flock in range(5)
        for seed in (0, 1)
    ]
    return pd.DataFrame(rows, columns=["epoch", "controller", "flock", "ivv", "iman", "seed"])


def as_the_paper_says_ivv(name: str, epoch: int) -> float:
    if name == "etdagnn":
        return {40: 1.5, 80: 0.25}.get(epoch, 0.22)
    return {"tdagnn": 0.34, "tdagnn-tf": 0.28, "tdagnn-tf-mean": 0.222}[name]


def as_the_paper_says_iman(name: str, epoch: int) -> float:
    if name == "tdagnn-tf":
        return 50.0 if epoch <= 160 else 7.0 if epoch < 320 else 5.0
    return {"tdagnn": 6.0}.get(name, 4.0)


def test_what_the_paper_describes_holds() -> None:
    found = training_statements(table(as_the_paper_says_ivv, as_the_paper_says_iman))
    assert {statement.id: statement.verdict for statement in found} == {f"T{n}": "holds" for n in range(1, 8)}
    assert [len(statement.checks) for statement in found] == [8, 2, 10, 8, 2, 2, 3]


def test_the_opposite_does_not() -> None:
    ivv = {"tdagnn": 1.0, "tdagnn-tf": 2.0, "tdagnn-tf-mean": 8.0, "etdagnn": 9.0}

    def iman(name: str, epoch: int) -> float:
        return {"tdagnn": 1.0, "tdagnn-tf": 0.5 if epoch <= 240 else 2.0}.get(name, 9.0)

    found = training_statements(table(lambda name, epoch: ivv[name], iman))
    assert {s.id: s.verdict for s in found if s.id != "T6"} == {f"T{n}": "does not" for n in (1, 2, 3, 4, 5, 7)}
    # Smaller is not larger "only by a few hundredths", but it is not much larger either.
    assert found[5].verdict == "partly"


def test_the_bundled_tables_are_whole() -> None:
    whole = trained_tables()
    pupils = whole[whole.controller != "tanner"]
    assert len(pupils) == len(TRAINED) * len(SEEDS) * len(EPOCHS) * 50
    assert sorted(pupils.epoch.unique()) == list(EPOCHS)
    assert len(whole) - len(pupils) == 50
    assert np.isfinite(whole[["ivv", "iman"]]).all(axis=None)


@pytest.mark.parametrize(("content", "text"), [(None, "can be read"), ("a,b\n1,2\n", "must have the columns epoch")])
def test_a_table_that_is_none_is_refused(tmp_path: Path, content: str | None, text: str) -> None:
    path = tmp_path / "validation.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=text):
        read_validation(path, 0)
