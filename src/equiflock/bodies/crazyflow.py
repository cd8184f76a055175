"""A Crazyflie simulated by crazyflow, the independent check of our own quadrotor; needs the extra `drones`.

crazyflow (JAX, float32) has the rigid body with rotor lag and drag of a Crazyflie 2.x, and the Mellinger controller of
its firmware. This module gives every drone a world of its own, writes the body state into crazyflow's data, runs the
substeps of a time step and reads the state back. Drones do not touch each other and have no floor and no downwash.
"""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock._runtime.imports import require_modules
from equiflock.bodies.registry import body
from equiflock.flock import FOLLOWER, LEADER, Flock
from equiflock.protocols import BodyStep

PHYSICS_RATE = 500
"""Euler steps of crazyflow, and updates of its attitude controller, per second."""
POSITION_CONTROL_RATE = 100
"""Updates of crazyflow's position controller per second."""
SUBSTEPS_PER_UPDATE = PHYSICS_RATE // POSITION_CONTROL_RATE
CONTROL_AGE = "position_control_age"
"""Name of the array of integers in the body state."""
PLANE_STATE = frozenset({"height", "climb_rate"})
"""Names of the arrays that only a flock in the plane has."""


@body("crazyflow")
@dataclass(frozen=True)
class Crazyflow:
    """A Crazyflie 2.x (crazyflow's `cf2x_L250`), simulated by crazyflow.

    A command a moves the reference of the drone's position controller, r_ref' = v_ref, v_ref' = a, and the controller
    receives r_ref, v_ref and a 100 times per second. D = 3 flies in space, with the third axis up; D = 2 holds the
    height 0. The time step must be a multiple of 0.002 s, crazyflow's own.

    The state, arrays (B, N, ..) in SI units with z up:

    - "reference_position", "reference_velocity" (3): r_ref and v_ref. A drone hovers 2.3 cm below its reference, since
      the firmware's controller assumes a lighter drone.
    - "attitude" (4): quaternion x, y, z, w from the drone's frame to that of the flock.
    - "angular_velocity" (3), "last_angular_velocity" (3): in the drone's frame, now and one substep ago.
    - "rotor_speeds" (4): revolutions per minute.
    - "position_integral" (3), "attitude_integral" (3): integral terms of the controllers.
    - "attitude_command" (4): roll, pitch, yaw and thrust that the position controller commanded last.
    - "position_control_age": substeps since the position controller ran, an integer; it runs again at 5.
    - "height", "climb_rate": position and velocity along z, only if D = 2.
    """

    def init_state(self, flock: Flock) -> dict[str, NDArray[Any]]:
        """Return the state beyond position and velocity: level drones in steady hover, which do not accelerate.

        Raise InputError if the extra `drones` is not installed, or D is not 2 or 3.
        """
        return make_hover_state(flock.positions, flock.velocities, load_simulator().hover)

    def advance(self, step: BodyStep) -> None:
        """Move the active flocks by one time step, in place.

        Followers obey commands, leaders keep their velocity, obstacle agents stand still; a leader's drone is in hover.
        Raise InputError if the time step is not a multiple of 0.002 s.
        """
        simulator = load_simulator()
        substeps = count_substeps(step.time_step)
        moved = np.zeros(step.roles.shape, bool)
        moved[step.active] = True
        leaders, followers = moved & (step.roles == LEADER), moved & (step.roles == FOLLOWER)

        # crazyflow moves all drones, so that it compiles once per number of drones; followers take over the result.
        if followers.any():
            drones, dimensions = fly_drones(simulator, step, substeps), step.positions.shape[2]
            step.positions[followers] = drones["position"][followers][:, :dimensions]
            step.velocities[followers] = drones["velocity"][followers][:, :dimensions]
            for name, array in step.state.items():
                array[followers] = drones[name][followers]

        if leaders.any():
            step.positions[leaders] += step.velocities[leaders] * step.time_step
            hover = make_hover_state(step.positions, step.velocities, simulator.hover)
            for name, array in step.state.items():
                array[leaders] = hover[name][leaders]


class Hover(NamedTuple):
    """The steady state of a drone without commands and drag."""

    rotor_speed: float
    """Revolutions per minute at which four rotors carry the weight."""
    integral: float
    """Vertical integral term of the position controller, at its limit."""
    offset: float
    """Height of the reference above the drone, in metres."""
    thrust_command: float
    """Thrust that the position controller commands, in newtons."""


class Simulator(NamedTuple):
    """crazyflow, ready to fly any number of drones."""

    hover: Hover
    make_data: Callable[[int], Any]
    """Return crazyflow's data of that many drones, each in a world of its own."""
    fly: Callable[..., dict[str, Any]]
    """Compiled function (data, arrays, substeps) -> arrays; see `_compile_flight`."""


@lru_cache(maxsize=1)
def load_simulator() -> Simulator:
    """Import crazyflow and return its simulator, cached.

    Raise InputError if the extra `drones` is not installed, or parts of scipy were imported without SCIPY_ARRAY_API=1.
    """
    require_modules("drones", "the body 'crazyflow'", "crazyflow", "jax")
    # scipy reads the variable when its first subpackage is imported; crazyflow refuses to start without it.
    os.environ["SCIPY_ARRAY_API"] = "1"
    # mujoco-mjx prints that it cannot find its optional GPU backend.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import crazyflow
        import jax
    from scipy.spatial.transform import Rotation

    if not isinstance(Rotation.from_quat(jax.numpy.ones(4)).as_quat(), jax.Array):
        raise InputError(
            "the body 'crazyflow' needs scipy with the environment variable SCIPY_ARRAY_API=1, and scipy was imported "
            "without it: set the variable before Python starts"
        )
    from crazyflow.sim.pipeline import remove_fn

    sim = crazyflow.Sim(
        n_worlds=1,
        n_drones=1,
        drone=crazyflow.Drone.cf2x_L250,
        dynamics=crazyflow.Dynamics.first_principles,
        control=crazyflow.Control.state,
        freq=PHYSICS_RATE,
        state_freq=POSITION_CONTROL_RATE,
        attitude_freq=PHYSICS_RATE,
        force_torque_freq=PHYSICS_RATE,
    )
    # A flock may be at any height.
    remove_fn(sim.step_pipeline, "clip_floor_pos")

    @lru_cache(maxsize=8)
    def make_data(drones: int) -> Any:
        sim.n_worlds = drones
        return sim.build_data()

    return Simulator(_compute_hover(sim), make_data, _compile_flight(sim.build_step_fn()))


def _compute_hover(sim: Any) -> Hover:
    """Return the steady hover of crazyflow's drone, from its parameters."""
    physics, controller = sim.data.params, sim.data.controls.state.params
    gravity = -float(physics.gravity_vec[2])
    weight = float(physics.mass[0]) * gravity
    _, linear, quadratic = np.asarray(physics.rpm2thrust[0], float)
    rotor_speed = (-linear + np.sqrt(linear**2 + quadratic * weight)) / (2.0 * quadratic)
    # The controller scales its force to the thrust, and assumes another mass. The integral term at its limit and the
    # proportional term of the offset add what is missing.
    scale = float(controller["mass_thrust"] / controller["pwm_max"] * 4.0 * controller["thrust_max"])
    missing = weight / scale - float(controller["mass"]) * gravity
    integral = float(controller["int_err_max"][2])
    offset = (missing - float(controller["ki"][2]) * integral) / float(controller["kp"][2])
    return Hover(float(rotor_speed), integral, offset, weight)


def make_hover_state(positions: NDArray[Any], velocities: NDArray[Any], hover: Hover) -> dict[str, NDArray[Any]]:
    """Return the body state of level drones in steady hover at positions and velocities (B, N, D).

    Raise InputError if D is not 2 or 3.
    """
    agents = positions.shape[:2]
    if positions.shape[2] not in (2, 3):
        raise InputError(f"a crazyflow drone needs a flock with D = 2 or 3; got D = {positions.shape[2]}")
    state = {
        "reference_position": _pad_to_space(positions),
        "reference_velocity": _pad_to_space(velocities),
        "attitude": np.zeros((*agents, 4)),
        "angular_velocity": np.zeros((*agents, 3)),
        "last_angular_velocity": np.zeros((*agents, 3)),
        "rotor_speeds": np.full((*agents, 4), hover.rotor_speed),
        "position_integral": np.zeros((*agents, 3)),
        "attitude_integral": np.zeros((*agents, 3)),
        "attitude_command": np.zeros((*agents, 4)),
        CONTROL_AGE: np.full(agents, SUBSTEPS_PER_UPDATE),
    }
    state["reference_position"][..., 2] += hover.offset
    state["attitude"][..., 3] = 1.0
    state["position_integral"][..., 2] = hover.integral
    state["attitude_command"][..., 3] = hover.thrust_command
    if positions.shape[2] == 2:
        state |= {"height": np.zeros(agents), "climb_rate": np.zeros(agents)}
    return state


def count_substeps(time_step: float) -> int:
    """Return the number of crazyflow's steps in a time step; raise InputError if it is not a whole number."""
    substeps = round(time_step * PHYSICS_RATE)
    if substeps < 1 or abs(substeps - time_step * PHYSICS_RATE) > 1e-6 * substeps:
        raise InputError(
            f"the body 'crazyflow' needs a time step that is a multiple of {1 / PHYSICS_RATE:g} s; got {time_step:g}"
        )
    return substeps


def fly_drones(simulator: Simulator, step: BodyStep, substeps: int) -> dict[str, NDArray[Any]]:
    """Return position, velocity and body state of all drones after a time step, arrays (B, N, ..); change nothing."""
    state, time_step, agents = step.state, step.time_step, step.roles.shape
    position, velocity = _pad_to_space(step.positions), _pad_to_space(step.velocities)
    acceleration = _pad_to_space(step.accelerations)
    if "height" in state:
        position[..., 2], velocity[..., 2] = state["height"], state["climb_rate"]
    reference, reference_velocity = state["reference_position"], state["reference_velocity"]

    # crazyflow has positions relative to the present ones, so that float32 suffices at any distance from the origin.
    arrays = {**state, "velocity": velocity, "acceleration": acceleration, "reference_position": reference - position}
    drones = agents[0] * agents[1]
    flat = {name: arrays[name].reshape(drones, *arrays[name].shape[2:]) for name in sorted(arrays.keys() - PLANE_STATE)}
    result = simulator.fly(simulator.make_data(drones), flat, substeps)

    moved = {name: np.asarray(array).reshape(*agents, *array.shape[1:]) for name, array in result.items()}
    moved["position"] = position + moved["displacement"]
    moved["reference_position"] = reference + reference_velocity * time_step + 0.5 * acceleration * time_step**2
    moved["reference_velocity"] = reference_velocity + acceleration * time_step
    moved["height"], moved["climb_rate"] = moved["position"][..., 2], moved["velocity"][..., 2]
    return moved


def _pad_to_space(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of vectors (B, N, D) with three components, of which the third is 0 if D = 2."""
    padded = np.zeros((*vectors.shape[:2], 3))
    padded[..., : vectors.shape[2]] = vectors
    return padded


def _compile_flight(take_step: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Return the compiled function fly(data, arrays, substeps) from crazyflow's step function.

    `arrays` (drones, ..) by name are body state, velocity and acceleration; the reference position is relative to the
    present position. The function returns velocity, displacement and the body state without the reference.
    """
    import jax
    import jax.numpy as jnp
    from crazyflow.sim.functional import state_control

    def write(data: Any, arrays: Mapping[str, Any]) -> Any:
        # One world per drone: crazyflow's arrays are (drones, 1, ..).
        values = {name: jnp.asarray(array, jnp.float32)[:, None] for name, array in arrays.items()}
        states, controls = data.states, data.controls
        states = states.replace(
            pos=jnp.zeros_like(states.pos),
            vel=values["velocity"],
            quat=values["attitude"],
            ang_vel=values["angular_velocity"],
            rotor_vel=values["rotor_speeds"],
        )
        # The position controller ran last at step 0, the attitude controller at the step before this one.
        steps = jnp.asarray(arrays[CONTROL_AGE], jnp.int32)[:, None]
        controls = controls.replace(
            state=controls.state.replace(steps=jnp.zeros_like(steps), pos_err_i=values["position_integral"]),
            attitude=controls.attitude.replace(
                steps=steps - 1,
                staged_cmd=values["attitude_command"],
                r_int_error=values["attitude_integral"],
                prev_ang_vel=values["last_angular_velocity"],
            ),
            force_torque=controls.force_torque.replace(steps=steps - 1),
        )
        return data.replace(states=states, controls=controls, core=data.core.replace(steps=steps))

    def read(data: Any) -> dict[str, Any]:
        states, controls = data.states, data.controls
        values = {
            "displacement": states.pos,
            "velocity": states.vel,
            "attitude": states.quat,
            "angular_velocity": states.ang_vel,
            "last_angular_velocity": controls.attitude.prev_ang_vel,
            "rotor_speeds": states.rotor_vel,
            "position_integral": controls.state.pos_err_i,
            "attitude_integral": controls.attitude.r_int_error,
            "attitude_command": controls.attitude.staged_cmd,
            CONTROL_AGE: data.core.steps - controls.state.steps,
        }
        return {name: value[:, 0] for name, value in values.items()}

    def fly(data: Any, arrays: Mapping[str, Any], substeps: int) -> dict[str, Any]:
        position, velocity, acceleration = (
            jnp.asarray(arrays[name], jnp.float32)
            for name in ("reference_position", "reference_velocity", "acceleration")
        )
        # The command is r_ref, v_ref, a, a quaternion of which crazyflow uses the yaw, and angular velocities.
        attitude = jnp.zeros((len(position), 7), jnp.float32).at[:, 3].set(1.0)

        def take_substep(number: Any, data: Any) -> Any:
            time = number / PHYSICS_RATE
            moved = position + velocity * time + 0.5 * acceleration * time**2
            command = jnp.concatenate([moved, velocity + acceleration * time, acceleration, attitude], axis=1)
            return take_step(state_control(data, command[:, None]), n_steps=1)

        return read(jax.lax.fori_loop(0, substeps, take_substep, write(data, arrays)))

    compiled: Callable[..., dict[str, Any]] = jax.jit(fly)
    return compiled
