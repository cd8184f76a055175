"""The slow, obvious twin of the radio: plain loops over agents, senders and steps, with hashes of plain integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from equiflock._runtime.randomness import NORMAL_QUANTILES
from equiflock.features import Senses
from equiflock.flock import Flock, Role
from equiflock.observations.orbit import Orbit
from equiflock.observations.radio import Radio
from tests import twins

Array = NDArray[Any]


def number(h: int) -> float:
    """A hash as a number from 0 to below 1."""
    return (h >> 11) / 2**53


def is_lost(radio: Radio, flock: int, step: int, sender: int, receiver: int) -> bool:
    """Whether the message of a step is lost; bursts by the chain of the link, begun a thousand steps before."""
    if radio.burst is None or radio.packet_loss in (0.0, 1.0):
        return number(twins.hashed(radio.seed, flock, step, receiver, sender)) < radio.packet_loss
    stay = 1 - 1 / radio.burst
    fall = radio.packet_loss / (radio.burst * (1 - radio.packet_loss))
    lost = False
    for m in range(step - 400, step + 1):
        lost = number(twins.hashed(radio.seed, flock, m, receiver, sender)) < (stay if lost else fall)
    return lost


def arrival(radio: Radio, flock: int, step: int, sender: int, receiver: int) -> int:
    """The step at which the message of a step arrives."""
    h = twins.hashed(radio.seed, flock, step, receiver, sender)
    return step + radio.delay + (twins.hashed_on(h, 2) % (radio.jitter + 1))


def sends(radio: Radio, flock: int, step: int, sender: int) -> bool:
    """Whether it is the sender's turn."""
    return (step + twins.hashed(radio.seed, flock, -1, sender)) % radio.send_interval == 0


def noise(radio: Radio, flock: int, step: int, sender: int, receiver: int, D: int) -> Array:
    """Normal numbers for relative position and velocity, (2, D)."""
    h = twins.hashed(radio.seed, flock, step, receiver, sender)
    one, other = twins.hashed_on(h, 1), twins.hashed_on(h, 3)

    def pick(hashed: int, which: int) -> float:
        return float(NORMAL_QUANTILES[hashed >> (12 * which) & 4095])

    if D == 2:
        return np.array([[pick(one, 0), pick(one, 1)], [pick(one, 2), pick(one, 3)]])
    return np.array([[pick(one, d) for d in range(3)], [pick(other, d) for d in range(3)]])


def quantized(values: Array, bits: int | None) -> Array:
    """Each number with a fraction of bits - 8 bits, the leading one included."""
    if bits is None:
        return values
    fraction, exponent = np.frexp(np.asarray(values, np.float64))
    scale = 2.0 ** (bits - 8)
    return np.ldexp(np.rint(fraction * scale) / scale, exponent)


class RadioTwin:
    """Observations of a flock in flight under a radio: call `observe` once per step."""

    def __init__(
        self,
        senses: Senses,
        radio: Radio,
        orbit: Orbit | None = None,
        obstacles: str = "nearest",
        time_scale: float = 1.0,
    ) -> None:
        self.senses, self.radio, self.orbit, self.obstacles = senses, radio, orbit, obstacles
        self.time_scale = time_scale
        self.flocks: list[Flock] = []
        self.known: list[Array] = []
        self.known_now: Array = np.empty(0)
        self.muted: list[Array] = []
        self.used: list[dict[tuple[int, int], int]] = []
        """For each flock: (receiver, sender) -> the step of the message that is used now."""

    def observe(self, flock: Flock, muted: Array | None = None) -> Array:
        B, N, D = flock.shape
        empty = np.zeros((B, N, self.senses.hops, self.senses.width, D))
        self.flocks.append(flock)
        self.known.append(self.known_now if self.flocks[1:] else empty)
        self.muted.append(np.zeros((B, N), bool) if muted is None else muted)
        self.used = [self._messages(b) for b in range(B)]
        self.known_now = np.stack([self._aggregate(b) for b in range(B)])
        return self.known_now

    def _messages(self, b: int) -> dict[tuple[int, int], int]:
        radio, now = self.radio, len(self.flocks) - 1
        found = {}
        roles = self.flocks[-1].roles[b]
        R = self.flocks[-1].comm_radius
        reach = [twins.adjacency(flock.positions[b], roles, R) for flock in self.flocks]
        for i in np.flatnonzero(roles == Role.FOLLOWER).tolist():
            for j in range(len(roles)):
                for m in range(now, -1, -1):
                    near = reach[0 if self.senses.topology == "fixed" else m][i, j]
                    if not near or self.muted[m][b, j] or not sends(radio, b, m, j):
                        continue
                    late = now - arrival(radio, b, m, j, i)
                    if 0 <= late <= radio.last_known and not is_lost(radio, b, m, j, i):
                        found[i, j] = m
                        break
        return found

    def _aggregate(self, b: int) -> Array:
        senses, radio, flock = self.senses, self.radio, self.flocks[-1]
        positions, velocities, roles, groups = flock.positions[b], flock.velocities[b], flock.roles[b], flock.groups[b]
        N, D = positions.shape
        result = np.zeros((N, senses.hops, senses.width, D))
        for i in range(N):
            steps = {j: m for (receiver, j), m in self.used[b].items() if receiver == i}
            if not steps:
                continue
            r = {j: positions[i] - self.flocks[m].positions[b, j] for j, m in steps.items()}
            v = {j: velocities[i] - self.flocks[m].velocities[b, j] for j, m in steps.items()}
            rims = [j for j in steps if roles[j] == Role.OBSTACLE]
            mates = [j for j in steps if roles[j] != Role.OBSTACLE]
            neighbours, taken = list(steps), {}
            if rims:
                nearest = rims[int(np.argmin([(r[j] ** 2).sum() for j in rims]))]
                neighbours = [*mates, nearest] if self.obstacles == "nearest" else neighbours
                if self.orbit is not None:
                    theirs = [self.flocks[steps[j]].velocities[b, j] for j in mates]
                    mean = np.mean([*theirs, velocities[i]], axis=0)
                    taken = {j: np.zeros(2) for j in rims}
                    taken[nearest] = twins.orbit_velocity(-r[nearest], mean, self.orbit)
            for j in neighbours:
                spread = radio.noise * flock.comm_radius * noise(radio, b, steps[j], j, i, D)
                r[j] = quantized(r[j] + spread[0], radio.quantization)
                v[j] = taken.get(j, quantized(v[j] + spread[1] * self.time_scale, radio.quantization))
            for c, (feature, (_, aggregation)) in enumerate(zip(senses.features, senses.channels, strict=True)):
                counted = [
                    j
                    for j in neighbours
                    if feature.among == "all"
                    or (roles[j] != Role.OBSTACLE and (groups[j] == groups[i]) == (feature.among == "same"))
                ]
                vectors = [twins.feature_vector(feature, r[j], v[j]) for j in counted]
                if vectors:
                    result[i, 0, c] = sum(vectors) / (len(vectors) if aggregation == "mean" else 1)
            for k in range(1, senses.hops):
                past = [quantized(self.known[steps[j]][b, j, k - 1], radio.quantization) for j in neighbours]
                result[i, k] = np.mean(past, axis=0)
        return result
