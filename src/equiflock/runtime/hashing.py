"""Random numbers that are functions of what they are about: a hash of (seed, flock, step, sender, receiver), say.

A generator hands out its numbers in some order, so whoever asks first changes what the next one gets. A hash does not:
threads may ask in any order, and nobody's number depends on whether another was asked for. All of it is for kernels,
where uint64 wraps around:

    h = blend(blend(begin(seed), flock), step)
    if uniform(h) < share: ...
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from equiflock.runtime.jit import Array, Index, inline_kernel

# SplitMix64 (Steele, Lea, Flood 2014): the step of its counter, and the constants of its finalizer.
GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX_FACTOR_1, MIX_FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11, _1 = (np.uint64(number) for number in (30, 27, 31, 11, 1))
UNIFORM_SCALE = 2.0**-53
"""53 random bits times this are a number from 0 to below 1."""

NORMAL_BITS = 12
"""Bits that one normal number takes: it is one of 4,096 equally likely values."""
NORMAL_MASK = np.uint64(2**NORMAL_BITS - 1)


def _compute_quantiles() -> Array:
    """The normal distribution's quantiles at the middle of 4,096 equal shares, scaled to a variance of exactly 1."""
    count = 2**NORMAL_BITS
    upper = np.array([NormalDist().inv_cdf((k + 0.5) / count) for k in range(count // 2, count)])
    both = np.concatenate([-upper[::-1], upper])
    return np.asarray(both / np.sqrt((both**2).mean()), np.float32)


NORMAL_QUANTILES = _compute_quantiles()


@inline_kernel
def mix(h: Index) -> Index:
    """All bits of a uint64 mixed, one to one."""
    h = (h ^ (h >> _30)) * MIX_FACTOR_1
    h = (h ^ (h >> _27)) * MIX_FACTOR_2
    return h ^ (h >> _31)


@inline_kernel
def hash_seed(seed: Index) -> Index:
    """The hash of a seed."""
    return mix(np.uint64(seed) + GOLDEN_GAMMA)


@inline_kernel
def hash_word(number: Index) -> Index:
    """What is blended into a hash of a number, which may be negative."""
    return (np.uint64(number) + _1) * GOLDEN_GAMMA


@inline_kernel
def hash_combine(h: Index, number: Index) -> Index:
    """The hash of whatever `h` is of, and a number."""
    return mix(h ^ hash_word(number))


@inline_kernel
def hash_to_uniform(h: Index) -> float:
    """A number from 0 to below 1."""
    return float(np.float64(h >> _11) * UNIFORM_SCALE)


@inline_kernel
def hash_to_normal(h: Index, index: Index) -> Index:
    """A float32 of the standard normal distribution; a hash has five of them, `index` is 0 to 4."""
    return NORMAL_QUANTILES[(h >> (np.uint64(index) * np.uint64(NORMAL_BITS))) & NORMAL_MASK]
