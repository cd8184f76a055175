"""A double integrator moves each role by its own equation, exactly for an acceleration held during the step."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from equiflock._runtime import threads
from equiflock.bodies import DoubleIntegrator
from equiflock.flock import Flock, Role
from equiflock.protocols import Body, BodyStep
from tests.flocks import flocks


def advance(*arguments: Any) -> None:
    DoubleIntegrator().advance(BodyStep(*arguments))


def test_it_is_a_body() -> None:
    assert isinstance(DoubleIntegrator(), Body)


@given(flocks(), st.floats(1e-4, 0.5))
def test_each_role_moves_by_its_own_rule(flock: Flock, time_step: float) -> None:
    accelerations = np.random.default_rng(0).normal(size=flock.shape)
    positions, velocities = flock.positions.copy(), flock.velocities.copy()
    advance(positions, velocities, flock.roles, accelerations, time_step, np.arange(len(flock)))
    for b, i in np.ndindex(flock.shape[:2]):
        r, v, a = flock.positions[b, i], flock.velocities[b, i], accelerations[b, i]
        match flock.roles[b, i]:
            case Role.FOLLOWER:
                expected = r + v * time_step + a * time_step**2 / 2, v + a * time_step
            case Role.LEADER:
                expected = r + v * time_step, v
            case _:
                expected = r, v
        np.testing.assert_allclose(positions[b, i], expected[0], rtol=1e-14, atol=1e-14)
        np.testing.assert_allclose(velocities[b, i], expected[1], rtol=1e-14, atol=1e-14)


def test_only_active_flocks_move() -> None:
    positions, velocities, push = np.zeros((3, 2, 2)), np.ones((3, 2, 2)), np.ones((3, 2, 2))
    advance(positions, velocities, np.zeros((3, 2), np.int8), push, 0.1, np.array([0, 2]))
    assert positions[0].all()
    assert not positions[1].any()
    assert positions[2].all()


def error_at_one_second(time_step: float) -> float:
    """How far a harmonic oscillator, a = -r, is from cos(t) after a second."""
    positions, velocities = np.array([[[1.0, 0.0]]]), np.zeros((1, 1, 2))
    for _ in range(round(1.0 / time_step)):
        advance(positions, velocities, np.zeros((1, 1), np.int8), -positions, time_step, np.array([0]))
    return abs(float(positions[0, 0, 0]) - float(np.cos(1.0)))


def test_a_constant_acceleration_is_integrated_exactly_and_a_changing_one_to_first_order() -> None:
    positions, velocities = np.zeros((1, 1, 2)), np.zeros((1, 1, 2))
    for _ in range(100):
        advance(positions, velocities, np.zeros((1, 1), np.int8), np.ones((1, 1, 2)), 0.01, np.array([0]))
    np.testing.assert_allclose(positions, 0.5, rtol=1e-12)
    order = np.log2(error_at_one_second(1e-2) / error_at_one_second(5e-3))
    assert 0.9 < order < 1.1


def test_threads_do_not_change_the_motion() -> None:
    rng = np.random.default_rng(0)
    results = []
    start, push = rng.normal(size=(1, 50_000, 2)), rng.normal(size=(1, 50_000, 2))
    for count in (1, 2):
        positions, velocities = start.copy(), start.copy()
        with threads.use(count):
            advance(positions, velocities, np.zeros((1, 50_000), np.int8), push, 0.1, np.array([0]))
        results.append((positions.tobytes(), velocities.tobytes()))
    assert results[0] == results[1]
