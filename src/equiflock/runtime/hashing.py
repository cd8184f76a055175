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

from equiflock.runtime.jit import Array, Index, inlined

# SplitMix64 (Steele, Lea, Flood 2014): the step of its counter, and the constants of its finalizer.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11, _1 = (np.uint64(number) for number in (30, 27, 31, 11, 1))
PER_UNIT = 2.0**-53
"""53 random bits times this are a number from 0 to below 1."""

NORMAL_BITS = 12
"""Bits that one normal number takes: it is one of 4,096 equally likely values."""
NORMAL_MASK = np.uint64(2**NORMAL_BITS - 1)


def _quantiles() -> Array:
    """The normal distribution's quantiles at the middle of 4,096 equal shares, scaled to a variance of exactly 1."""
    count = 2**NORMAL_BITS
    upper = np.array([NormalDist().inv_cdf((k + 0.5) / count) for k in range(count // 2, count)])
    both = np.concatenate([-upper[::-1], upper])
    return np.asarray(both / np.sqrt((both**2).mean()), np.float32)


QUANTILES = _quantiles()


@inlined
def mix(h: Index) -> Index:
    """All bits of a uint64 mixed, one to one."""
    h = (h ^ (h >> _30)) * FIRST
    h = (h ^ (h >> _27)) * SECOND
    return h ^ (h >> _31)


@inlined
def begin(seed: Index) -> Index:
    """The hash of a seed."""
    return mix(np.uint64(seed) + GOLDEN)


@inlined
def word(number: Index) -> Index:
    """What is blended into a hash of a number, which may be negative."""
    return (np.uint64(number) + _1) * GOLDEN


@inlined
def blend(h: Index, number: Index) -> Index:
    """The hash of whatever `h` is of, and a number."""
    return mix(h ^ word(number))


@inlined
def uniform(h: Index) -> float:
    """A number from 0 to below 1."""
    return float(np.float64(h >> _11) * PER_UNIT)


@inlined
def normal(h: Index, which: Index) -> Index:
    """A float32 of the standard normal distribution; a hash has five of them, `which` is 0 to 4."""
    return QUANTILES[(h >> (np.uint64(which) * np.uint64(NORMAL_BITS))) & NORMAL_MASK]
