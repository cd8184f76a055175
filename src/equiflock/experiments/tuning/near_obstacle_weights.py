"""A second set of weights for agents that know of an obstacle, which a tuning begins and searches."""

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
    """Return the network with weights of their own for agents that know of an obstacle.

    Args:
        network: a compiled network of vectors with a channel among obstacles. Weights that it has for such agents stay.
        initial_network: begin as the weights of this network instead, those near obstacles if it has any. Its channels must be
            among the network's; channels that it does not have begin at 0.
        last_layer_scale: factor on the weights of the last layer.
    """
    if not _is_etdagnn(network):
        name = getattr(network, "name", type(network).__name__)
        raise InputError(f"{name} has no weights of their own for agents near obstacles: leave out near")
    check_obstacle_channel(network.name, network.senses)
    source = network if initial_network is None else initial_network
    ours, theirs = network.senses, source.senses
    fits = set(theirs.channels) <= set(ours.channels) and replace(theirs, channels=ours.channels) == ours
    if not (_is_etdagnn(source) and fits):
        raise InputError(
            f"weights near obstacles can begin as those of an ETDAGNN with some of {network.name}'s channels and the "
            f"same hops; got {source.name} of {theirs.hops} hops"
        )
    architecture = _describe_architecture(network)
    channels = [ours.channels.index(channel) for channel in theirs.channels]
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


def _describe_architecture(network: CompiledNetwork) -> Architecture:
    """Describe the network with a second set of weights."""
    return replace(network.architecture, near=True, options={**network.options, "near": True})
