"""A vector encodes weights and orbit parameters in their own scales, and never leaves their range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.loading import make_network
from equiflock.controllers.networks.weights import collect_tensors
from equiflock.tuning.search_space import Genome


def test_zero_is_the_network_itself_to_the_bit() -> None:
    network = make_network("tdagnn", seed=3)
    for orbit in (None, ef.Orbit(gravity_break=0.37, near=0.3, slow=0.0)):
        network.orbit = orbit  # type: ignore[assignment]
        candidate = Genome(network, tunes_orbit=True).decode(Genome(network, tunes_orbit=True).initial_vector)
        assert candidate.orbit == (orbit or ef.Orbit())
        for name, tensor in network.state_dict().items():
            assert np.array_equal(candidate.weights[name], tensor)


def test_a_step_is_as_large_as_the_weights_of_its_tensor() -> None:
    network = make_network("tdagnn", seed=3)  # its biases are zero
    genome = Genome(network, tunes_orbit=False)
    moved = genome.decode(np.ones(genome.size)).weights
    begun = collect_tensors(network)
    whole = np.concatenate([tensor.ravel() for tensor in begun.values()])
    for name, tensor in begun.items():
        own = np.sqrt(np.mean(np.square(tensor if tensor.any() else whole)))
        assert np.allclose(np.abs(moved[name] - tensor), own, rtol=1e-3)


def test_orbit_parameters_stay_in_their_range() -> None:
    network = make_network("etdagnn")
    network.orbit = ef.Orbit(gravity_break=1.0, slow=0.0, dodge_angle=1.0)  # type: ignore[assignment]
    genome = Genome(network, tunes_orbit=True)
    assert genome.size == sum(weight.numel() for weight in network.parameters()) + 3
    for far in (-1e6, -0.1, 0.1, 1e6):
        orbit = genome.decode(np.full(genome.size, far)).orbit  # Orbit itself refuses what is out of range
        assert orbit is not None
        assert orbit.dodge_angle == 1.0
        assert 0.0 <= orbit.gravity_break <= 1.0
    up, down = (genome.decode(np.full(genome.size, shift)).orbit for shift in (0.1, -0.1))
    assert up is not None and down is not None
    assert (up.near > 1.0 > down.near, up.slow > down.slow, up.gravity_break > down.gravity_break) == (True,) * 3


def test_weights_that_are_not_trainable_are_unchanged() -> None:
    network = make_network("etdagnn")
    first, *rest = network.parameters()
    first.requires_grad_(False)
    genome = Genome(network, tunes_orbit=False)
    assert genome.size == sum(weight.numel() for weight in rest)
    (frozen,) = (name for name, weight in network.named_parameters() if weight is first)
    assert np.array_equal(genome.decode(np.ones(genome.size)).weights[frozen], first.detach())
    for weight in rest:
        weight.requires_grad_(False)
    with pytest.raises(InputError, match="no trainable weights"):
        Genome(network, tunes_orbit=True)


def test_the_orbit_of_the_weights_is_unchanged_if_it_is_not_searched() -> None:
    network = make_network("etdagnn")
    assert Genome(network, tunes_orbit=False).decode(Genome(network, tunes_orbit=False).initial_vector).orbit is None
    network.orbit = ef.Orbit(near=0.3)  # type: ignore[assignment]
    genome = Genome(network, tunes_orbit=False)
    assert genome.decode(np.ones(genome.size)).orbit == ef.Orbit(near=0.3)


def test_a_gain_makes_all_weights_of_an_input_larger_by_the_same_share() -> None:
    network: Any = make_network("etdagnn", seed=2)
    genome = Genome(network, tunes_orbit=True, search_target="gains")
    # Channels of hops, units of the first layer, and all units of the second; and three orbit parameters.
    assert genome.size == 9 + 16 + 1 + 3
    vector = np.zeros(genome.size)
    vector[4] = 0.25
    moved = genome.decode(vector)
    first, *others = network.state_dict()
    expected = collect_tensors(network)[first].copy()
    expected.reshape(16, -1)[:, 4] *= 1.25
    assert np.allclose(moved.weights[first], expected)
    assert all(np.array_equal(moved.weights[name], network.state_dict()[name]) for name in others)
    assert moved.orbit == ef.Orbit()


def test_gains_of_zero_obstacle_channels_scale_the_weights_of_all_neighbours() -> None:
    network: Any = make_network("starling", seed=2)
    network.layers[1].weight.data[:, 6] = 0.0
    genome = Genome(network, tunes_orbit=False, search_target="gains")
    # The weights of `leaving` are 0, so its gains are not searched.
    assert genome.size == (6 + 1) * 3 + 16 + 1
    vector = genome.initial_vector
    vector[18] = 0.3
    moved, begun = genome.decode(vector).weights["layers.1.weight"], collect_tensors(network)["layers.1.weight"]
    assert not begun[:, 7].any() and np.allclose(moved[:, 7, 0], 0.3 * begun[:, 0, 0])
    assert np.array_equal(moved[:, :7], begun[:, :7]) and not moved[:, 7, 1:].any()


def test_each_bias_has_a_gain() -> None:
    network = make_network("tdagnn", biases="uniform")
    genome = Genome(network, tunes_orbit=False, search_target="gains")
    assert genome.size == (18 + 32) + (32 + 32) + (32 + 2)
    moved = genome.decode(np.full(genome.size, -0.5)).weights
    assert all(np.allclose(moved[name], 0.5 * tensor) for name, tensor in collect_tensors(network).items())


def test_gains_of_some_features_alone_leave_all_other_inputs_as_they_are() -> None:
    network: Any = make_network("starling", seed=2)
    genome = Genome(network, tunes_orbit=False, search_target="gains", gain_features=("velocity", "leaving"))
    # The mean and the sum of `velocity` and the mean of `leaving`, at three hops.
    assert genome.size == 3 * 3
    moved, begun = genome.decode(np.ones(9)).weights, collect_tensors(network)
    first = "layers.1.weight"
    assert np.array_equal(moved[first][:, [0, 3, 6]], 2.0 * begun[first][:, [0, 3, 6]])
    assert np.array_equal(moved[first][:, [1, 2, 4, 5, 7]], begun[first][:, [1, 2, 4, 5, 7]])
    assert all(np.array_equal(moved[name], begun[name]) for name in begun if name != first)
    with pytest.raises(InputError, match="a feature in gain_features must be one of 'velocity'"):
        Genome(network, tunes_orbit=False, search_target="gains", gain_features=("wings",))
    network.layers[1].weight.data[:, 6] = 0.0
    for other, name in ((network, "leaving"), (make_network("tdagnn"), "velocity")):
        with pytest.raises(InputError, match="gains of channels need an equivariant network with weights for them"):
            Genome(other, tunes_orbit=False, search_target="gains", gain_features=(name,))


def test_a_gain_per_channel_is_common_to_all_hops_and_leaves_other_layers_as_they_are() -> None:
    network: Any = make_network("starling", seed=2)
    genome = Genome(network, tunes_orbit=False, search_target="channels")
    assert genome.size == 8
    vector = genome.initial_vector
    vector[2] = -0.25
    moved, begun = genome.decode(vector).weights, collect_tensors(network)
    expected = begun["layers.1.weight"].copy()
    expected[:, 2] *= 0.75
    assert np.array_equal(moved["layers.1.weight"], expected)
    assert all(np.array_equal(moved[name], begun[name]) for name in begun if name != "layers.1.weight")
    some = Genome(network, tunes_orbit=False, search_target="channels", gain_features=("velocity", "leaving"))
    assert some.size == 3
    with pytest.raises(InputError, match="gains of channels need an equivariant network with weights for them"):
        Genome(make_network("tdagnn"), tunes_orbit=False, search_target="channels")
