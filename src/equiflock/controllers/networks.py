"""The learned controllers of the paper: TDAGNN, TDAGNN-TF, TDAGNN-TF-mean and ETDAGNN (Table 1).

Each is an ordinary torch module over messages (B, N, K, 3, D) that returns accelerations (B, N, D): every agent's from
its own block alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from equiflock.controllers.layers import Conv, EqConv, ScaleLog, ScaleTanh
from equiflock.controllers.weights import read_weights, write_weights
from equiflock.types import InputError, OneHop, check_choice, check_count, wrong_choice


class TDAGNN(nn.Module):
    """Convolutions 3D -> 32 (over all K hops) -> 32 -> D with bias, and tanh after some of them.

    Args:
        name: which of the paper's variants this is; goes with the weights.
        one_hop: the aggregation of its messages.
        tanh_after: the layers, counted from 1, that tanh follows.
        hops: K.
        dimensions: D, for which the network is built.
    """

    def __init__(
        self,
        name: str = "tdagnn",
        *,
        one_hop: OneHop = "sum",
        tanh_after: tuple[int, ...] = (1, 2),
        hops: int = 3,
        dimensions: int = 2,
    ) -> None:
        super().__init__()
        self.name = name
        self.one_hop = check_choice("one_hop", one_hop, ("sum", "mean"))
        self.hops = check_count("hops", hops)
        self.dimensions = check_count("dimensions", dimensions, least=2)
        self.tanh_after = tanh_after
        channels = 3 * dimensions
        self.layers = nn.ModuleList([Conv(channels, 32, hops), Conv(32, 32, 1), Conv(32, dimensions, 1)])

    def forward(self, messages: Tensor) -> Tensor:
        """Accelerations (B, N, D) from messages (B, N, K, 3, D)."""
        if messages.shape[-1] != self.dimensions:
            raise InputError(f"{self.name} is built for D = {self.dimensions}; got messages of D = {messages.shape[4]}")
        x = messages.flatten(-2)
        for number, layer in enumerate(self.layers, start=1):
            x = layer(x)
            if number in self.tanh_after:
                x = torch.tanh(x)
        return x.squeeze(-2)

    def save(self, path: str | os.PathLike[str], extra: Mapping[str, str] | None = None) -> Path:
        """Write the weights as safetensors, with what is needed to load them; `extra` goes into their metadata."""
        return write_weights(self, path, {"hops": self.hops, "dimensions": self.dimensions}, extra)


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
        vectors = messages.movedim(-1, 0).contiguous()
        accelerations: Tensor = self.layers(vectors)[..., 0, 0]
        return accelerations.movedim(0, -1)

    def save(self, path: str | os.PathLike[str], extra: Mapping[str, str] | None = None) -> Path:
        """Write the weights as safetensors, with what is needed to load them; `extra` goes into their metadata."""
        return write_weights(self, path, {"hops": self.hops}, extra)


Network = TDAGNN | ETDAGNN

NETWORKS: dict[str, Callable[..., Network]] = {
    "tdagnn": lambda **options: TDAGNN("tdagnn", **options),
    "tdagnn-tf": lambda **options: TDAGNN("tdagnn-tf", tanh_after=(1,), **options),
    "tdagnn-tf-mean": lambda **options: TDAGNN("tdagnn-tf-mean", one_hop="mean", tanh_after=(1,), **options),
    "etdagnn": lambda **options: ETDAGNN("etdagnn", **options),
}
"""How each is built; options are `hops` and, but for ETDAGNN, `dimensions`."""


def new_network(name: str, seed: int = 0, **options: Any) -> Network:
    """A network of the paper with fresh weights: Xavier uniform with gain 1, biases zero."""
    if name not in NETWORKS:
        wrong_choice("network", name, tuple(NETWORKS))
    check_count("seed", seed, least=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NETWORKS[name](**options)


def load_network(path: str | os.PathLike[str]) -> Network:
    """A network from the weights that its `save` wrote."""
    weights, name, options = read_weights(path)
    if name not in NETWORKS:
        raise InputError(f"{path} holds weights of {name!r}; expected one of {', '.join(NETWORKS)}")
    network = new_network(name, **options)
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"the weights in {path} do not fit {name} with {options}: {reason}") from None
    return network.eval()
