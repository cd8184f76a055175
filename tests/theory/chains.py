"""Controllers of the paper's family of any depth, width and kernel sizes, for tests."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from equiflock.controllers.networks.models import Conv, EqConv, ScaleLog, ScaleTanh
from equiflock.features import Aggregation, paper_senses


class Chain(nn.Module):
    """Layers and activations one after the other, in float64, with random biases."""

    def __init__(self, modules: list[nn.Module], hops: int, aggregation: Aggregation = "mean") -> None:
        super().__init__()
        self.layers = nn.Sequential(*modules).double()
        self.senses = paper_senses(aggregation, hops)
        for layer in self.layers:
            if isinstance(layer, Conv):
                nn.init.normal_(layer.bias)

    @property
    def chain(self) -> tuple[nn.Module, ...]:
        return tuple(self.layers)

    @property
    def equivariant(self) -> bool:
        return any(isinstance(layer, EqConv) for layer in self.layers)

    def forward(self, observations: Tensor) -> Tensor:
        """The modules themselves, with nothing multiplied out."""
        if self.equivariant:
            vectors: Tensor = self.layers(observations.movedim(-1, 0))
            return vectors.flatten(3).squeeze(-1).movedim(0, -1)
        numbers: Tensor = self.layers(observations.flatten(-2))
        return numbers.squeeze(-2)


@st.composite
def chains(draw: Any, dimensions: int = 2) -> Chain:
    """Up to four layers of any widths and kernel sizes that leave one place, with activations between them or not."""
    equivariant = draw(st.booleans())
    kernels = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    widths = draw(st.lists(st.integers(1, 5), min_size=len(kernels) - 1, max_size=len(kernels) - 1))
    first, last = (3, 1) if equivariant else (3 * dimensions, dimensions)
    channels = [first, *widths, last]
    bends: list[type[nn.Module]] = [ScaleLog, ScaleTanh] if equivariant else [nn.Tanh, nn.ReLU]
    torch.manual_seed(draw(st.integers(0, 2**31)))
    modules: list[nn.Module] = []
    for place, kernel in enumerate(kernels):
        modules += [bend() for bend in draw(st.lists(st.sampled_from(bends), max_size=1))]
        modules.append((EqConv if equivariant else Conv)(channels[place], channels[place + 1], kernel))
    chain = Chain(modules, hops=1 + sum(kernel - 1 for kernel in kernels))
    scale = draw(st.sampled_from([0.1, 1.0, 4.0]))
    with torch.no_grad():
        for weight in chain.parameters():
            weight.mul_(scale)
    return chain
