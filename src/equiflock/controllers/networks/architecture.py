"""Networks of the package as data: layers, activations and channels, without weights and without torch.

An `Architecture` is everything about a network except the values of its weights; the compiled form and the torch
module are built from it. The functions here describe the paper's four networks (Table 1) and starling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal, TypeAlias, cast, get_args

from equiflock._runtime.checks import InputError, check_choice, check_count
from equiflock._runtime.specs import format_spec
from equiflock.controllers.classical.tanner import LEAVING_FEATURE
from equiflock.controllers.gain_schedule import LARGEST_GAIN, GainSchedule
from equiflock.features import Aggregation, Channel, HopMean, Senses, paper_channels

Activation: TypeAlias = Literal["tanh", "scale-tanh", "scale-log"]
"""tanh acts on numbers; scale-tanh and scale-log act on vectors."""
BiasInit: TypeAlias = Literal["zero", "uniform"]
"""Initial biases of a network: zero, or uniform as in torch's convolutions."""
AggregationChoice: TypeAlias = Aggregation | Literal["both"]
"""Aggregation of the paper's features; "both" is the mean of each and then the sum of each, twice the channels."""


@dataclass(frozen=True)
class Convolution:
    """A convolution along the hops, without padding."""

    name: str
    """Prefix of the tensors' names: `name.weight`, and `name.bias` in a network of numbers."""
    inputs: int
    """Channels: vectors, or numbers."""
    outputs: int
    hops: int = 1
    """Size of the kernel."""

    @property
    def near(self) -> str:
        """Prefix of the tensors that agents near obstacles use instead."""
        return self.name.replace("layers", "near", 1)


Part: TypeAlias = Convolution | Activation


@dataclass(frozen=True)
class Architecture:
    """A chain of convolutions and activations over observations (B, N, K, C, D)."""

    name: str
    """Registered name of the network, which weights files store."""
    senses: Senses
    parts: tuple[Part, ...]
    """Convolutions and activations in their order."""
    acts_on_vectors: bool
    """Whether convolutions act on vectors (equivariant, without bias) or on numbers (with bias)."""
    dimensions: int | None = None
    """D that the network is built for; None for any."""
    near: bool = False
    """Whether agents with an obstacle in any of their K hops use a second set of weights."""
    options: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Arguments that recreate the architecture; weights files store them as JSON."""
    biases: BiasInit = field(default="zero", compare=False)
    """Initial biases; not among the options, because trained weights replace them."""
    gain_schedule: GainSchedule | None = None
    """Factor on the accelerations at a sampling period; None for a constant gain."""

    @property
    def convolutions(self) -> tuple[Convolution, ...]:
        """The convolutions in order."""
        return tuple(part for part in self.parts if isinstance(part, Convolution))

    @property
    def is_chain(self) -> bool:
        """Whether compiled kernels can evaluate the network.

        Kernels need activations for the kind of layer, never two in a row, a first convolution over all hops, further
        convolutions of size 1, and matching numbers of channels.
        """
        layers = self.convolutions
        supported = ("scale-tanh", "scale-log") if self.acts_on_vectors else ("tanh",)
        if not layers or any(isinstance(part, str) and part not in supported for part in self.parts):
            return False
        if any(isinstance(part, str) and isinstance(after, str) for part, after in pairwise(self.parts)):
            return False
        sizes = [layer.hops for layer in layers]
        fit = all(layer.outputs == after.inputs for layer, after in pairwise(layers))
        return fit and sizes == [self.senses.hops] + [1] * (len(layers) - 1)

    @property
    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of all tensors."""
        shapes: dict[str, tuple[int, ...]] = {}
        for prefix in ("name", "near") if self.near else ("name",):
            for layer in self.convolutions:
                name = getattr(layer, prefix)
                shapes[f"{name}.weight"] = layer.outputs, layer.inputs, layer.hops
                if not self.acts_on_vectors:
                    shapes[f"{name}.bias"] = (layer.outputs,)
        return shapes

    @property
    def obstacle_channel(self) -> int | None:
        """Index of the first channel over obstacles only; None if there is none."""
        return obstacle_channel(self.senses)

    def without_gain_schedule(self) -> Architecture:
        """Return the same network with a constant gain."""
        return replace(self, gain_schedule=None, options={**self.options, GAIN_PERIOD: None})


def obstacle_channel(senses: Senses) -> int | None:
    """Return the index of the first channel over obstacles only; None if there is none."""
    return next((c for c, feature in enumerate(senses.features) if feature.among == "obstacles"), None)


def describe_tdagnn(
    name: str = "tdagnn",
    *,
    aggregation: AggregationChoice = "sum",
    second_tanh: bool = True,
    hops: int = 3,
    dimensions: int = 2,
    channels: Sequence[Sequence[str]] | None = None,
    groups: bool = False,
    biases: BiasInit = "zero",
    hop_mean: HopMean = "receiver",
    gain_period: float | None = None,
    largest_gain: float = LARGEST_GAIN,
) -> Architecture:
    """Return convolutions C D -> 32 (over all K hops) -> 32 -> D with bias; tanh after the first or the first two.

    `channels` replace the paper's three; with `groups`, channels distinguish the agent's own group (`group_channels`).
    The paper does not specify the initial `biases`: they are zero, or uniform in [-1, 1] / sqrt(fan_in) as in torch's
    convolutions. Weights are drawn before biases, so they are the same in both cases. With a `gain_period`, outputs are
    multiplied by min(largest_gain, gain_period / dt) at the time step dt (`GainSchedule`).
    """
    senses = _make_senses(aggregation, hops, channels, groups, hop_mean)
    check_count("dimensions", dimensions, least=2)
    check_choice("biases", biases, get_args(BiasInit))
    first = Convolution("layers.0", senses.width * dimensions, 32, hops)
    second, third = Convolution("layers.1", 32, 32), Convolution("layers.2", 32, dimensions)
    parts: tuple[Part, ...] = (first, "tanh", second, "tanh", third) if second_tanh else (first, "tanh", second, third)
    schedule = None if gain_period is None else GainSchedule(gain_period, largest_gain)
    options = {**_make_options(senses, DEFAULT_AGGREGATION.get(name, "sum"), schedule), "dimensions": dimensions}
    return Architecture(name, senses, parts, False, dimensions, options=options, biases=biases, gain_schedule=schedule)


def describe_etdagnn(
    name: str = "etdagnn",
    *,
    aggregation: AggregationChoice = "mean",
    hops: int = 3,
    channels: Sequence[Sequence[str]] | None = None,
    groups: bool = False,
    hop_mean: HopMean = "receiver",
    near: bool = False,
    gain_period: float | None = None,
    largest_gain: float = LARGEST_GAIN,
) -> Architecture:
    """Return equivariant convolutions of vectors C -> 16 (over all K hops) -> 16 -> 1, for any dimension.

    Scale-log precedes the first, scale-tanh follows it. The network commutes with every rotation and reflection. With
    `near`, which needs a channel among obstacles, agents with an obstacle in any of their K hops use a second set of
    weights. `channels`, `groups`, `gain_period` and `largest_gain` are as for `describe_tdagnn`.
    """
    senses = _make_senses(aggregation, hops, channels, groups, hop_mean)
    if near:
        check_obstacle_channel(name, senses)
    parts: tuple[Part, ...] = (
        "scale-log",
        Convolution("layers.1", senses.width, 16, hops),
        "scale-tanh",
        Convolution("layers.3", 16, 16),
        Convolution("layers.4", 16, 1),
    )
    schedule = None if gain_period is None else GainSchedule(gain_period, largest_gain)
    options = {**_make_options(senses, "mean", schedule), **({"near": True} if near else {})}
    return Architecture(name, senses, parts, True, near=near, options=options, gain_schedule=schedule)


def check_obstacle_channel(name: str, senses: Senses) -> None:
    """Raise InputError, which mentions the network's `name`, if no channel is over obstacles only."""
    if obstacle_channel(senses) is None:
        raise InputError(
            f"{name} has no channel among obstacles, which weights near obstacles need: add a channel such as "
            "inverse-square:among=obstacles"
        )


def group_channels(aggregation: Aggregation) -> tuple[Channel, ...]:
    """Return velocity, position and inverse square, each over the own group, then over others: six channels.

    For segregation, after Omotuyi and Kumar (2022); this implementation chose the three, for alignment, attraction and
    repulsion.
    """
    features = "velocity", "position", "inverse-square"
    return tuple((format_spec(name, among=whom), aggregation) for name in features for whom in ("same", "others"))


def _make_senses(
    aggregation: AggregationChoice,
    hops: int,
    channels: Sequence[Sequence[str]] | None,
    groups: bool,
    hop_mean: HopMean,
) -> Senses:
    """Return senses with the given channels, or else the paper's or (with `groups`) `group_channels`, aggregated."""
    if groups and channels is not None:
        raise InputError("groups=true sets the channels: omit either groups or channels")
    check_choice("aggregation", aggregation, (*get_args(Aggregation), "both"))
    if channels is None:
        make_channels = group_channels if groups else paper_channels
        aggregations: tuple[Aggregation, ...] = ("mean", "sum") if aggregation == "both" else (aggregation,)
        channels = [channel for kind in aggregations for channel in make_channels(kind)]
    return Senses(cast(tuple[Channel, ...], tuple(channels)), hops, hop_mean=hop_mean)


def _make_options(senses: Senses, default: Aggregation, schedule: GainSchedule | None) -> dict[str, Any]:
    """Return options for weights files: hops, and what differs from the paper, which has the aggregation `default`."""
    options: dict[str, Any] = {"hops": senses.hops}
    if senses.channels != paper_channels(default):
        options["channels"] = [list(channel) for channel in senses.channels]
    if senses.hop_mean != "receiver":
        options["hop_mean"] = senses.hop_mean
    if schedule is not None:
        options |= {GAIN_PERIOD: schedule.period, LARGEST_GAIN_OPTION: schedule.largest}
    return options


GAIN_PERIOD, LARGEST_GAIN_OPTION = "gain_period", "largest_gain"
"""Options of a network's gain schedule: the first gives it one."""


DEFAULT_AGGREGATION: dict[str, Aggregation] = {"tdagnn-tf-mean": "mean"}
"""Default aggregation of networks for which it is not that of the function; weights files omit it."""

STARLING_CHANNELS: tuple[Channel, ...] = (
    *paper_channels("mean"),
    *paper_channels("sum"),
    (LEAVING_FEATURE, "mean"),
    (format_spec("velocity", among="obstacles"), "sum"),
)
"""Channels of starling, one controller for all flock sizes and scenarios.

They are the mean and the sum of the paper's three features, as the mean works best for small flocks and the sum for
large ones; "leaving", to follow neighbours that move away; and the relative velocity of the nearest obstacle agent as
the orbit technique sets it, which hops forward, so that an agent knows of obstacles that only others sense.
"""

STARLING_PERIOD = 0.02
"""Sampling period at which the gain schedule of starling is 1, in seconds."""

NETWORKS = {
    "tdagnn": partial(describe_tdagnn, "tdagnn"),
    "tdagnn-tf": partial(describe_tdagnn, "tdagnn-tf", second_tanh=False),
    "tdagnn-tf-mean": partial(describe_tdagnn, "tdagnn-tf-mean", aggregation="mean", second_tanh=False),
    "etdagnn": partial(describe_etdagnn, "etdagnn"),
    "starling": partial(describe_etdagnn, "starling", channels=STARLING_CHANNELS, gain_period=STARLING_PERIOD),
}
"""The networks of the package: the paper's four variants and starling."""
