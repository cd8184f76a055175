"""The laws of pairs written down in whole arrays, and flights of them without a clamp."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import equiflock as ef
from equiflock.flock import Flock
from equiflock.simulation.trajectory import Trajectory
from tests import twins

Array = NDArray[Any]


def accelerations(flock: Flock, name: str, **options: Any) -> Array:
    """What a law commands first, without a clamp unless the options have one."""
    return next(ef.flight(flock, ef.load(name, **{"clamp": None, **options}))).accelerations.copy()


def pairs(flock: Flock) -> tuple[Array, Array, Array]:
    """r_ij and v_ij, (B, N, N, D), and |r_ij|, (B, N, N, 1), which counts as at least 1e-8."""
    r, v = (array[:, :, None] - array[:, None] for array in (flock.positions, flock.velocities))
    return r, v, np.maximum(np.sqrt(np.square(r).sum(axis=-1, keepdims=True)), twins.MIN_DISTANCE)


def neighbour_mask(flock: Flock) -> Array:
    """(B, N, N, 1), whether agent j is a neighbour of agent i."""
    return np.stack([twins.adjacency(flock.positions[b], flock.roles[b], 1.0) for b in range(len(flock))])[..., None]


def over_pairs(flock: Flock, terms: Array, name: str, aggregation: str) -> Array:
    """(B, N, D) of terms (B, N, N, D): over the flock, a mean being 1/N times the sum; over neighbours, if local."""
    if not name.endswith("-local") and name != "reynolds":
        return terms.sum(axis=2) / (flock.shape[1] if aggregation == "mean" else 1)
    among = neighbour_mask(flock)
    degrees = np.maximum(among.sum(axis=2), 1) if aggregation == "mean" else 1
    return (terms * among).sum(axis=2) / degrees


def assert_equal(found: Array, expected: Array, terms: Array, name: str) -> None:
    """Assert that accelerations agree up to the rounding of their terms, which is that of float32 for observations."""
    accuracy = 1e-11 if getattr(ef.load(name), "privileged", False) else 1e-5
    np.testing.assert_allclose(found, expected, rtol=accuracy, atol=accuracy * (1.0 + np.abs(terms).max(initial=0.0)))


def fly(flock: Flock, name: str, time_step: float, duration: float, record: Any = (), **options: Any) -> Trajectory:
    """A flight of a law without a clamp unless the options have one, of which the first and last frame are kept."""
    law = ef.load(name, **{"clamp": None, **options})
    return ef.simulate(flock, law, time_step=time_step, duration=duration, keep_every=None, record=record)


def head_on(speed: float, distance: float = 1.0) -> Flock:
    """Two agents on a line that approach each other at this speed, each at half of it."""
    return Flock([[[distance, 0.0], [0.0, 0.0]]], [[[-speed / 2, 0.0], [speed / 2, 0.0]]])


def gap(moment: Any) -> Array:
    """How far agent 0 is to the right of agent 1, (B,)."""
    return moment.flock.positions[:, 0, 0] - moment.flock.positions[:, 1, 0]


def imploding(flocks: int, agents: int, dimensions: int, rate: float, seed: int = 3) -> Flock:
    """Crowded flocks, at least 0.1 apart, in which all fly to the middle, to be there at once after 1 / rate."""
    rng, places = np.random.default_rng(seed), np.empty((flocks, agents, dimensions))
    for b in range(flocks):
        for i in range(agents):
            while True:
                place = rng.uniform(-1, 1, dimensions)
                apart = np.sqrt(np.square(places[b, :i] - place).sum(axis=-1)).min(initial=1.0)
                if np.linalg.norm(place) < 1.0 and apart > 0.1:
                    break
            places[b, i] = place
    places -= places.mean(axis=1, keepdims=True)
    return Flock(places, -rate * places)
