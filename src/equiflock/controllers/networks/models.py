"""The networks of the package as torch modules, for training (section 3 of the paper, Table 1).

Each takes observations (B, N, K, C, D) and returns accelerations (B, N, D), every agent's from its own block alone. Its
layers are built from an `Architecture`, and so is its compiled form.
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
"""The torch modules of activations."""


class _BaseNetwork(nn.Module):
    """The common part of the networks of the package."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        self.name, self.senses, self.dimensions = architecture.name, architecture.senses, architecture.dimensions

    @property
    def options(self) -> dict[str, Any]:
        """Arguments that describe the network again; files of weights carry them."""
        return dict(self.architecture.options)

    def compiled_form(self) -> CompiledNetwork | None:
        """Return the network with its present weights as a compiled function; None if it is not just this class."""
        if type(self) not in (TDAGNN, ETDAGNN) or not _is_unmodified(self):
            return None
        return CompiledNetwork(self.architecture, collect_tensors(self), getattr(self, "orbit", None))

    def save(self, path: str | os.PathLike[str], extra: Mapping[str, Any] | None = None) -> Path:
        """Write the weights as safetensors, with what is needed to load them; `extra` goes into their metadata."""
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
        """Accelerations (B, N, D) from observations (B, N, K, C, D)."""
        if observations.shape[-1] != self.dimensions:
            raise InputError(
                f"{self.name} is built for D = {self.dimensions}; got observations of D = {observations.shape[4]}"
            )
        first, second, third = cast(Iterable[Conv], self.layers)
        # The first kernel spans all hops, so one remains; plain matrix products have less overhead than convolutions.
        x = torch.tanh(first(observations.flatten(0, 1).flatten(-2)).squeeze(-2))
        # Without the second tanh (TF), the last two layers are one.
        two_tanh = self.architecture.parts.count("tanh") == 2
        x = third(torch.tanh(second(x))) if two_tanh else functional.linear(x, *compose_layers(second, third))
        return x.view(*observations.shape[:2], self.dimensions)

    @property
    def chain(self) -> tuple[nn.Module, ...]:
        """Layers and activations in their order, over numbers (.., K, C D); `forward` is the same function, faster."""
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
            # Agents near obstacles begin with the weights of all others.
            self.near = self._build_layers()
            self.near.load_state_dict(self.layers.state_dict())

    def _build_layers(self) -> nn.Sequential:
        """Build the layers with random weights; those of obstacle channels begin at zero."""
        first, second, third = self.architecture.convolutions
        drawn = [feature.among != "obstacles" for feature in self.senses.features]
        layer = EqConv(sum(drawn), first.outputs, first.hops)
        if not all(drawn):
            wide = torch.zeros(first.outputs, first.inputs, first.hops)
            wide[:, drawn] = layer.weight.data
            layer.weight = nn.Parameter(wide)
        rest = (EqConv(each.inputs, each.outputs, each.hops) for each in (second, third))
        return nn.Sequential(ScaleLog(), layer, ScaleTanh(), *rest)

    def forward(self, observations: Tensor) -> Tensor:
        """Accelerations (B, N, D) from observations (B, N, K, C, D)."""
        # One axis for all agents, and components first, as the layers take vectors.
        x = observations.flatten(0, 1).movedim(-1, 0).contiguous()
        accelerations = self._evaluate(self.layers, x)
        if self.near is not None:
            knows = (x[..., self.architecture.obstacle_channel] != 0.0).any(0).any(-1)
            accelerations = torch.where(knows[:, None], self._evaluate(self.near, x), accelerations)
        return accelerations.view(-1, *observations.shape[:2]).movedim(0, -1)

    @staticmethod
    def _evaluate(layers: nn.Sequential, x: Tensor) -> Tensor:
        """Scale-log, EqConv over all hops, scale-tanh; the last two layers, with nothing between them, are one."""
        scale_log, first, scale_tanh, second, third = layers
        x = scale_tanh(first(scale_log(x)).squeeze(-2))
        return functional.linear(x, *compose_layers(cast(EqConv, second), cast(EqConv, third)))

    @property
    def chain(self) -> tuple[nn.Module, ...]:
        """Layers and activations in their order, over vectors (D, .., K, C); `forward` is the same function, faster."""
        return tuple(self.layers)


def build_module(architecture: Architecture) -> TDAGNN | ETDAGNN:
    """Build the torch module of an architecture of the package, with fresh weights."""
    return ETDAGNN(architecture) if architecture.acts_on_vectors else TDAGNN(architecture)


def as_module(network: Any) -> Any:
    """Return the torch module of a compiled network, with a copy of its weights; anything else as it is."""
    if not isinstance(network, CompiledNetwork):
        return network
    module = build_module(network.architecture)
    module.load_state_dict({name: torch.from_numpy(tensor.copy()) for name, tensor in network.tensors.items()})
    module.orbit = network.orbit  # type: ignore[assignment]
    return module.eval()


def describe_chain(
    name: str, senses: Senses, dimensions: int | None, modules: Sequence[nn.Module]
) -> tuple[Architecture, dict[str, Tensor]] | None:
    """Describe a chain of our layers and activations, such as a user's module may have.

    Returns its architecture and tensors, or None if it has other parts or is no chain that kernels can evaluate.
    """
    parts: list[Part] = []
    tensors: dict[str, Tensor] = {}
    acts_on_vectors = any(type(module) is EqConv for module in modules)
    activations = {kind: activation for activation, kind in ACTIVATION_MODULES.items()}
    for place, module in enumerate(modules):
        if type(module) in activations:
            parts.append(activations[type(module)])
        elif type(module) is (EqConv if acts_on_vectors else Conv):
            outputs, inputs, hops = module.weight.shape
            parts.append(Convolution(f"layers.{place}", inputs, outputs, hops))
            tensors.update({f"layers.{place}.{key}": tensor for key, tensor in module.named_parameters()})
        else:
            return None
    architecture = Architecture(name, senses, tuple(parts), acts_on_vectors, dimensions)
    return (architecture, tensors) if architecture.is_chain else None


def build_module_chain(modules: Sequence[nn.Module], senses: Senses) -> Chain | None:
    """Return a chain of our layers as numbers that share memory with them; None if it is no chain for kernels."""
    described = describe_chain("", senses, None, modules)
    if described is None:
        return None
    architecture, tensors = described
    return build_chain(architecture, {name: tensor.detach().numpy() for name, tensor in tensors.items()})


def find_trainable_chain(network: nn.Module) -> Chain | None:
    """Return the chain of a network that has a compiled form and whose weights may all change; None for any other."""
    compiled = getattr(network, "compiled_form", None)
    # Weights that only some agents use are another chain, beside the first.
    if compiled is None or not isinstance(compiled(), CompiledNetwork) or getattr(network, "near", None) is not None:
        return None
    if not all(parameter.requires_grad for parameter in network.parameters()):
        return None
    return build_module_chain(network.chain, network.senses)  # type: ignore[arg-type]


def _is_unmodified(network: Any) -> bool:
    """Whether a network has the layers of its architecture, float32 weights, and no hooks or replaced methods."""
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
