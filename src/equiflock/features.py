"""What agents say to each other, declared: features, channels, and the senses of a controller.

A feature is a number times a vector, which agent i makes of what it hears from j, with r_ij = r_i - r_j and v_ij = v_i
- v_j:

    weight(|r_ij|^2) r_ij    or    weight(|r_ij|^2, <r_ij, v_ij>) v_ij,    and the other two combinations.

Whatever is declared so commutes with every rotation and reflection. A weight may have options, numbers with defaults,
and any feature may be made of agents of the same group, of others, or of obstacles alone: these follow the name, as in
"separation:distance=0.2" or "inverse-square:among=same". A channel is a feature with an aggregation, the sum or the
mean over those heard; a controller declares its channels, hops and topology as `Senses`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from equiflock.flock import Flock
from equiflock.runtime.checks import InputError, check_choice, check_count, is_finite, raise_wrong_choice, shorten_repr
from equiflock.runtime.options import parse_options

Aggregation: TypeAlias = Literal["sum", "mean"]
Topology: TypeAlias = Literal["dynamic", "fixed"]
VectorName: TypeAlias = Literal["position", "velocity"]
Among: TypeAlias = Literal["all", "same", "others", "obstacles"]
HopMean: TypeAlias = Literal["receiver", "sender"]
Channel: TypeAlias = tuple[str, Aggregation]
Weight = TypeVar("Weight", bound=Callable[..., float])


@dataclass(frozen=True)
class Feature:
    """One declared feature.

    Attributes:
        name: by which channels refer to it.
        vector: whether the weight multiplies r_ij, "position", or v_ij, "velocity".
        among: whom it is made of: "all" that are heard, flock agents of the "same" group, or of "others", or
            "obstacles", the obstacle agents, which are in no group.
        weight: the number, a function of |r_ij|^2, or of |r_ij|^2 and <r_ij, v_ij>, and of its options.
        options: the values of the weight's options, in the order of its arguments.
    """

    name: str
    vector: VectorName
    among: Among
    weight: Callable[..., float]
    options: tuple[float, ...] = ()

    @cached_property
    def uses_velocity(self) -> bool:
        """Whether the weight is a function of <r_ij, v_ij> too."""
        return len(inspect.signature(self.weight).parameters) == 2 + len(self.options)

    @cached_property
    def option_names(self) -> tuple[str, ...]:
        """The names of the weight's options."""
        names = tuple(inspect.signature(self.weight).parameters)
        return names[len(names) - len(self.options) :]

    def with_options(self, name: str, given: dict[str, Any]) -> Feature:
        """The feature under this name, with another `among`, or other values of options."""
        found = dict(zip(self.option_names, self.options, strict=True))
        among = given.pop("among", self.among)
        check_choice("among", among, get_args(Among))
        for key, value in given.items():
            if key not in found:
                has = ", ".join((*found, "among"))
                raise InputError(f"the feature {self.name!r} has no option {key!r}; it has {has}")
            if not is_finite(value):
                raise InputError(
                    f"{key} of the feature {self.name!r} must be a finite number; got {shorten_repr(value)}"
                )
            found[key] = float(value)
        return replace(self, name=name, among=among, options=tuple(found.values()))


_features: dict[str, Feature] = {}
POSITIONAL_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def feature(name: str, *, vector: VectorName, among: Among = "all") -> Callable[[Weight], Weight]:
    """Declare a feature under a name, for the channels of `Senses`.

        @ef.feature("attraction", vector="position")
        def attraction(square):  # |r_ij|^2, at least 1e-16
            return square        # the feature is |r_ij|^2 r_ij

    Args:
        name: a word.
        vector: what the weight multiplies: "position" for r_ij, "velocity" for v_ij.
        among: "all" that are heard, those of the "same" group, or of "others", or the agents of "obstacles".

    The function takes one number, |r_ij|^2, or two, |r_ij|^2 and <r_ij, v_ij>, and returns one. Further arguments with
    numbers as defaults are its options, which a channel may set: ("attraction:strength=2", "mean"). It is compiled into
    the kernels when a flock first uses it, so it is arithmetic and functions of `math`, and must be finite for |r_ij|
    from 1e-8 to R.
    """
    if isinstance(name, str) and ":" in name:
        raise InputError(
            f"a feature's name must be a word without a colon, which options follow; got {shorten_repr(name)}"
        )
    if not isinstance(name, str) or not name or name in _features:
        taken = " is declared already" if isinstance(name, str) and name else ""
        raise InputError(
            f"a feature's name must be a word of its own; got {shorten_repr(name)}{taken and ', which'}{taken}"
        )
    check_choice("vector", vector, get_args(VectorName))
    check_choice("among", among, get_args(Among))

    def declare(weight: Weight) -> Weight:
        # Some builtins have no signature; they are refused like functions of no argument.
        parameters = inspect.signature(weight).parameters.values() if inspect.isfunction(weight) else ()
        options = {each.name: each.default for each in parameters if each.default is not each.empty}
        plain = all(each.kind in POSITIONAL_KINDS for each in parameters) and "among" not in options
        if not plain or len(parameters) - len(options) not in (1, 2) or not all(map(is_finite, options.values())):
            raise InputError(
                f"the weight of the feature {name!r} must be a function of |r|^2, or of |r|^2 and <r, v>, and of "
                f"nothing else but options with finite numbers as defaults; got {shorten_repr(weight)}"
            )
        _features[name] = Feature(name, vector, among, weight, tuple(map(float, options.values())))
        return weight

    return declare


def feature_names() -> tuple[str, ...]:
    """The features that channels may have."""
    return tuple(_features)


def find_feature(name: str, what: str = "feature") -> Feature:
    """The feature of that name, with options after it or not; a clear error about `what` if there is none."""
    head, colon, told = name.partition(":") if isinstance(name, str) else (name, "", "")
    if head not in feature_names():
        raise_wrong_choice(what, head, feature_names())
    found = _features[head]
    return found.with_options(name, parse_options(told)) if colon else found


def format_feature_name(name: str, **options: Any) -> str:
    """The name of a feature with options, as channels take it: "separation:distance=0.2"."""
    return ":".join([name, *(f"{key}={value}" for key, value in options.items())])


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


# What agents may know beside it; networks of the paper do not hear it.


@feature("position", vector="position")
def _position(square: float) -> float:
    """r_ij itself."""
    return 1.0


LARGEST_SCALE = 1e12
"""Units of senses and of flocks differ by this factor at most, so that no product of scales leaves float64."""

# In the order in which the paper's networks read the channels of a hop.
PAPER_FEATURES = ("velocity", "inverse-fourth", "inverse-square")


@dataclass(frozen=True)
class Senses:
    """What a controller observes of its neighbours: the C channels and K hops of observations (B, N, K, C, D).

    Attributes:
        channels: (feature, "sum" or "mean") for each of the C channels of one hop.
        hops: K >= 1. Hop 1 aggregates the features of those an agent hears now; hop k is the mean over them of their
            own hop k - 1 a step before.
        topology: "dynamic" if an agent hears those within R now, "fixed" if it always hears those within R at t = 0.
        hop_mean: whose degree divides the sums of hops 2 .. K, with z_j^(k-1) what agent j knew a step before:
            "receiver", as the paper has it, 1 / |N_i| sum of z_j^(k-1) over j in N_i; "sender", as public code of the
            baseline has it, sum of z_j^(k-1) / |N_j|, in which those who hear nobody now do not count.
        length_scale: L, the unit of length of what is observed, in the flock's: r / L and R / L are sensed.
        time_scale: tau, the unit of time of what is observed, in the flock's: v tau / L is sensed. Weights of features
            need not be powers, so it is the flock that is measured in other units, not its observations.
    """

    channels: tuple[Channel, ...]
    hops: int = 1
    topology: Topology = "dynamic"
    hop_mean: HopMean = "receiver"
    length_scale: float = 1.0
    time_scale: float = 1.0

    def __post_init__(self) -> None:
        # The class is frozen, so a list of channels becomes a tuple this way.
        object.__setattr__(self, "channels", _check_channels(self.channels))
        check_count("hops", self.hops)
        check_choice("topology", self.topology, get_args(Topology))
        check_choice("hop_mean", self.hop_mean, get_args(HopMean))
        for name in ("length_scale", "time_scale"):
            object.__setattr__(self, name, check_scale(name, getattr(self, name)))

    @property
    def width(self) -> int:
        """C, how many channels there are."""
        return len(self.channels)

    @property
    def features(self) -> tuple[Feature, ...]:
        """The feature of each channel."""
        return tuple(find_feature(name) for name, _ in self.channels)

    @property
    def scales(self) -> tuple[float, float]:
        """L and tau."""
        return self.length_scale, self.time_scale

    @property
    def is_scaled(self) -> bool:
        """Whether flocks are measured in other units than their own."""
        return self.scales != (1.0, 1.0)

    @property
    def requires_ideal_radio(self) -> bool:
        """Whether they need a perfect radio and no failures: hops are divided by how many hear the sender."""
        return self.hop_mean == "sender" and self.hops > 1

    def has_same_memory(self, other: Senses) -> bool:
        """Whether what agents remember by the other senses is as large, and in the same units: then it is kept."""
        return (self.hops, self.width, self.scales) == (other.hops, other.width, other.scales)

    def scale_flock(self, flock: Flock) -> Flock:
        """The flock in the units of these senses: itself, if they are its own."""
        return flock.in_units(self.length_scale, self.time_scale) if self.is_scaled else flock

    @property
    def paper_aggregation(self) -> Aggregation | None:
        """The aggregation, if the channels are the paper's three in their order, all with the same one; else None."""
        # The paper's channels have a hand-tuned kernel and compiled networks, so they are recognised here.
        first = self.channels[0][1]
        return first if self.channels == paper_channels(first) else None

    @property
    def starts_with_paper_channels(self) -> bool:
        """Whether the paper's three channels come first, all with the same aggregation."""
        return self.channels[: len(PAPER_FEATURES)] == paper_channels(self.channels[0][1])


def check_scale(name: str, value: float) -> float:
    """`value` if units may differ by this factor, else a clear error."""
    if not is_finite(value) or not 1.0 / LARGEST_SCALE <= value <= LARGEST_SCALE:
        raise InputError(f"{name} must be from {1 / LARGEST_SCALE:g} to {LARGEST_SCALE:g}; got {shorten_repr(value)}")
    return float(value)


def paper_channels(aggregation: Aggregation) -> tuple[Channel, ...]:
    """The paper's three features, each with this aggregation."""
    return tuple((name, aggregation) for name in PAPER_FEATURES)


def paper_senses(
    aggregation: Aggregation = "mean",
    hops: int = 3,
    topology: Topology = "dynamic",
    hop_mean: HopMean = "receiver",
) -> Senses:
    """The senses of the paper's controllers: its three features, all summed or all averaged."""
    check_choice("aggregation", aggregation, get_args(Aggregation))
    return Senses(paper_channels(aggregation), hops, topology, hop_mean)


def _check_channels(given: Any) -> tuple[Channel, ...]:
    """The channels as pairs of known features and aggregations, or a clear error."""
    expected = 'channels must be pairs of a feature and "sum" or "mean", such as (("velocity", "mean"),)'
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"{expected}; got {shorten_repr(given)}")
    channels: list[Channel] = []
    for channel in given:
        # A text of two letters would pass for a pair.
        if isinstance(channel, str) or not isinstance(channel, Iterable) or len(pair := tuple(channel)) != 2:
            raise InputError(f"{expected}; got {shorten_repr(channel)}")
        if not isinstance(pair[0], str):
            raise InputError(f"{expected}; got {shorten_repr(channel)}")
        find_feature(pair[0])
        check_choice("aggregation", pair[1], get_args(Aggregation))
        channels.append(pair)
    if not channels:
        raise InputError(f"{expected}; got none")
    return tuple(channels)
