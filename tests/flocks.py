"""Flocks for property tests, the hard cases included: coincident agents, borders of cells, far groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from equiflock.flock import NO_OBSTACLE, Condition, Flock, Role

Array = NDArray[Any]


def _scattered(rng: np.random.Generator, N: int, D: int) -> Array:
    return rng.uniform(-2.5, 2.5, (N, D))


def _lonely(rng: np.random.Generator, N: int, D: int) -> Array:
    return rng.uniform(-1e6, 1e6, (N, D))


def _coincident(rng: np.random.Generator, N: int, D: int) -> Array:
    return rng.integers(-1, 2, (N, D)).astype(float)


def _on_a_lattice_of_radius(rng: np.random.Generator, N: int, D: int) -> Array:
    """Neighbours exactly at distance 1, and exactly on the borders of cells."""
    return rng.integers(-3, 4, (N, D)) * 1.0


def _beside_borders(rng: np.random.Generator, N: int, D: int) -> Array:
    """A rounding error away from the borders of cells: 1 apart by float64's subtraction, though not quite."""
    return rng.integers(-2, 3, (N, D)) + rng.choice([0.0, 1e-17, -1e-17, 1e-300, -5e-324, 2.0**-52], (N, D))


def _one_cell(rng: np.random.Generator, N: int, D: int) -> Array:
    return rng.uniform(0.1, 0.4, (N, D))


def _nearly_coincident(rng: np.random.Generator, N: int, D: int) -> Array:
    return rng.uniform(-1, 1, (N, D)) * 10.0 ** rng.integers(-300, 1, (N, 1)).astype(float)


def _far_groups(rng: np.random.Generator, N: int, D: int) -> Array:
    """Small groups far apart: more cells than the table has, so far cells share buckets."""
    return rng.uniform(-1, 1, (N, D)) + rng.integers(-3, 4, (N, D)) * rng.choice([20, 1e3, 1e7])


LAYOUTS: list[Callable[[np.random.Generator, int, int], Array]] = [
    _scattered,
    _lonely,
    _coincident,
    _on_a_lattice_of_radius,
    _beside_borders,
    _one_cell,
    _nearly_coincident,
    _far_groups,
]


@st.composite
def flocks(draw: st.DrawFn, max_agents: int = 30, roles: bool = True, failed: bool = False) -> Flock:
    """One to three flocks of one to `max_agents` agents, in the plane or in space, some of whom may have failed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    B, N, D = draw(st.integers(1, 3)), draw(st.integers(1, max_agents)), draw(st.sampled_from([2, 3]))
    layout = draw(st.sampled_from(LAYOUTS))
    positions = np.stack([layout(rng, N, D) for _ in range(B)])
    velocities = rng.uniform(-3, 3, (B, N, D))
    kinds = np.zeros((B, N), np.int8)
    if roles:
        kinds = rng.choice(3 if D == 2 else 2, (B, N), p=[0.7, 0.2, 0.1] if D == 2 else [0.8, 0.2]).astype(np.int8)
        kinds[(kinds == Role.OBSTACLE).all(axis=1), 0] = Role.FOLLOWER
        velocities[kinds == Role.OBSTACLE] = 0.0
    numbers = np.where(kinds == Role.OBSTACLE, rng.integers(0, min(3, N), (B, N)), NO_OBSTACLE)
    conditions = np.zeros((B, N), np.int8)
    if failed and draw(st.booleans()):
        conditions = rng.choice(4, (B, N), p=[0.55, 0.15, 0.15, 0.15]).astype(np.int8)
        conditions[kinds == Role.OBSTACLE] = Condition.WORKING
        velocities[conditions == Condition.STOPPED] = 0.0
    return Flock(positions, velocities, kinds, numbers, conditions=conditions)
