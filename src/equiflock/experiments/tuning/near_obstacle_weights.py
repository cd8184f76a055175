"""A second set of weights for agents near obstacles, initialized and searched by a tuning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from equiflock.controllers.networks.architecture import Architecture, check_obstacle_channel
from equiflock.controllers.networks.compiled import CompiledNetwork
from equiflock.runtime.checks import InputError


def add_near_obstacle_weights(
    network: Any, initial_network: Any = None, last_layer_scale: float = 1.0
) -> CompiledNetwork:
    """Return a copy of the network with a second set of weights for agents that observe an obstacle.

    Its orbit technique is that of `initial_network`, if it has one. Raise InputError if the networks do not qualify.

    Args:
        network: compiled equivariant network with an obstacle channel. An existing second set of weights
            is kept unless `initial_network` is given.
        initial_network: network whose weights (its second set, if it has one) initialize the second set; default: the
            network itself. Its channels must be a subset of the network's; the weights of other channels start at 0.
        last_layer_scale: factor on the last layer of the second set.
    """
    if not _is_etdagnn(network):
        name = getattr(network, "name", type(network).__name__)
        raise InputError(f"{name} cannot have separate weights near obstacles: leave out --near")
    check_obstacle_channel(network.name, network.senses)
    source = network if initial_network is None else initial_network
    senses, source_senses = network.senses, source.senses
    is_subset = set(source_senses.channels) <= set(senses.channels)
    fits = is_subset and replace(source_senses, channels=senses.channels) == senses
    if not (_is_etdagnn(source) and fits):
        raise InputError(
            f"initial weights near obstacles must be those of an ETDAGNN with a subset of {network.name}'s channels "
            f"and the same hops ({senses.hops}); got {source.name} with {source_senses.hops} hops"
        )
    architecture = _enable_near_weights(network)
    channels = [senses.channels.index(channel) for channel in source_senses.channels]
    tensors = {name: tensor for name, tensor in network.tensors.items() if not name.startswith("near.")}
    for layer in architecture.convolutions:
        tensor = source.tensors[f"{layer.near if source.architecture.near else layer.name}.weight"]
        if layer is architecture.convolutions[0]:
            wide = np.zeros((layer.outputs, layer.inputs, layer.hops), np.float32)
            wide[:, channels] = tensor
            tensor = wide
        elif layer is architecture.convolutions[-1]:
            tensor = tensor * np.float32(last_layer_scale)
        tensors[f"{layer.near}.weight"] = tensor
    return CompiledNetwork(architecture, tensors, getattr(initial_network, "orbit", None) or network.orbit)


def _is_etdagnn(network: Any) -> bool:
    return isinstance(network, CompiledNetwork) and network.architecture.acts_on_vectors


def _enable_near_weights(network: CompiledNetwork) -> Architecture:
    """Return the network's architecture with the option `near`, a second set of weights."""
    return replace(network.architecture, near=True, options={**network.options, "near": True})
