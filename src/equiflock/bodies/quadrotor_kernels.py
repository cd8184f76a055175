"""Kernels of the quadrotor: reference, control, motors and rigid body of one drone after the other.

Vectors are tuples of three numbers in the world frame, z up, unless they are called body rates, torques or angular
momentum, which are in the body frame: x forward, y left, z up. A quaternion (x, y, z, w) rotates from body to world.
Motors 1 to 4 are front right, back right, back left and front left; motors 2 and 4 turn the body to the left.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

from equiflock._runtime.jit import Array, Index, kernel
from equiflock.bodies.limits import compute_clamp_factor
from equiflock.flock import FOLLOWER, LEADER

Vector: TypeAlias = tuple[float, float, float]
Quaternion: TypeAlias = tuple[float, float, float, float]
MotorValues: TypeAlias = tuple[float, float, float, float]
"""One number per motor, 1 to 4."""

GRAVITY = 9.81
"""g, in m/s^2."""
MAX_POSITION_LEAD, MAX_VELOCITY_LEAD = 1.0, 2.0
"""Largest distance of the reference from the drone, in m, and of its velocity from the drone's, in m/s."""
MAX_ATTITUDE_ERROR = 0.6
"""Largest |e_R| of roll and pitch, and of yaw, to which the attitude control reacts: motors that lag could not stop a
faster turn in time."""
MAX_BODY_RATE = 1e3
"""Largest body rate with which a step begins, in rad/s."""
MAX_LANDING_SPEED, MIN_LANDING_COSINE = 1.0, math.cos(math.radians(30.0))
"""Largest speed, in m/s, and least cosine of the tilt with which a drone that touches the ground does not crash."""


class QuadrotorModel(NamedTuple):
    """Numbers of a `Quadrotor` and of its substeps, as kernels take them."""

    mass: float
    inertia: float
    """J_x = J_y."""
    yaw_inertia: float
    """J_z."""
    lever: float
    """L, distance of the motors from the body's x and y axes: arm_length / sqrt(2)."""
    thrust_coefficient: float
    """k_f."""
    torque_ratio: float
    """c = k_m / k_f, in m."""
    min_thrust: float
    """Of one motor."""
    max_thrust: float
    """Of one motor."""
    lateral_drag: float
    """d, in kg/s."""
    axial_drag: float
    """d_z, in kg/s."""
    max_tilt_tangent: float
    max_acceleration: float
    max_speed: float
    position_gain: float
    velocity_gain: float
    height_gain: float
    climb_gain: float
    attitude_gain: float
    """k_R of roll and pitch, in rad/s^2 per rad."""
    rate_gain: float
    """k_w of roll and pitch, per second."""
    yaw_gain: float
    yaw_rate_gain: float
    motor_lead: float
    """Factor on the difference between desired and present thrusts and torques in commands to the motors."""
    time_step: float
    substeps: int
    substep: float
    """h, in seconds."""
    half_decay: float
    """e^(-h / (2 lag)): the share of a difference between commanded and present motor speeds after half a substep."""


class QuadrotorState(NamedTuple):
    """Arrays of the state of all drones."""

    quaternions: Array
    """(B, N, 4)."""
    body_rates: Array
    """(B, N, 3)."""
    motor_speeds: Array
    """(B, N, 4)."""
    reference_positions: Array
    """(B, N, 3)."""
    reference_velocities: Array
    """(B, N, 3)."""
    reference_yaws: Array
    """(B, N)."""
    crashed: Array
    """(B, N) bool."""
    heights: Array
    """(B, N) for D = 2; (0, 0) for D = 3."""
    climb_rates: Array
    """(B, N) for D = 2; (0, 0) for D = 3."""


class RigidBody(NamedTuple):
    """One drone without its motors."""

    position: Vector
    velocity: Vector
    quaternion: Quaternion
    body_rates: Vector


class Reference(NamedTuple):
    """The motion that one drone tracks."""

    position: Vector
    velocity: Vector
    acceleration: Vector
    yaw: float


@kernel
def add_scaled(a: Vector, factor: float, b: Vector) -> Vector:
    """Return a + factor b."""
    return a[0] + factor * b[0], a[1] + factor * b[1], a[2] + factor * b[2]


@kernel
def dot(a: Vector, b: Vector) -> float:
    """Return the scalar product."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@kernel
def clamp(value: float, low: float, high: float) -> float:
    """Return the value in [low, high] that is nearest to `value`."""
    return min(max(value, low), high)


@kernel
def clamp_norm(vector: Vector, max_norm: float) -> Vector:
    """Return the vector, scaled down to the 2-norm `max_norm` if it is longer."""
    square = dot(vector, vector)
    factor = max_norm / math.sqrt(square) if square > max_norm * max_norm else 1.0
    return vector[0] * factor, vector[1] * factor, vector[2] * factor


@kernel
def multiply_quaternions(a: Quaternion, b: Quaternion) -> Quaternion:
    """Return the product a b, the rotation b followed by a."""
    return (
        a[3] * b[0] + a[0] * b[3] + a[1] * b[2] - a[2] * b[1],
        a[3] * b[1] - a[0] * b[2] + a[1] * b[3] + a[2] * b[0],
        a[3] * b[2] + a[0] * b[1] - a[1] * b[0] + a[2] * b[3],
        a[3] * b[3] - a[0] * b[0] - a[1] * b[1] - a[2] * b[2],
    )


@kernel
def compute_axes(q: Quaternion) -> tuple[Vector, Vector, Vector]:
    """Return the body's x, y and z axes in the world frame, the columns of the rotation matrix R."""
    x, y, z, w = q
    return (
        (1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y + w * z), 2.0 * (x * z - w * y)),
        (2.0 * (x * y - w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z + w * x)),
        (2.0 * (x * z + w * y), 2.0 * (y * z - w * x), 1.0 - 2.0 * (x * x + y * y)),
    )


@kernel
def rotate_back(q: Quaternion, vector: Vector) -> Vector:
    """Return R^T v, the vector in the frame that the quaternion rotates to."""
    x_axis, y_axis, z_axis = compute_axes(q)
    return dot(x_axis, vector), dot(y_axis, vector), dot(z_axis, vector)


@kernel
def compute_thrust_vector(body: RigidBody, reference: Reference, acceleration: Vector, model: QuadrotorModel) -> Vector:
    """Return the force F of the rotors that lets the drone track its reference, within the limits of thrust and tilt.

    F = m (a + K_p (r_ref - r) + K_v (v_ref - v) + g e_z) + diag(d, d, d_z) v_ref

    `acceleration` is a, that of the reference. Height comes first: the horizontal part of F gets what the vertical part
    leaves of the thrust.
    """
    # The acceleration of the reference, and the drag of a level drone at its velocity.
    lateral, axial = model.lateral_drag / model.mass, model.axial_drag / model.mass
    velocity = reference.velocity
    acceleration = (
        acceleration[0] + lateral * velocity[0],
        acceleration[1] + lateral * velocity[1],
        acceleration[2] + axial * velocity[2],
    )
    error = add_scaled(reference.position, -1.0, body.position)
    velocity_error = add_scaled(reference.velocity, -1.0, body.velocity)
    force_x = model.mass * (acceleration[0] + model.position_gain * error[0] + model.velocity_gain * velocity_error[0])
    force_y = model.mass * (acceleration[1] + model.position_gain * error[1] + model.velocity_gain * velocity_error[1])
    climb = acceleration[2] + model.height_gain * error[2] + model.climb_gain * velocity_error[2]
    # The vertical part, within what the motors can do together.
    max_force = 4.0 * model.max_thrust
    force_z = clamp(model.mass * (climb + GRAVITY), 4.0 * model.min_thrust, max_force)
    # The horizontal part, within the tilt and the rest of the thrust.
    most = min(force_z * model.max_tilt_tangent, math.sqrt(max_force * max_force - force_z * force_z))
    force_x, force_y, _ = clamp_norm((force_x, force_y, 0.0), most)
    return force_x, force_y, force_z


@kernel
def compute_torques(body: RigidBody, force: Vector, yaw: float, model: QuadrotorModel) -> Vector:
    """Return the torques that turn the body's z axis to the force F and its x axis to the yaw.

    Geometric control on SO(3) (Lee, Leok and McClamroch 2010, equations 11 and 16), with desired body rates of zero:

    e_R = (R_d^T R - R^T R_d)^v / 2,    M = -J (k_R e_R + k_w w) + w x J w.
    """
    # The desired axes: z along F, y orthogonal to it and to the heading, x orthogonal to both.
    # A force of zero has no direction: the drone stays upright.
    square = dot(force, force)
    scale = 1.0 / math.sqrt(square) if square > 0.0 else 0.0
    c = (force[0] * scale, force[1] * scale, force[2] * scale if square > 0.0 else 1.0)
    heading_x, heading_y = math.cos(yaw), math.sin(yaw)
    b_x, b_y, b_z = -c[2] * heading_y, c[2] * heading_x, c[0] * heading_y - c[1] * heading_x
    scale = 1.0 / math.sqrt(b_x * b_x + b_y * b_y + b_z * b_z)
    b = (b_x * scale, b_y * scale, b_z * scale)
    a = (b[1] * c[2] - b[2] * c[1], b[2] * c[0] - b[0] * c[2], b[0] * c[1] - b[1] * c[0])
    # e_R from the entries of R_d^T R, which are products of the axes.
    x_axis, y_axis, z_axis = compute_axes(body.quaternion)
    error_x = 0.5 * (dot(c, y_axis) - dot(b, z_axis))
    error_y = 0.5 * (dot(a, z_axis) - dot(c, x_axis))
    error_z = 0.5 * (dot(b, x_axis) - dot(a, y_axis))
    error_x, error_y, _ = clamp_norm((error_x, error_y, 0.0), MAX_ATTITUDE_ERROR)
    error_z = clamp(error_z, -MAX_ATTITUDE_ERROR, MAX_ATTITUDE_ERROR)
    # M, with the gyroscopic term of a body for which J_x = J_y.
    w_x, w_y, w_z = body.body_rates
    gyroscopic = (model.yaw_inertia - model.inertia) * w_z
    return (
        -model.inertia * (model.attitude_gain * error_x + model.rate_gain * w_x) + gyroscopic * w_y,
        -model.inertia * (model.attitude_gain * error_y + model.rate_gain * w_y) - gyroscopic * w_x,
        -model.yaw_inertia * (model.yaw_gain * error_z + model.yaw_rate_gain * w_z),
    )


@kernel
def mix_motors(thrust: float, torques: Vector, model: QuadrotorModel) -> MotorValues:
    """Return the thrusts of the motors for a total thrust and torques.

    Where the motors cannot do it all, thrust comes first, except that roll and pitch may always take half of the
    range of the motors; yaw comes last.
    """
    roll, pitch = torques[0] / (4.0 * model.lever), torques[1] / (4.0 * model.lever)
    mean = clamp(0.25 * thrust, model.min_thrust, model.max_thrust)
    # Roll and pitch change motors up and down by the same amount: what the thrust leaves, or a quarter of the range.
    room = min(model.max_thrust - mean, mean - model.min_thrust)
    room = max(room, 0.25 * (model.max_thrust - model.min_thrust))
    spread = abs(roll) + abs(pitch)
    if spread > room:
        roll, pitch, spread = roll * (room / spread), pitch * (room / spread), room
    mean = clamp(mean, model.min_thrust + spread, model.max_thrust - spread)
    # Yaw takes the rest of the range: -yaw on motors 1 and 3, +yaw on motors 2 and 4.
    first, second = abs(roll + pitch), abs(roll - pitch)
    low = max(mean + first - model.max_thrust, model.min_thrust - mean + second)
    high = min(mean - first - model.min_thrust, model.max_thrust - mean - second)
    yaw = clamp(torques[2] / (4.0 * model.torque_ratio), low, high)
    return mean - roll - pitch - yaw, mean - roll + pitch + yaw, mean + roll + pitch - yaw, mean + roll - pitch + yaw


@kernel
def compute_wrench(speeds: MotorValues, model: QuadrotorModel) -> tuple[float, Vector]:
    """Return the total thrust k_f sum W_i^2 and the torques of motors with the speeds W_i."""
    k = model.thrust_coefficient
    f_1, f_2 = k * speeds[0] * speeds[0], k * speeds[1] * speeds[1]
    f_3, f_4 = k * speeds[2] * speeds[2], k * speeds[3] * speeds[3]
    torques = (
        model.lever * (f_3 + f_4 - f_1 - f_2),
        model.lever * (f_2 + f_3 - f_1 - f_4),
        model.torque_ratio * (f_2 + f_4 - f_1 - f_3),
    )
    return f_1 + f_2 + f_3 + f_4, torques


@kernel
def command_motors(thrust: float, torques: Vector, speeds: MotorValues, model: QuadrotorModel) -> MotorValues:
    """Return the commanded speeds of the motors for a desired thrust and torques.

    Motors lag behind, so commands are ahead: present thrust and torques plus `motor_lead` times what is missing.
    """
    present_thrust, present = compute_wrench(speeds, model)
    lead = model.motor_lead
    ahead = add_scaled(present, lead, add_scaled(torques, -1.0, present))
    thrusts = mix_motors(present_thrust + lead * (thrust - present_thrust), ahead, model)
    return (
        math.sqrt(max(thrusts[0], 0.0) / model.thrust_coefficient),
        math.sqrt(max(thrusts[1], 0.0) / model.thrust_coefficient),
        math.sqrt(max(thrusts[2], 0.0) / model.thrust_coefficient),
        math.sqrt(max(thrusts[3], 0.0) / model.thrust_coefficient),
    )


@kernel
def integrate_rigid_body(
    body: RigidBody, motor_speeds: MotorValues, downwash: float, model: QuadrotorModel
) -> RigidBody:
    """Return the drone after one substep h, with motor speeds W_i of its middle.

    m v' = R e_z sum_i k_f W_i^2 - m g e_z - R diag(d, d, d_z) R^T (v - air),    r' = v
    J w' = M - w x J w,    q' = q (w, 0) / 2

    An explicit midpoint rule on the rotation group: of second order, |q| = 1, and without torques the angular momentum
    in the world frame is constant to rounding. `downwash` is the speed of the air downwards.
    """
    h = model.substep
    thrust, torques = compute_wrench(motor_speeds, model)
    # Body rates in the middle of the substep, w + h/2 w'.
    w_x, w_y, w_z = body.body_rates
    gyroscopic = (model.yaw_inertia - model.inertia) * w_z
    middle_x = w_x + 0.5 * h * (torques[0] - gyroscopic * w_y) / model.inertia
    middle_y = w_y + 0.5 * h * (torques[1] + gyroscopic * w_x) / model.inertia
    middle_z = w_z + 0.5 * h * torques[2] / model.yaw_inertia
    # The rotation of half a substep, and the attitude in the middle and at the end.
    rate = math.sqrt(middle_x * middle_x + middle_y * middle_y + middle_z * middle_z)
    angle = 0.25 * h * rate
    scale = math.sin(angle) / rate if rate > 0.0 else 0.25 * h
    half = (middle_x * scale, middle_y * scale, middle_z * scale, math.cos(angle))
    middle = multiply_quaternions(body.quaternion, half)
    x, y, z, w = multiply_quaternions(middle, half)
    scale = 1.0 / math.sqrt(x * x + y * y + z * z + w * w)
    # Angular momentum J w: kept in the world frame, changed by the torques in the middle.
    momentum = rotate_back(half, (model.inertia * w_x, model.inertia * w_y, model.yaw_inertia * w_z))
    momentum = rotate_back(half, add_scaled(momentum, h, torques))
    rates = (momentum[0] / model.inertia, momentum[1] / model.inertia, momentum[2] / model.yaw_inertia)
    # Velocity: thrust and gravity, and drag of the velocity in the middle relative to the air.
    _, _, axis = compute_axes(middle)
    per_mass = 1.0 / model.mass
    force = (axis[0] * thrust * per_mass, axis[1] * thrust * per_mass, axis[2] * thrust * per_mass - GRAVITY)
    air_velocity = (body.velocity[0], body.velocity[1], body.velocity[2] + downwash)
    start = add_scaled(force, -1.0, compute_drag(air_velocity, axis, model))
    acceleration = add_scaled(force, -1.0, compute_drag(add_scaled(air_velocity, 0.5 * h, start), axis, model))
    velocity = add_scaled(body.velocity, h, acceleration)
    # Position: by the mean of the velocities before and after.
    position = add_scaled(add_scaled(body.position, 0.5 * h, body.velocity), 0.5 * h, velocity)
    return RigidBody(position, velocity, (x * scale, y * scale, z * scale, w * scale), rates)


@kernel
def compute_drag(velocity: Vector, axis: Vector, model: QuadrotorModel) -> Vector:
    """Return the deceleration by drag at a velocity relative to the air, with the body's z axis `axis`."""
    along = (model.axial_drag - model.lateral_drag) * dot(axis, velocity)
    per_mass = 1.0 / model.mass
    return (
        (model.lateral_drag * velocity[0] + along * axis[0]) * per_mass,
        (model.lateral_drag * velocity[1] + along * axis[1]) * per_mass,
        (model.lateral_drag * velocity[2] + along * axis[2]) * per_mass,
    )


@kernel
def advance_reference(reference: Reference, command: Vector, model: QuadrotorModel) -> Reference:
    """Return the reference after one substep: v_ref' = command, within the speed limit, and r_ref' = v_ref.

    Its acceleration is that of the substep, which is the command unless the speed is limited.
    """
    h = model.substep
    velocity = clamp_norm(add_scaled(reference.velocity, h, command), model.max_speed)
    position = add_scaled(add_scaled(reference.position, 0.5 * h, reference.velocity), 0.5 * h, velocity)
    change = add_scaled(velocity, -1.0, reference.velocity)
    return Reference(position, velocity, (change[0] / h, change[1] / h, change[2] / h), reference.yaw)


@kernel
def pull_reference(reference: Reference, body: RigidBody) -> Reference:
    """Return the reference, moved towards the drone where it is too far ahead: a drone at its limits catches up."""
    lead = clamp_norm(add_scaled(reference.position, -1.0, body.position), MAX_POSITION_LEAD)
    velocity_lead = clamp_norm(add_scaled(reference.velocity, -1.0, body.velocity), MAX_VELOCITY_LEAD)
    position, velocity = add_scaled(body.position, 1.0, lead), add_scaled(body.velocity, 1.0, velocity_lead)
    return Reference(position, velocity, reference.acceleration, reference.yaw)


@kernel
def fly_drones(
    positions: Array,
    velocities: Array,
    roles: Array,
    accelerations: Array,
    state: QuadrotorState,
    downwash: Array,
    model: QuadrotorModel,
    active: Array,
    first: Index,
    last: Index,
) -> None:
    """Move agents first .. last - 1 of the active flocks by one time step of `Quadrotor`, in place.

    `downwash` (B, N) is the speed of the air downwards, in m/s; (0, 0) without downwash. Leaders keep their velocity
    and, for D = 2, their height. Obstacle agents and crashed drones stand still.
    """
    D = positions.shape[2]
    for b in active:
        for i in range(first, last):
            if roles[b, i] == LEADER:
                for d in range(D):
                    positions[b, i, d] += velocities[b, i, d] * model.time_step
            if roles[b, i] == FOLLOWER and not state.crashed[b, i]:
                air_speed = downwash[b, i] if downwash.size > 0 else 0.0
                fly_drone(positions, velocities, accelerations, state, air_speed, model, b, i)


@kernel
def fly_drone(
    positions: Array,
    velocities: Array,
    accelerations: Array,
    state: QuadrotorState,
    downwash: float,
    model: QuadrotorModel,
    b: Index,
    i: Index,
) -> None:
    """Move drone i of flock b by one time step, in place."""
    D = positions.shape[2]
    # The commanded acceleration, clamped; a drone in the plane is commanded to keep its height.
    factor = compute_clamp_factor(accelerations, b, i, model.max_acceleration)
    command = (
        factor * accelerations[b, i, 0],
        factor * accelerations[b, i, 1],
        factor * accelerations[b, i, 2] if D == 3 else 0.0,
    )
    body, motor_speeds, reference = load_drone(positions, velocities, state, model, b, i)
    for _ in range(model.substeps):
        # Control: reference -> force -> torques -> commanded motor speeds.
        reference = pull_reference(reference, body)
        following = advance_reference(reference, command, model)
        force = compute_thrust_vector(body, reference, following.acceleration, model)
        _, _, axis = compute_axes(body.quaternion)
        torques = compute_torques(body, force, reference.yaw, model)
        c_1, c_2, c_3, c_4 = command_motors(dot(force, axis), torques, motor_speeds, model)
        reference = following
        # Motors: first-order lag, exact for a command that is held during the substep.
        decay = model.half_decay
        middle = (
            c_1 + (motor_speeds[0] - c_1) * decay,
            c_2 + (motor_speeds[1] - c_2) * decay,
            c_3 + (motor_speeds[2] - c_3) * decay,
            c_4 + (motor_speeds[3] - c_4) * decay,
        )
        motor_speeds = (
            c_1 + (middle[0] - c_1) * decay,
            c_2 + (middle[1] - c_2) * decay,
            c_3 + (middle[2] - c_3) * decay,
            c_4 + (middle[3] - c_4) * decay,
        )
        # Rigid body, and the ground at z = 0.
        body = integrate_rigid_body(body, middle, downwash, model)
        if body.position[2] <= 0.0:
            _, _, axis = compute_axes(body.quaternion)
            is_fast = dot(body.velocity, body.velocity) > MAX_LANDING_SPEED * MAX_LANDING_SPEED
            body, reference = put_on_ground(body), lift_reference(reference)
            if is_fast or axis[2] < MIN_LANDING_COSINE:
                state.crashed[b, i] = True
                motor_speeds = (0.0, 0.0, 0.0, 0.0)
                break
    store_drone(positions, velocities, state, b, i, body, motor_speeds, reference)


@kernel
def lift_reference(reference: Reference) -> Reference:
    """Return the reference at or above the ground and not sinking, so that a drone takes off when commanded upwards."""
    (x, y, z), (v_x, v_y, v_z) = reference.position, reference.velocity
    return Reference((x, y, max(z, 0.0)), (v_x, v_y, max(v_z, 0.0)), reference.acceleration, reference.yaw)


@kernel
def put_on_ground(body: RigidBody) -> RigidBody:
    """Return the drone at rest and level on the ground, with its yaw."""
    _, _, z, w = body.quaternion
    norm = math.sqrt(z * z + w * w)
    level = (0.0, 0.0, z / norm, w / norm) if norm > 0.0 else (0.0, 0.0, 0.0, 1.0)
    return RigidBody((body.position[0], body.position[1], 0.0), (0.0, 0.0, 0.0), level, (0.0, 0.0, 0.0))


@kernel
def load_drone(
    positions: Array, velocities: Array, state: QuadrotorState, model: QuadrotorModel, b: Index, i: Index
) -> tuple[RigidBody, MotorValues, Reference]:
    """Return rigid body, motor speeds and reference of drone i of flock b from the arrays."""
    D = positions.shape[2]
    q, w, m = state.quaternions[b, i], state.body_rates[b, i], state.motor_speeds[b, i]
    r, v = state.reference_positions[b, i], state.reference_velocities[b, i]
    height = float(positions[b, i, 2] if D == 3 else state.heights[b, i])
    climb_rate = float(velocities[b, i, 2] if D == 3 else state.climb_rates[b, i])
    position = (positions[b, i, 0], positions[b, i, 1], height)
    velocity = (velocities[b, i, 0], velocities[b, i, 1], climb_rate)
    # Values that were set from outside, in a range in which squares neither vanish nor overflow.
    norm = math.sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3])
    scale = 1.0 / norm if 0.0 < norm < math.inf else 0.0
    quaternion = (q[0] * scale, q[1] * scale, q[2] * scale, q[3] * scale if scale > 0.0 else 1.0)
    rates = clamp_norm((w[0], w[1], w[2]), MAX_BODY_RATE)
    body = RigidBody(position, velocity, quaternion, rates)
    reference = Reference((r[0], r[1], r[2]), (v[0], v[1], v[2]), (0.0, 0.0, 0.0), float(state.reference_yaws[b, i]))
    high = math.sqrt(model.max_thrust / model.thrust_coefficient)
    speeds = clamp(m[0], 0.0, high), clamp(m[1], 0.0, high), clamp(m[2], 0.0, high), clamp(m[3], 0.0, high)
    return body, speeds, reference


@kernel
def store_drone(
    positions: Array,
    velocities: Array,
    state: QuadrotorState,
    b: Index,
    i: Index,
    body: RigidBody,
    motor_speeds: MotorValues,
    reference: Reference,
) -> None:
    """Write rigid body, motor speeds and reference of drone i of flock b into the arrays."""
    D = positions.shape[2]
    for d in range(2):
        positions[b, i, d], velocities[b, i, d] = body.position[d], body.velocity[d]
    if D == 3:
        positions[b, i, 2], velocities[b, i, 2] = body.position[2], body.velocity[2]
    else:
        state.heights[b, i], state.climb_rates[b, i] = body.position[2], body.velocity[2]
    for d in range(3):
        state.body_rates[b, i, d] = body.body_rates[d]
        state.reference_positions[b, i, d] = reference.position[d]
        state.reference_velocities[b, i, d] = reference.velocity[d]
    for d in range(4):
        state.quaternions[b, i, d], state.motor_speeds[b, i, d] = body.quaternion[d], motor_speeds[d]
