"""The learned controllers of the paper: TDAGNN, TDAGNN-TF, TDAGNN-TF-mean and ETDAGNN (Table 1).

Each is an ordinary torch module over messages (B, N, K, 3, D) that returns accelerations (B, N, D): every agent's from
its own block alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from equiflock.checks import InputError, check_choice, check_count, wrong_choice
from equiflock.controllers.bridge import takes_numpy
from equiflock.controllers.layers import Conv, EqConv, ScaleLog, ScaleTanh, composed
from equiflock.controllers.registry import registered_modules
from equiflock.controllers.weights import read_weights, write_weights
from equiflock.types import OneHop


@takes_numpy
class TDAGNN(nn.Module):
    """Convolutions 3D -> 32 (over all K hops) -> 32 -> D with bias; tanh after the first or the first two.

    Args:
        name: which of the paper's variants this is; goes with the weights.
        one_hop: the aggregation of its messages.
        second_tanh: whether tanh follows the second layer too.
        hops: K.
        dimensions: D, for which the network is built.
    """

    def __init__(
        self,
        name: str = "tdagnn",
        *,
        one_hop: OneHop = "sum",
        second_tanh: bool = True,
        hops: int = 3,
        dimensions: int = 2,
    ) -> None:
        super().__init__()
        self.name = name
        self.one_hop = check_choice("one_hop", one_hop, ("sum", "mean"))
        self.hops = check_count("hops", hops)
        self.dimensions = check_count("dimensions", dimensions, least=2)
        self.second_tanh = second_tanh
        self.layers = nn.ModuleList([Conv(3 * dimensions, 32, hops), Conv(32, 32, 1), Conv(32, dimensions, 1)])

    def forward(self, messages: Tensor) -> Tensor:
        """Accelerations (B, N, D) from messages (B, N, K, 3, D)."""
        if messages.shape[-1] != self.dimensions:
            raise InputError(f"{self.name} is built for D = {self.dimensions}; got messages of D = {messages.shape[4]}")
        first, second, third = cast(Iterable[Conv], self.layers)
        # All hops are in one window, so one place is left; plain matrices spare torch much of its book-keeping.
        x = torch.tanh(first(messages.flatten(0, 1).flatten(-2)).squeeze(-2))
        x = third(torch.tanh(second(x))) if self.second_tanh else functional.linear(x, *composed(second, third))
        return x.view(*messages.shape[:2], self.dimensions)

    @property
    def chain(self) -> tuple[nn.Module, ...]:
        """Layers and activations in their order, over numbers (.., K, 3D); `forward` is the same function, faster."""
        first, second, third = self.layers
        return first, nn.Tanh(), second, *([nn.Tanh()] if self.second_tanh else []), third

    @property
    def options(self) -> dict[str, int]:
        """What builds such a network."""
        return {"hops": self.hops, "dimensions": self.dimensions}

    def save(self, path: str | os.PathLike[str], extra: Mapping[str, Any] | None = None) -> Path:
        """Write the weights as safetensors, with what is needed to load them; `extra` goes into their metadata."""
        return write_weights(self, path, extra)


@takes_numpy
class ETDAGNN(nn.Module):
    """Equivariant convolutions of vectors 3 -> 16 (over all K hops) -> 16 -> 1, for any dimension.

    scale-log comes before the first, scale-tanh after it. It commutes with every rotation and reflection.

    Args:
        name: goes with the weights.
        hops: K.
    """

    one_hop: OneHop = "mean"

    def __init__(self, name: str = "etdagnn", *, hops: int = 3) -> None:
        super().__init__()
        self.name = name
        self.hops = check_count("hops", hops)
        self.layers = nn.Sequential(ScaleLog(), EqConv(3, 16, hops), ScaleTanh(), EqConv(16, 16, 1), EqConv(16, 1, 1))

    def forward(self, messages: Tensor) -> Tensor:
        """Accelerations (B, N, D) from messages (B, N, K, 3, D)."""
        shorten, first, bend, second, third = self.layers
        x = messages.flatten(0, 1).movedim(-1, 0).contiguous()
        x = bend(first(shorten(x)).squeeze(-2))
        x = functional.linear(x, *composed(cast(EqConv, second), cast(EqConv, third)))
        return x.view(-1, *messages.shape[:2]).movedim(0, -1)

    @property
    def chain(self) -> tuple[nn.Module, ...]:
        """Layers and activations in their order, over vectors (D, .., K, 3); `forward` is the same function, faster."""
        return tuple(self.layers)

    @property
    def options(self) -> dict[str, int]:
        """What builds such a network."""
        return {"hops": self.hops}

    def save(self, path: str | os.PathLike[str], extra: Mapping[str, Any] | None = None) -> Path:
        """Write the weights as safetensors, with what is needed to load them; `extra` goes into their metadata."""
        return write_weights(self, path, extra)


Network = TDAGNN | ETDAGNN

NETWORKS: dict[str, Callable[..., Network]] = {
    "tdagnn": lambda **options: TDAGNN("tdagnn", **options),
    "tdagnn-tf": lambda **options: TDAGNN("tdagnn-tf", second_tanh=False, **options),
    "tdagnn-tf-mean": lambda **options: TDAGNN("tdagnn-tf-mean", one_hop="mean", second_tanh=False, **options),
    "etdagnn": lambda **options: ETDAGNN("etdagnn", **options),
}
"""How each is built; options are `hops` and, but for ETDAGNN, `dimensions`."""


def new_network(name: str, seed: int = 0, **options: Any) -> nn.Module:
    """A network with fresh weights.

    Args:
        name: one of the paper's (Xavier uniform with gain 1, biases zero), or a torch module of one's own that was
            registered.
        seed: of the weights.
        options: of the paper's, `hops` and, but for ETDAGNN, `dimensions`.
    """
    if check_count("seed", seed, least=0) >= 2**63:
        raise InputError("seed must be below 2^63, as torch takes no larger one")
    own = registered_modules()
    if name not in NETWORKS and name not in own:
        wrong_choice("network", name, (*NETWORKS, *own))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            network: nn.Module = (NETWORKS | own)[name](**options)
        except TypeError as error:
            raise InputError(f"network {name!r} cannot be made with the options {options}: {error}") from None
    return network


def load_network(path: str | os.PathLike[str]) -> nn.Module:
    """A network from the weights that `save` or a training wrote."""
    weights, name, options = read_weights(path)
    own = registered_modules()
    if name not in NETWORKS and name not in own:
        raise InputError(
            f"{path} holds weights of {name!r}; expected one of {', '.join((*NETWORKS, *own))}, or one of your own "
            "that was registered first (on the command line by --plugin)"
        )
    try:
        network = new_network(name, **options)
        network.load_state_dict(weights)
    except (InputError, RuntimeError, TypeError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"the weights in {path} do not fit {name} with {options}: {reason}") from None
    return network.eval()
