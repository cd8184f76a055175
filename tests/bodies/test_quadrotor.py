"""A quadrotor tracks commands within what its motors can do, as its equations say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

import equiflock as ef
from equiflock._runtime import threads
from equiflock.bodies import Quadrotor
from equiflock.bodies.downwash import compute_downwash
from equiflock.bodies.quadrotor import check_drone_start, make_model
from equiflock.bodies.quadrotor_kernels import RigidBody, integrate_rigid_body, mix_motors
from equiflock.flock import Flock, Role
from equiflock.protocols import StatefulBody
from tests.bodies import twins
from tests.flocks import flocks

REFERENCE = Path(__file__).parent / "data" / "crazyflow_reference.npz"
LIMITS = st.one_of(st.none(), st.floats(0.1, 20.0))
HOVER = Quadrotor()


@st.composite
def drones(draw: st.DrawFn) -> Quadrotor:
    """Quadrotors with any limits, and other motors and drag."""
    return Quadrotor(
        max_acceleration=draw(LIMITS),
        max_speed=draw(LIMITS),
        max_tilt=draw(st.floats(1.0, 80.0)),
        downwash=draw(st.booleans()),
        motor_lag=draw(st.sampled_from([0.0, 0.02, 0.12])),
        lateral_drag=draw(st.sampled_from([0.0, 0.015, 0.1])),
        attitude_bandwidth=draw(st.floats(5.0, 40.0)),
    )


def disturb(state: dict[str, Any], seed: int) -> dict[str, Any]:
    """A state in flight: tilted and turning, with motors and references out of balance."""
    rng = np.random.default_rng(seed)
    shape = state["crashed"].shape
    turns = Rotation.from_euler("zyx", rng.uniform(-0.6, 0.6, (shape[0] * shape[1], 3)))
    state["quaternion"][:] = turns.as_quat().reshape(*shape, 4)
    state["body_rates"][:] = rng.uniform(-3, 3, (*shape, 3))
    state["motor_speeds"] *= rng.uniform(0.7, 1.2, (*shape, 4))
    state["reference_position"] += rng.uniform(-1, 1, (*shape, 3))
    state["reference_velocity"] += rng.uniform(-1, 1, (*shape, 3))
    state["reference_yaw"][:] = rng.uniform(-0.5, 0.5, shape)
    if "height" in state:
        state["height"][:] = rng.uniform(0.0, 2.0, shape)
        state["climb_rate"][:] = rng.uniform(-2, 2, shape)
    return state


def move(
    body: Quadrotor, flock: Flock, commands: Any, time_step: float, state: dict[str, Any] | None = None, **more: Any
) -> tuple[Any, Any, dict[str, Any]]:
    """Positions, velocities and state after one step."""
    positions, velocities = flock.positions.copy(), flock.velocities.copy()
    state = body.init_state(flock) if state is None else {name: array.copy() for name, array in state.items()}
    everyone = np.arange(len(flock))
    body.advance(ef.BodyStep(positions, velocities, flock.roles, commands, time_step, everyone, state, **more))
    return positions, velocities, state


def fly(body: Quadrotor, flock: Flock, command: Any, seconds: float, state: dict[str, Any] | None = None) -> Any:
    """Positions, velocities and state after a flight at 50 Hz with a constant command."""
    commands = np.broadcast_to(np.asarray(command, float), flock.shape).copy()
    for _ in range(round(seconds / 0.02)):
        positions, velocities, state = move(body, flock, commands, 0.02, state)
        flock = Flock(positions, velocities, flock.roles, flock.obstacles)
    return flock.positions, flock.velocities, state


def one_drone(*position: float, velocity: tuple[float, ...] | None = None) -> Flock:
    return Flock([[position]], [[velocity or (0.0,) * len(position)]])


def tilts(state: dict[str, Any]) -> Any:
    """Angles between the drones' z axes and the vertical, in degrees."""
    x, y = state["quaternion"][..., 0], state["quaternion"][..., 1]
    return np.degrees(np.arccos(np.clip(1 - 2 * (x**2 + y**2), -1, 1)))


@settings(max_examples=40)
@given(flocks(max_agents=5), drones(), st.sampled_from([0.001, 0.01, 0.02]), st.floats(0.1, 20.0), st.integers(0, 99))
def test_kernel_equals_the_reference_implementation(
    flock: Flock, body: Quadrotor, time_step: float, size: float, seed: int
) -> None:
    assert isinstance(body, StatefulBody)
    D = flock.shape[2]
    commands = size * np.random.default_rng(seed).normal(size=flock.shape)
    before = disturb(body.init_state(flock), seed)
    positions, velocities, after = move(body, flock, commands, time_step, before)
    points = flock.positions if D == 3 else np.dstack([flock.positions, before["height"]])
    speeds = flock.velocities if D == 3 else np.dstack([flock.velocities, before["climb_rate"]])
    for b, i in np.ndindex(flock.shape[:2]):
        if flock.roles[b, i] != Role.FOLLOWER:
            moved = flock.velocities[b, i] * time_step * (flock.roles[b, i] == Role.LEADER)
            assert np.array_equal(positions[b, i], flock.positions[b, i] + moved)
            assert all(np.array_equal(after[name][b, i], before[name][b, i]) for name in before)
            continue
        blows = flock.roles[b] != Role.OBSTACLE
        air = twins.downwash(body, points[b], blows)[i] if body.downwash else 0.0
        known = {name: array[b, i] for name, array in before.items()}
        known |= {"r": points[b, i], "v": speeds[b, i], "yaw": before["reference_yaw"][b, i]}
        expected = twins.quadrotor(body, known, np.append(commands[b, i], [0.0] * (3 - D)), time_step, air)
        np.testing.assert_allclose(positions[b, i], expected["r"][:D], rtol=1e-12, atol=1e-10)
        np.testing.assert_allclose(velocities[b, i], expected["v"][:D], rtol=1e-8, atol=1e-8)
        for name in ("body_rates", "motor_speeds", "reference_position", "reference_velocity", "crashed"):
            np.testing.assert_allclose(after[name][b, i], expected[name], rtol=1e-7, atol=1e-6, err_msg=name)
        turn = Rotation.from_quat(after["quaternion"][b, i]).inv() * Rotation.from_quat(expected["quaternion"])
        assert turn.magnitude() < 1e-8
        if D == 2:
            assert after["height"][b, i] == pytest.approx(expected["r"][2], abs=1e-10)
            assert after["climb_rate"][b, i] == pytest.approx(expected["v"][2], rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("D", [2, 3])
def test_hover_stays_in_hover(D: int) -> None:
    flock = one_drone(*(3.0, -2.0, 5.0)[:D])
    positions, velocities, state = fly(HOVER, flock, 0.0, 10.0)
    np.testing.assert_allclose(positions, flock.positions, atol=1e-12)
    np.testing.assert_allclose(velocities, 0.0, atol=1e-12)
    for name, array in HOVER.init_state(flock).items():
        np.testing.assert_allclose(state[name], array, rtol=1e-12, atol=1e-12)


def integrate(body: RigidBody, drone: Quadrotor, speeds: float, seconds: float) -> Any:
    """A rigid body after some time with motors of constant speed."""
    model = make_model(drone, drone.max_substep)
    for _ in range(round(seconds / drone.max_substep)):
        body = integrate_rigid_body(body, (speeds,) * 4, 0.0, model)
    return body


def test_without_thrust_and_drag_a_drone_falls_freely_and_keeps_its_angular_momentum() -> None:
    drone = Quadrotor(lateral_drag=0.0, axial_drag=0.0)
    turn, rates = Rotation.from_euler("xyz", [0.4, -0.9, 2.0]), np.array([12.0, -7.0, 20.0])
    start = RigidBody((1.0, 2.0, 100.0), (3.0, -1.0, 2.0), tuple(turn.as_quat()), tuple(rates))
    end = integrate(start, drone, 0.0, 2.0)
    np.testing.assert_allclose(end.position, [7.0, 0.0, 100 + 4 - 9.81 * 2], rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(end.velocity, [3.0, -1.0, 2 - 19.62], rtol=1e-12)
    inertia = twins.quadrotor_inertia(drone)
    momentum = Rotation.from_quat(end.quaternion).apply(inertia * end.body_rates)
    np.testing.assert_allclose(momentum, turn.apply(inertia * rates), rtol=1e-11)
    assert np.linalg.norm(end.quaternion) == pytest.approx(1.0, abs=1e-14)
    # Energy is kept to second order.
    energies = [(inertia * np.square(each)).sum() for each in (rates, end.body_rates)]
    assert energies[1] == pytest.approx(energies[0], rel=1e-3)


def test_the_integration_is_of_second_order() -> None:
    start = RigidBody((0.0, 0.0, 9.0), (1.0, 2.0, 0.0), (0.0, 0.0, 0.0, 1.0), (6.0, -4.0, 9.0))
    exact = integrate(start, Quadrotor(max_substep=1e-5), 1800.0, 0.4)
    errors = []
    for h in (0.004, 0.002, 0.001):
        end = integrate(start, Quadrotor(max_substep=h, attitude_bandwidth=10.0), 1800.0, 0.4)
        errors.append(np.abs(np.concatenate(end) - np.concatenate(exact)).max())
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert (np.abs(orders - 2.0) < 0.1).all()


@given(st.floats(0.1, 6.2), st.integers(0, 99))
@settings(max_examples=15)
def test_rotating_a_flock_and_its_yaw_about_the_vertical_rotates_the_flight(angle: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    turn = Rotation.from_euler("z", angle)
    flock = Flock(rng.uniform(1, 3, (1, 4, 3)), rng.uniform(-1, 1, (1, 4, 3)))
    turned = Flock(flock.positions @ turn.as_matrix().T, flock.velocities @ turn.as_matrix().T)
    body, command = Quadrotor(downwash=True, start_distance=0.0), rng.uniform(-4, 4, 3)
    state = body.init_state(turned)
    state["quaternion"][:], state["reference_yaw"][:] = turn.as_quat(), angle
    one = fly(body, flock, command, 1.0)
    other = fly(body, turned, turn.apply(command), 1.0, state)
    np.testing.assert_allclose(one[0] @ turn.as_matrix().T, other[0], atol=1e-9)
    np.testing.assert_allclose(one[1] @ turn.as_matrix().T, other[1], atol=1e-9)
    np.testing.assert_allclose(one[2]["motor_speeds"], other[2]["motor_speeds"], rtol=1e-9)


@pytest.mark.parametrize("D", [2, 3])
def test_a_command_is_tracked_and_a_drone_at_its_limits_catches_up(D: int) -> None:
    flock = one_drone(*(0.0, 0.0, 5.0)[:D])
    push = np.array([2.0, -1.0, 0.5])[:D]
    positions, velocities, state = fly(HOVER, flock, push, 2.0)
    np.testing.assert_allclose(positions[0, 0] - flock.positions[0, 0], 2 * push, atol=0.2)
    np.testing.assert_allclose(velocities[0, 0], 2 * push, atol=0.1)
    # A command that no drone can follow: the reference stays near, so that the drone stops soon afterwards.
    positions, velocities, state = fly(HOVER, flock, np.array([100.0, 0.0, 0.0])[:D], 2.0)
    ahead = state["reference_position"][0, 0, :D] - positions[0, 0]
    assert np.linalg.norm(ahead) <= 1.0 + 0.02 * np.linalg.norm(velocities)
    assert np.linalg.norm(state["reference_velocity"][0, 0, :D] - velocities[0, 0]) <= 2.0 + 0.02 * 100


@given(drones(), st.sampled_from([1.0, 30.0, 1e3, 1e150, 1e300]), st.integers(0, 99))
@settings(max_examples=25)
def test_limits_hold_and_numbers_stay_finite_for_any_command(body: Quadrotor, size: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    flock = Flock(rng.uniform([0, 0, 30], [8, 8, 38], (1, 5, 3)), rng.uniform(-3, 3, (1, 5, 3)))
    state: Any = None
    for _ in range(20):
        commands = size * rng.uniform(-1, 1, flock.shape)
        positions, velocities, state = move(body, flock, commands, 0.02, state)
        flock = Flock(positions, velocities)
        assert all(np.isfinite(array).all() for array in state.values())
        thrusts = body.thrust_coefficient * state["motor_speeds"] ** 2
        assert thrusts.min() >= body.min_motor_thrust * (1 - 1e-12)
        assert thrusts.max() <= body.max_motor_thrust * (1 + 1e-12)
        if body.max_speed is not None:
            reference = state["reference_velocity"]
            assert np.linalg.norm(reference, axis=-1).max() <= body.max_speed * (1 + 1e-12)


@pytest.mark.parametrize("max_tilt", [5.0, 20.0, 40.0])
def test_the_tilt_is_limited(max_tilt: float) -> None:
    body, state = Quadrotor(max_tilt=max_tilt), None
    flock, largest = one_drone(0.0, 0.0, 5.0), 0.0
    for step in range(150):
        positions, velocities, state = move(body, flock, np.array([[[50.0 * (-1) ** (step // 50), 0, 0]]]), 0.02, state)
        flock, largest = Flock(positions, velocities), max(largest, float(tilts(state).max()))
    # The attitude may overshoot a little where the command is reversed.
    assert 0.9 * max_tilt < largest < 1.1 * max_tilt
    assert abs(flock.positions[0, 0, 2] - 5.0) < 0.5


def test_large_values_from_outside_leave_finite_numbers() -> None:
    flock = Flock([[[1e19, -1e19, 1e19]]], [[[1e19, 1e19, -1e19]]])
    state = HOVER.init_state(flock)
    for name, value in {"quaternion": 0.0, "body_rates": 1e300, "motor_speeds": 1e300}.items():
        state[name][:] = value
    state["reference_position"][:] = state["reference_velocity"][:] = -1e300
    positions, velocities, state = fly(HOVER, flock, 1.0, 0.1, state)
    assert np.isfinite(positions).all()
    assert np.isfinite(velocities).all()
    assert all(np.isfinite(array).all() for array in state.values())


@given(st.floats(-1.0, 3.0), st.lists(st.floats(-1e-2, 1e-2), min_size=3, max_size=3))
def test_motors_give_up_yaw_before_thrust_and_attitude(thrust: float, torques: list[float]) -> None:
    model, most = make_model(HOVER, 0.02), HOVER.max_motor_thrust
    found: Any = np.array(mix_motors(thrust, tuple(torques), model))
    assert found.min() >= HOVER.min_motor_thrust * (1 - 1e-9)
    assert found.max() <= most * (1 + 1e-9)
    total, *turns = twins.quadrotor_wrench(HOVER) @ found
    # Torques keep their direction, and no yaw is exchanged for thrust.
    without_yaw = mix_motors(thrust, (torques[0], torques[1], 0.0), model)
    assert np.sum(without_yaw) == pytest.approx(total, rel=1e-9)
    assert turns[0] * torques[1] == pytest.approx(turns[1] * torques[0], abs=1e-12)
    assert np.linalg.norm(turns[:2]) <= np.linalg.norm(torques[:2]) + 1e-12
    assert abs(turns[2]) <= abs(torques[2]) + 1e-12
    # A drone that hovers does all of a small torque.
    exact = np.array(mix_motors(HOVER.mass * 9.81, (1e-4, -2e-4, 1e-5), model))
    np.testing.assert_allclose(twins.quadrotor_wrench(HOVER) @ exact, [HOVER.mass * 9.81, 1e-4, -2e-4, 1e-5], rtol=1e-9)


def test_a_flock_in_the_plane_holds_its_height() -> None:
    body = Quadrotor(height=2.5)
    flock = ef.random_disk(agents=20, comm_radius=3.0, min_separation=0.3, max_speed=1.0)
    _, _, state = fly(body, flock, [3.0, -2.0], 2.0)
    assert np.abs(state["height"] - 2.5).max() < 0.05
    assert np.abs(state["climb_rate"]).max() < 0.1
    assert not state["crashed"].any()


def test_a_fast_landing_is_a_crash_and_a_slow_one_is_not() -> None:
    _, _, state = fly(HOVER, one_drone(0.0, 0.0, 1.0), [0.0, 0.0, -0.1], 6.0)
    assert not state["crashed"].any()
    # A drone on the ground takes off again.
    positions, velocities, landed = fly(HOVER, one_drone(0.0, 0.0, 0.0), [0.0, 0.0, -1.0], 1.0)
    assert positions[0, 0, 2] == velocities[0, 0, 2] == tilts(landed)[0, 0] == 0.0
    positions, velocities, _ = fly(HOVER, Flock(positions, velocities), [0.0, 0.0, 2.0], 2.0, landed)
    assert positions[0, 0, 2] > 1.0
    # So does one that was commanded into the ground for long.
    positions, velocities, landed = fly(HOVER, one_drone(0.0, 0.0, 1.0), [0.0, 0.0, -0.3], 8.0)
    positions, _, _ = fly(HOVER, Flock(positions, velocities), [0.0, 0.0, 0.5], 1.0, landed)
    assert positions[0, 0, 2] > 0.1
    # Full speed downwards, and sideways: both have crashed, and stay where they are.
    for fall in ((0.0, 0.0, -3.0), (3.0, 0.0, -1.0)):
        positions, velocities, down = fly(HOVER, one_drone(0.0, 0.0, 1.0), fall, 3.0)
        assert down["crashed"].all()
        assert not velocities.any()
        assert positions[0, 0, 2] == 0.0
        again, _, later = fly(HOVER, Flock(positions, velocities), [0.0, 0.0, 5.0], 1.0, down)
        assert np.array_equal(again, positions)
        assert not later["motor_speeds"].any()


def test_motors_that_stop_in_free_fall_leave_no_nan() -> None:
    body = Quadrotor(min_motor_thrust=0.0)
    positions, velocities, state = fly(body, one_drone(0.0, 0.0, 50.0), [0.0, 0.0, -20.0], 0.5)
    assert np.isfinite(positions).all() and np.isfinite(velocities).all()
    assert all(np.isfinite(array).all() for array in state.values())


def test_leaders_keep_their_velocity_and_obstacle_agents_stand_still() -> None:
    roles = np.array([[Role.LEADER, Role.OBSTACLE, Role.FOLLOWER]], np.int8)
    flock = Flock([[[0.0, 0.0], [5.0, 0.0], [9.0, 0.0]]], [[[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]], roles)
    positions, velocities, state = move(HOVER, flock, np.zeros(flock.shape), 0.02)
    assert np.array_equal(positions[0, 0], [0.02, 0.04])
    assert np.array_equal(positions[0, 1], [5.0, 0.0])
    assert np.array_equal(velocities[0, :2], flock.velocities[0, :2])
    assert all(np.array_equal(state[name][:, :2], array[:, :2]) for name, array in HOVER.init_state(flock).items())


@given(flocks(max_agents=12), st.booleans())
@settings(max_examples=40)
def test_downwash_equals_the_sum_over_all_pairs(flock: Flock, shuffled: bool) -> None:
    points = flock.positions if flock.shape[2] == 3 else np.dstack([flock.positions, flock.velocities[..., 0]])
    crashed = flock.velocities[..., 0] > 2
    order = np.random.default_rng(0).permutation(flock.shape[1]) if shuffled else np.arange(flock.shape[1])
    found = compute_downwash(
        np.ascontiguousarray(points[:, order]),
        flock.roles[:, order],
        crashed[:, order],
        np.arange(len(flock)),
        order,
        HOVER.mass * 9.81,
        HOVER.rotor_radius,
    )
    direct = compute_downwash(
        points, flock.roles, crashed, np.arange(len(flock)), None, HOVER.mass * 9.81, HOVER.rotor_radius
    )
    assert np.array_equal(found, direct[:, order])
    for b in range(len(flock)):
        blows = (flock.roles[b] != Role.OBSTACLE) & ~crashed[b]
        np.testing.assert_allclose(direct[b], twins.downwash(HOVER, points[b], blows), rtol=1e-9, atol=1e-12)


def test_downwash_pushes_the_lower_drone_down_and_no_other() -> None:
    flock = Flock([[[0.0, 0.0, 2.0], [0.0, 0.0, 1.5], [2.0, 0.0, 1.5]]], np.zeros((1, 3, 3)))
    still, _, _ = fly(HOVER, flock, 0.0, 2.0)
    blown, _, _ = fly(replace(HOVER, downwash=True), flock, 0.0, 2.0)
    assert np.array_equal(blown[0, [0, 2]], still[0, [0, 2]])
    assert 0.03 < still[0, 1, 2] - blown[0, 1, 2] < 0.3


def test_drones_out_of_reach_change_no_bit() -> None:
    rng = np.random.default_rng(0)
    flock = Flock(rng.uniform(0, 3, (1, 30, 3)), rng.normal(size=(1, 30, 3)))
    far = flock.positions + np.array([40.0, 0.0, 0.0])
    both = Flock(np.concatenate([flock.positions, far], axis=1), np.concatenate([flock.velocities] * 2, axis=1))
    body = Quadrotor(downwash=True)
    alone, together = fly(body, flock, 0.5, 0.2), fly(body, both, 0.5, 0.2)
    assert np.array_equal(alone[0], together[0][:, :30])
    assert np.array_equal(alone[2]["motor_speeds"], together[2]["motor_speeds"][:, :30])


@pytest.mark.parametrize("shape", [(1, 400), (40, 10), (3, 150)])
@pytest.mark.parametrize("D", [2, 3])
def test_threads_and_memory_order_change_no_bit(shape: tuple[int, int], D: int) -> None:
    rng = np.random.default_rng(0)
    flock = Flock(rng.uniform(0, 5, (*shape, D)), rng.normal(size=(*shape, D)))
    commands, body = rng.normal(size=flock.shape), Quadrotor(downwash=True)
    state = disturb(body.init_state(flock), 1)
    results = []
    for count in (1, 2):
        with threads.use(count):
            results.append(move(body, flock, commands, 0.02, state))
    order = rng.permutation(shape[1])
    shuffled = Flock(flock.positions[:, order], flock.velocities[:, order])
    other_state = {name: np.ascontiguousarray(array[:, order]) for name, array in state.items()}
    other = move(body, shuffled, np.ascontiguousarray(commands[:, order]), 0.02, other_state, agent_ids=order)
    for one, two, mixed in zip(results[0][:2], results[1][:2], other[:2], strict=True):
        assert one.tobytes() == two.tobytes()
        assert one[:, order].tobytes() == mixed.tobytes()
    for name in state:
        assert results[0][2][name].tobytes() == results[1][2][name].tobytes()
        assert results[0][2][name][:, order].tobytes() == other[2][name].tobytes()


def test_only_active_flocks_move() -> None:
    flock = Flock(np.ones((2, 3, 3)), np.ones((2, 3, 3)))
    positions, velocities, state = flock.positions.copy(), flock.velocities.copy(), HOVER.init_state(flock)
    fresh = HOVER.init_state(flock)
    HOVER.advance(ef.BodyStep(positions, velocities, flock.roles, np.ones((2, 3, 3)), 0.02, np.array([1]), state))
    assert np.array_equal(positions[0], flock.positions[0])
    assert all(np.array_equal(state[name][0], fresh[name][0]) for name in fresh)
    assert (positions[1] != flock.positions[1]).all()


def draw_start(D: int, flocks: int = 2) -> Flock:
    start = ef.random_disk(
        flocks, 12, dimensions=D, comm_radius=3.0, min_separation=0.5, max_speed=0.5, velocities="disc"
    )
    lift = np.zeros(D)
    lift[2:] = 10.0
    return Flock(start.positions + lift, start.velocities, comm_radius=3.0)


@pytest.mark.parametrize("D", [2, 3])
def test_state_is_saved_and_a_flight_continues_from_it(D: int, tmp_path: Path) -> None:
    start, law = draw_start(D), ef.load("tanner")
    run = ef.simulate(start, law, body=HOVER, time_step=0.02, duration=0.4)
    run.save(tmp_path / "run.zarr")
    again = ef.Trajectory.load(tmp_path / "run.zarr")
    assert set(run.body_state) == set(HOVER.init_state(start))
    for name, values in run.body_state.items():
        assert values.shape[:3] == (21, 2, 12)
        assert np.array_equal(again.body_state[name], values)
    rest = ef.simulate(run.flock(10), law, body=HOVER, body_state=again.body_state_at(10), time_step=0.02, duration=0.2)
    np.testing.assert_allclose(rest.positions[-1], run.positions[-1], atol=1e-6)


def test_replaced_and_restarted_flocks_keep_or_renew_their_state() -> None:
    start = draw_start(3)
    loop = ef.flight(start, ef.load("tanner"), body=HOVER, time_step=0.02)
    for _ in range(20):
        moment = next(loop)
    before = {name: array.copy() for name, array in loop.body_state.items()}
    stay = np.arange(12) >= 4
    loop.replace(Flock(moment.flock.positions[:, stay], moment.flock.velocities[:, stay], comm_radius=3.0), keep=stay)
    assert all(np.array_equal(array, before[name][:, stay]) for name, array in loop.body_state.items())
    next(loop)
    kept = {name: array.copy() for name, array in loop.body_state.items()}
    fresh = start[1]
    loop.restart(np.array([False, True]), Flock(fresh.positions[:, stay], fresh.velocities[:, stay], comm_radius=3.0))
    assert all(np.array_equal(array[0], kept[name][0]) for name, array in loop.body_state.items())
    assert np.array_equal(loop.body_state["reference_position"][1], fresh.positions[0, stay])
    low = Flock(fresh.positions[:, stay] - [0, 0, 50], fresh.velocities[:, stay], comm_radius=3.0)
    with pytest.raises(ef.InputError, match=r"^drones must start above the ground"):
        loop.restart(np.array([True, False]), low)


def test_positions_are_within_two_percent_of_crazyflow() -> None:
    data = np.load(REFERENCE)
    commands, expected = data["commands"].astype(float), data["positions"].astype(float)
    start = np.broadcast_to([0.0, 0.0, 100.0], commands.shape[1:])
    flock, state, found = Flock(start, np.zeros_like(start)), HOVER.init_state(Flock(start, np.zeros_like(start))), []
    positions, velocities = flock.positions.copy(), flock.velocities.copy()
    for step, command in enumerate(commands):
        everyone = np.arange(len(flock))
        time_step = float(data["time_step"])
        HOVER.advance(ef.BodyStep(positions, velocities, flock.roles, command, time_step, everyone, state, step))
        if (step + 1) % int(data["every"]) == 0:
            found.append(positions - start)
    distance = np.linalg.norm(np.diff(expected, axis=0, prepend=0.0), axis=-1).sum(axis=0)
    assert (np.linalg.norm(found - expected, axis=-1) / distance).max() < 0.02


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_acceleration": 0}, "max_acceleration must be a finite number above 0; got 0"),
        ({"max_speed": -1.0}, "max_speed must be a finite number above 0; got -1.0"),
        ({"max_tilt": 0}, "max_tilt must be above 0 and below 90 degrees; got 0"),
        ({"max_tilt": 90.0}, "max_tilt must be above 0 and below 90 degrees; got 90.0"),
        ({"max_tilt": "steep"}, "max_tilt must be above 0 and below 90 degrees; got 'steep'"),
        ({"mass": 0.0}, "mass must be a finite number above 0; got 0.0"),
        ({"height": 0.0}, "height must be a finite number above 0; got 0.0"),
        ({"downwash": 1}, "downwash must be True or False; got 1"),
        ({"max_substep": 0.1}, "max_substep must be at most 0.005 s; got 0.1"),
        ({"mass": 1.0}, "max_motor_thrust must be above a quarter of the weight, 2.453 N; got 0.12"),
        ({"min_motor_thrust": 0.1}, "min_motor_thrust must be below a quarter of the weight, 0.08044 N; got 0.1"),
        ({"attitude_bandwidth": 100.0}, "attitude_bandwidth must be at most 50 rad/s for a max_substep of 0.002 s"),
        ({"lateral_drag": 20.0}, "lateral_drag must be at most mass / max_substep, 16.4; got 20"),
    ],
)
def test_wrong_options_raise_one_line(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ef.InputError, match="^" + text.replace(".", r"\.")) as caught:
        Quadrotor(**options)
    assert "\n" not in str(caught.value)


def test_wrong_starts_raise_one_line() -> None:
    law = ef.load("tanner")
    with pytest.raises(
        ef.InputError, match=r"^drones must start above the ground, z >= 0; agent 1 of flock 0 is at z = -0.5: move"
    ):
        ef.simulate(Flock([[[0, 0, 1], [0, 1, -0.5]]], np.zeros((1, 2, 3))), law, body=HOVER, duration=0.1)
    close = Flock([[[0.0, 0.0], [0.5, 0.0], [0.7, 0.0]]], np.zeros((1, 3, 2)))
    with pytest.raises(
        ef.InputError,
        match=r"^drones must start at least 0.3 m apart \(start_distance\); agents [12] and [12] of flock 0",
    ):
        ef.simulate(close, law, body=HOVER, duration=0.1)
    ef.simulate(close, law, body=Quadrotor(start_distance=0.2 - 1e-9), time_step=0.02, duration=0.1)
    check_drone_start(close, 0.0)
    state = {name: array for name, array in HOVER.init_state(close).items() if name != "height"}
    step = ef.BodyStep(np.zeros((1, 3, 2)), np.zeros((1, 3, 2)), close.roles, np.zeros((1, 3, 2)), 0.1, np.array([0]))
    with pytest.raises(ef.InputError, match=r'needs state\["height"\]: pass the state that init_state returned'):
        HOVER.advance(step._replace(state=state))
    wrong = np.zeros((1, 3, 4))
    with pytest.raises(ef.InputError, match=r"^a quadrotor needs a flock with D = 2 or 3; got D = 4$"):
        HOVER.advance(step._replace(positions=wrong))
