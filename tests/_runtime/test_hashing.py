"""Hashes of what they are about: the same everywhere, evenly spread, and independent of each other."""

from __future__ import annotations

import numpy as np

from equiflock._runtime.jit import Array, kernel
from equiflock._runtime.randomness import NORMAL_QUANTILES, hash_combine, hash_seed, hash_to_normal, hash_to_uniform
from tests import twins


@kernel
def many(seed: int, hashes: Array, numbers: Array, normals: Array) -> None:
    for k in range(len(hashes)):
        h = hash_combine(hash_seed(seed), k - len(hashes) // 2)
        hashes[k], numbers[k] = h, hash_to_uniform(h)
        for which in range(5):
            normals[k, which] = hash_to_normal(h, which)


def hashed(seed: int, count: int) -> tuple[Array, Array, Array]:
    hashes, numbers, normals = np.empty(count, np.uint64), np.empty(count), np.empty((count, 5), np.float32)
    many(seed, hashes, numbers, normals)
    return hashes, numbers, normals


def test_a_hash_is_what_plain_integers_say() -> None:
    hashes, numbers, _ = hashed(7, 20)
    expected = [twins.hashed(7, k - 10) for k in range(20)]
    assert hashes.tolist() == expected
    assert numbers.tolist() == [(h >> 11) / 2**53 for h in expected]


def test_no_two_of_many_hashes_are_equal_and_other_seeds_give_others() -> None:
    one, other = hashed(0, 100_000)[0], hashed(1, 100_000)[0]
    assert len(np.unique(np.concatenate([one, other]))) == 200_000


def test_uniform_numbers_are_uniform() -> None:
    counts = np.histogram(hashed(3, 100_000)[1], bins=100, range=(0, 1))[0]
    # The sum of squared deviations has a chi-squared distribution with 99 degrees of freedom: 99, plus or minus 14.
    assert ((counts - 1000) ** 2 / 1000).sum() < 99 + 5 * 14


def test_normal_numbers_have_the_moments_of_a_normal_distribution_and_are_independent() -> None:
    normals = hashed(5, 100_000)[2].astype(float)
    assert np.abs(normals.mean(axis=0)).max() < 5 / 100_000**0.5
    assert np.abs((normals**2).mean(axis=0) - 1).max() < 5 * (2 / 100_000) ** 0.5
    assert np.abs((normals**4).mean(axis=0) - 3).max() < 0.15
    assert np.abs(np.corrcoef(normals.T) - np.eye(5)).max() < 5 / 100_000**0.5


def test_the_values_of_normal_numbers_have_mean_zero_and_variance_one() -> None:
    values = NORMAL_QUANTILES.astype(float)
    assert abs(values.mean()) < 1e-7
    assert abs((values**2).mean() - 1) < 1e-6
    assert 3.5 < values.max() < 4.0
