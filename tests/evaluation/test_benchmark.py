"""The benchmark's counts agree with counts by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from equiflock.controllers.loading import make_network
from equiflock.controllers.networks.models import build_module_chain
from equiflock.evaluation.benchmark import (
    Cost,
    MachineLimits,
    compute_step_costs,
    count_multiply_adds,
    measure_epoch,
    measure_limits,
    measure_loop,
)
from equiflock.features import paper_senses


def test_bytes_and_multiply_adds_of_an_agents_step_by_hand() -> None:
    # Position and velocity 32 bytes, acceleration 16, observations 72: each in and out.
    costs = compute_step_costs(paper_senses(hops=3), degree=10.0)
    assert costs["step"].bytes_moved == 2 * (32 + 16 + 72)
    # 9/pi * 10 candidates of 4, 10 neighbours of 6 + 18; 9 x 16 x 2 + 16 x 2 products; 25 x (2 + 12)
    assert costs["step"].multiply_adds == pytest.approx(114.59 + 240 + 320 + 350, abs=0.01)
    assert costs["policy"] == Cost(72 + 16, 320 + 350)


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [
        # Two uses of the first matrix, three of the last, and tanh with norm and scale, forward and backward.
        ("etdagnn", 2 * 9 * 16 * 2 + 3 * 16 * 2 + 2 * 16 * 16),
        ("tdagnn", 2 * 18 * 32 + 3 * 32 * 32 + 3 * 32 * 2 + 2 * 2 * 32 * 14),
        # Without a second tanh the last two layers are one.
        ("tdagnn-tf", 2 * 18 * 32 + 3 * 32 * 2 + 2 * 32 * 14),
    ],
)
def test_the_multiply_adds_of_a_training_by_hand(name: str, by_hand: float) -> None:
    network: Any = make_network(name)
    chain = build_module_chain(network.chain, network.senses)
    assert chain is not None
    assert count_multiply_adds(chain, D=2) == by_hand


@pytest.mark.slow
def test_an_epoch_is_its_flight_its_updates_and_a_share_of_a_validation() -> None:
    timing = measure_epoch("etdagnn", repeats=1)
    assert timing.epoch == pytest.approx(timing.flight + timing.updates + timing.validation / 40)
    assert timing.multiply_adds == 200 * 20 * 100 * (2 * 9 * 16 * 2 + 3 * 16 * 2 + 2 * 16 * 16)


def test_a_measurement_has_every_part_and_the_limit_that_binds() -> None:
    timing = measure_loop(1, 300, repeats=1)
    for part in (timing.sort, timing.policy, timing.integration, timing.step):
        assert part > 0.0
    assert timing.sort + timing.observations + timing.policy + timing.integration <= timing.step * (1 + 1e-9)
    assert timing.speed == pytest.approx(1e9 / timing.step)
    found = measure_limits(repeats=1)
    assert min(found.copy_bandwidth, found.multiply_add_peak) > 1e6
    limits = MachineLimits(copy_bandwidth=240e9, multiply_add_peak=timing.costs["step"].multiply_adds * 1e10)
    least, what = limits.compute_lower_bound(timing)
    assert (round(least, 9), what) == (0.1, "compute")  # it fits the caches
    least, what = limits.compute_lower_bound(replace(timing, agents=1_000_000))
    assert (round(least, 9), what) == (1.0, "memory")
