"""Starling observes means, sums, leaving neighbours and obstacles, near which it can use other weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ortho_group

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.loading import make_network
from equiflock.controllers.networks.architecture import STARLING_CHANNELS as CHANNELS
from equiflock.controllers.networks.lane_kernels import LANES
from equiflock.controllers.networks.models import find_trainable_chain

OBSTACLE = len(CHANNELS) - 1
"""The channel that tells of obstacles."""


def starling(near: bool = True, hops: int = 3, seed: int = 0) -> Any:
    """A network whose weights near obstacles are other than those elsewhere."""
    network: Any = make_network("starling", seed, hops=hops, near=near)
    if near:
        generator = torch.Generator().manual_seed(seed)
        for weight in network.near.parameters():
            weight.data += torch.randn(weight.shape, generator=generator)
    return network


def observations(agents: int, hops: int = 3, D: int = 2, seed: int = 0) -> Any:
    """What agents know, of whom some know of an obstacle in some hop and the others in none."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((1, agents, hops, len(CHANNELS), D)).astype(np.float32)
    z[..., OBSTACLE, :] *= rng.random((1, agents, hops, 1)) < 0.2
    return z


def test_starling_channels() -> None:
    network = starling(near=False)
    assert [how for _, how in CHANNELS] == ["mean"] * 3 + ["sum"] * 3 + ["mean", "sum"]
    assert [name for name, _ in CHANNELS[6:]] == ["leaving", "velocity:among=obstacles"]
    assert network.senses.channels == CHANNELS
    assert sum(weight.numel() for weight in network.parameters()) == 560 + 2 * 3 * 16
    assert sum(weight.numel() for weight in starling().parameters()) == 2 * (560 + 2 * 3 * 16)


def test_obstacle_channel_has_zero_weights_before_tuning() -> None:
    network, z = starling(near=False), observations(50)
    quiet = z.copy()
    quiet[..., OBSTACLE, :] = 0.0
    assert torch.equal(network(torch.from_numpy(z)), network(torch.from_numpy(quiet)))


@pytest.mark.slow
@given(st.integers(1, 2 * LANES + 3), st.integers(1, 4), st.sampled_from([2, 3]), st.integers(0, 99))
def test_agents_that_observe_an_obstacle_use_the_near_weights(agents: int, hops: int, D: int, seed: int) -> None:
    network, z = starling(hops=hops, seed=seed), observations(agents, hops, D, seed)
    # One agent after the other, through the layers as they are written.
    expected = np.empty((agents, D), np.float32)
    for i in range(agents):
        near = bool(np.any(z[0, i, :, OBSTACLE] != 0.0))
        x = torch.from_numpy(z[0, i]).movedim(-1, 0)
        expected[i] = (network.near if near else network.layers)(x).detach().numpy().reshape(D)
    scale = max(float(np.abs(expected).max()), 1.0)
    assert np.abs(network(torch.from_numpy(z)).detach().numpy()[0] - expected).max() < 1e-5 * scale
    assert np.abs(network.compiled_form()(z)[0] - expected).max() < 1e-5 * scale


@given(st.sampled_from([2, 3]), st.integers(0, 2**31))
def test_it_commutes_with_rotations_and_reflections(D: int, seed: int) -> None:
    network, z = starling(), observations(20, D=D, seed=seed)
    turn = ortho_group.rvs(D, random_state=seed)
    turned = network.compiled_form()((z @ turn.T).astype(np.float32))
    assert np.allclose(turned, network.compiled_form()(z) @ turn.T, atol=1e-4)


def test_near_weights_change_no_bit_without_obstacles() -> None:
    start = ef.random_disk(2, 30, seed=0)
    plain, with_near = (ef.simulate(start, starling(near), duration=0.2) for near in (False, True))
    assert np.array_equal(plain.positions, with_near.positions)
    course = ef.ObstacleCourse(ef.RandomDisk(1, 30, seed=0), sides=12)
    rules: dict[str, Any] = {"duration": 1.5, "orbit": ef.Orbit(), "ending": None}
    plain, with_near = (ef.simulate(course.draw(), starling(near), **rules) for near in (False, True))
    assert not np.array_equal(plain.positions, with_near.positions)


def test_fused_flight_near_an_obstacle_equals_the_unfused_one() -> None:
    start, network = ef.ObstacleCourse(ef.RandomDisk(2, 30, seed=1), sides=12).draw(), starling()
    rules: dict[str, Any] = {"duration": 1.5, "orbit": ef.Orbit(), "keep_every": None}
    fused = ef.simulate(start, network, **rules).flock()
    # A hook on every step keeps the parts apart.
    parts = ef.simulate(start, network, **rules, on_step=lambda moment: None).flock()
    assert np.allclose(fused.positions, parts.positions, atol=1e-5)


def test_near_weights_are_saved_and_loaded(tmp_path: Path) -> None:
    network, z = starling(), observations(40)
    network.orbit = replace(ef.Orbit(), near=0.4)
    loaded: Any = ef.load(ef.save(network, tmp_path / "mine.safetensors"))
    assert loaded.name == "starling" and loaded.orbit == network.orbit
    assert np.array_equal(loaded(z), network.compiled_form()(z))


def test_near_weights_need_an_obstacle_channel() -> None:
    with pytest.raises(InputError, match="etdagnn has no channel among obstacles"):
        make_network("etdagnn", near=True)


def test_compiled_learner_trains_starling_without_near_weights() -> None:
    assert find_trainable_chain(starling(near=False)) is not None
    assert find_trainable_chain(starling()) is None


def test_starling_takes_network_options() -> None:
    options: Any = make_network("starling:hops=2:near=true").options
    assert options["hops"] == 2 and options["near"]
