"""`Quadrotor` flies as crazyflow's Crazyflie, which is flown itself where the extra `drones` is installed.

`python benchmarks/crazyflow_reference.py record` writes the recorded flights, and describes their arrays.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import crazyflow_reference
import equiflock as ef
from equiflock.bodies import crazyflow
from equiflock.flock import Flock, Role
from equiflock.protocols import StatefulBody

is_installed = importlib.util.find_spec("crazyflow") is not None
needs_crazyflow = pytest.mark.skipif(not is_installed, reason="crazyflow is missing: pip install 'equiflock[drones]'")


@pytest.fixture(scope="module")
def recording() -> dict[str, Any]:
    return crazyflow_reference.read_recording()


def fly(body: Any, recording: dict[str, Any]) -> tuple[Any, Any]:
    return crazyflow_reference.fly_commands(
        body, recording["commands"], float(recording["time_step"]), int(recording["every"])
    )


def advance(body: Any, flock: Flock, commands: Any, time_step: float, steps: int) -> tuple[Any, Any, Any]:
    positions, velocities, state = flock.positions.copy(), flock.velocities.copy(), body.init_state(flock)
    for number in range(steps):
        body.advance(
            ef.BodyStep(positions, velocities, flock.roles, commands, time_step, np.arange(len(flock)), state, number)
        )
    return positions, velocities, state


def test_the_recorded_commands_are_those_of_the_seed(recording: dict[str, Any]) -> None:
    np.testing.assert_allclose(recording["commands"], crazyflow_reference.draw_commands(), atol=1e-6)


def test_quadrotor_differs_from_crazyflow_by_less_than_2_percent_of_the_distance_flown(
    recording: dict[str, Any],
) -> None:
    flown = crazyflow_reference.compute_path_lengths(recording["positions"])
    positions, _ = fly(ef.Quadrotor(), recording)
    assert (np.linalg.norm(positions[-1] - recording["positions"][-1], axis=-1) < 0.02 * flown[-1]).all()


def test_velocities_of_quadrotor_are_closer_to_crazyflow_than_those_of_a_double_integrator(
    recording: dict[str, Any],
) -> None:
    # The double integrator, which is ideal, ends within 2 % of the distance flown, too; velocities tell them apart.
    quadrotor, ideal = (
        np.linalg.norm(fly(body, recording)[1] - recording["velocities"], axis=-1).mean(axis=(0, 2))
        for body in (ef.Quadrotor(), ef.DoubleIntegrator())
    )
    assert (quadrotor < 0.75 * ideal).all()


def test_a_missing_extra_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    crazyflow.load_simulator.cache_clear()
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "crazyflow" else find_spec(name, *rest)
    )
    with pytest.raises(ef.InputError) as error:
        ef.simulate(ef.random_disk(agents=5), ef.load("tanner"), duration=0.02, body=ef.make_body("crazyflow"))
    assert str(error.value).startswith("the body 'crazyflow' needs crazyflow")
    assert str(error.value).endswith(": pip install 'equiflock[drones]'")
    assert "\n" not in str(error.value)


@needs_crazyflow
@pytest.mark.slow
def test_crazyflow_repeats_the_recorded_flights(recording: dict[str, Any]) -> None:
    assert isinstance(ef.Crazyflow(), StatefulBody)
    positions, velocities = fly(ef.Crazyflow(), recording)
    np.testing.assert_allclose(positions, recording["positions"], atol=1e-3)
    np.testing.assert_allclose(velocities, recording["velocities"], atol=1e-3)


@needs_crazyflow
@pytest.mark.slow
def test_a_flight_equals_one_that_crazyflow_makes_without_interruption() -> None:
    # Two drones in one world of crazyflow, which gets a reference every 0.01 s and keeps its own state.
    import crazyflow as package
    import jax.numpy as jnp

    hover, time = crazyflow.load_simulator().hover, 0.0
    sim = package.Sim(
        n_drones=2,
        drone=package.Drone.cf2x_L250,
        dynamics=package.Dynamics.first_principles,
        control=package.Control.state,
    )
    start, command = np.array([[0.0, 0.0, 5.0], [2.0, -1.0, 5.0]]), np.array([[1.0, 0.5, -0.2], [0.0, -2.0, 1.0]])
    states, control = sim.data.states, sim.data.controls.state
    states = states.replace(
        pos=jnp.asarray(start[None], jnp.float32),
        rotor_vel=jnp.full_like(states.rotor_vel, hover.motor_speed / crazyflow.RPM),
    )
    control = control.replace(pos_err_i=jnp.zeros_like(control.pos_err_i).at[..., 2].set(hover.integral))
    sim.data = sim.data.replace(states=states, controls=sim.data.controls.replace(state=control))
    reference = np.zeros((1, 2, 16), np.float32)
    reference[..., 6:9], reference[..., 12] = command, 1.0
    for _ in range(200):
        reference[0, :, :3] = start + [0.0, 0.0, hover.offset] + 0.5 * command * time**2
        reference[0, :, 3:6] = command * time
        # A copy, since JAX reads the array while the next one is made.
        sim.state_control(jnp.asarray(reference.copy()))
        sim.step(5)
        time += 0.01

    flock = Flock(start[None], np.zeros((1, 2, 3)))
    for time_step in (0.1, 0.02, 0.004):
        positions, velocities, _ = advance(ef.Crazyflow(), flock, command[None], time_step, round(2.0 / time_step))
        np.testing.assert_allclose(positions, sim.data.states.pos, atol=1e-4)
        np.testing.assert_allclose(velocities, sim.data.states.vel, atol=1e-4)


@needs_crazyflow
@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [2, 3])
def test_followers_obey_and_leaders_and_obstacle_agents_do_not(dimensions: int) -> None:
    # Only a flock in the plane may have obstacle agents.
    third = Role.OBSTACLE if dimensions == 2 else Role.LEADER
    roles = np.array([[Role.FOLLOWER, Role.LEADER, third]] * 2, np.int8)
    start = 1000.0 + np.arange(6.0 * dimensions).reshape(2, 3, dimensions)
    velocities = np.full(start.shape, 0.25) * (roles != Role.OBSTACLE)[..., None]
    flock = Flock(start, velocities, roles)
    positions, _, state = advance(ef.Crazyflow(height=2.0), flock, np.zeros(start.shape), 0.02, 50)
    # The follower keeps its velocity, too, but for the drag that its controller has to compensate first.
    np.testing.assert_allclose(positions[:, 0], start[:, 0] + 0.25, atol=0.02)
    np.testing.assert_allclose(positions[:, 1], start[:, 1] + 0.25)
    if dimensions == 2:
        assert (positions[:, 2] == start[:, 2]).all()
        np.testing.assert_allclose(state["height"], 2.0, atol=1e-3)


@needs_crazyflow
@pytest.mark.slow
def test_extreme_commands_leave_finite_numbers() -> None:
    flock = Flock(np.zeros((1, 2, 3)), np.zeros((1, 2, 3)))
    commands = np.array([[[1e300, -1e300, 1e300], [0.0, 0.0, -1e6]]])
    positions, velocities, state = advance(ef.Crazyflow(), flock, commands, 0.02, 250)
    assert all(np.isfinite(array).all() for array in (positions, velocities, *state.values()))


@needs_crazyflow
def test_a_time_step_must_be_a_multiple_of_that_of_crazyflow() -> None:
    with pytest.raises(ef.InputError, match=r"a time step that is a multiple of 0\.002 s; got 0\.005"):
        advance(ef.Crazyflow(), Flock(np.zeros((1, 1, 2)), np.zeros((1, 1, 2))), np.zeros((1, 1, 2)), 0.005, 1)
