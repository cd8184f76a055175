"""What the benchmark counts, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from equiflock.experiments.bench import Limits, bytes_per_step, measure_limits, measure_loop, multiply_adds_per_step
from equiflock.features import paper_senses


def test_bytes_and_multiply_adds_of_an_agents_step_by_hand() -> None:
    # Position and velocity 32 bytes, acceleration 16, observations 72: each in and out.
    assert bytes_per_step(paper_senses(hops=3)) == 2 * (32 + 16 + 72)
    # 9/pi * 10 candidates of 4; 10 heard of 6 + 18; 9 x 16 x 2 + 16 x 2 products; 25 norms of 2 and functions of 12.
    assert multiply_adds_per_step(paper_senses(hops=3), degree=10.0) == pytest.approx(
        114.59 + 240 + 320 + 350, abs=0.01
    )


def test_a_measurement_has_every_part_and_the_limit_that_binds() -> None:
    timing = measure_loop(1, 300, repeats=1)
    for part in (timing.sort, timing.policy, timing.integration, timing.step):
        assert part > 0.0
    assert timing.speed == pytest.approx(1e9 / timing.step)
    found = measure_limits(repeats=1)
    assert min(found.copy_bandwidth, found.multiply_add_peak) > 1e6
    limits = Limits(copy_bandwidth=240e9, multiply_add_peak=timing.multiply_adds * 1e10)
    least, what = limits.least(timing)
    assert (round(least, 9), what) == (0.1, "compute")  # it fits the caches
    least, what = limits.least(replace(timing, agents=1_000_000))
    assert (round(least, 9), what) == (1.0, "memory")
