"""Named random streams: drawing more numbers from one never changes another."""

from __future__ import annotations

import zlib

import numpy as np

from equiflock.runtime.checks import check_count


def make_rng(seed: int, *names: str | int) -> np.random.Generator:
    """Return the generator of (seed, names), such as `make_rng(0, "initial", "test", 7)`; it is deterministic."""
    check_count("seed", seed, least=0)
    # CRC-32 of a name, since Python's hash of a string differs between processes.
    key = tuple(name if isinstance(name, int) else zlib.crc32(name.encode()) for name in names)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
