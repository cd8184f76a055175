"""Tanner's three control laws (sections 2.2 and 2.3 of the paper), all of the form

    a_i = - sum_j v_ij - sum_j grad U(|r_ij|),    U(r) = 1/r^2 + ln r^2,

so grad U(|r_ij|) = 2 (r_ij / |r_ij|^2 - r_ij / |r_ij|^4), which is a sum of the paper's features. They differ in
whom the sums run over. All clamp |a_i|_2 <= C, which keeps them equivariant under rotation and reflection.

The expert may also hold on to those who leave: - h times the mean of "leaving" is a brake on agents that part.
Another potential is a feature of agents' positions, weight(|r_ij|^2) r_ij = grad U(|r_ij|), by its name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np

from equiflock.controllers.registry import controller
from equiflock.features import (
    PAPER_FEATURES,
    Senses,
    Topology,
    feature,
    find_feature,
    format_feature_name,
    paper_senses,
)
from equiflock.flock import LEADER, OBSTACLE, Flock, Observations, Roles, Vectors
from equiflock.pairs.all_pairs import sum_over_all_pairs
from equiflock.runtime import threads
from equiflock.runtime.arrays import as_read_only
from equiflock.runtime.checks import InputError, check_choice, check_positive, is_finite, shorten_repr
from equiflock.runtime.jit import Array, Index, kernel

ClampBy: TypeAlias = Literal["norm", "entry"]
Aim: TypeAlias = Literal["flock", "leaders"]
DEFAULT_CLAMP = 100.0
"""C, the largest norm of an acceleration; the paper does not give it."""
TANNER_POTENTIAL = "tanner"
"""The name of U(r) = 1/r^2 + ln r^2, which the paper's channels make up."""
LEAVING_FEATURE = "leaving"
"""The name of the feature by which agents hold on to those who fly away."""


@feature(TANNER_POTENTIAL, vector="position")
def tanner_gradient(square: float, distance: float = 1.0) -> float:
    """Grad U = 2 (1 / |r|^2 - d^2 / |r|^4) r, for U(r) = d^2 / r^2 + ln r^2."""
    return 2.0 * (1.0 - distance * distance / square) / square


@feature(LEAVING_FEATURE, vector="position")
def leaving(square: float, inner: float, begin: float = 0.75) -> float:
    """The speed at which two fly apart, <r, v> / |r| if above 0, along r / |r|: it fades in from |r| = `begin` to 1."""
    fade = max(square - begin * begin, 0.0) / max(1.0 - begin * begin, 1e-16)
    return max(inner, 0.0) / square * fade


@controller("tanner")
@dataclass(frozen=True)
class Tanner:
    """The centralized expert: the velocity sum runs over the whole flock, the potential over neighbours within R.

    U is constant beyond R, so the second sum needs the neighbours only, and the first is N v_i - sum_j v_j: O(N +
    edges) in all. The flock is leaders and followers, without those that are silent or stopped; obstacle agents enter
    through the potential, and through `hold`, alone.
    """

    clamp: float | None = DEFAULT_CLAMP
    """C, the largest norm of an acceleration; None for no clamp."""
    clamp_by: ClampBy = "norm"
    """Whether |a_i|_2 <= C, by its "norm", or every "entry" is within [-C, C], as Tolstaya et al. have it (section 5),
    which does not turn with the flock."""
    potential: str = TANNER_POTENTIAL
    """The potential "tanner", or the feature that is the gradient of another."""
    cut_off: bool = True
    """Whether U is constant beyond R. If not, the second sum runs over the whole flock at any distance, too, as in the
    equation of section 2.2: O(N^2) time. Obstacle agents are avoided within R as before; U would have them attract from
    afar."""
    attraction: float = 1.0
    """The distance d in U(r) = d^2 / r^2 + ln r^2 from which on agents attract each other. The paper's is 1, so that at
    R = 1 agents only repel each other, and nothing pulls back who is about to be lost."""
    aim: Aim = "flock"
    """The velocity that the first sum aims at, the mean of the "flock" or that of its "leaders", if it has any."""
    hold: float = 0.0
    """h, how firmly agents hold on to those about to leave their reach: a_i has - h times the mean of "leaving" over
    those heard, too, a brake on agents that part when they are 0.75 apart and more. The paper's is 0."""

    privileged: ClassVar[Literal[True]] = True

    def __post_init__(self) -> None:
        _check_law(self.clamp, self.clamp_by, self.potential, self.attraction)
        check_choice("aim", self.aim, get_args(Aim))
        if not isinstance(self.cut_off, bool):
            raise InputError(f"cut_off must be true or false; got {shorten_repr(self.cut_off)}")
        if not (is_finite(self.hold) and self.hold >= 0.0):
            raise InputError(f"hold must be a finite number of at least 0; got {shorten_repr(self.hold)}")
        if not self.cut_off and self.potential != TANNER_POTENTIAL:
            raise InputError(f"cut_off=False goes with the potential {TANNER_POTENTIAL!r} only; got {self.potential!r}")

    @property
    def senses(self) -> Senses:
        """One hop of sums: the paper's three features, or velocity and the potential; and whoever leaves, if held."""
        found = _make_senses(self.potential, "dynamic")
        return replace(found, channels=(*found.channels, (LEAVING_FEATURE, "mean"))) if self.hold else found

    @cached_property
    def tanner_args(self) -> TannerArgs:
        """The law as the kernel takes it."""
        return _make_tanner_args(self)

    def __call__(self, flock: Flock, observations: Observations) -> Vectors:
        """Accelerations (B, N, D) from the flock and its observations (B, N, 1, C, D), C = 3, or 4 with `hold`."""
        if observations.shape[:2] != flock.shape[:2] or observations.shape[4:] != flock.shape[2:]:
            raise InputError(f"observations must be those of the flock, {flock.shape}; got {observations.shape}")
        # Agents that are far from each other attract each other by 2 / |r|, which falls slowly: nobody is left out.
        far_gradients = EMPTY
        if not self.cut_off:
            name = format_feature_name(TANNER_POTENTIAL, distance=self.attraction)
            far_gradients = as_read_only(
                sum_over_all_pairs(flock, ((name, "sum"),), exclusion_radius=flock.comm_radius)[:, :, 0]
            )
        # Whoever sends nothing is left out of the sums, as obstacle agents are.
        counted = (
            flock.roles if flock.all_working else as_read_only(np.where(flock.muted, np.int8(OBSTACLE), flock.roles))
        )
        return _compute_accelerations(flock.velocities, counted, far_gradients, observations, self.tanner_args)


@controller("tanner-dynamic")
@dataclass(frozen=True)
class TannerDynamic:
    """The decentralized law for a changing graph: both sums over the agents that are within R now."""

    clamp: float | None = DEFAULT_CLAMP
    """C, the largest norm of an acceleration; None for no clamp."""
    clamp_by: ClampBy = "norm"
    """Whether |a_i|_2 <= C, by its "norm", or every "entry" is within [-C, C], which does not turn with the flock."""
    potential: str = TANNER_POTENTIAL
    """The potential "tanner", or the feature that is the gradient of another."""
    attraction: float = 1.0
    """The distance d in U(r) = d^2 / r^2 + ln r^2 from which on agents attract each other."""

    topology: ClassVar[Topology] = "dynamic"

    def __post_init__(self) -> None:
        _check_law(self.clamp, self.clamp_by, self.potential, self.attraction)

    @property
    def senses(self) -> Senses:
        """One hop of sums: the paper's three features, or velocity and the potential."""
        return _make_senses(self.potential, self.topology)

    @cached_property
    def tanner_args(self) -> TannerArgs:
        """The law as the kernel takes it."""
        return _make_tanner_args(self)

    def __call__(self, observations: Observations) -> Vectors:
        """Accelerations (B, N, D) from one-hop sums (B, N, 1, 3, D)."""
        return _compute_accelerations(EMPTY, EMPTY_ROLES, EMPTY, observations, self.tanner_args)


@controller("tanner-fixed")
@dataclass(frozen=True)
class TannerFixed(TannerDynamic):
    """The decentralized law for a fixed graph: both sums over the agents that were within R at t = 0.

    It is the same function as the dynamic law, of observations that are made of other agents.
    """

    topology: ClassVar[Topology] = "fixed"


PAPER_SENSES = {topology: paper_senses("sum", 1, topology) for topology in get_args(Topology)}


def _make_senses(potential: str, topology: Topology) -> Senses:
    if potential == TANNER_POTENTIAL:
        return PAPER_SENSES[topology]
    return Senses((("velocity", "sum"), (potential, "sum")), 1, topology)


def _check_law(clamp: float | None, clamp_by: str, potential: str, attraction: float) -> None:
    """Clear errors for what is the same of all three laws."""
    check_positive("attraction", attraction)
    if attraction != 1.0 and potential != TANNER_POTENTIAL:
        raise InputError(f"attraction goes with the potential {TANNER_POTENTIAL!r} only; got {potential!r}")
    if clamp is not None:
        check_positive("clamp", clamp)
    check_choice("clamp_by", clamp_by, get_args(ClampBy))
    if potential == TANNER_POTENTIAL:
        return
    found = find_feature(potential, "potential")
    if found.vector != "position" or found.uses_velocity:
        raise InputError(f"potential must be a feature weight(|r|^2) of positions; {potential!r} is of velocities")


TannerArgs: TypeAlias = tuple[float, bool, bool, float, bool, float]
"""What the kernel is told of a law: C, infinity if there is none; whether entries are clamped rather than norms;
whether observations have the sums of v_ij and of a declared gradient rather than the paper's three; d^2 of the
potential; whether velocities aim at the leaders' mean; and h, whose means come last, if it is not 0."""


def _make_tanner_args(law: Tanner | TannerDynamic) -> TannerArgs:
    clamp = math.inf if law.clamp is None else float(law.clamp)
    square, led = float(law.attraction) ** 2, getattr(law, "aim", "flock") == "leaders"
    return (
        clamp,
        law.clamp_by == "entry",
        law.potential != TANNER_POTENTIAL,
        square,
        led,
        float(getattr(law, "hold", 0.0)),
    )


EMPTY, EMPTY_ROLES = np.empty((0, 0, 0)), np.empty((0, 0), np.int8)
"""In place of velocities, roles and far gradients, for laws that know all sums from observations."""
for _array in (EMPTY, EMPTY_ROLES):
    _array.setflags(write=False)  # as the arrays of a flock are, so that kernels are compiled once


def _compute_accelerations(
    velocities: Vectors, roles: Roles, far_gradients: Vectors, observations: Observations, tanner_args: TannerArgs
) -> Vectors:
    """The law for all flocks; each thread takes some of them."""
    # The kernel does not look whether there is something where it reads.
    width = (2 if tanner_args[2] else len(PAPER_FEATURES)) + (1 if tanner_args[5] else 0)
    if observations.ndim != 5 or observations.shape[2] < 1 or observations.shape[3] < width:
        expected = f"(B, N, 1, {width}, D)"
        raise InputError(f"observations must be one-hop sums of the shape {expected}; got {observations.shape}")
    B, N, _, _, D = observations.shape
    known, result = np.ascontiguousarray(observations), np.empty((B, N, D))
    common = velocities, roles, far_gradients, known, tanner_args, result
    parts = threads.split_flocks(B, N) if B > 1 else [(0, 1)]
    threads.run_parallel(compute_tanner, [(*common, *part) for part in parts])
    return result


@kernel
def compute_tanner(
    velocities: Array,
    roles: Array,
    far_gradients: Array,
    observations: Array,
    tanner_args: TannerArgs,
    result: Array,
    first: Index,
    last: Index,
) -> None:
    """The law for the flocks first .. last, the velocity sums being those over the whole flock if velocities are given.

    Args:
        velocities: (B, N, D), or of no flocks if sums of v_ij are taken from observations.
        roles: (B, N), with velocities.
        far_gradients: (B, N, D), the sums of grad U over agents that are not heard, or of no flocks.
        observations: (B, N, K, C, D), the sums of v_ij, r_ij / |r_ij|^4 and r_ij / |r_ij|^2 in front, or those of v_ij
            and of a declared gradient.
        tanner_args: the clamp, and which sums these are.
        result: (B, N, D), accelerations.
        first: the first flock.
        last: the one after the last.
    """
    _, N, D = result.shape
    everyone = len(velocities) > 0
    clamp, by_entry, declared, attraction_squared, led, hold = tanner_args
    leaving_channel = 2 if declared else len(PAPER_FEATURES)
    total = np.empty(D)
    for b in range(first, last):
        # The sum of all velocities, and over how many agents: obstacle agents do not count.
        count, leaders = 0, 0
        total[:] = 0.0
        if everyone:
            for i in range(N):
                if roles[b, i] != OBSTACLE:
                    count += 1
                    leaders += roles[b, i] == LEADER
                    for d in range(D):
                        total[d] += velocities[b, i, d]
        # As if everybody flew as the leaders do, if that is the aim.
        if led and leaders > 0:
            total[:] = 0.0
            for i in range(N):
                if roles[b, i] == LEADER:
                    for d in range(D):
                        total[d] += velocities[b, i, d] * (count / leaders)
        for i in range(N):
            square = 0.0
            for d in range(D):
                # -sum_j v_ij = sum_j v_j - N v_i, or minus the sum over those heard.
                sums = -np.float64(observations[b, i, 0, 0, d])
                toward = total[d] - count * velocities[b, i, d] if everyone else sums
                # The sum over those heard of grad U(|r_ij|) = 2 (r_ij / |r_ij|^2 - d^2 r_ij / |r_ij|^4), or of another.
                if declared:
                    acceleration = toward - np.float64(observations[b, i, 0, 1, d])
                else:
                    per_fourth, per_square = observations[b, i, 0, 1, d], observations[b, i, 0, 2, d]
                    acceleration = toward - 2.0 * (np.float64(per_square) - attraction_squared * np.float64(per_fourth))
                # The same over everybody else, if U is not cut off.
                if len(far_gradients) > 0:
                    acceleration -= far_gradients[b, i, d]
                # The brake on those who part.
                if hold > 0.0:
                    acceleration -= hold * np.float64(observations[b, i, 0, leaving_channel, d])
                result[b, i, d] = acceleration
                square += acceleration * acceleration
            # The clamp: every entry to [-C, C], or min(1, C / |a|) a.
            norm = math.sqrt(square)
            if by_entry:
                for d in range(D):
                    result[b, i, d] = min(max(result[b, i, d], -clamp), clamp)
            elif norm > clamp:
                for d in range(D):
                    result[b, i, d] *= clamp / norm
