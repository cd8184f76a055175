"""The quadrotor: a rigid body with four motors that tracks commanded accelerations.

Units are SI: a flock of quadrotors is in metres and seconds. docs/quadrotors.md has the equations and the sources of
the numbers. The chain of control, at every substep of at most `max_substep` seconds:

    command -> reference (position, velocity) -> force of the rotors -> torques -> thrusts of the motors -> motor speeds
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, check_positive, is_finite, shorten_repr
from equiflock.bodies.downwash import compute_downwash
from equiflock.bodies.limits import check_limits, check_not_negative, resolve_limit, run_over_agents
from equiflock.bodies.quadrotor_kernels import GRAVITY, QuadrotorModel, QuadrotorState, fly_drones
from equiflock.bodies.registry import body
from equiflock.flock import FOLLOWER, OBSTACLE, Flock
from equiflock.graph.radius_graph import radius_graph
from equiflock.protocols import BodyStep

DRONES_PER_THREAD = 100
"""Minimum number of drones per thread: far below that of other bodies, as a step of a drone takes microseconds."""
LONGEST_SUBSTEP = 0.005
"""Upper bound of `max_substep`, in seconds: with longer ones the attitude loop would be unstable."""
LARGEST_BANDWIDTH = 0.1
"""Upper bound of `attitude_bandwidth` times `max_substep`."""
NO_ARRAY = np.empty((0, 0))
"""Placeholder for arrays that a kernel does not read."""


@body("quadrotor")
@dataclass(frozen=True)
class Quadrotor:
    """A quadrotor with the mass, motors and gains of a Crazyflie 2.1, in metres and seconds, z up.

    Commanded accelerations are integrated into a reference of position and velocity, which the drone tracks by its
    thrust and attitude. A reference that is more than 1 m or 2 m/s ahead of the drone waits for it. For D = 3 the flock
    flies in space; for D = 2 it flies at a `height`, which is part of the body state.

    The ground is at z = 0. A drone that touches it at up to 1 m/s and 30 degrees of tilt stands on it, level and at
    rest, until it is commanded upwards; any other has crashed, and stays there. Drones do not collide with each other.

    The state has "quaternion" (B, N, 4), (x, y, z, w) from body to world; "body_rates" (B, N, 3) in rad/s;
    "motor_speeds" (B, N, 4) in rad/s; "reference_position" and "reference_velocity" (B, N, 3); "reference_yaw" (B, N)
    in radians, 0 at the start; "crashed" (B, N); and for D = 2 "height" and "climb_rate" (B, N).
    """

    is_in_metres: ClassVar[bool] = True
    """Marks a body in SI units, which flocks of the live page, with R = 1, do not fit."""

    max_acceleration: float | None = None
    """Largest 2-norm of the commanded acceleration, in m/s^2; larger commands are scaled down. None: what the motors
    can do."""
    max_speed: float | None = None
    """Largest 2-norm of the velocity of the reference, in m/s. None: no limit."""
    max_tilt: float = 40.0
    """Largest angle between the desired thrust and the vertical, in degrees, above 0 and below 90."""
    height: float = 1.0
    """Height above 0 at which drones of a flock with D = 2 start and stay, in m."""
    downwash: bool = False
    """Whether the rotors of a drone blow onto the drones below it."""
    start_distance: float = 0.3
    """Least distance between two drones at the start of a flight, in m; 0: any."""
    max_substep: float = 0.002
    """Largest step of the integration and the control, in seconds; a time step has equal substeps."""
    mass: float = 0.0328
    """Mass, in kg."""
    inertia: float = 16.8e-6
    """Moment of inertia about the body's x and y axes, in kg m^2."""
    yaw_inertia: float = 29.8e-6
    """Moment of inertia about the body's z axis, in kg m^2."""
    arm_length: float = 0.046
    """Distance of the motors from the centre, in m; arms are at 45 degrees to the x axis."""
    rotor_radius: float = 0.0231
    """Radius of a rotor, in m, for downwash."""
    thrust_coefficient: float = 1.986e-8
    """k_f: a motor at w rad/s has a thrust of k_f w^2, in N."""
    torque_coefficient: float = 1.397e-10
    """k_m: a motor at w rad/s turns the body by a torque of k_m w^2 about z, in N m."""
    min_motor_thrust: float = 0.0128
    """Least thrust of a motor, in N."""
    max_motor_thrust: float = 0.12
    """Largest thrust of a motor, in N."""
    motor_lag: float = 0.12
    """Time constant of the motor speeds, in seconds."""
    lateral_drag: float = 0.01495
    """Drag along the body's x and y axes, in N per m/s."""
    axial_drag: float = 0.0139
    """Drag along the body's z axis, in N per m/s."""
    position_gain: float = 5.0
    """Acceleration per m of horizontal distance from the reference, in 1/s^2."""
    velocity_gain: float = 4.0
    """Acceleration per m/s of difference in horizontal velocity, in 1/s."""
    height_gain: float = 36.8
    """Acceleration per m of vertical distance from the reference, in 1/s^2."""
    climb_gain: float = 14.7
    """Acceleration per m/s of difference in vertical velocity, in 1/s."""
    attitude_bandwidth: float = 30.0
    """p, in rad/s: all three poles of roll and pitch with their motors are at -p, those of yaw at -p / 4."""

    def __post_init__(self) -> None:
        check_limits(self, "max_acceleration", "max_speed")
        if not is_finite(self.max_tilt) or not 0.0 < self.max_tilt < 90.0:
            raise InputError(f"max_tilt must be above 0 and below 90 degrees; got {shorten_repr(self.max_tilt)}")
        if not isinstance(self.downwash, bool):
            raise InputError(f"downwash must be True or False; got {shorten_repr(self.downwash)}")
        for name in ("max_substep", "mass", "inertia", "yaw_inertia", "arm_length", "rotor_radius"):
            check_positive(name, getattr(self, name))
        for name in ("thrust_coefficient", "torque_coefficient", "max_motor_thrust", "attitude_bandwidth", "height"):
            check_positive(name, getattr(self, name))
        check_not_negative(self, "start_distance", "min_motor_thrust", "motor_lag")
        check_not_negative(self, "lateral_drag", "axial_drag")
        check_not_negative(self, "position_gain", "velocity_gain", "height_gain", "climb_gain")
        self._check_ranges()

    def _check_ranges(self) -> None:
        """Raise InputError if the drone could not hover, or a substep is too long for its control or drag."""
        weight = self.mass * GRAVITY
        if 4.0 * self.max_motor_thrust <= weight:
            raise InputError(
                f"max_motor_thrust must be above a quarter of the weight, {weight / 4.0:.4g} N; "
                f"got {self.max_motor_thrust:g}"
            )
        if 4.0 * self.min_motor_thrust >= weight:
            raise InputError(
                f"min_motor_thrust must be below a quarter of the weight, {weight / 4.0:.4g} N; "
                f"got {self.min_motor_thrust:g}"
            )
        if self.max_substep > LONGEST_SUBSTEP:
            raise InputError(f"max_substep must be at most {LONGEST_SUBSTEP:g} s; got {self.max_substep:g}")
        largest = LARGEST_BANDWIDTH / self.max_substep
        if self.attitude_bandwidth > largest:
            raise InputError(
                f"attitude_bandwidth must be at most {largest:g} rad/s for a max_substep of {self.max_substep:g} s; "
                f"got {self.attitude_bandwidth:g}"
            )
        for name in ("lateral_drag", "axial_drag"):
            if getattr(self, name) * self.max_substep > self.mass:
                raise InputError(
                    f"{name} must be at most mass / max_substep, {self.mass / self.max_substep:g}; "
                    f"got {getattr(self, name):g}"
                )

    def init_state(self, flock: Flock) -> dict[str, NDArray[Any]]:
        """Return the state of drones that hover: level, with motors that carry the weight, at their references.

        Raise InputError if D is not 2 or 3.
        """
        B, N, D = _check_dimensions(flock.shape)
        state: dict[str, NDArray[Any]] = {
            "quaternion": np.tile([0.0, 0.0, 0.0, 1.0], (B, N, 1)),
            "body_rates": np.zeros((B, N, 3)),
            "motor_speeds": np.full((B, N, 4), math.sqrt(self.mass * GRAVITY / (4.0 * self.thrust_coefficient))),
            "reference_position": np.full((B, N, 3), self.height),
            "reference_velocity": np.zeros((B, N, 3)),
            "reference_yaw": np.zeros((B, N)),
            "crashed": np.zeros((B, N), bool),
        }
        state["reference_position"][..., :D] = flock.positions
        state["reference_velocity"][..., :D] = flock.velocities
        if D == 2:
            state |= {"height": np.full((B, N), self.height), "climb_rate": np.zeros((B, N))}
        return state

    def check_start(self, flock: Flock) -> None:
        """Raise InputError if a flock cannot start: D is not 2 or 3, or a drone is below ground or near another."""
        check_drone_start(flock, self.start_distance)

    def advance(self, step: BodyStep) -> None:
        """Move the active flocks by one time step, in place.

        Followers obey commands, leaders keep their velocity, obstacle agents and crashed drones stand still. Raise
        InputError if D is not 2 or 3, or the state is not that of `init_state`.
        """
        D = _check_dimensions(step.positions.shape)[2]
        state = _get_state(step, D)
        air_speeds = NO_ARRAY
        if self.downwash:
            points = step.positions if D == 3 else np.dstack([step.positions, state.heights])
            air_speeds = compute_downwash(
                points,
                step.roles,
                state.crashed,
                step.active,
                step.agent_ids,
                self.mass * GRAVITY,
                self.rotor_radius,
            )
        arguments = state, air_speeds, make_model(self, step.time_step)
        run_over_agents(fly_drones, step, arguments, agents_per_thread=DRONES_PER_THREAD)


def check_drone_start(flock: Flock, start_distance: float) -> None:
    """Raise InputError if D is not 2 or 3, a drone is below the ground, z = 0, or too close to another one.

    Drones are followers, and leaders as seen from followers. `start_distance` is the least distance between two drones,
    in m.
    """
    _, N, D = _check_dimensions(flock.shape)
    roles = flock.effective_roles
    below = (roles == FOLLOWER) & (flock.positions[..., 2] < 0.0) if D == 3 else np.zeros(roles.shape, bool)
    if below.any():
        b, i = np.argwhere(below)[0]
        raise InputError(
            f"drones must start above the ground, z >= 0; agent {i} of flock {b} is at z = "
            f"{flock.positions[b, i, 2]:.4g}: move the flock up"
        )
    if start_distance == 0.0:
        return
    graph = radius_graph(flock, start_distance)
    (b, i), j = np.divmod(graph.rows, N), graph.senders
    distances = np.linalg.norm(flock.positions[b, i] - flock.positions[b, j], axis=-1)
    distances[roles[b, j] == OBSTACLE] = math.inf
    if distances.min(initial=math.inf) < start_distance:
        nearest = int(distances.argmin())
        raise InputError(
            f"drones must start at least {start_distance:g} m apart (start_distance); agents {i[nearest]} and "
            f"{j[nearest]} of flock {b[nearest]} are {distances[nearest]:.3g} m apart: spread the flock out"
        )


@lru_cache(maxsize=64)
def make_model(drone: Quadrotor, time_step: float) -> QuadrotorModel:
    """Return the numbers of a drone for the kernels, cached; a time step has equal substeps of at most max_substep."""
    # Rounding must not add a substep to a whole number of them.
    substeps = max(math.ceil(time_step / drone.max_substep - 1e-9), 1)
    substep = time_step / substeps
    # Motors that approach the desired speed at the rate 3 p give the poles -p, -p, -p with k_R = p^2 / 3 and k_w = p.
    p = drone.attitude_bandwidth
    max_acceleration = 4.0 * drone.max_motor_thrust / drone.mass
    return QuadrotorModel(
        mass=float(drone.mass),
        inertia=float(drone.inertia),
        yaw_inertia=float(drone.yaw_inertia),
        lever=drone.arm_length / math.sqrt(2.0),
        thrust_coefficient=float(drone.thrust_coefficient),
        torque_ratio=drone.torque_coefficient / drone.thrust_coefficient,
        min_thrust=float(drone.min_motor_thrust),
        max_thrust=float(drone.max_motor_thrust),
        lateral_drag=float(drone.lateral_drag),
        axial_drag=float(drone.axial_drag),
        max_tilt_tangent=math.tan(math.radians(drone.max_tilt)),
        max_acceleration=min(resolve_limit(drone.max_acceleration), max_acceleration),
        max_speed=resolve_limit(drone.max_speed),
        position_gain=float(drone.position_gain),
        velocity_gain=float(drone.velocity_gain),
        height_gain=float(drone.height_gain),
        climb_gain=float(drone.climb_gain),
        attitude_gain=p * p / 3.0,
        rate_gain=p,
        yaw_gain=p * p / 16.0,
        yaw_rate_gain=p / 2.0,
        motor_lead=max(3.0 * p * drone.motor_lag, 1.0),
        time_step=time_step,
        substeps=substeps,
        substep=substep,
        half_decay=math.exp(-0.5 * substep / drone.motor_lag) if drone.motor_lag > 0.0 else 0.0,
    )


def _check_dimensions(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape (B, N, D); raise InputError if D is not 2 or 3."""
    if shape[2] not in (2, 3):
        raise InputError(f"a quadrotor needs a flock with D = 2 or 3; got D = {shape[2]}")
    return shape


def _get_state(step: BodyStep, dimensions: int) -> QuadrotorState:
    """Return the state arrays of a step; raise InputError if one is missing."""
    names = ["quaternion", "body_rates", "motor_speeds", "reference_position", "reference_velocity", "reference_yaw"]
    names += ["crashed", "height", "climb_rate"] if dimensions == 2 else ["crashed"]
    missing = [name for name in names if name not in step.state]
    if missing:
        raise InputError(f'advance of a quadrotor needs state["{missing[0]}"]: pass the state that init_state returned')
    arrays = [step.state[name] for name in names]
    return QuadrotorState(*arrays, *[NO_ARRAY] * (9 - len(arrays)))
