"""Formation flight: the singular Cucker-Smale law with formation control.

The law of Choi, Kalise, Peszek and Peters (2019, "A collisionless singular Cucker-Smale model with decentralized
formation control"), with the noise of Choi, Oh and Tse (2021, "Controlled pattern formation of stochastic Cucker-Smale
systems with network structures"). With a target z_i in the pattern for each agent, and x_i = r_i - z_i,

    a_i = (strength / N) sum_j |r_ij|^-alpha (v_j - v_i) + (gain / N) sum_j phi(|x_ij|^2) (x_j - x_i)
          + (noise / N) sum_j (v_j - v_i) dB/dt,    phi(s) = (1 + s)^-beta,  beta <= 1

B is one Brownian motion for all agents, and the noise vanishes as velocities align. The flock reaches a common velocity
with all x_i equal, i.e. the pattern z up to a translation. In continuous time, agents that start at different positions
never collide if alpha >= 1; but the law ensures no larger distance, and agents that swap places pass each other within
some thousandths of R.

In the paper of 2019 the control, the second sum, runs over the chain i - 1, i + 1 without 1/N; in that of 2021 over any
symmetric connected network. The equations follow the public code of one of its authors (Oh). The factors 1/N of control
and noise and all parameter values are choices of this implementation. An agent's place in the pattern depends on its
number, which is no observation, so the law is privileged.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

from equiflock._runtime.checks import InputError, check_choice, check_count, check_positive
from equiflock._runtime.specs import format_spec
from equiflock.controllers.classical.cucker_smale_singular import CuckerSmaleSingularBase
from equiflock.controllers.classical.formation_patterns import (
    DEFAULT_SPACING,
    WORD_METADATA,
    Pattern,
    assign_places,
    check_pattern,
)
from equiflock.controllers.classical.pair_law import (
    MINIMAL_SENSES,
    Vector,
    clamp_norm,
    clamp_terms,
    sum_for_agent,
    sum_over_all_pairs,
)
from equiflock.controllers.registry import controller
from equiflock.features import Channel, Senses, feature
from equiflock.flock import FOLLOWER, OBSTACLE, Flock, Observations, Vectors

PullNetwork: TypeAlias = Literal["all", "chain"]


@feature("tether", vector="position")
def tether(square: float, beta: float = 0.5) -> float:
    """Return the weight phi(|x|^2) = (1 + |x|^2)^-beta of x_ij."""
    return float((1.0 + square) ** -beta)


@controller("formation")
@dataclass(frozen=True)
class Formation(CuckerSmaleSingularBase):
    """All agents align and take their places in a pattern: a vee, a circle, a word. For up to about 100 agents.

    In larger patterns agents are too far apart to align well, so they converge late. Sums take O(N^2) time. The pattern
    does not rotate with the flock. Obstacle agents and silent or stopped agents are excluded.
    """

    strength: float = 20.0
    """Rate of alignment, per second, at a distance of 1."""
    gain: float = 40.0
    """Gain of the pull towards the places, per second squared."""
    beta: float = 0.5
    """Decay exponent of the pull with distance; up to 1, every flock reaches its pattern."""
    pattern: Pattern = field(default="vee", metadata=WORD_METADATA)
    """The pattern: vee, circle, or a word in capital letters; in Python also points (N, D)."""
    spacing: float = DEFAULT_SPACING
    """Distance between neighbours in the pattern; custom points are not rescaled."""
    network: PullNetwork = "all"
    """Agents that the control runs over: all, or a chain, in which agent i depends on i - 1 and i + 1 only. A chain
    needs a gain and a duration that grow with the square of its length."""
    noise: float = 0.0
    """Gain of the noise on velocity differences, per square root of a second."""
    noise_step: float = 0.01
    """Time step of the flight, which scales the noise: a law does not know the time step."""
    seed: int = 0
    """Seed of the noise, a function of the seed and the flock's state: a rotated flock gets different noise."""

    privileged: ClassVar[Literal[True]] = True
    senses: ClassVar[Senses] = MINIMAL_SENSES

    def __post_init__(self) -> None:
        super().__post_init__()
        check_pattern(self.pattern)
        check_choice("network", self.network, get_args(PullNetwork))
        check_positive("spacing", self.spacing)
        check_positive("noise_step", self.noise_step)
        check_count("seed", self.seed, least=0)
        if self.beta > 1.0:
            raise InputError(f"beta must be at most 1; got {self.beta:g}")
        if not isinstance(self.pattern, str):
            # Tuples make laws comparable and the points immutable.
            points = tuple(tuple(map(float, point)) for point in self.pattern)
            object.__setattr__(self, "pattern", points)

    def __call__(self, flock: Flock, observations: Observations) -> Vectors:
        """Return accelerations (B, N, D) from the flock, zero for all but followers; observations are ignored."""
        channels = self.channels if self.noise == 0.0 else (*self.channels, ("velocity", "mean"))
        sums = sum_over_all_pairs(flock, channels)
        relative_flock = self._subtract_places(flock)
        compute_pull = self._compute_pull_all if self.network == "all" else self._compute_pull_chain
        result = self.compute_acceleration(sums) + self.gain * compute_pull(relative_flock)
        if self.noise > 0.0:
            result -= self.noise * self._draw_noise(flock)[:, None, None] * sums[:, :, 1]
        return clamp_norm(result, self.clamp)

    def compute_terms(
        self, observation: Float[np.ndarray, "K C D"], flock: Flock | None, agent: int
    ) -> dict[str, Vector]:
        """Return alignment, pull to the place, and noise, of a follower of a flock in a batch of one."""
        assert flock is not None
        sums = sum_for_agent(flock, agent, (*self.channels, ("velocity", "mean")))
        relative_flock = self._subtract_places(flock)
        if self.network == "all":
            pull = -sum_for_agent(relative_flock, agent, self._pull_channels)[0, 0, 0]
        else:
            pull = self._compute_pull_chain(relative_flock)[0, agent]
        terms = {**self.split_acceleration(sums), "pull": self.gain * pull}
        if self.noise > 0.0:
            terms["noise"] = -self.noise * self._draw_noise(flock)[0] * sums[0, 0, 1]
        return clamp_terms(terms, self.clamp)

    def _subtract_places(self, flock: Flock) -> Flock:
        """Return the flock with x = r - z as positions: all x are equal if the flock is in its pattern."""
        places = assign_places(flock, self.pattern, self.spacing)
        return Flock.view(flock.positions - places, *flock.arrays[1:], comm_radius=flock.comm_radius)

    @property
    def _pull_channels(self) -> tuple[Channel, ...]:
        return ((format_spec("tether", beta=self.beta), "mean"),)

    def _compute_pull_all(self, relative_flock: Flock) -> Vectors:
        """Return (1/N) sum_j phi(|x_ij|^2) (x_j - x_i), zero for all but followers; positions of the flock are x."""
        return -sum_over_all_pairs(relative_flock, self._pull_channels)[:, :, 0]

    def _compute_pull_chain(self, relative_flock: Flock) -> Vectors:
        """Return the sum of phi(|x_ij|^2) (x_j - x_i), without 1/N, over the agents next to i in the chain, in O(N)."""
        member = (relative_flock.roles != OBSTACLE) & ~relative_flock.muted
        pull = np.zeros(relative_flock.shape)
        x = relative_flock.positions
        for neighbour in _find_chain_neighbours(member):
            # -1 where the chain ends.
            x_j = np.take_along_axis(x, np.maximum(neighbour, 0)[..., None], axis=1)
            difference = np.where((neighbour >= 0)[..., None], x_j - x, 0.0)
            pull += (1.0 + np.square(difference).sum(axis=-1, keepdims=True)) ** -self.beta * difference
        return np.where((relative_flock.roles == FOLLOWER)[..., None], pull, 0.0)

    def _draw_noise(self, flock: Flock) -> Float64[np.ndarray, " B"]:
        """Return dB/dt (B,): a standard normal number from seed and state of the flock, divided by sqrt(noise_step)."""
        numbers = []
        for r, v in zip(flock.positions, flock.velocities, strict=True):
            state, key = r.tobytes() + v.tobytes(), int(self.seed).to_bytes(8, "little")
            digest = hashlib.blake2b(state, digest_size=8, key=key).digest()
            # 53 bits as the midpoint of one of 2^53 intervals of (0, 1).
            uniform = ((int.from_bytes(digest, "little") >> 11) + 0.5) * 2.0**-53
            numbers.append(NormalDist().inv_cdf(uniform))
        return np.array(numbers) / math.sqrt(self.noise_step)


def _find_chain_neighbours(
    member: Bool[np.ndarray, "B N"],
) -> tuple[Int64[np.ndarray, "B N"], Int64[np.ndarray, "B N"]]:
    """Return the index of the next member below and above each agent's own index; -1 if there is none."""
    B, N = member.shape
    indices, none = np.arange(N), np.full((B, 1), -1)
    before = np.maximum.accumulate(np.where(member, indices, -1), axis=1)
    after = np.minimum.accumulate(np.where(member, indices, N)[:, ::-1], axis=1)[:, ::-1]
    after = np.where(after < N, after, -1)
    return np.concatenate([none, before[:, :-1]], axis=1), np.concatenate([after[:, 1:], none], axis=1)
