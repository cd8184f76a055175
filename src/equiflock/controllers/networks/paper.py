"""The learned controllers of the paper: TDAGNN, TDAGNN-TF, TDAGNN-TF-mean and ETDAGNN (Table 1).

Each is an ordinary torch module over observations (B, N, K, C, D) that returns accelerations (B, N, D): every agent's
from its own block alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from equiflock.controllers.bridge import takes_numpy
from equiflock.controllers.networks import Biases
from equiflock.controllers.networks.compiled import CompiledNetwork, channel_of_obstacles, compile_chain, is_as_built
from equiflock.controllers.networks.layers import Conv, EqConv, ScaleLog, ScaleTanh, composed
from equiflock.controllers.networks.weights import write_weights
from equiflock.controllers.registry import add_network
from equiflock.features import Aggregation, Channel, HopMean, Senses, feature_with, paper_channels
from equiflock.runtime.checks import InputError, check_choice, check_count

Aggregations: TypeAlias = Aggregation | Literal["both"]
"""How the paper's features are aggregated; "both" is the mean of each and then the sum of each, twice the channels."""


@takes_numpy
class TDAGNN(nn.Module):
    """Convolutions C D -> 32 (over all K hops) -> 32 -> D with bias; tanh after the first or the first two.

    Args:
        name: which of the paper's variants this is; it is written into files of weights.
        aggregation: "sum" or "mean" of the paper's three features, or "both", which makes six channels.
        second_tanh: whether tanh follows the second layer too.
        hops: K.
        dimensions: D, for which the network is built.
        channels: in place of the paper's three, as for `Senses`.
        groups: whether its channels tell the own group from others (see `group_channels`).
        biases: how biases begin, which the paper leaves open: "zero", or "uniform" as in torch's own convolutions, in
            [-1, 1] / sqrt(fan_in). All weights are drawn before any bias, so they are the same in both cases.
        hop_mean: as for `Senses`.
    """

    def __init__(
        self,
        name: str = "tdagnn",
        *,
        aggregation: Aggregations = "sum",
        second_tanh: bool = True,
        hops: int = 3,
        dimensions: int = 2,
        channels: Sequence[Sequence[str]] | None = None,
        groups: bool = False,
        biases: Biases = "zero",
        hop_mean: HopMean = "receiver",
    ) -> None:
        super().__init__()
        self.name = name
        self.senses = _senses(aggregation, hops, channels, groups, hop_mean)
        self.dimensions = check_count("dimensions", dimensions, least=2)
        self.second_tanh = second_tanh
        self.layers = nn.ModuleList(
            [Conv(self.senses.width * dimensions, 32, hops), Conv(32, 32, 1), Conv(32, dimensions, 1)]
        )
        # Weights in a file replace all of these, so this choice is not among the options that are written.
        if check_choice("biases", biases, get_args(Biases)) == "uniform":
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
        x = third(torch.tanh(second(x))) if self.second_tanh else functional.linear(x, *composed(second, third))
        return x.view(*observations.shape[:2], self.dimensions)

    @property
    def chain(self) -> tuple[nn.Module, ...]:
        """Layers and activations in their order, over numbers (.., K, C D); `forward` is the same function, faster."""
        first, second, third = self.layers
        return first, nn.Tanh(), second, *([nn.Tanh()] if self.second_tanh else []), third

    def compiled_form(self) -> CompiledNetwork | None:
        """This network with the weights that it has now, for flights; None if it is not just this class."""
        if type(self) is not TDAGNN or not is_as_built(self, (Conv, Conv, Conv)):
            return None
        return compile_chain(self.name, self.senses, self.dimensions, self.chain)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that build such a network again; they are written into files of weights."""
        return {**_told(self.senses, USUAL.get(self.name, "sum")), "dimensions": self.dimensions}

    def save(self, path: str | os.PathLike[str], extra: Mapping[str, Any] | None = None) -> Path:
        """Write the weights as safetensors, with what is needed to load them; `extra` goes into their metadata."""
        return write_weights(self, path, extra)


FIRST = "1.weight"
"""The weights of the first layer of a chain of ETDAGNN."""


@takes_numpy
class ETDAGNN(nn.Module):
    """Equivariant convolutions of vectors C -> 16 (over all K hops) -> 16 -> 1, for any dimension.

    scale-log comes before the first, scale-tanh after it. It commutes with every rotation and reflection.

    Args:
        name: written into files of weights.
        aggregation: "mean" or "sum" of the paper's three features, or "both", which makes six channels.
        hops: K.
        channels: in place of the paper's three; as for `Senses`.
        groups: whether its channels tell the own group from others (see `group_channels`).
        hop_mean: as for `Senses`.
        near: whether agents that know of an obstacle, by themselves or from others within K hops, decide by weights
            of their own, `near`, in place of `layers`; a channel among obstacles, which tells them, must be there.
    """

    def __init__(
        self,
        name: str = "etdagnn",
        *,
        aggregation: Aggregations = "mean",
        hops: int = 3,
        channels: Sequence[Sequence[str]] | None = None,
        groups: bool = False,
        hop_mean: HopMean = "receiver",
        near: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        self.senses = _senses(aggregation, hops, channels, groups, hop_mean)
        self.layers = self._chain()
        self.near: nn.Sequential | None = None
        if near:
            self.begin_near()

    def _chain(self) -> nn.Sequential:
        """Layers with weights of their own. Those of channels of obstacles begin at zero, beside the others' draw."""
        heard = [feature.among != "obstacles" for feature in self.senses.features]
        first = EqConv(sum(heard), 16, self.senses.hops)
        if not all(heard):
            wide = torch.zeros(16, len(heard), self.senses.hops)
            wide[:, heard] = first.weight.data
            first.weight = nn.Parameter(wide)
        return nn.Sequential(ScaleLog(), first, ScaleTanh(), EqConv(16, 16, 1), EqConv(16, 1, 1))

    def begin_near(self, like: ETDAGNN | None = None) -> None:
        """Give agents that know of an obstacle weights of their own, which begin as those of the others.

        Args:
            like: begin as those of this network instead, as it decides near obstacles, if that is something else. Its
                channels must be among ours; those that it does not have begin at 0.
        """
        if channel_of_obstacles(self.senses) is None:
            raise InputError(
                f"{self.name} hears nothing of obstacles by themselves, so nobody can have weights of their own near "
                "them: it needs a channel such as inverse-square:among=obstacles"
            )
        if like is None and self.near is not None:
            return
        like = like or self
        ours, theirs = self.senses, like.senses
        less = set(theirs.channels) <= set(ours.channels) and replace(theirs, channels=ours.channels) == ours
        if not (isinstance(like, ETDAGNN) and less):
            raise InputError(
                f"weights near obstacles can begin as those of an ETDAGNN with some of {self.name}'s channels, and the "
                f"same hops; got {like.name} of {theirs.hops} hops"
            )
        state = dict((like.near or like.layers).state_dict())
        heard = [ours.channels.index(channel) for channel in theirs.channels]
        wide = torch.zeros(16, ours.width, ours.hops)
        wide[:, heard] = state[FIRST]
        self.near = self._chain()
        self.near.load_state_dict({**state, FIRST: wide})

    def forward(self, observations: Tensor) -> Tensor:
        """Accelerations (B, N, D) from observations (B, N, K, C, D)."""
        # One axis for all agents, and components first, as the layers take vectors.
        x = observations.flatten(0, 1).movedim(-1, 0).contiguous()
        made = self._through(self.layers, x)
        if self.near is not None:
            wary = (x[..., channel_of_obstacles(self.senses)] != 0.0).any(0).any(-1)
            made = torch.where(wary[:, None], self._through(self.near, x), made)
        return made.view(-1, *observations.shape[:2]).movedim(0, -1)

    @staticmethod
    def _through(layers: nn.Sequential, x: Tensor) -> Tensor:
        """Scale-log, EqConv over all hops, scale-tanh; the last two layers, with nothing between them, are one."""
        shorten, first, bend, second, third = layers
        x = bend(first(shorten(x)).squeeze(-2))
        return functional.linear(x, *composed(cast(EqConv, second), cast(EqConv, third)))

    @property
    def chain(self) -> tuple[nn.Module, ...]:
        """Layers and activations in their order, over vectors (D, .., K, C); `forward` is the same function, faster."""
        return tuple(self.layers)

    def compiled_form(self) -> CompiledNetwork | None:
        """This network with the weights that it has now, for flights; None if it is not just this class."""
        if type(self) is not ETDAGNN or not is_as_built(self, (ScaleLog, EqConv, ScaleTanh, EqConv, EqConv)):
            return None
        return compile_chain(self.name, self.senses, None, self.chain, None if self.near is None else tuple(self.near))

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that build such a network again; they are written into files of weights."""
        return {**_told(self.senses, "mean"), **({} if self.near is None else {"near": True})}

    def save(self, path: str | os.PathLike[str], extra: Mapping[str, Any] | None = None) -> Path:
        """Write the weights as safetensors, with what is needed to load them; `extra` goes into their metadata."""
        return write_weights(self, path, extra)


def group_channels(aggregation: Aggregation) -> tuple[Channel, ...]:
    """Velocity, position and inverse square, each of the own group and of others: what segregation is learned from.

    After Omotuyi and Kumar (2022); the choice of the three is ours: what aligns, what pulls, and what pushes.
    """
    features = "velocity", "position", "inverse-square"
    return tuple((feature_with(name, among=whom), aggregation) for name in features for whom in ("same", "others"))


def _senses(
    aggregation: Aggregations,
    hops: int,
    channels: Sequence[Sequence[str]] | None,
    groups: bool,
    hop_mean: HopMean,
) -> Senses:
    """The paper's senses with this aggregation, or those of groups, or of one's own channels."""
    if groups and channels is not None:
        raise InputError("groups=true has channels of its own: leave one of the two out")
    check_choice("aggregation", aggregation, (*get_args(Aggregation), "both"))
    if channels is None:
        made = group_channels if groups else paper_channels
        each: tuple[Aggregation, ...] = ("mean", "sum") if aggregation == "both" else (aggregation,)
        channels = [channel for one in each for channel in made(one)]
    return Senses(cast(tuple[Channel, ...], tuple(channels)), hops, hop_mean=hop_mean)


def _told(senses: Senses, usual: Aggregation) -> dict[str, Any]:
    """Hops, and channels and the mean of hops where they are not the usual ones, such as JSON can hold."""
    own: dict[str, Any] = {}
    if senses.channels != paper_channels(usual):
        own["channels"] = [list(channel) for channel in senses.channels]
    if senses.hop_mean != "receiver":
        own["hop_mean"] = senses.hop_mean
    return {"hops": senses.hops, **own}


Network = TDAGNN | ETDAGNN

NETWORKS: dict[str, Callable[..., Network]] = {
    "tdagnn": partial(TDAGNN, "tdagnn"),
    "tdagnn-tf": partial(TDAGNN, "tdagnn-tf", second_tanh=False),
    "tdagnn-tf-mean": partial(TDAGNN, "tdagnn-tf-mean", aggregation="mean", second_tanh=False),
    "etdagnn": partial(ETDAGNN, "etdagnn"),
}
"""The paper's variants; options are `aggregation`, `hops`, `channels`, `groups`, `hop_mean` and, but for ETDAGNN,
`dimensions` and `biases`."""
USUAL: dict[str, Aggregation] = {"tdagnn-tf-mean": "mean"}
"""The usual aggregation, which files of weights leave out, where it is not that of the class."""

for _name, _make in NETWORKS.items():
    add_network(_name, _make)
