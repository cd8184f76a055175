"""Declarations of observations: features, channels and the senses of a controller.

A feature is a scalar weight times a relative vector. For a message from agent j, agent i computes, with
r_ij = r_i - r_j and v_ij = v_i - v_j:

    weight(|r_ij|^2) r_ij    or    weight(|r_ij|^2, <r_ij, v_ij>) v_ij,    and the other two combinations.

Every feature of this form is equivariant under rotations and reflections. A weight may have options, numbers with
defaults, and `among` restricts any feature to agents of the same group, of other groups, or to obstacle agents. Options
follow the name, as in "separation:distance=0.2" or "inverse-square:among=same". A channel is a feature with an
aggregation, the sum or mean over neighbours; a controller declares its channels, hops and topology as `Senses`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from equiflock._runtime.checks import InputError, check_choice, check_count, is_finite, shorten_repr
from equiflock._runtime.registry import Registry
from equiflock._runtime.specs import Spec, parse_spec
from equiflock.flock import Flock, check_scale

Aggregation: TypeAlias = Literal["sum", "mean"]
Topology: TypeAlias = Literal["dynamic", "fixed"]
VectorName: TypeAlias = Literal["position", "velocity"]
Among: TypeAlias = Literal["all", "same", "others", "obstacles"]
HopMean: TypeAlias = Literal["receiver", "sender"]
Channel: TypeAlias = tuple[str, Aggregation]
Weight = TypeVar("Weight", bound=Callable[..., float])


@dataclass(frozen=True)
class Feature:
    """A declared feature, of the name that channels refer to."""

    name: str
    vector: VectorName
    """Vector that the weight multiplies: "position" for r_ij, "velocity" for v_ij."""
    among: Among
    """Neighbours that contribute: "all", those of the "same" group, those of "others", or the "obstacles", which have
    no group."""
    weight: Callable[..., float]
    """Function of |r_ij|^2, or of |r_ij|^2 and <r_ij, v_ij>, and of its options."""
    options: tuple[float, ...] = ()
    """Values of the weight's options, in the order of its parameters."""

    @cached_property
    def uses_velocity(self) -> bool:
        """Whether the weight depends on <r_ij, v_ij>."""
        return len(inspect.signature(self.weight).parameters) == 2 + len(self.options)

    @cached_property
    def option_names(self) -> tuple[str, ...]:
        """Names of the weight's options."""
        names = tuple(inspect.signature(self.weight).parameters)
        return names[len(names) - len(self.options) :]

    def with_options(self, name: str, given: Mapping[str, Any]) -> Feature:
        """Return a copy with this name, and with the given `among` and option values; others keep their defaults."""
        values = {"among": self.among, **dict(zip(self.option_names, self.options, strict=True)), **given}
        among = values.pop("among")
        check_choice("among", among, get_args(Among))
        for key, value in values.items():
            if not is_finite(value):
                raise InputError(
                    f"{key} of the feature {self.name!r} must be a finite number; got {shorten_repr(value)}"
                )
        return replace(self, name=name, among=among, options=tuple(map(float, values.values())))


FEATURES: Registry[Feature] = Registry("feature")
POSITIONAL_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def feature(name: str, *, vector: VectorName, among: Among = "all") -> Callable[[Weight], Weight]:
    """Register a feature for the channels of `Senses`.

        @ef.feature("attraction", vector="position")
        def attraction(square):  # |r_ij|^2, at least 1e-16
            return square        # the feature is |r_ij|^2 r_ij

    `vector` and `among` are as for `Feature`. The function takes |r_ij|^2, or |r_ij|^2 and <r_ij, v_ij>, and returns a
    number. Further parameters with numeric defaults are options that a channel may set: ("attraction:strength=2",
    "mean"). Numba compiles the function at its first use, so it may only use arithmetic and the `math` module, and must
    be finite for |r_ij| from 1e-8 to R.
    """
    FEATURES.check_new_name(name)
    check_choice("vector", vector, get_args(VectorName))
    check_choice("among", among, get_args(Among))

    def declare(weight: Weight) -> Weight:
        """Register the feature with this weight and return the weight; raise InputError if its parameters are wrong."""
        # Builtins may have no signature; they are refused like functions without parameters.
        parameters = inspect.signature(weight).parameters.values() if inspect.isfunction(weight) else ()
        options = {each.name: each.default for each in parameters if each.default is not each.empty}
        plain = all(each.kind in POSITIONAL_KINDS for each in parameters) and "among" not in options
        if not plain or len(parameters) - len(options) not in (1, 2) or not all(map(is_finite, options.values())):
            raise InputError(
                f"the weight of the feature {name!r} must be a function of |r|^2, or of |r|^2 and <r, v>, and "
                f"otherwise only of options with finite numbers as defaults; got {shorten_repr(weight)}"
            )
        FEATURES.parts[name] = Feature(name, vector, among, weight, tuple(map(float, options.values())))
        return weight

    return declare


def feature_names() -> tuple[str, ...]:
    """Return the names of all registered features."""
    return FEATURES.names()


def find_feature(name: str, what: str = "feature") -> Feature:
    """Return the feature of a name such as "separation:distance=0.2"; `what` names the argument in errors."""
    spec = parse_spec(name) if isinstance(name, str) else Spec(name, {})
    declared = FEATURES.find(spec.name, what)
    if not spec.options:
        return declared
    return declared.with_options(name, FEATURES.merge_options(spec, {}, (*declared.option_names, "among")))


# The paper's message psi(r_ij, v_ij) = [v_ij, r_ij / |r_ij|^4, r_ij / |r_ij|^2] (section 2.4), one feature per vector.


@feature("velocity", vector="velocity")
def _velocity(square: float) -> float:
    """v_ij itself."""
    return 1.0


@feature("inverse-fourth", vector="position")
def _inverse_fourth(square: float) -> float:
    """r_ij / |r_ij|^4."""
    return 1.0 / (square * square)


@feature("inverse-square", vector="position")
def _inverse_square(square: float) -> float:
    """r_ij / |r_ij|^2."""
    return 1.0 / square


@feature("position", vector="position")
def _position(square: float) -> float:
    """r_ij itself."""
    return 1.0


# In the channel order of the paper's networks.
PAPER_FEATURES = ("velocity", "inverse-fourth", "inverse-square")


@dataclass(frozen=True)
class Senses:
    """Specification of a controller's observations (B, N, K, C, D): C channels and K hops."""

    channels: tuple[Channel, ...]
    """(feature, "sum" or "mean") for each of the C channels of one hop."""
    hops: int = 1
    """K >= 1. Hop 1 aggregates the features of an agent's current neighbours; hop k is the mean over them of their hop
    k - 1 one step earlier."""
    topology: Topology = "dynamic"
    """Neighbours are the agents within R now ("dynamic") or at t = 0 ("fixed")."""
    hop_mean: HopMean = "receiver"
    """Degree that divides the sums of hops 2 .. K, where z_j^(k-1) is agent j's observation one step earlier:
    "receiver" as in the paper, 1 / |N_i| sum of z_j^(k-1) over j in N_i; "sender" as in the public code of the
    baseline, sum of z_j^(k-1) / |N_j|, without agents that have no neighbours now."""
    length_scale: float = 1.0
    """L, unit of length of the observations in the flock's unit: they are computed from r / L and R / L."""
    time_scale: float = 1.0
    """tau, unit of time of the observations in the flock's unit: they are computed from v tau / L. Weights need not be
    powers, so the flock is scaled rather than its observations."""

    def __post_init__(self) -> None:
        # The dataclass is frozen; a list of channels becomes a tuple.
        object.__setattr__(self, "channels", _check_channels(self.channels))
        check_count("hops", self.hops)
        check_choice("topology", self.topology, get_args(Topology))
        check_choice("hop_mean", self.hop_mean, get_args(HopMean))
        for name in ("length_scale", "time_scale"):
            object.__setattr__(self, name, check_scale(name, getattr(self, name)))

    @property
    def width(self) -> int:
        """Number of channels C."""
        return len(self.channels)

    @property
    def features(self) -> tuple[Feature, ...]:
        """Feature of each channel."""
        return tuple(find_feature(name) for name, _ in self.channels)

    @property
    def scales(self) -> tuple[float, float]:
        """L and tau."""
        return self.length_scale, self.time_scale

    @property
    def is_scaled(self) -> bool:
        """Whether observations use other units than the flock."""
        return self.scales != (1.0, 1.0)

    @property
    def requires_ideal_radio(self) -> bool:
        """Whether the senses need an ideal radio without failures: "sender" divides by the sender's degree."""
        return self.hop_mean == "sender" and self.hops > 1

    def has_same_memory(self, other: Senses) -> bool:
        """Whether hop count, channel count and units equal those of `other`, so that agents keep their memory."""
        return (self.hops, self.width, self.scales) == (other.hops, other.width, other.scales)

    def scale_flock(self, flock: Flock) -> Flock:
        """Return the flock in the units of these senses; the same object if units are equal."""
        return flock.in_units(self.length_scale, self.time_scale) if self.is_scaled else flock

    @property
    def paper_aggregation(self) -> Aggregation | None:
        """Aggregation of the paper's three channels, if `channels` are these in their order; otherwise None."""
        # These channels have a hand-tuned kernel and compiled networks.
        first = self.channels[0][1]
        return first if self.channels == paper_channels(first) else None

    @property
    def starts_with_paper_channels(self) -> bool:
        """Whether the first three channels are the paper's, with one aggregation."""
        return self.channels[: len(PAPER_FEATURES)] == paper_channels(self.channels[0][1])


def paper_channels(aggregation: Aggregation) -> tuple[Channel, ...]:
    """Return the paper's three features, each with this aggregation."""
    return tuple((name, aggregation) for name in PAPER_FEATURES)


def paper_senses(
    aggregation: Aggregation = "mean",
    hops: int = 3,
    topology: Topology = "dynamic",
    hop_mean: HopMean = "receiver",
) -> Senses:
    """Return the senses of the paper's controllers: its three features, all summed or all averaged."""
    check_choice("aggregation", aggregation, get_args(Aggregation))
    return Senses(paper_channels(aggregation), hops, topology, hop_mean)


def _check_channels(given: Any) -> tuple[Channel, ...]:
    """Return the channels as a tuple of pairs; raise InputError if one is not a known feature and an aggregation."""
    expected = 'channels must be pairs of a feature and "sum" or "mean", such as (("velocity", "mean"),)'
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"{expected}; got {shorten_repr(given)}")
    channels: list[Channel] = []
    for channel in given:
        # A string of two letters would pass as a pair.
        pair = tuple(channel) if isinstance(channel, Iterable) and not isinstance(channel, str) else ()
        if len(pair) != 2 or not isinstance(pair[0], str):
            raise InputError(f"{expected}; got {shorten_repr(channel)}")
        find_feature(pair[0])
        check_choice("aggregation", pair[1], get_args(Aggregation))
        channels.append(pair)
    if not channels:
        raise InputError(f"{expected}; got none")
    return tuple(channels)
