"""The networks of the package as torch modules, for training (section 3 of the paper, Table 1).

Each takes observations (B, N, K, C, D) and returns accelerations (B, N, D); an agent's acceleration depends on its own
observation only. Layers, as well as the compiled form, are built from an `Architecture`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from equiflock.controllers.networks.architecture import (
    Activation,
    Architecture,
    Convolution,
    Part,
    describe_etdagnn,
    describe_tdagnn,
)
from equiflock.controllers.networks.chain import Chain, build_chain
from equiflock.controllers.networks.compiled import CompiledNetwork
from equiflock.controllers.networks.layers import Conv, EqConv, ScaleLog, ScaleTanh, compose_layers
from equiflock.controllers.networks.weights import collect_tensors, write_weights
from equiflock.controllers.torch_bridge import accept_numpy
from equiflock.features import Senses
from equiflock.runtime.checks import InputError

ACTIVATION_MODULES: dict[Activation, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "scale-tanh": ScaleTanh,
    "scale-log": ScaleLog,
}
"""Torch modules of the activations."""


class _BaseNetwork(nn.Module):
    """Base class of the networks of the package."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        self.name, self.senses, self.dimensions = architecture.name, architecture.senses, architecture.dimensions

    @property
    def options(self) -> dict[str, Any]:
        """Options that recreate the architecture; weights files store them."""
        return dict(self.architecture.options)

    def compiled_form(self) -> CompiledNetwork | None:
        """Return the compiled network with a copy of the present weights; None for a subclass or a modified network."""
        if type(self) not in (TDAGNN, ETDAGNN) or not _is_unmodified(self):
            return None
        return CompiledNetwork(self.architecture, collect_tensors(self), getattr(self, "orbit", None))

    def save(self, path: str | os.PathLike[str], extra: Mapping[str, Any] | None = None) -> Path:
        """Write the weights as safetensors with the metadata to load them, atomically, and return the path.

        An existing file is replaced; `extra` is added to the metadata.
        """
        return write_weights(self, path, extra)


@accept_numpy
class TDAGNN(_BaseNetwork):
    """Convolutions of numbers, with bias and tanh (see `describe_tdagnn`)."""

    def __init__(self, architecture: Architecture | None = None) -> None:
        super().__init__(architecture or describe_tdagnn())
        self.layers = nn.ModuleList(
            Conv(layer.inputs, layer.outputs, layer.hops) for layer in self.architecture.convolutions
        )
        if self.architecture.biases == "uniform":
            for layer in cast(Iterable[Conv], self.layers):
                layer.draw_biases()

    def forward(self, observations: Tensor) -> Tensor:
        """Return accelerations (B, N, D) from observations (B, N, K, C, D)."""
        if observations.shape[-1] != self.dimensions:
            raise InputError(
                f"{self.name} is built for D = {self.dimensions}; got observations of D = {observations.shape[4]}"
            )
        first, second, third = cast(Iterable[Conv], self.layers)
        # The first kernel spans all hops, so the hop axis has size 1 after it.
        x = torch.tanh(first(observations.flatten(0, 1).flatten(-2)).squeeze(-2))
        # Without the second tanh (TF), the last two layers are composed.
        two_tanh = self.architecture.parts.count("tanh") == 2
        x = third(torch.tanh(second(x))) if two_tanh else functional.linear(x, *compose_layers(second, third))
        return x.view(*observations.shape[:2], self.dimensions)

    @property
    def chain(self) -> tuple[nn.Module, ...]:
        """Layers and activations in order, over numbers (.., K, C D); `forward` computes the same, faster."""
        layers = iter(self.layers)
        return tuple(next(layers) if isinstance(part, Convolution) else nn.Tanh() for part in self.architecture.parts)


@accept_numpy
class ETDAGNN(_BaseNetwork):
    """Equivariant convolutions of vectors, for any dimension (see `describe_etdagnn`)."""

    def __init__(self, architecture: Architecture | None = None) -> None:
        super().__init__(architecture or describe_etdagnn())
        self.layers = self._build_layers()
        self.near: nn.Sequential | None = None
        if self.architecture.near:
            # Weights of agents near obstacles start as copies of the others.
            self.near = self._build_layers()
            self.near.load_state_dict(self.layers.state_dict())

    def _build_layers(self) -> nn.Sequential:
        """Return layers with random weights; the first layer's weights of obstacle channels are zero."""
        first, second, third = self.architecture.convolutions
        random = [feature.among != "obstacles" for feature in self.senses.features]
        layer = EqConv(sum(random), first.outputs, first.hops)
        if not all(random):
            weight = torch.zeros(first.outputs, first.inputs, first.hops)
            weight[:, random] = layer.weight.data
            layer.weight = nn.Parameter(weight)
        rest = (EqConv(part.inputs, part.outputs, part.hops) for part in (second, third))
        return nn.Sequential(ScaleLog(), layer, ScaleTanh(), *rest)

    def forward(self, observations: Tensor) -> Tensor:
        """Return accelerations (B, N, D) from observations (B, N, K, C, D).

        Agents whose obstacle channel is not zero in some hop use the weights `near`, if the network has them.
        """
        # One axis for all agents, and components first, as the layers expect.
        x = observations.flatten(0, 1).movedim(-1, 0).contiguous()
        accelerations = self._evaluate(self.layers, x)
        if self.near is not None:
            near_obstacle = (x[..., self.architecture.obstacle_channel] != 0.0).any(0).any(-1)
            accelerations = torch.where(near_obstacle[:, None], self._evaluate(self.near, x), accelerations)
        return accelerations.view(-1, *observations.shape[:2]).movedim(0, -1)

    @staticmethod
    def _evaluate(layers: nn.Sequential, x: Tensor) -> Tensor:
        """Return scale-log, EqConv over all hops, scale-tanh, and the last two layers composed, of x."""
        scale_log, first, scale_tanh, second, third = layers
        x = scale_tanh(first(scale_log(x)).squeeze(-2))
        return functional.linear(x, *compose_layers(cast(EqConv, second), cast(EqConv, third)))

    @property
    def chain(self) -> tuple[nn.Module, ...]:
        """Layers and activations in order, over vectors (D, .., K, C); `forward` computes the same, faster."""
        return tuple(self.layers)


def build_module(architecture: Architecture) -> TDAGNN | ETDAGNN:
    """Return the torch module of an architecture, with random initial weights."""
    return ETDAGNN(architecture) if architecture.acts_on_vectors else TDAGNN(architecture)


def as_module(network: Any) -> Any:
    """Return the torch module of a compiled network, with a copy of its weights, in evaluation mode.

    Return anything else unchanged.
    """
    if not isinstance(network, CompiledNetwork):
        return network
    module = build_module(network.architecture)
    module.load_state_dict({name: torch.from_numpy(tensor.copy()) for name, tensor in network.tensors.items()})
    module.orbit = network.orbit  # type: ignore[assignment]
    return module.eval()


def describe_chain(
    name: str, senses: Senses, dimensions: int | None, modules: Sequence[nn.Module]
) -> tuple[Architecture, dict[str, Tensor]] | None:
    """Return the architecture of a chain of equiflock's layers and activations, and the modules' own tensors by name.

    Return None if it has other modules, or compiled kernels cannot evaluate it (`Architecture.is_chain`).
    """
    parts: list[Part] = []
    tensors: dict[str, Tensor] = {}
    acts_on_vectors = any(type(module) is EqConv for module in modules)
    activations = {kind: activation for activation, kind in ACTIVATION_MODULES.items()}
    for index, module in enumerate(modules):
        if type(module) in activations:
            parts.append(activations[type(module)])
        elif type(module) is (EqConv if acts_on_vectors else Conv):
            outputs, inputs, hops = module.weight.shape
            parts.append(Convolution(f"layers.{index}", inputs, outputs, hops))
            tensors.update({f"layers.{index}.{key}": tensor for key, tensor in module.named_parameters()})
        else:
            return None
    architecture = Architecture(name, senses, tuple(parts), acts_on_vectors, dimensions)
    return (architecture, tensors) if architecture.is_chain else None


def build_module_chain(modules: Sequence[nn.Module], senses: Senses) -> Chain | None:
    """Return the `Chain` of these modules, sharing memory with them; None if compiled kernels cannot evaluate it."""
    description = describe_chain("", senses, None, modules)
    if description is None:
        return None
    architecture, tensors = description
    return build_chain(architecture, {name: tensor.detach().numpy() for name, tensor in tensors.items()})


def find_trainable_chain(network: nn.Module) -> Chain | None:
    """Return the chain of a network that compiled training supports, sharing memory with it; otherwise None.

    The network must have a compiled form, no frozen weights, and no second set of weights near obstacles.
    """
    compiled = getattr(network, "compiled_form", None)
    # Weights of agents near obstacles would be a second chain, which compiled training does not support.
    if compiled is None or not isinstance(compiled(), CompiledNetwork) or getattr(network, "near", None) is not None:
        return None
    if not all(parameter.requires_grad for parameter in network.parameters()):
        return None
    return build_module_chain(network.chain, network.senses)  # type: ignore[arg-type]


def _is_unmodified(network: Any) -> bool:
    """Return whether a network has the layers of its architecture, float32 weights, and no hooks or patched methods."""
    architecture = network.architecture
    layer = EqConv if architecture.acts_on_vectors else Conv
    kinds = [layer if isinstance(part, Convolution) else ACTIVATION_MODULES[part] for part in architecture.parts]
    near = getattr(network, "near", None)
    if any([type(module) for module in chain] != kinds for chain in (network.chain, near or network.chain)):
        return False
    if {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()} != architecture.tensor_shapes:
        return False
    for module in network.modules():
        if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
            return False
    return all(parameter.dtype == torch.float32 for parameter in network.parameters())
