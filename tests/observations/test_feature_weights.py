"""Weights are compiled once, whatever the values of their options, which are kept as long as the process lives."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.features import find_feature
from equiflock.observations import feature_weights
from equiflock.observations.feature_weights import (
    AMONG_COLUMN,
    IS_MEAN,
    IS_VELOCITY,
    LOOP_ADDRESS,
    OPTIONS_ADDRESS,
    build_channel_table,
    compile_loop,
)


@pytest.fixture(autouse=True)
def tuned(own_registry: None) -> None:
    """A feature with two options."""

    @ef.feature("tuned", vector="position")
    def tuned(square: float, strength: float = 1.0, power: float = 2.0) -> float:
        return float(strength * square**power)


def values_at(address: int, count: int) -> list[float]:
    """The numbers that kernels find at an address."""
    return list((ctypes.c_double * count).from_address(address))


def test_other_values_of_options_compile_nothing() -> None:
    loops = {
        compile_loop(find_feature(name)).address
        for name in ("tuned", "tuned:strength=5", "tuned:power=0.5:strength=-1", "tuned:among=same")
    }
    assert len(loops) == 1
    assert compile_loop(find_feature("position")).address not in loops


def test_a_table_tells_kernels_where_the_values_are() -> None:
    table = build_channel_table(
        (("tuned:strength=5", "sum"), ("tuned:power=0.5:among=others", "mean"), ("velocity", "mean")), 1.0
    )
    assert values_at(int(table[0, OPTIONS_ADDRESS]), 2) == [5.0, 2.0]
    assert values_at(int(table[1, OPTIONS_ADDRESS]), 2) == [1.0, 0.5]
    assert table[0, LOOP_ADDRESS] == table[1, LOOP_ADDRESS] != table[2, LOOP_ADDRESS]
    assert table[:, (IS_VELOCITY, AMONG_COLUMN, IS_MEAN)].tolist() == [[0, 0, 0], [0, 2, 1], [1, 0, 1]]


def test_values_stay_where_they_are_whatever_comes_after() -> None:
    first = build_channel_table((("tuned:strength=0.125", "sum"),), 1.0)
    for n in range(2_000):
        build_channel_table(((f"tuned:strength={n}", "sum"),), 1.0)
    assert values_at(int(first[0, OPTIONS_ADDRESS]), 2) == [0.125, 2.0]
    assert np.array_equal(build_channel_table((("tuned:strength=0.125", "sum"),), 1.0), first)


def test_two_threads_at_once_are_given_the_values_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only what is kept stays at its address: whoever holds another array's has a table of something else's numbers.
    both = Barrier(2)

    def made_by_both(*arguments: Any) -> Any:
        array = np.array(*arguments)
        with suppress(BrokenBarrierError):  # one thread alone may make it
            both.wait(timeout=1.0)
        return array

    monkeypatch.setattr(feature_weights, "np", SimpleNamespace(array=made_by_both, float64=np.float64))
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(feature_weights._intern_options, [(0.0625, 3.0)] * 2)
    assert one is other is feature_weights._intern_options((0.0625, 3.0))


@pytest.mark.slow
def test_the_error_for_a_weight_that_is_not_finite_names_its_options_and_the_distance() -> None:
    with pytest.raises(InputError, match=r"'tuned:power=-9' must be finite, .* from 1e-08 to 0\.5; got 1e\+144"):
        build_channel_table((("tuned:power=-9", "sum"),), 0.5)
    with pytest.raises(InputError, match=r"'tuned:power=9' must be finite, .* for \|r\| from 1e-08 to 1e\+06; got"):
        build_channel_table((("tuned:power=9", "sum"),), 1e6)
    build_channel_table((("tuned:power=9", "sum"),), 1.0)  # finite as far as it is asked for
