"""A double integrator with limits, drag, lag and gusts does what its equations say, and no more than it can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock._runtime import threads
from equiflock.bodies import DoubleIntegrator
from equiflock.flock import Flock, Role
from equiflock.protocols import StatefulBody
from tests.bodies import twins
from tests.flocks import flocks

LIMITS = st.one_of(st.none(), st.floats(1e-2, 10.0))


@st.composite
def bodies(draw: st.DrawFn) -> DoubleIntegrator:
    """Bodies with any of their limits, and with none."""
    drag, lag, gust = (draw(st.one_of(st.just(0.0), st.floats(1e-3, 5.0))) for _ in range(3))
    return DoubleIntegrator(draw(LIMITS), draw(LIMITS), drag, lag, gust, seed=draw(st.integers(0, 2**62)))


def moved(
    body: DoubleIntegrator, flock: Flock, commands: Any, time_step: float, step: int = 0, **more: Any
) -> tuple[Any, Any, Any]:
    """Positions, velocities and state after a step in which actuators that were pushing upwards get a command."""
    positions, velocities = flock.positions.copy(), flock.velocities.copy()
    state = {name: np.ones_like(array) for name, array in body.init_state(flock).items()}
    everyone = np.arange(len(flock))
    body.advance(ef.BodyStep(positions, velocities, flock.roles, commands, time_step, everyone, state, step, **more))
    return positions, velocities, state


@given(flocks(max_agents=8), bodies(), st.floats(1e-3, 0.5), st.floats(1e-2, 100.0), st.integers(0, 10**9))
def test_kernel_equals_the_reference_implementation(
    flock: Flock, body: DoubleIntegrator, time_step: float, size: float, step: int
) -> None:
    assert isinstance(body, StatefulBody)
    commands = size * np.random.default_rng(0).normal(size=flock.shape)
    positions, velocities, state = moved(body, flock, commands, time_step, step)
    for b, i in np.ndindex(flock.shape[:2]):
        known = flock.positions[b, i], flock.velocities[b, i], np.ones(flock.shape[2])
        wind = twins.gust(body, b, step, i, flock.shape[2])
        expected = twins.double_integrator(body, known, flock.roles[b, i], commands[b, i], time_step, wind)
        np.testing.assert_allclose(positions[b, i], expected[0], rtol=1e-9, atol=1e-9 * (1 + size))
        np.testing.assert_allclose(velocities[b, i], expected[1], rtol=1e-9, atol=1e-9 * (1 + size))
        if body.lag > 0:
            np.testing.assert_allclose(state["actuators"][b, i], expected[2], rtol=1e-9, atol=1e-9)


@given(flocks(), bodies(), st.floats(1e-3, 0.5), st.sampled_from([1.0, 1e3, 1e150, 1e300]))
def test_limits_hold_for_any_command(flock: Flock, body: DoubleIntegrator, time_step: float, size: float) -> None:
    commands = size * np.random.default_rng(1).uniform(-1, 1, flock.shape)
    positions, velocities, state = moved(body, flock, commands, time_step)
    follower = flock.roles == Role.FOLLOWER
    assert np.isfinite(positions).all()
    assert np.isfinite(velocities).all()
    if body.max_speed is not None:
        assert np.linalg.norm(velocities[follower], axis=-1).max(initial=0.0) <= body.max_speed * (1 + 1e-14)
    if body.max_acceleration is not None and body.lag > 0:
        # Actuators were at 1 in every direction, and go from there to at most the largest acceleration.
        most = max(body.max_acceleration, np.sqrt(flock.shape[2]))
        assert np.linalg.norm(state["actuators"][follower], axis=-1).max(initial=0.0) <= most * (1 + 1e-14)


@given(flocks(), st.floats(1e-4, 0.5))
def test_unreached_limits_change_no_bit(flock: Flock, time_step: float) -> None:
    commands = np.random.default_rng(0).normal(size=flock.shape)
    ideal = moved(DoubleIntegrator(), flock, commands, time_step)
    limited = moved(DoubleIntegrator(max_acceleration=1e6, max_speed=1e6), flock, commands, time_step)
    for one, other in zip(ideal[:2], limited[:2], strict=True):
        assert np.array_equal(one, other)


def after_a_second(body: DoubleIntegrator, parts: int) -> Any:
    """Position and velocity of an agent under a constant command, after a second in so many steps."""
    flock = Flock(np.zeros((1, 1, 2)), np.array([[[1.0, -2.0]]]))
    positions, velocities = flock.positions.copy(), flock.velocities.copy()
    state, command = body.init_state(flock), np.array([[[3.0, 0.5]]])
    for step in range(parts):
        body.advance(ef.BodyStep(positions, velocities, flock.roles, command, 1.0 / parts, np.array([0]), state, step))
    return np.concatenate([positions, velocities])


def euler_after_a_second(drag: Any, lag: Any, parts: int) -> Any:
    """Position and velocity (4, n) of `after_a_second` by Euler's method, for n pairs of drag and lag at once."""
    r, v, a = np.zeros((2, len(drag))), np.tile([[1.0], [-2.0]], len(drag)), np.zeros((2, len(drag)))
    u, lagging, rate = np.array([[3.0], [0.5]]), lag > 0.0, 1.0 / np.maximum(lag, 1e-3)
    for _ in range(parts):
        push = np.where(lagging, a, u)
        r, v, a = r + v / parts, v + (push - drag * v) / parts, a + (u - a) * rate / parts
    return np.concatenate([r, v])


def test_step_under_a_constant_command_is_exact() -> None:
    pairs = [(drag, lag) for drag in (0.0, 1e-8, 0.3, 2.0, 10.0) for lag in (0.0, 1e-3, 0.1, 0.5, 20.0)]
    bodies = [DoubleIntegrator(drag=drag, lag=lag) for drag, lag in pairs]
    exact = np.stack([after_a_second(body, 1).ravel() for body in bodies], axis=1)  # (4, n)
    for body, expected in zip(bodies, exact.T, strict=True):
        np.testing.assert_allclose(after_a_second(body, 300).ravel(), expected, rtol=1e-11)
    # Euler's method with ever finer steps comes nearer by the first power of their length.
    drag, lag = np.array(pairs).T
    coarse, fine = (np.abs(euler_after_a_second(drag, lag, n) - exact).max(axis=0) for n in (20_000, 40_000))
    assert (coarse < 2e-3).all()
    assert (fine < 0.55 * coarse).all()


def test_gusts_are_independent_with_the_standard_deviation() -> None:
    flock = Flock(np.zeros((2, 20_000, 3)), np.zeros((2, 20_000, 3)))

    def gusts(seed: int, step: int) -> Any:
        body = DoubleIntegrator(gust=2.0, max_acceleration=1.0, seed=seed)
        return moved(body, flock, np.zeros(flock.shape), 0.5, step)[1] / 0.5

    first = gusts(0, 0)
    assert first.std() == pytest.approx(2.0, rel=5 / (2 * first.size) ** 0.5)
    assert abs(first.mean()) < 5 * 2.0 / first.size**0.5
    # As columns: the three entries in two flocks, at two steps and with two seeds.
    columns = np.concatenate([*first, *gusts(0, 1), *gusts(1, 0)], axis=1)
    assert np.abs(np.corrcoef(columns.T) - np.eye(columns.shape[1])).max() < 5 / 20_000**0.5


@pytest.mark.parametrize("flocks", [1, 40])
def test_threads_and_memory_order_change_no_bit(flocks: int) -> None:
    rng = np.random.default_rng(0)
    N = 40_000 // flocks
    flock, commands = Flock(rng.normal(size=(flocks, N, 2)), rng.normal(size=(flocks, N, 2))), rng.normal(size=(N, 2))
    commands = np.broadcast_to(commands, flock.shape).copy()
    body = DoubleIntegrator(max_acceleration=0.7, max_speed=1.0, drag=0.1, lag=0.2, gust=0.5, seed=3)
    with threads.use(1):
        one = moved(body, flock, commands, 0.1, step=5)
    with threads.use(2):
        two = moved(body, flock, commands, 0.1, step=5)
    order = rng.permutation(N)
    shuffled = Flock(flock.positions[:, order], flock.velocities[:, order])
    other = moved(body, shuffled, commands[:, order].copy(), 0.1, step=5, agent_ids=order)
    for found, again, mixed in zip(one[:2], two[:2], other[:2], strict=True):
        assert found.tobytes() == again.tobytes()
        assert found[:, order].tobytes() == mixed.tobytes()
    assert one[2]["actuators"][:, order].tobytes() == other[2]["actuators"].tobytes()


def test_flocks_that_ended_keep_their_state() -> None:
    flock = Flock(np.zeros((2, 3, 2)), np.ones((2, 3, 2)))
    positions, velocities, body = flock.positions.copy(), flock.velocities.copy(), DoubleIntegrator(lag=0.1, gust=1.0)
    state = body.init_state(flock)
    body.advance(ef.BodyStep(positions, velocities, flock.roles, np.ones(flock.shape), 0.1, np.array([1]), state))
    assert not positions[0].any()
    assert (velocities[0] == 1.0).all()
    assert not state["actuators"][0].any()
    assert state["actuators"][1].all()


def test_is_ideal_and_init_state() -> None:
    assert DoubleIntegrator(seed=7).is_ideal
    flock = ef.random_disk(agents=5)
    for field, value in {"max_acceleration": 1e9, "max_speed": 1e9, "drag": 1e-9, "lag": 1e-9, "gust": 1e-9}.items():
        body = DoubleIntegrator(**{field: value})
        assert not body.is_ideal
        assert list(body.init_state(flock)) == (["actuators"] if field == "lag" else [])


def test_advance_with_lag_needs_its_state() -> None:
    arrays = np.zeros((1, 2, 2)), np.zeros((1, 2, 2)), np.zeros((1, 2), np.int8), np.zeros((1, 2, 2))
    with pytest.raises(ef.InputError, match="pass the state that init_state returned"):
        DoubleIntegrator(lag=0.1).advance(ef.BodyStep(*arrays, 0.1, np.array([0])))
