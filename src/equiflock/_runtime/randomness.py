"""Random numbers: named streams, and for kernels hashes of, for example, (seed, flock, step, sender, receiver).

Drawing more numbers from one named stream never changes another. The numbers of a sequential generator depend on the
order of calls; those of a hash do not, so threads may draw in any order. In kernels:

    h = hash_combine(hash_combine(hash_seed(seed), flock), step)
    if hash_to_uniform(h) < probability: ...
"""

from __future__ import annotations

import zlib
from statistics import NormalDist

import numpy as np

from equiflock._runtime.checks import check_count
from equiflock._runtime.jit import Array, Index, inline_kernel

# SplitMix64 (Steele, Lea, Flood 2014): increment of its counter and constants of its finalizer.
GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX_FACTOR_1, MIX_FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11, _1 = (np.uint64(number) for number in (30, 27, 31, 11, 1))
UNIFORM_SCALE = 2.0**-53
"""Maps 53 random bits to [0, 1)."""

NORMAL_BITS = 12
"""Bits per normal number, which is one of 4,096 equally likely values."""
NORMAL_MASK = np.uint64(2**NORMAL_BITS - 1)


def _compute_quantiles() -> Array:
    """Return the normal quantiles at the midpoints of 4,096 equal probabilities, scaled to a variance of exactly 1."""
    count = 2**NORMAL_BITS
    upper = np.array([NormalDist().inv_cdf((k + 0.5) / count) for k in range(count // 2, count)])
    both = np.concatenate([-upper[::-1], upper])
    return np.asarray(both / np.sqrt((both**2).mean()), np.float32)


NORMAL_QUANTILES = _compute_quantiles()


def make_rng(seed: int, *names: str | int) -> np.random.Generator:
    """Return the generator of (seed, names), such as `make_rng(0, "initial", "test", 7)`; it is deterministic."""
    check_count("seed", seed, least=0)
    # CRC-32 of a name, since Python's hash of a string differs between processes.
    key = tuple(name if isinstance(name, int) else zlib.crc32(name.encode()) for name in names)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


@inline_kernel
def mix(h: Index) -> Index:
    """Mix all bits of a uint64 (a bijection)."""
    h = (h ^ (h >> _30)) * MIX_FACTOR_1
    h = (h ^ (h >> _27)) * MIX_FACTOR_2
    return h ^ (h >> _31)


@inline_kernel
def hash_seed(seed: Index) -> Index:
    """Return the hash of a seed."""
    return mix(np.uint64(seed) + GOLDEN_GAMMA)


@inline_kernel
def hash_word(number: Index) -> Index:
    """Return the uint64 word that `hash_combine` mixes in for an integer, which may be negative."""
    return (np.uint64(number) + _1) * GOLDEN_GAMMA


@inline_kernel
def hash_combine(h: Index, number: Index) -> Index:
    """Return the hash `h` extended by a number."""
    return mix(h ^ hash_word(number))


@inline_kernel
def hash_to_uniform(h: Index) -> float:
    """Return a uniform number in [0, 1)."""
    return float(np.float64(h >> _11) * UNIFORM_SCALE)


@inline_kernel
def hash_to_normal(h: Index, index: Index) -> Index:
    """Return a standard normal float32; a hash provides five of them, `index` 0 to 4."""
    return NORMAL_QUANTILES[(h >> (np.uint64(index) * np.uint64(NORMAL_BITS))) & NORMAL_MASK]
