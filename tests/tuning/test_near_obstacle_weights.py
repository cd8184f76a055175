"""Weights for agents near obstacles may start as those of another network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from equiflock._runtime.checks import InputError
from equiflock.controllers.loading import make_network
from equiflock.controllers.networks.architecture import STARLING_CHANNELS
from equiflock.tuning.search_space import add_near_obstacle_weights


def compiled(name: str, seed: int = 0, **options: Any) -> Any:
    network: Any = make_network(name, seed, **options)
    return network.compiled_form()


def observations(agents: int) -> Any:
    """Return observations of agents that all observe an obstacle."""
    z = np.random.default_rng(0).standard_normal((1, agents, 3, len(STARLING_CHANNELS), 2)).astype(np.float32)
    z[..., -1, :] = 1e-3
    return z


def test_they_start_as_the_weights_of_all_other_agents() -> None:
    plain, z = compiled("starling", 1), observations(20)
    assert np.array_equal(add_near_obstacle_weights(plain)(z), plain(z))
    assert add_near_obstacle_weights(plain).options["near"]


def test_they_may_start_as_those_of_a_network_with_fewer_channels() -> None:
    network, less, z = compiled("starling"), compiled("etdagnn", 5, aggregation="both"), observations(60)
    assert np.allclose(
        add_near_obstacle_weights(network, less)(z), less(np.ascontiguousarray(z[:, :, :, :6])), atol=1e-5
    )
    assert np.allclose(
        add_near_obstacle_weights(network, less, last_layer_scale=0.5)(z),
        0.5 * add_near_obstacle_weights(network, less)(z),
        atol=1e-5,
    )


def test_they_start_as_the_second_set_of_a_network_that_has_one() -> None:
    network, other = compiled("starling"), add_near_obstacle_weights(compiled("starling", 7), compiled("starling", 8))
    begun = add_near_obstacle_weights(network, other)
    near = [name for name in begun.tensors if name.startswith("near.")]
    assert near and all(np.array_equal(begun.tensors[name], other.tensors[name]) for name in near)
    assert np.array_equal(begun.tensors["layers.1.weight"], network.tensors["layers.1.weight"])


def test_other_networks_are_refused() -> None:
    network = compiled("starling")
    with pytest.raises(
        InputError, match=r"subset of starling's channels and the same hops \(3\); got etdagnn with 2 hops"
    ):
        add_near_obstacle_weights(network, compiled("etdagnn", hops=2))
    with pytest.raises(InputError, match=r"must be those of an ETDAGNN .* got tdagnn with 3 hops"):
        add_near_obstacle_weights(network, compiled("tdagnn"))
    with pytest.raises(InputError, match="etdagnn has no channel among obstacles"):
        add_near_obstacle_weights(compiled("etdagnn"))
    with pytest.raises(InputError, match="tdagnn cannot have separate weights near obstacles"):
        add_near_obstacle_weights(compiled("tdagnn"))


def test_initial_weights_must_have_the_same_gain_period_or_no_schedule() -> None:
    network = compiled("starling", gain_period=0.02)
    for period in (0.02, None):
        begun = add_near_obstacle_weights(network, compiled("starling", 7, gain_period=period))
        assert begun.gain_schedule == network.gain_schedule
    with pytest.raises(InputError, match="must have no gain schedule or one of the network's gain_period") as caught:
        add_near_obstacle_weights(network, compiled("starling", 7, gain_period=0.03))
    assert "0.02" in str(caught.value) and "0.03" in str(caught.value) and "\n" not in str(caught.value)


def test_scales_of_an_unknown_channel_are_refused() -> None:
    network = compiled("starling")
    with pytest.raises(InputError, match="a channel in channel_scales must be one of 'velocity/mean'"):
        add_near_obstacle_weights(network, channel_scales={("position", "mean"): 0.5})
