"""A Crazyflie simulated by crazyflow, the independent check of our own quadrotor; needs the extra `drones`.

crazyflow (JAX, float32) has the rigid body with rotor lag and drag of a Crazyflie 2.x, and the Mellinger controller of
its firmware. This module simulates each drone in a separate world: it writes the body state into crazyflow's data, runs
the substeps of a time step and reads the state back. Drones do not touch each other and have no floor and no downwash.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock._runtime.imports import require_modules
from equiflock.bodies.limits import check_limits, check_not_negative, resolve_limit
from equiflock.bodies.quadrotor_kernels import MAX_POSITION_LEAD, MAX_VELOCITY_LEAD
from equiflock.bodies.registry import body
from equiflock.flock import FOLLOWER, LEADER, Flock
from equiflock.protocols import BodyStep

if importlib.util.find_spec("crazyflow") is not None:
    # crazyflow needs this setting, which scipy reads once, and Numba imports scipy when it loads the first kernel.
    os.environ.setdefault("SCIPY_ARRAY_API", "1")

PHYSICS_RATE = 500
"""Euler steps of crazyflow, and updates of its attitude controller, per second."""
POSITION_CONTROL_RATE = 100
"""Updates of crazyflow's position controller per second."""
SUBSTEPS_PER_UPDATE = PHYSICS_RATE // POSITION_CONTROL_RATE
RPM = 2.0 * np.pi / 60.0
"""A revolution per minute, in rad/s: crazyflow's unit of motor speeds."""
MAX_COMMAND = 15.0
"""Largest commanded acceleration, in m/s^2: about what the motors can do."""
CONTROL_AGE = "position_control_age"
"""Name of the array of integers in the body state."""
PLANE_STATE = frozenset({"height", "climb_rate"})
"""Names of the arrays that only a flock in the plane has."""


@body("crazyflow")
@dataclass(frozen=True)
class Crazyflow:
    """A Crazyflie 2.x (crazyflow's `cf2x_L250`), simulated by crazyflow, in metres and seconds, z up.

    A command a moves the reference of the drone's position controller, r_ref' = v_ref, v_ref' = a, and the controller
    receives r_ref, v_ref and a 100 times per second. A reference that is more than 1 m or 2 m/s ahead of the drone
    waits for it, as that of `Quadrotor`. For D = 3 the flock flies in space; for D = 2 it flies at a `height`, which is
    part of the body state. The time step must be a multiple of 0.002 s, crazyflow's own.

    The state, arrays (B, N, ..):

    - "reference_position", "reference_velocity" (3): r_ref and v_ref. A drone hovers 2.3 cm below its reference, since
      the firmware's controller assumes a lighter drone.
    - "quaternion" (4): (x, y, z, w) from body to world.
    - "body_rates" (3), "last_body_rates" (3): in rad/s, now and one substep ago.
    - "motor_speeds" (4): in rad/s.
    - "position_integral" (3), "attitude_integral" (3): integral terms of the controllers.
    - "attitude_command" (4): roll, pitch, yaw and thrust that the position controller commanded last.
    - "position_control_age": substeps since the position controller ran, an integer; it runs again at 5.
    - "height", "climb_rate": position and velocity along z, only if D = 2.
    """

    is_in_metres: ClassVar[bool] = True
    """Marks a body in SI units."""

    max_acceleration: float | None = None
    """Largest 2-norm of the commanded acceleration, in m/s^2, at most 15; larger commands are scaled down. None: 15,
    about what the motors can do."""
    height: float = 1.0
    """Height at which drones of a flock with D = 2 start and stay, in m."""

    def __post_init__(self) -> None:
        check_limits(self, "max_acceleration")
        check_not_negative(self, "height")

    def init_state(self, flock: Flock) -> dict[str, NDArray[Any]]:
        """Return the state of level drones in steady hover, which do not accelerate without a command.

        Raise InputError if the extra `drones` is not installed, or D is not 2 or 3.
        """
        return make_hover_state(flock.positions, flock.velocities, self.height, load_simulator().hover)

    def advance(self, step: BodyStep) -> None:
        """Move the active flocks by one time step, in place.

        Followers obey commands, leaders keep their velocity, obstacle agents stand still; a leader's drone is in hover.
        Raise InputError if the time step is not a multiple of 0.002 s.
        """
        simulator = load_simulator()
        is_active = np.zeros((len(step.positions), 1), bool)
        is_active[step.active] = True
        leaders, followers = is_active & (step.roles == LEADER), is_active & (step.roles == FOLLOWER)

        # crazyflow moves all drones, so that it compiles once per number of drones; only followers take the result.
        substeps = count_substeps(step.time_step)
        if followers.any():
            commands = clamp_norm(
                pad_to_space(step.accelerations), min(resolve_limit(self.max_acceleration), MAX_COMMAND)
            )
            drones, dimensions = fly_drones(simulator, step, commands, substeps), step.positions.shape[2]
            step.positions[followers] = drones["position"][followers][:, :dimensions]
            step.velocities[followers] = drones["velocity"][followers][:, :dimensions]
            for name, array in step.state.items():
                array[followers] = drones[name][followers]

        if leaders.any():
            step.positions[leaders] += step.velocities[leaders] * step.time_step
            hover = make_hover_state(step.positions, step.velocities, self.height, simulator.hover)
            for name, array in step.state.items():
                array[leaders] = hover[name][leaders]


class Hover(NamedTuple):
    """The steady state of a drone without commands and drag."""

    motor_speed: float
    """Speed at which four motors carry the weight, in rad/s."""
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
    """Return crazyflow's data of that many drones, each in a separate world."""
    fly: Callable[..., dict[str, Any]]
    """Compiled function (data, arrays, substeps) -> arrays; see `_compile_flight`."""


@lru_cache(maxsize=1)
def load_simulator() -> Simulator:
    """Import crazyflow and return its simulator, cached.

    Raise InputError if the extra `drones` is not installed, or parts of scipy were imported without SCIPY_ARRAY_API=1.
    """
    require_modules("drones", "the body 'crazyflow'", "crazyflow", "jax")
    import jax
    from scipy.spatial.transform import Rotation

    rotated = Rotation.from_quat(jax.numpy.ones(4)).as_quat()
    if os.environ.get("SCIPY_ARRAY_API") != "1" or not isinstance(rotated, jax.Array):
        raise InputError(
            "the body 'crazyflow' needs scipy with the environment variable SCIPY_ARRAY_API=1: "
            "import equiflock before scipy, or set the variable before Python starts"
        )
    # mujoco-mjx prints that it cannot find its optional GPU backend.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import crazyflow
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
    revolutions_per_minute = (-linear + np.sqrt(linear**2 + quadratic * weight)) / (2.0 * quadratic)
    # The controller scales its force to the thrust, and assumes another mass. The integral term at its limit and the
    # proportional term of the offset add what is missing.
    scale = float(controller["mass_thrust"] / controller["pwm_max"] * 4.0 * controller["thrust_max"])
    missing = weight / scale - float(controller["mass"]) * gravity
    integral = float(controller["int_err_max"][2])
    offset = (missing - float(controller["ki"][2]) * integral) / float(controller["kp"][2])
    return Hover(float(revolutions_per_minute) * RPM, integral, offset, weight)


def make_hover_state(
    positions: NDArray[Any], velocities: NDArray[Any], height: float, hover: Hover
) -> dict[str, NDArray[Any]]:
    """Return the body state of level drones in steady hover at positions and velocities (B, N, D).

    `height` is that of flocks with D = 2. Raise InputError if D is not 2 or 3.
    """
    B, N, D = positions.shape
    if D not in (2, 3):
        raise InputError(f"the body 'crazyflow' needs a flock with D = 2 or 3; got D = {D}")
    state = {
        "reference_position": pad_to_space(positions, height) + np.array([0.0, 0.0, hover.offset]),
        "reference_velocity": pad_to_space(velocities),
        "quaternion": np.tile([0.0, 0.0, 0.0, 1.0], (B, N, 1)),
        "body_rates": np.zeros((B, N, 3)),
        "last_body_rates": np.zeros((B, N, 3)),
        "motor_speeds": np.full((B, N, 4), hover.motor_speed),
        "position_integral": np.tile([0.0, 0.0, hover.integral], (B, N, 1)),
        "attitude_integral": np.zeros((B, N, 3)),
        "attitude_command": np.tile([0.0, 0.0, 0.0, hover.thrust_command], (B, N, 1)),
        CONTROL_AGE: np.full((B, N), SUBSTEPS_PER_UPDATE),
    }
    return state if D == 3 else state | {"height": np.full((B, N), height), "climb_rate": np.zeros((B, N))}


def count_substeps(time_step: float) -> int:
    """Return the number of crazyflow's steps in a time step; raise InputError if it is not a whole number."""
    substeps = round(time_step * PHYSICS_RATE)
    if substeps < 1 or abs(substeps - time_step * PHYSICS_RATE) > 1e-6 * substeps:
        raise InputError(
            f"the body 'crazyflow' needs a time step that is a multiple of {1 / PHYSICS_RATE:g} s; got {time_step:g}"
        )
    return substeps


def fly_drones(simulator: Simulator, step: BodyStep, commands: NDArray[Any], substeps: int) -> dict[str, NDArray[Any]]:
    """Return position, velocity and body state of all drones after a time step, arrays (B, N, ..); change nothing.

    `commands` are accelerations (B, N, 3).
    """
    state, time_step, agents = step.state, step.time_step, step.roles.shape
    position, velocity = pad_to_space(step.positions), pad_to_space(step.velocities)
    if "height" in state:
        position[..., 2], velocity[..., 2] = state["height"], state["climb_rate"]
    # The reference waits for a drone at its limits. Positions are relative to the present ones from here on, so that
    # float32 suffices at any distance from the origin.
    lead = clamp_norm(state["reference_position"] - position, MAX_POSITION_LEAD)
    reference_velocity = velocity + clamp_norm(state["reference_velocity"] - velocity, MAX_VELOCITY_LEAD)

    arrays = {name: array for name, array in state.items() if name not in PLANE_STATE}
    arrays |= {"reference_position": lead, "reference_velocity": reference_velocity}
    arrays |= {"velocity": velocity, "acceleration": commands}
    drones = agents[0] * agents[1]
    flat = {name: array.reshape(drones, *array.shape[2:]) for name, array in arrays.items()}
    result = simulator.fly(simulator.make_data(drones), flat, substeps)

    moved = {name: np.asarray(array).reshape(*agents, *array.shape[1:]) for name, array in result.items()}
    moved["position"] = position + moved["displacement"]
    moved["reference_position"] = (
        position + lead + reference_velocity * time_step + 0.5 * commands * time_step * time_step
    )
    moved["reference_velocity"] = reference_velocity + commands * time_step
    moved["height"], moved["climb_rate"] = moved["position"][..., 2], moved["velocity"][..., 2]
    return moved


def pad_to_space(vectors: NDArray[Any], third: float = 0.0) -> NDArray[Any]:
    """Return a copy of vectors (B, N, D) with three components, of which the third is `third` if D = 2."""
    padded = np.full((*vectors.shape[:2], 3), third)
    padded[..., : vectors.shape[2]] = vectors
    return padded


def clamp_norm(vectors: NDArray[Any], max_norm: float) -> NDArray[Any]:
    """Return vectors (B, N, 3), those longer than `max_norm` scaled down to it."""
    # The norm relative to the largest entry, whose squares do not overflow.
    largest = np.maximum(np.abs(vectors).max(axis=-1, keepdims=True), max_norm)
    units = vectors / largest
    norms = np.linalg.norm(units, axis=-1, keepdims=True)
    clamped: NDArray[Any] = np.where(norms * largest > max_norm, units / np.maximum(norms, 1e-300) * max_norm, vectors)
    return clamped


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
            quat=values["quaternion"],
            ang_vel=values["body_rates"],
            rotor_vel=values["motor_speeds"] / RPM,
        )
        # The position controller ran last at step 0, the attitude controller at the step before this one.
        steps = jnp.asarray(arrays[CONTROL_AGE], jnp.int32)[:, None]
        controls = controls.replace(
            state=controls.state.replace(steps=jnp.zeros_like(steps), pos_err_i=values["position_integral"]),
            attitude=controls.attitude.replace(
                steps=steps - 1,
                staged_cmd=values["attitude_command"],
                r_int_error=values["attitude_integral"],
                prev_ang_vel=values["last_body_rates"],
            ),
            force_torque=controls.force_torque.replace(steps=steps - 1),
        )
        return data.replace(states=states, controls=controls, core=data.core.replace(steps=steps))

    def read(data: Any) -> dict[str, Any]:
        states, controls = data.states, data.controls
        values = {
            "displacement": states.pos,
            "velocity": states.vel,
            "quaternion": states.quat,
            "body_rates": states.ang_vel,
            "last_body_rates": controls.attitude.prev_ang_vel,
            "motor_speeds": states.rotor_vel * RPM,
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
