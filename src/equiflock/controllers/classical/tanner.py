"""Tanner's three control laws (sections 2.2 and 2.3 of the paper), all of the form

    a_i = - sum_j v_ij - sum_j grad U(|r_ij|),    U(r) = 1/r^2 + ln r^2,

so grad U(|r_ij|) = 2 (r_ij / |r_ij|^2 - r_ij / |r_ij|^4), which is a sum of the paper's features. The laws differ in
the agents that the sums run over. All clamp |a_i|_2 <= C, which keeps them equivariant under rotation and reflection.

The expert can also add - h times the mean of the feature "leaving", which brakes agents that separate. A custom
potential is given by the name of a feature of positions, weight(|r_ij|^2) r_ij = grad U(|r_ij|).

The velocity sum over a flock is - N (v_i - mean v), a gain of N per second: a robot that samples it every dt seconds
overshoots from dt = 1 / N on, and diverges from dt = 2 / N on. `tanner-bounded` has a gain that does not depend on N.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from jaxtyping import Float

from equiflock._runtime import threads
from equiflock._runtime.checks import InputError, check_choice, check_nonnegative, check_positive, shorten_repr
from equiflock._runtime.jit import Array, Index, kernel
from equiflock._runtime.memory import as_read_only
from equiflock._runtime.specs import format_spec
from equiflock.controllers.classical.pair_law import (
    DEFAULT_CLAMP,
    Vector,
    clamp_terms,
    sum_for_agent,
    sum_over_all_pairs,
)
from equiflock.controllers.gain_schedule import GainSchedule
from equiflock.controllers.registry import controller
from equiflock.features import PAPER_FEATURES, Channel, Senses, Topology, feature, find_feature, paper_senses
from equiflock.flock import LEADER, OBSTACLE, Flock, Observations, Roles, Vectors

ClampBy: TypeAlias = Literal["norm", "entry"]
Aim: TypeAlias = Literal["flock", "leaders"]
TANNER_POTENTIAL = "tanner"
"""Name of U(r) = 1/r^2 + ln r^2, whose gradient is a sum of the paper's channels."""
LEAVING_FEATURE = "leaving"
"""Name of the feature that `hold` multiplies."""


@feature(TANNER_POTENTIAL, vector="position")
def tanner_gradient(square: float, distance: float = 1.0) -> float:
    """Return the weight w of r_ij in grad U = w r_ij, 2 (1 / |r|^2 - d^2 / |r|^4), for U(r) = d^2 / r^2 + ln r^2."""
    return 2.0 * (1.0 - distance * distance / square) / square


@feature(LEAVING_FEATURE, vector="position")
def leaving(square: float, inner: float, begin: float = 0.75) -> float:
    """Return the weight of r_ij in max(<r, v> / |r|, 0) r / |r|, the velocity of separation, times a fade.

    The fade is linear in |r|^2: 0 up to |r| = `begin`, 1 at |r| = 1, above 1 beyond. Agents that approach weigh 0.
    """
    fade = max(square - begin * begin, 0.0) / max(1.0 - begin * begin, 1e-16)
    return max(inner, 0.0) / square * fade


class TannerArgs(NamedTuple):
    """A law as the kernel takes it."""

    clamp: float
    """C; infinity for no clamp."""
    clamps_entries: bool
    """Whether to clamp entries instead of norms."""
    has_own_potential: bool
    """Whether observations have the sums of v_ij and of a custom gradient, instead of the paper's three features."""
    attraction_squared: float
    """d^2 of the potential."""
    aims_at_leaders: bool
    """Whether velocities aim at the leaders' mean."""
    hold: float
    """h; unless it is 0, the means of "leaving" are the last channel."""
    velocity_gain: float
    """g, which replaces N in - N (v_i - mean v); 0 for the paper's N."""
    potential_gain: float
    """p, factor on the sum of grad U."""
    soft_speed: float
    """v_0: at a velocity error of u the velocity gain is g u / (u + v_0); 0 for a constant gain."""


@dataclass(frozen=True)
class TannerLaw:
    """The options of all three laws."""

    clamp: float | None = DEFAULT_CLAMP
    """C, the largest norm of an acceleration, which the paper does not state; None for no clamp."""
    clamp_by: ClampBy = "norm"
    """What to clamp: the "norm", |a_i|_2 <= C, or every "entry" to [-C, C], as Tolstaya et al. do (section 5), which is
    not rotation-equivariant."""
    potential: str = TANNER_POTENTIAL
    """The potential "tanner", or the feature that is the gradient of another."""
    attraction: float = 1.0
    """The distance d in U(r) = d^2 / r^2 + ln r^2 beyond which agents attract each other. The paper's is 1, so that
    with R = 1 agents only repel each other, and nothing pulls back an agent that is about to leave."""

    topology: ClassVar[Topology] = "dynamic"

    def __post_init__(self) -> None:
        if self.clamp is not None:
            check_positive("clamp", self.clamp)
        check_choice("clamp_by", self.clamp_by, get_args(ClampBy))
        check_positive("attraction", self.attraction)
        if self.potential == TANNER_POTENTIAL:
            return
        if self.attraction != 1.0:
            raise InputError(f"attraction needs the potential {TANNER_POTENTIAL!r}; got {self.potential!r}")
        gradient = find_feature(self.potential, "potential")
        if gradient.vector != "position" or gradient.uses_velocity:
            raise InputError(
                f"potential must be a feature weight(|r|^2) of positions; {self.potential!r} uses velocities"
            )

    def compute_terms(
        self, observation: Float[np.ndarray, "K C D"], flock: Flock | None, agent: int
    ) -> dict[str, Vector]:
        """Return alignment, the parts of the potential, and the brake "hold" if there is one, of one follower."""
        sums, args = observation[0].astype(np.float64), self.tanner_args
        terms = {"alignment": self._compute_alignment(sums[0], flock, agent)}
        if args.has_own_potential:
            terms["potential"] = -args.potential_gain * sums[1]
        else:
            terms["repulsion"] = 2.0 * args.potential_gain * args.attraction_squared * sums[1]
            terms["attraction"] = -2.0 * args.potential_gain * sums[2]
        if args.hold > 0.0:
            terms["hold"] = -args.hold * sums[-1]
        terms |= self._compute_far_terms(flock, agent)
        if not args.clamps_entries:
            return clamp_terms(terms, self.clamp)
        # One factor for each entry.
        total = np.abs(np.sum(list(terms.values()), axis=0))
        factors = np.minimum(1.0, args.clamp / np.maximum(total, np.finfo(float).tiny))
        return {name: factors * vector for name, vector in terms.items()}

    def _compute_alignment(self, velocity_sum: Vector, flock: Flock | None, agent: int) -> Vector:
        """Return - sum_j v_ij of one agent; `velocity_sum` is its observation."""
        return -velocity_sum

    def _compute_far_terms(self, flock: Flock | None, agent: int) -> dict[str, Vector]:
        """Return the terms over agents beyond R: none."""
        return {}

    @property
    def senses(self) -> Senses:
        """One hop of sums: the paper's three features, or velocity and the potential."""
        if self.potential == TANNER_POTENTIAL:
            return PAPER_SENSES[self.topology]
        return Senses((("velocity", "sum"), (self.potential, "sum")), 1, self.topology)

    @cached_property
    def tanner_args(self) -> TannerArgs:
        """The law as the kernel takes it; laws without the expert's options have its defaults."""
        velocity_gain = getattr(self, "velocity_gain", None)
        return TannerArgs(
            clamp=math.inf if self.clamp is None else float(self.clamp),
            clamps_entries=self.clamp_by == "entry",
            has_own_potential=self.potential != TANNER_POTENTIAL,
            attraction_squared=float(self.attraction) ** 2,
            aims_at_leaders=getattr(self, "aim", "flock") == "leaders",
            hold=float(getattr(self, "hold", 0.0)),
            velocity_gain=0.0 if velocity_gain is None else float(velocity_gain),
            potential_gain=float(getattr(self, "potential_gain", 1.0)),
            soft_speed=float(getattr(self, "soft_speed", 0.0)),
        )


@controller("tanner")
@dataclass(frozen=True)
class Tanner(TannerLaw):
    """The centralized expert: the velocity sum runs over the whole flock, the potential over neighbours within R.

    U is constant beyond R, so the second sum needs neighbours only, and the first is N v_i - sum_j v_j: O(N + edges)
    time in all. The velocity sum counts leaders and followers, except silent and stopped agents; obstacle agents enter
    through the potential and `hold` only.
    """

    cut_off: bool = True
    """Whether U is constant beyond R. If not, the second sum also runs over the whole flock at any distance, as in the
    equation of section 2.2: O(N^2) time. Obstacle agents still act within R only, as U would let them attract from
    afar."""
    aim: Aim = "flock"
    """Target of the velocity sum: the mean velocity of the "flock", or of its "leaders" if it has any."""
    hold: float = 0.0
    """h, gain of the brake on agents about to lose contact: a_i includes - h times the mean of "leaving" over
    neighbours, which acts on agents that separate at distances of 0.75 and more. The paper's is 0."""
    velocity_gain: float | None = None
    """g in - g (v_i - aim), per second; None for the paper's sum over the flock, whose gain is N."""
    potential_gain: float = 1.0
    """p, factor on the sum of grad U. The paper's is 1."""
    soft_speed: float = 0.0
    """v_0: at a velocity error of u the velocity gain is g u / (u + v_0), half of g at u = v_0. A gain that fades with
    the error lets a flock come to rest in spite of late messages. The paper's is 0: a constant gain."""

    privileged: ClassVar[Literal[True]] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("aim", self.aim, get_args(Aim))
        check_nonnegative("hold", self.hold)
        if self.velocity_gain is not None:
            check_positive("velocity_gain", self.velocity_gain)
        for name in ("potential_gain", "soft_speed"):
            check_nonnegative(name, getattr(self, name))
        if not isinstance(self.cut_off, bool):
            raise InputError(f"cut_off must be true or false; got {shorten_repr(self.cut_off)}")
        if not self.cut_off and self.potential != TANNER_POTENTIAL:
            raise InputError(f"cut_off=False needs the potential {TANNER_POTENTIAL!r}; got {self.potential!r}")

    @property
    def senses(self) -> Senses:
        """One hop of sums: the paper's three features, or velocity and the potential; "leaving" last, with `hold`."""
        senses = super().senses
        return replace(senses, channels=(*senses.channels, (LEAVING_FEATURE, "mean"))) if self.hold else senses

    def __call__(self, flock: Flock, observations: Observations) -> Vectors:
        """Return accelerations (B, N, D) from the flock and observations (B, N, 1, C, D), the channels of `senses`."""
        if observations.shape[:2] != flock.shape[:2] or observations.shape[4:] != flock.shape[2:]:
            expected = f"(B, N, 1, C, D) with (B, N, D) = {flock.shape}"
            raise InputError(f"observations must have the shape {expected}, as the flock; got {observations.shape}")
        # Distant agents attract each other by 2 / |r|, which decays too slowly to neglect any pair.
        far_gradients = EMPTY
        if not self.cut_off:
            sums = sum_over_all_pairs(flock, self._far_channels, exclusion_radius=flock.comm_radius)
            far_gradients = as_read_only(sums[:, :, 0])
        # Muted agents are excluded from the velocity sum, as obstacle agents are.
        roles = flock.roles
        if not flock.all_working:
            roles = as_read_only(np.where(flock.muted, np.int8(OBSTACLE), roles))
        return _compute_accelerations(flock.velocities, roles, far_gradients, observations, self.tanner_args)

    def _compute_alignment(self, velocity_sum: Vector, flock: Flock | None, agent: int) -> Vector:
        """Return the alignment of one agent with the flock, or with its leaders; the observed sum is not used."""
        assert flock is not None
        args, roles = self.tanner_args, np.where(flock.muted, np.int8(OBSTACLE), flock.roles)[0]
        members, leaders = roles != OBSTACLE, roles == LEADER
        count, aims = np.count_nonzero(members), leaders if args.aims_at_leaders and leaders.any() else members
        if count == 0:
            return np.zeros(flock.shape[2])
        error = flock.velocities[0, aims].mean(axis=0) - flock.velocities[0, agent]
        gain = args.velocity_gain if args.velocity_gain > 0.0 else float(count)
        if args.soft_speed > 0.0:
            speed = float(np.linalg.norm(error))
            gain *= speed / (speed + args.soft_speed)
        return np.asarray(gain * error)

    def _compute_far_terms(self, flock: Flock | None, agent: int) -> dict[str, Vector]:
        """Return the potential over agents beyond R, if it is not cut off."""
        if self.cut_off:
            return {}
        assert flock is not None
        sums = sum_for_agent(flock, agent, self._far_channels, exclusion_radius=flock.comm_radius)
        return {"potential beyond R": -self.potential_gain * sums[0, 0, 0]}

    @property
    def _far_channels(self) -> tuple[Channel, ...]:
        return ((format_spec(TANNER_POTENTIAL, distance=self.attraction), "sum"),)

    def scale_output(self, factor: float) -> Tanner:
        """Return the law with all accelerations multiplied by a factor, which is multiplied into gains and clamp."""
        if self.velocity_gain is None:
            raise InputError("only a law with a velocity_gain can be scaled: the paper's gain is N")
        return Tanner(
            clamp=None if self.clamp is None else self.clamp * factor,
            clamp_by=self.clamp_by,
            potential=self.potential,
            attraction=self.attraction,
            cut_off=self.cut_off,
            aim=self.aim,
            hold=self.hold * factor,
            velocity_gain=self.velocity_gain * factor,
            potential_gain=self.potential_gain * factor,
            soft_speed=self.soft_speed,
        )


@controller("tanner-bounded")
@dataclass(frozen=True)
class TannerBounded(Tanner):
    """An expert whose gain does not grow with the flock, and falls with the sampling period: starling's expert.

    Its velocity gain is 25 per second at a time step of 0.02 s, so an agent corrects half of its velocity error in one
    step. It attracts beyond 0.65, brakes agents that separate, and aims at the leaders if there are any.
    """

    clamp: float | None = 58.0
    """C, the largest norm of an acceleration at a time step of 0.02 s; None for no clamp."""
    attraction: float = 0.65
    """The distance d in U(r) = d^2 / r^2 + ln r^2 beyond which agents attract each other."""
    aim: Aim = "leaders"
    """Target of the velocities: the mean velocity of the "flock", or of its "leaders" if it has any."""
    hold: float = 112.0
    """h, gain of the brake on agents about to lose contact: a_i includes - h times the mean of "leaving"."""
    velocity_gain: float | None = 25.0
    """g in - g (v_i - aim), per second."""
    potential_gain: float = 0.1
    """p, factor on the sum of grad U."""
    soft_speed: float = 0.02
    """v_0: at a velocity error of u the velocity gain is g u / (u + v_0)."""

    gain_schedule: ClassVar[GainSchedule] = GainSchedule(period=0.02)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.velocity_gain is None:
            raise InputError("velocity_gain of tanner-bounded must be a number; for the paper's gain N use tanner")


@controller("tanner-dynamic")
@dataclass(frozen=True)
class TannerDynamic(TannerLaw):
    """The decentralized law for a changing graph: both sums run over the agents within R now."""

    def __call__(self, observations: Observations) -> Vectors:
        """Return accelerations (B, N, D) from one-hop sums (B, N, 1, C, D)."""
        return _compute_accelerations(EMPTY, EMPTY_ROLES, EMPTY, observations, self.tanner_args)


@controller("tanner-fixed")
@dataclass(frozen=True)
class TannerFixed(TannerDynamic):
    """The decentralized law for a fixed graph: both sums run over the agents that were within R at t = 0."""

    topology: ClassVar[Topology] = "fixed"


PAPER_SENSES = {topology: paper_senses("sum", 1, topology) for topology in get_args(Topology)}
EMPTY, EMPTY_ROLES = np.empty((0, 0, 0)), np.empty((0, 0), np.int8)
"""Placeholders for velocities, roles and far gradients, in laws that take all sums from observations."""
for _array in (EMPTY, EMPTY_ROLES):
    _array.setflags(write=False)  # read-only as the arrays of a flock, so that Numba compiles one version of the kernel


def _compute_accelerations(
    velocities: Vectors, roles: Roles, far_gradients: Vectors, observations: Observations, tanner_args: TannerArgs
) -> Vectors:
    """Return the result of `compute_tanner`, with the flocks distributed over threads."""
    # The kernel does not check bounds.
    width = (2 if tanner_args.has_own_potential else len(PAPER_FEATURES)) + (1 if tanner_args.hold else 0)
    if observations.ndim != 5 or observations.shape[2] < 1 or observations.shape[3] < width:
        expected = f"(B, N, 1, {width}, D)"
        raise InputError(f"observations must be one-hop sums of the shape {expected}; got {observations.shape}")
    B, N, _, _, D = observations.shape
    result = np.empty((B, N, D))
    common = velocities, roles, far_gradients, np.ascontiguousarray(observations), tuple(tanner_args), result
    parts = threads.split_flocks(B, N) if B > 1 else [(0, 1)]
    threads.run_parallel(compute_tanner, [(*common, *part) for part in parts])
    return result


@kernel
def compute_tanner(
    velocities: Array,
    roles: Array,
    far_gradients: Array,
    observations: Array,
    packed_args: tuple[Any, ...],
    result: Array,
    first: Index,
    last: Index,
) -> None:
    """Write the clamped accelerations (B, N, D) of all agents, whatever their role, of flocks first .. last - 1.

    The sum of v_ij runs over `velocities` (B, N, D), except those of agents with the role of an obstacle, or is taken
    from observations if velocities and roles are empty. `far_gradients` (B, N, D) are the sums of grad U over agents
    beyond R, or empty. `observations` (B, N, K, C, D), of which only the first hop is read, are the sums of v_ij,
    r_ij / |r_ij|^4 and r_ij / |r_ij|^2, or of v_ij and a custom gradient; then the means of "leaving" if `hold` is not
    0. `packed_args` is the `TannerArgs` as a plain tuple, which is faster to pass from Python.
    """
    _, N, D = result.shape
    whole_flock = len(velocities) > 0
    clamp, clamps_entries, has_own_potential, attraction_squared, aims_at_leaders, hold, g, p, v_0 = packed_args
    leaving_channel = 2 if has_own_potential else len(PAPER_FEATURES)
    total = np.empty(D)
    for b in range(first, last):
        # The sum of all velocities and the number of agents, without obstacle agents.
        count, leaders = 0, 0
        total[:] = 0.0
        if whole_flock:
            for i in range(N):
                if roles[b, i] != OBSTACLE:
                    count += 1
                    leaders += roles[b, i] == LEADER
                    for d in range(D):
                        total[d] += velocities[b, i, d]
        # The same as if every agent had the leaders' mean velocity, if that is the aim.
        if aims_at_leaders and leaders > 0:
            total[:] = 0.0
            for i in range(N):
                if roles[b, i] == LEADER:
                    for d in range(D):
                        total[d] += velocities[b, i, d] * (count / leaders)
        # The sum has the gain N; g / N makes it g.
        alignment_factor = g / count if g > 0.0 and count > 0 else 1.0
        for i in range(N):
            # g u / (u + v_0), for the velocity error u = |v_i - aim|.
            own_factor = alignment_factor
            if v_0 > 0.0 and whole_flock and count > 0:
                error = 0.0
                for d in range(D):
                    error += (total[d] / count - velocities[b, i, d]) ** 2
                error = math.sqrt(error)
                own_factor *= error / (error + v_0)
            square = 0.0
            for d in range(D):
                # - sum_j v_ij, which is sum_j v_j - N v_i over the whole flock.
                neighbour_sum = -np.float64(observations[b, i, 0, 0, d])
                alignment = total[d] - count * velocities[b, i, d] if whole_flock else neighbour_sum
                alignment *= own_factor
                # - p sum_j grad U(|r_ij|) = - 2 p (r_ij / |r_ij|^2 - d^2 r_ij / |r_ij|^4), or a custom gradient.
                if has_own_potential:
                    acceleration = alignment - p * np.float64(observations[b, i, 0, 1, d])
                else:
                    inverse_fourth = np.float64(observations[b, i, 0, 1, d])
                    inverse_square = np.float64(observations[b, i, 0, 2, d])
                    acceleration = alignment - p * (2.0 * (inverse_square - attraction_squared * inverse_fourth))
                # The same over agents beyond R, if U is not cut off.
                if len(far_gradients) > 0:
                    acceleration -= p * far_gradients[b, i, d]
                # - h times the mean of "leaving".
                if hold > 0.0:
                    acceleration -= hold * np.float64(observations[b, i, 0, leaving_channel, d])
                result[b, i, d] = acceleration
                square += acceleration * acceleration
            # The clamp: every entry to [-C, C], or min(1, C / |a|) a.
            norm = math.sqrt(square)
            if clamps_entries:
                for d in range(D):
                    result[b, i, d] = min(max(result[b, i, d], -clamp), clamp)
            elif norm > clamp:
                for d in range(D):
                    result[b, i, d] *= clamp / norm
