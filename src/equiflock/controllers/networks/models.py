"""The networks of the package as torch modules, for training (section 3 of the paper, Table 1).

Each takes observations (B, N, K, C, D) and returns accelerations (B, N, D); an agent's acceleration depends on its own
observation only. Layers of numbers take the shape (.., F, C): F hops, C channels. Layers of vectors take their
components first, (D, .., F, C), so that every operation runs over contiguous channels. No layer depends on D.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from equiflock._runtime.checks import InputError
from equiflock.controllers.gain_schedule import GainSchedule
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
from equiflock.controllers.networks.weights import collect_tensors, write_weights
from equiflock.controllers.torch_bridge import accept_numpy
from equiflock.features import Senses


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the convolution of x (.., F, C) with `weight` (C', C, k) along the hops: (.., F - k + 1, C').

    The matrix product over all windows of k hops is much faster than torch's conv1d for networks of this size.
    """
    # A kernel of size 1 acts on each hop separately.
    if weight.shape[2] == 1:
        return functional.linear(x, weight.squeeze(2), bias)
    # Windows of k hops as rows (.., F - k + 1, k C), and the weights in the same order, (C', k C).
    windows = x.unfold(-2, weight.shape[2], 1).transpose(-1, -2).flatten(-2)
    return functional.linear(windows, weight.transpose(1, 2).flatten(1), bias)


def compose_layers(first: Conv | EqConv, second: Conv | EqConv) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias of the layer that equals two consecutive layers of kernel size 1.

    W = W_2 W_1, of shape (C'', C), and b = W_2 b_1 + b_2, or None for layers of vectors. This avoids the largest matrix
    product of the network.
    """
    # Equivariant layers have no bias.
    outer = second.weight.squeeze(2)
    bias = torch.addmv(second.bias, outer, first.bias) if isinstance(first, Conv) and isinstance(second, Conv) else None
    return outer @ first.weight.squeeze(2), bias


class Conv(nn.Module):
    """A convolution of numbers along the hops, with bias: (.., F, C) to (.., F - k + 1, C')."""

    def __init__(self, channels_in: int, channels_out: int, kernel_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels_out, channels_in, kernel_size))
        self.bias = nn.Parameter(torch.zeros(channels_out))
        nn.init.xavier_uniform_(self.weight)

    def draw_biases(self) -> None:
        """Draw biases as torch's convolutions do, uniform in [-1, 1] / sqrt(C k)."""
        _, channels_in, kernel_size = self.weight.shape
        bound = 1.0 / math.sqrt(channels_in * kernel_size)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Map (.., F, C) to (.., F - k + 1, C')."""
        return convolve(x, self.weight, self.bias)


class EqConv(nn.Module):
    """A convolution of vectors: EqConv(x)[o] = sum over channels c and hops f of W[o, c, f] x_{c, f}.

    The layer sums vectors times numbers, treats all components alike and has no bias, so it commutes with every
    orthogonal matrix, in any dimension.
    """

    def __init__(self, channels_in: int, channels_out: int, kernel_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels_out, channels_in, kernel_size))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map (D, .., F, C) to (D, .., F - k + 1, C')."""
        return convolve(x, self.weight)


class ScaleLog(nn.Module):
    """Scale-log, which shortens long vectors: x ln(1 + |x|) / |x|, and 0 at 0, where the derivative is the identity."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (D, ..) to (D, ..)."""
        norm = _compute_norm(x)
        return x * (torch.log1p(norm) / norm)


class ScaleTanh(nn.Module):
    """Scale-tanh, which shortens short vectors: x tanh |x|, with derivative zero at 0."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (D, ..) to (D, ..)."""
        return x * torch.tanh(_compute_norm(x))


def _compute_norm(x: Tensor) -> Tensor:
    """Return |x| along the first axis, and 1e-15 instead of 0, where the root has no gradient."""
    return torch.sqrt((x * x).sum(0) + 1e-30)


ACTIVATION_MODULES: dict[Activation, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "scale-tanh": ScaleTanh,
    "scale-log": ScaleLog,
}


class _BaseNetwork(nn.Module):
    """Base class of the networks of the package."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        self.name, self.senses, self.dimensions = architecture.name, architecture.senses, architecture.dimensions

    @property
    def gain_schedule(self) -> GainSchedule | None:
        """Factor on the accelerations that flights apply, and `forward` does not; None for a constant gain."""
        return self.architecture.gain_schedule

    @property
    def options(self) -> dict[str, Any]:
        """Options that recreate the architecture; weights files store them."""
        return dict(self.architecture.options)

    def compiled_form(self) -> CompiledNetwork | None:
        """Return the compiled network with a copy of the present weights; None for a subclass or a modified network."""
        if type(self) not in (TDAGNN, ETDAGNN) or not _is_unmodified(self):
            return None
        orbit, longest = getattr(self, "orbit", None), getattr(self, "longest_time_step", None)
        return CompiledNetwork(self.architecture, collect_tensors(self), orbit, longest)

    def save(self, path: str | os.PathLike[str], extra: Mapping[str, Any] | None = None) -> Path:
        """Write the weights as safetensors, atomically, with the metadata to load them and `extra`; return the path."""
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
        """Return accelerations (B, N, D) from observations (B, N, K, C, D)."""
        # One axis for all agents, and components first, as the layers expect.
        x = observations.flatten(0, 1).movedim(-1, 0).contiguous()
        accelerations = self._evaluate(self.layers, x)
        # Agents whose obstacle channel is not zero in some hop use the weights `near`.
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
    """Return a compiled network as a torch module in evaluation mode; return anything else unchanged."""
    if not isinstance(network, CompiledNetwork):
        return network
    module = build_module(network.architecture)
    module.load_state_dict({name: torch.from_numpy(tensor.copy()) for name, tensor in network.tensors.items()})
    module.orbit, module.longest_time_step = network.orbit, network.longest_time_step  # type: ignore[assignment]
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
