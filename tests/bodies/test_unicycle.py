"""A unicycle flies where it points, and turns and speeds up no faster than it can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock._runtime import threads
from equiflock.bodies import DoubleIntegrator, Unicycle
from equiflock.flock import Flock, Role
from equiflock.protocols import StatefulBody
from tests.bodies import twins
from tests.flocks import flocks

LIMITS = st.one_of(st.none(), st.floats(1e-2, 10.0))
UNICYCLES = st.builds(Unicycle, LIMITS, LIMITS, LIMITS)
PLANE = flocks().filter(lambda flock: flock.shape[2] == 2)


def moved(body: Unicycle, flock: Flock, commands: Any, time_step: float) -> tuple[Any, Any, Any]:
    positions, velocities, state = flock.positions.copy(), flock.velocities.copy(), body.init_state(flock)
    body.advance(ef.BodyStep(positions, velocities, flock.roles, commands, time_step, np.arange(len(flock)), state))
    return positions, velocities, state["heading"]


def with_some_at_rest(flock: Flock) -> Flock:
    velocities = flock.velocities.copy()
    velocities[:, ::3] = 0.0
    return Flock(flock.positions, velocities, flock.roles, flock.obstacles)


@given(PLANE, UNICYCLES, st.floats(1e-3, 0.5), st.floats(0.1, 100.0))
def test_kernel_equals_the_reference_implementation(flock: Flock, body: Unicycle, dt: float, size: float) -> None:
    assert isinstance(body, StatefulBody)
    flock = with_some_at_rest(flock)
    commands = size * np.random.default_rng(0).normal(size=flock.shape)
    positions, velocities, headings = moved(body, flock, commands, dt)
    for b, i in np.ndindex(flock.shape[:2]):
        known = flock.positions[b, i], flock.velocities[b, i], 0.0
        expected = twins.unicycle(body, known, flock.roles[b, i], commands[b, i], dt)
        np.testing.assert_allclose(positions[b, i], expected[0], rtol=1e-12, atol=1e-12 * (1 + size))
        np.testing.assert_allclose(velocities[b, i], expected[1], rtol=1e-9, atol=1e-11 * (1 + size))
        np.testing.assert_allclose(np.exp(1j * headings[b, i]), np.exp(1j * expected[2]), rtol=1e-10)


@given(PLANE, UNICYCLES, st.floats(1e-3, 0.5), st.sampled_from([1.0, 1e3, 1e100, 1e300]))
def test_turn_rate_acceleration_and_speed_are_limited(flock: Flock, body: Unicycle, dt: float, size: float) -> None:
    flock = with_some_at_rest(flock)
    commands = size * np.random.default_rng(1).uniform(-1, 1, flock.shape)
    before = body.init_state(flock)["heading"]
    positions, velocities, after = moved(body, flock, commands, dt)
    follower = flock.roles == Role.FOLLOWER
    assert np.isfinite(positions).all()
    speeds = [np.hypot(*np.moveaxis(v, -1, 0))[follower] for v in (flock.velocities, velocities)]
    turns = np.abs(np.angle(np.exp(1j * (after - before))))[follower]
    assert np.abs(after).max() <= np.pi * (1 + 1e-15)
    if body.max_turn_rate is not None:
        assert turns.max(initial=0.0) <= body.max_turn_rate * dt + 1e-14
    if body.max_acceleration is not None:
        assert np.abs(speeds[1] - speeds[0]).max(initial=0.0) <= body.max_acceleration * dt + 1e-12
    elif body.max_speed is not None:
        assert speeds[1].max(initial=0.0) <= body.max_speed * (1 + 1e-12)
    # Velocities are along headings: no agent slides sideways.
    sideways = velocities[..., 0] * np.sin(after) - velocities[..., 1] * np.cos(after)
    assert (np.abs(sideways[follower]) <= 1e-14 * (1 + speeds[1])).all()


@given(PLANE, st.floats(1e-3, 0.5))
def test_without_limits_it_is_the_double_integrator(flock: Flock, time_step: float) -> None:
    flock = with_some_at_rest(flock)
    commands = 10 * np.random.default_rng(0).normal(size=flock.shape)
    found = moved(Unicycle(), flock, commands, time_step)
    positions, velocities = flock.positions.copy(), flock.velocities.copy()
    everyone = np.arange(len(flock))
    DoubleIntegrator().advance(ef.BodyStep(positions, velocities, flock.roles, commands, time_step, everyone))
    np.testing.assert_allclose(found[0], positions, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(found[1], velocities, rtol=1e-13, atol=1e-13)


def test_agent_turns_the_shorter_way_and_keeps_its_heading_at_rest() -> None:
    flock = Flock(np.zeros((1, 2, 2)), np.array([[[-1.0, 0.01], [-1.0, -0.01]]]))
    body = Unicycle(max_turn_rate=1.0)
    # To the other side of the negative axis: less than a step's turn away, not most of a circle.
    commands = np.array([[[0.0, -0.2], [0.0, 0.2]]])
    _, velocities, headings = moved(body, flock, commands, 0.1)
    assert np.abs(headings).min() > 3.1
    np.testing.assert_allclose(velocities[0, :, 1], [-0.01, 0.01], rtol=1e-9)
    # A command that stops an agent within a step leaves its heading.
    _, velocities, headings = moved(body, flock, -flock.velocities / 0.1, 0.1)
    assert np.abs(velocities).max() < 1e-15
    np.testing.assert_allclose(headings, np.arctan2([[0.01, -0.01]], -1.0))


def test_threads_do_not_change_the_motion() -> None:
    rng = np.random.default_rng(0)
    flock, commands = (
        Flock(rng.normal(size=(1, 50_000, 2)), rng.normal(size=(1, 50_000, 2))),
        rng.normal(size=(50_000, 2)),
    )
    found = []
    for count in (1, 2):
        with threads.use(count):
            found.append([array.tobytes() for array in moved(Unicycle(2.0, 3.0, 1.0), flock, commands[None], 0.1)])
    assert found[0] == found[1]


def test_three_dimensions_raise() -> None:
    with pytest.raises(ef.InputError, match=r"^a unicycle needs a flock with D = 2; got D = 3$"):
        ef.simulate(ef.random_disk(agents=10, dimensions=3), ef.load("tanner"), body=Unicycle(), duration=0.1)


@pytest.mark.parametrize("name", ["max_turn_rate", "max_acceleration", "max_speed"])
@pytest.mark.parametrize("wrong", [0, -1.0, float("inf"), float("nan"), "fast", True])
def test_wrong_limits_raise_one_line(name: str, wrong: Any) -> None:
    with pytest.raises(ef.InputError, match=rf"^{name} must be a finite number above 0; got [^\n]*$"):
        Unicycle(**{name: wrong})
