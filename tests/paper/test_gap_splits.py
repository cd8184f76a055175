"""Gaps on other draws of the same tuples: as many of them at every time index, and with the same weights."""

from __future__ import annotations

import numpy as np
import pytest

from equiflock.paper.gap_splits import redraw_gaps, resample_gaps

E, S, TRAIN, TEST = 3, 4, 6, 10


def draw_losses() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((E, S, TRAIN)), rng.random((E, S, TEST))


def test_resampled_gaps_vary_around_the_measured_one_as_means_do() -> None:
    train, test = draw_losses()
    gaps = resample_gaps(train, test, seed=0, resamples=4000)
    measured = test.mean(axis=(1, 2)) - train.mean(axis=(1, 2))
    variance = (train.var(axis=2).mean(axis=1) / TRAIN + test.var(axis=2).mean(axis=1) / TEST) / S
    assert gaps.mean(axis=0) == pytest.approx(measured, abs=0.01)
    assert gaps.std(axis=0) == pytest.approx(np.sqrt(variance), rel=0.1)


def test_other_splits_of_the_same_tuples_have_a_gap_of_zero_on_average() -> None:
    train, test = draw_losses()
    gaps = redraw_gaps(train, test + 5.0, seed=0, splits=4000)
    assert gaps.shape == (4000, E)
    assert gaps.mean(axis=0) == pytest.approx(0.0, abs=5 * gaps.std() / np.sqrt(4000))
    assert np.abs(gaps).max() < (test + 5.0).mean()
    # All losses together are the same in every split.
    assert redraw_gaps(np.ones_like(train), np.ones_like(test), seed=0, splits=9) == pytest.approx(0.0, abs=1e-12)


def test_a_split_has_as_many_training_tuples_at_every_time_index() -> None:
    # Losses of time index 0 alone differ from 0, so a gap is that of the split of its flocks.
    train, test = np.zeros((1, S, TRAIN)), np.zeros((1, S, TEST))
    test[0, 0, 0] = 1.0
    gaps = redraw_gaps(train, test, seed=0, splits=300)
    assert set(np.round(gaps.ravel(), 12)) == {round(1 / (S * TEST), 12), round(-1 / (S * TRAIN), 12)}


def test_the_same_seed_redraws_the_same_splits_for_every_network() -> None:
    train, test = draw_losses()
    assert np.array_equal(redraw_gaps(train, test, 3, 60), redraw_gaps(train, test, 3, 60))
    assert not np.array_equal(redraw_gaps(train, test, 3, 60), redraw_gaps(train, test, 4, 60))
    assert redraw_gaps(2.0 * train, 2.0 * test, 3, 60) == pytest.approx(2.0 * redraw_gaps(train, test, 3, 60))
