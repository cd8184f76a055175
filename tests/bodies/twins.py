"""Slow, obvious twins of the bodies: one agent at a time, straight from their equations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

from equiflock._runtime.randomness import NORMAL_QUANTILES
from equiflock.bodies import DoubleIntegrator, Quadrotor, Unicycle
from equiflock.bodies.double_integrator import GUST_STREAM
from equiflock.flock import Role
from tests.twins import hashed

Array = NDArray[Any]


def within(vector: Array, most: float | None) -> Array:
    """The vector, shortened to at most that norm."""
    norm = float(np.linalg.norm(vector))
    return vector if most is None or norm <= most else vector * (most / norm)


def gust(body: DoubleIntegrator, flock: int, step: int, agent: int, dimensions: int) -> Array:
    """The wind on an agent: for every entry one of 4,096 quantiles of the normal distribution."""
    h = hashed(body.seed, GUST_STREAM, flock, step, agent)
    return body.gust * np.array([float(NORMAL_QUANTILES[(h >> 12 * d) & 4095]) for d in range(dimensions)])


def double_integrator(
    body: DoubleIntegrator, known: tuple[Array, Array, Array], role: int, command: Array, dt: float, wind: Array
) -> tuple[Array, Array, Array]:
    """Position, velocity and actuators of one agent after a step, by the exponential of the motion's matrix."""
    r, v, a = known
    if role == Role.LEADER:
        return r + v * dt, v, a
    if role == Role.OBSTACLE:
        return known
    u = within(command, body.max_acceleration)
    rate = 1 / body.lag if body.lag > 0 else 0.0
    a = a if body.lag > 0 else u
    # The rates of change of (r, v, a, u, g), of which the last two are held.
    matrix = np.zeros((5, 5))
    matrix[0, 1] = 1
    matrix[1, 1], matrix[1, 2], matrix[1, 4] = -body.drag, 1, 1
    matrix[2, 2], matrix[2, 3] = -rate, rate
    later = expm(matrix * dt) @ np.stack([r, v, a, u, wind])
    velocity = within(later[1], body.max_speed)
    too_fast = not np.array_equal(velocity, later[1])
    return r + (v + velocity) / 2 * dt if too_fast else later[0], velocity, later[2]


def unicycle(
    body: Unicycle, known: tuple[Array, Array, float], role: int, command: Array, dt: float
) -> tuple[Array, Array, float]:
    """Position, velocity and heading of one agent after a step, with complex numbers for vectors."""
    r, v, heading = known
    if role == Role.OBSTACLE:
        return known
    speed = abs(complex(*v))
    heading = float(np.angle(complex(*v))) if speed > 0 else heading
    if role == Role.LEADER:
        return r + v * dt, v, heading
    # The turn from the heading to the velocity that is asked for, and as much of it as is possible.
    asked = complex(*(v + command * dt))
    turn = float(np.angle(asked * np.exp(-1j * heading))) if asked != 0 else 0.0
    most = np.inf if body.max_turn_rate is None else body.max_turn_rate * dt
    after = heading + float(np.clip(turn, -most, most))
    along = max((asked * np.exp(-1j * after)).real, 0.0)
    wanted = along if body.max_speed is None else min(along, body.max_speed)
    change = np.inf if body.max_acceleration is None else body.max_acceleration * dt
    new = float(np.clip(wanted, speed - change, speed + change)) * np.exp(1j * after)
    velocity = np.array([new.real, new.imag])
    return r + (v + velocity) / 2 * dt, velocity, after


ARMS = np.array([[1, -1], [-1, -1], [-1, 1], [1, 1]]) / np.sqrt(2)
"""Where the motors of a quadrotor are, in arm lengths along x and y: front right, back right, back left, front left."""
SPINS = np.array([-1, 1, -1, 1])
"""The direction in which each motor turns the body."""


def quadrotor_wrench(body: Quadrotor) -> Array:
    """The matrix (4, 4) from thrusts of the motors to total thrust and torques: arm x force, and the spins."""
    x, y = body.arm_length * ARMS.T
    return np.stack([np.ones(4), y, -x, SPINS * body.torque_coefficient / body.thrust_coefficient])


def quadrotor_force(body: Quadrotor, known: dict[str, Array], command: Array) -> Array:
    """The force that rotors should have: first what the vertical needs, then as much as possible across."""
    gains = np.array([[body.position_gain] * 2 + [body.height_gain], [body.velocity_gain] * 2 + [body.climb_gain]])
    errors = np.stack([known["reference_position"] - known["r"], known["reference_velocity"] - known["v"]])
    wanted = body.mass * (command + (gains * errors).sum(axis=0) + [0, 0, 9.81])
    wanted += np.array([body.lateral_drag, body.lateral_drag, body.axial_drag]) * known["reference_velocity"]
    up = np.clip(wanted[2], 4 * body.min_motor_thrust, 4 * body.max_motor_thrust)
    most = min(up * np.tan(np.radians(body.max_tilt)), np.sqrt((4 * body.max_motor_thrust) ** 2 - up**2))
    return np.append(within(wanted[:2], most), up)


def quadrotor_torques(body: Quadrotor, known: dict[str, Array], force: Array) -> Array:
    """The torques of Lee, Leok and McClamroch, from rotation matrices."""
    up = force / np.linalg.norm(force) if force.any() else np.array([0.0, 0.0, 1.0])
    left = np.cross(up, [np.cos(known["yaw"]), np.sin(known["yaw"]), 0])
    left /= np.linalg.norm(left)
    wanted = np.stack([np.cross(left, up), left, up], axis=1)
    now = Rotation.from_quat(known["quaternion"]).as_matrix()
    skew = (wanted.T @ now - now.T @ wanted) / 2
    error = np.append(within(np.array([skew[2, 1], skew[0, 2]]), 0.6), np.clip(skew[1, 0], -0.6, 0.6))
    p, rates, inertia = body.attitude_bandwidth, known["body_rates"], np.diag(quadrotor_inertia(body))
    gains = np.array([p**2 / 3, p**2 / 3, p**2 / 16]), np.array([p, p, p / 2])
    return -inertia @ (gains[0] * error + gains[1] * rates) + np.cross(rates, inertia @ rates)


def quadrotor_inertia(body: Quadrotor) -> Array:
    return np.array([body.inertia, body.inertia, body.yaw_inertia])


def quadrotor_mixing(body: Quadrotor, wrench: Array) -> Array:
    """Thrusts of the motors for a thrust and torques: as much as possible of roll and pitch beside it, then of yaw."""
    low, high = body.min_motor_thrust, body.max_motor_thrust
    shares = np.linalg.inv(quadrotor_wrench(body))
    mean = np.clip(wrench[0] / 4, low, high)
    tilting = shares[:, 1:3] @ wrench[1:3]
    room = max(min(high - mean, mean - low), (high - low) / 4)
    tilting *= min(1.0, room / max(tilting.max(), 1e-300))
    base = tilting + np.clip(mean, low - tilting.min(), high - tilting.max())
    turning = shares[:, 3] * wrench[3]
    free = np.where(turning > 0, high - base, base - low)
    parts = [max(each, 0.0) / abs(part) for each, part in zip(free, turning, strict=True) if part != 0]
    return base + min([1.0, *parts]) * turning


def quadrotor_motion(body: Quadrotor, known: dict[str, Array], speeds: Array, air: float, h: float) -> dict[str, Array]:
    """The rigid body after a substep: the midpoint rule, with the exponential of rotation vectors."""
    thrust, *torques = quadrotor_wrench(body) @ (body.thrust_coefficient * speeds**2)
    inertia, rates, attitude = quadrotor_inertia(body), known["body_rates"], Rotation.from_quat(known["quaternion"])
    middle_rates = rates + h / 2 * (torques - np.cross(rates, inertia * rates)) / inertia
    middle = attitude * Rotation.from_rotvec(h / 2 * middle_rates)
    end = attitude * Rotation.from_rotvec(h * middle_rates)
    momentum = attitude.apply(inertia * rates) + h * middle.apply(torques)
    # Drag in the body's frame, of the velocity in the middle relative to the air.
    drag = np.diag([body.lateral_drag, body.lateral_drag, body.axial_drag])
    drag = middle.as_matrix() @ drag @ middle.as_matrix().T
    push = thrust * middle.as_matrix()[:, 2] / body.mass - [0, 0, 9.81]
    relative = known["v"] + [0, 0, air]
    half = relative + h / 2 * (push - drag @ relative / body.mass)
    velocity = known["v"] + h * (push - drag @ half / body.mass)
    return {
        "r": known["r"] + h / 2 * (known["v"] + velocity),
        "v": velocity,
        "quaternion": end.as_quat(),
        "body_rates": end.inv().apply(momentum) / inertia,
    }


def quadrotor(body: Quadrotor, known: dict[str, Array], command: Array, dt: float, air: float) -> dict[str, Array]:
    """One drone after a time step; `known` has r, v and yaw beside the state's own names, and a command of three."""
    parts = max(int(np.ceil(dt / body.max_substep - 1e-9)), 1)
    h, known = dt / parts, dict(known)
    most = 4 * body.max_motor_thrust / body.mass
    command = within(command, most if body.max_acceleration is None else min(most, body.max_acceleration))
    lead = max(3 * body.attitude_bandwidth * body.motor_lag, 1.0)
    for _ in range(parts):
        known["reference_position"] = known["r"] + within(known["reference_position"] - known["r"], 1.0)
        known["reference_velocity"] = known["v"] + within(known["reference_velocity"] - known["v"], 2.0)
        before = known["reference_velocity"]
        after = within(before + h * command, body.max_speed)
        force = quadrotor_force(body, known, (after - before) / h)
        axis = Rotation.from_quat(known["quaternion"]).as_matrix()[:, 2]
        present = quadrotor_wrench(body) @ (body.thrust_coefficient * known["motor_speeds"] ** 2)
        desired = np.append(force @ axis, quadrotor_torques(body, known, force))
        thrusts = quadrotor_mixing(body, present + lead * (desired - present))
        known["reference_position"] = known["reference_position"] + h * (before + after) / 2
        known["reference_velocity"] = after
        speeds, wanted = known["motor_speeds"], np.sqrt(thrusts / body.thrust_coefficient)
        decay = np.exp(-np.array([h / 2, h]) / body.motor_lag) if body.motor_lag > 0 else np.zeros(2)
        middle, known["motor_speeds"] = (wanted + (speeds - wanted) * share for share in decay)
        known |= quadrotor_motion(body, known, middle, air, h)
        # The ground: a soft landing leaves the drone level and at rest, any other is a crash.
        if known["r"][2] <= 0:
            tilt = Rotation.from_quat(known["quaternion"]).as_matrix()[2, 2]
            known["crashed"] = np.array(np.linalg.norm(known["v"]) > 1 or tilt < np.cos(np.radians(30)))
            level = known["quaternion"] * [0, 0, 1, 1]
            known |= {"v": np.zeros(3), "body_rates": np.zeros(3), "quaternion": level / np.linalg.norm(level)}
            known["r"] = known["r"] * [1, 1, 0]
            for name in ("reference_position", "reference_velocity"):
                known[name] = np.append(known[name][:2], max(known[name][2], 0.0))
            if known["crashed"]:
                return known | {"motor_speeds": np.zeros(4)}
    return known


def downwash(body: Quadrotor, points: Array, blows: Array) -> Array:
    """The speed of the air at each drone of one flock, from all pairs within the ellipsoid."""
    width, speed = 2 * body.rotor_radius, np.sqrt(body.mass * 9.81 / (2 * np.pi * 1.2)) / body.rotor_radius
    total = np.zeros(len(points))
    for i, j in np.ndindex(len(points), len(points)):
        x, y, depth = points[j] - points[i]
        if i != j and blows[j] and depth > 0 and x**2 + y**2 + (depth / 4) ** 2 <= 1:
            b = max(width, 0.094 / np.sqrt(np.log(2)) * depth)
            total[i] += speed * width / b * np.exp(-(x**2 + y**2) / b**2)
    return total
