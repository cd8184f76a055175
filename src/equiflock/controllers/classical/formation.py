"""Flocks that fly in a pattern: singular Cucker-Smale with formation control.

The law of Choi, Kalise, Peszek and Peters (2019, "A collisionless singular Cucker-Smale model with decentralized
formation control"), with the noise of Choi, Oh and Tse (2021, "Controlled pattern formation of stochastic Cucker-Smale
systems with network structures"). With a place z_i for each agent, and x_i = r_i - z_i,

    a_i = (strength / N) sum_j |r_ij|^-alpha (v_j - v_i) + (gain / N) sum_j phi(|x_ij|^2) (x_j - x_i)
          + (noise / N) sum_j (v_j - v_i) dB/dt,    phi(s) = (1 + s)^-beta,  beta <= 1

B is one Brownian motion for all, and the noise ends as velocities agree. The flock comes to fly as one with all x_i the
same: in the pattern z, wherever that is. In continuous time, agents that begin apart never touch if alpha >= 1; but
nothing keeps them farther apart, and those that trade places pass each other within some thousandths of R.

In the paper of 2019 the control, the second sum, runs over i - 1 and i + 1 alone, a chain, without 1/N; in that of 2021
over any symmetric connected network. The equations are as in the public code of one of its authors (Oh). 1/N in front
of control and noise, and all numbers, are our choice. An agent's place in the pattern is no observation, but given by
its number, so the law is privileged.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np
from jaxtyping import Bool, Float64, Int64

from equiflock.controllers.classical.cucker_smale_singular import CuckerSmaleSingularBase
from equiflock.controllers.classical.pair_law import MINIMAL_SENSES, clamp_norm
from equiflock.controllers.registry import controller
from equiflock.features import Senses, feature, format_feature_name
from equiflock.flock import FOLLOWER, OBSTACLE, Flock, Observations, Vectors
from equiflock.pairs.all_pairs import sum_over_all_pairs
from equiflock.patterns import DEFAULT_SPACING, WORD_METADATA, Pattern, assign_places, check_pattern
from equiflock.runtime.checks import InputError, check_choice, check_count, check_positive

PullNetwork: TypeAlias = Literal["all", "chain"]


@feature("tether", vector="position")
def tether(square: float, beta: float = 0.5) -> float:
    """The pull phi(|x|^2) = (1 + |x|^2)^-beta, times x_ij."""
    return float((1.0 + square) ** -beta)


@controller("formation")
@dataclass(frozen=True)
class Formation(CuckerSmaleSingularBase):
    """Everybody aligns with everybody, and takes its place in a pattern: a vee, a circle, a word. Up to 100 agents.

    A larger pattern is so wide that its agents hardly align, and rests late. Its sums are O(N^2) time. The pattern does
    not turn with the flock. Obstacle agents, and agents that are silent or stopped, are left out.
    """

    strength: float = 20.0
    """How fast velocities would agree, per second, at a distance of 1."""
    gain: float = 40.0
    """How strongly agents are pulled to their places, per second squared."""
    beta: float = 0.5
    """How the pull falls with the distance from the place: up to 1 slowly enough that every flock gets there."""
    pattern: Pattern = field(default="vee", metadata=WORD_METADATA)
    """The pattern: vee, circle, a word in capital letters; in Python also points (N, D)."""
    spacing: float = DEFAULT_SPACING
    """The distance between neighbours in the pattern; points of your own are taken as they are."""
    network: PullNetwork = "all"
    """Who pulls whom to its place: all, or a chain, in which agent i looks at i - 1 and i + 1 alone. A chain needs a
    gain, and a time, that grow with the square of its length."""
    noise: float = 0.0
    """How strongly velocities are shaken as long as they differ, per square root of a second."""
    noise_step: float = 0.01
    """The time step of the flight, by which the noise is scaled: a law has no clock."""
    seed: int = 0
    """Of the noise: the same seed and the same state of a flock give the same number, so a flock that is turned is
    shaken by other numbers."""

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
            # Of tuples, so that laws can be compared, and nobody changes the points later.
            points = tuple(tuple(map(float, point)) for point in self.pattern)
            object.__setattr__(self, "pattern", points)

    def __call__(self, flock: Flock, observations: Observations) -> Vectors:
        """Accelerations (B, N, D) from the flock; its observations are not looked at."""
        channels = self.channels if self.noise == 0.0 else (*self.channels, ("velocity", "mean"))
        sums = sum_over_all_pairs(flock, channels)
        # x = r - z, for which the pattern is a single point.
        places = assign_places(flock, self.pattern, self.spacing)
        others = flock.arrays[1:]
        relative_flock = Flock.view(flock.positions - places, *others, comm_radius=flock.comm_radius)
        pull = (
            self._compute_pull_all(relative_flock)
            if self.network == "all"
            else self._compute_pull_chain(relative_flock)
        )
        result = self.compute_acceleration(sums) + self.gain * pull
        if self.noise > 0.0:
            result -= self.noise * self._draw_noise(flock)[:, None, None] * sums[:, :, 1]
        return clamp_norm(result, self.clamp)

    def _compute_pull_all(self, relative_flock: Flock) -> Vectors:
        """(1/N) sum_j phi(|x_ij|^2) (x_j - x_i)."""
        return -sum_over_all_pairs(relative_flock, ((format_feature_name("tether", beta=self.beta), "mean"),))[:, :, 0]

    def _compute_pull_chain(self, relative_flock: Flock) -> Vectors:
        """The sum of phi(|x_ij|^2) (x_j - x_i) over the agents before and after i, of those that count: O(N)."""
        counted = (relative_flock.roles != OBSTACLE) & ~relative_flock.muted
        pull = np.zeros(relative_flock.shape)
        for neighbour in _find_chain_neighbours(counted):
            # Whoever is at an end of the chain has no neighbour on that side: -1.
            other = np.take_along_axis(relative_flock.positions, np.maximum(neighbour, 0)[..., None], axis=1)
            way = np.where((neighbour >= 0)[..., None], other - relative_flock.positions, 0.0)
            pull += (1.0 + np.square(way).sum(axis=-1, keepdims=True)) ** -self.beta * way
        return np.where((relative_flock.roles == FOLLOWER)[..., None], pull, 0.0)

    def _draw_noise(self, flock: Flock) -> Float64[np.ndarray, " B"]:
        """The increment of B in a step, over the step: a normal number for each flock, over sqrt(noise_step)."""
        states = (flock.positions[b].tobytes() + flock.velocities[b].tobytes() for b in range(len(flock)))
        return np.array([_draw_normal(self.seed, state) for state in states]) / math.sqrt(self.noise_step)


def _find_chain_neighbours(
    counted: Bool[np.ndarray, "B N"],
) -> tuple[Int64[np.ndarray, "B N"], Int64[np.ndarray, "B N"]]:
    """The nearest agent that counts before each agent, and after it, by their numbers; -1 where there is none."""
    B, N = counted.shape
    numbers, nobody = np.arange(N), np.full((B, 1), -1)
    before = np.maximum.accumulate(np.where(counted, numbers, -1), axis=1)
    after = np.minimum.accumulate(np.where(counted, numbers, N)[:, ::-1], axis=1)[:, ::-1]
    after = np.where(after < N, after, -1)
    return np.concatenate([nobody, before[:, :-1]], axis=1), np.concatenate([after[:, 1:], nobody], axis=1)


def _draw_normal(seed: int, state: bytes) -> float:
    """A normal number that is a function of the seed and of the state of a flock."""
    digest = hashlib.blake2b(state, digest_size=8, key=int(seed).to_bytes(8, "little")).digest()
    # 53 bits, from the middle of the first share of the unit interval to the middle of the last.
    return NormalDist().inv_cdf(((int.from_bytes(digest, "little") >> 11) + 0.5) * 2.0**-53)
