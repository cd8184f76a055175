"""Kernels compiled with both vectorisers give the bits of those compiled with one, and leave Numba's setting alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import config

from equiflock._runtime.jit import Array, kernel
from equiflock.observations.channel_sums import SLP_SETTING, slp_kernel


def add_up(rows: Array, sums: Array) -> None:
    """Sums of four columns, written so that neighbours stand side by side."""
    a = b = c = d = np.float32(0.0)
    for n in range(rows.shape[0]):
        a, b, c, d = a + rows[n, 0], b + rows[n, 1], c + rows[n, 2], d + rows[n, 3]
    sums[0], sums[1], sums[2], sums[3] = a, b, c, d


def sums_of(compiled: Any, rows: Array) -> bytes:
    sums = np.empty(4, np.float32)
    compiled(rows, sums)
    return sums.tobytes()


def test_slp_kernel_is_bit_identical_to_a_plain_one() -> None:
    rows = np.random.default_rng(0).normal(size=(1000, 4)).astype(np.float32)
    before = getattr(config, SLP_SETTING)
    assert sums_of(slp_kernel(add_up), rows) == sums_of(kernel(add_up), rows)
    assert getattr(config, SLP_SETTING) == before
