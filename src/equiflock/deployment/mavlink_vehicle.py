"""The MAVLink connection of one robot to its autopilot: position and velocity in, set-points out.

The flock's frame is east, north, up in metres; MAVLink's local frame is north, east, down from an origin of the
vehicle's own. A set-point has all three axes: in the plane the vehicle keeps the altitude of its settings.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from equiflock._runtime.checks import InputError, shorten_repr
from equiflock._runtime.imports import require_modules
from equiflock.controllers.safety_limits import SafetyLimits
from equiflock.deployment.coordinates import Vector, swap_ned_and_enu
from equiflock.deployment.onboard_steps import Setpoint, SetpointKind

CONNECTIONS = ("udp:", "udpin:", "udpout:", "tcp:", "/dev/")
"""How an address begins: a UDP port to listen on (udp, udpin), an address to send to (udpout), TCP, a serial line."""
ONBOARD_COMPUTER, ONBOARD_CONTROLLER_TYPE = 191, 18
"""MAV_COMP_ID_ONBOARD_COMPUTER and MAV_TYPE_ONBOARD_CONTROLLER: what we are in the vehicle's network."""
INVALID_AUTOPILOT, ACTIVE_STATE = 8, 4
"""MAV_AUTOPILOT_INVALID, of components that do not fly, and MAV_STATE_ACTIVE."""
LOCAL_NED_FRAME = 1
"""MAV_FRAME_LOCAL_NED."""
LOCAL_POSITION_ID, SET_MESSAGE_INTERVAL = 32, 511
"""Number of LOCAL_POSITION_NED, and MAV_CMD_SET_MESSAGE_INTERVAL."""
IGNORE_POSITION, IGNORE_VELOCITY, IGNORE_ACCELERATION, IGNORE_YAW = 0b111, 0b111 << 3, 0b111 << 6, 0b11 << 10
"""Bits of the type mask of a set-point."""
TYPE_MASKS = {
    "acceleration": IGNORE_POSITION | IGNORE_VELOCITY | IGNORE_YAW,
    "velocity": IGNORE_POSITION | IGNORE_ACCELERATION | IGNORE_YAW,
}
HEARTBEAT_INTERVAL = 1.0
"""Seconds between two heartbeats."""
MAX_MESSAGES = 256
"""Most messages that are read at once."""
ALTITUDE_RATE = 1.0
"""w of the altitude hold z'' = w^2 (z0 - z) - 2 w z', in 1/s: critically damped, and slower far away."""
MAX_VERTICAL_ACCELERATION, MAX_VERTICAL_SPEED = 2.0, 1.0
"""Limits of the altitude hold, in m/s^2 and m/s."""


@dataclass(frozen=True)
class VehicleSettings:
    """Settings of a connection."""

    address: str
    """Such as udp:127.0.0.1:14550, udpout:192.168.1.1:14540, tcp:127.0.0.1:5760 or /dev/ttyAMA0."""
    rate: float
    """Set-points per second, at which positions are requested, too."""
    dimensions: int = 2
    altitude: float = 0.0
    """Altitude in the flock's frame that a vehicle in the plane keeps."""
    limits: SafetyLimits | None = None
    """Limits of the agent, which a vehicle in the plane keeps together with its vertical set-point."""
    setpoint: SetpointKind = "acceleration"
    origin: Vector = (0.0, 0.0, 0.0)
    """The vehicle's local origin in the flock's frame: east, north, up in metres."""
    baud: int = 115_200
    """Speed of a serial line."""
    system_id: int | None = None
    """System of the vehicle; if None, the first autopilot that sends anything."""


class VehicleSilentError(Exception):
    """The vehicle has sent no position for the timeout, has got no set-point, or its connection is lost."""


def hold_altitude(error: float, climb: float) -> tuple[float, float]:
    """Return the acceleration and the velocity upwards of a vehicle that is `error` below its altitude."""
    target = _clamp(0.5 * ALTITUDE_RATE * error, MAX_VERTICAL_SPEED)
    acceleration = 2.0 * ALTITUDE_RATE * (target - climb)
    return (
        _clamp(acceleration, MAX_VERTICAL_ACCELERATION),
        _clamp(ALTITUDE_RATE * error, MAX_VERTICAL_SPEED),
    )


def limit_acceleration(
    acceleration: Sequence[float], velocity: Sequence[float], limits: SafetyLimits, period: float
) -> list[float]:
    """Return an acceleration that keeps `max_speed` a period later if it can, and `max_acceleration` always.

    The whole vector is shortened, so the horizontal part is too.
    """
    if limits.max_speed is not None:
        planned = [v + a * period for v, a in zip(velocity, acceleration, strict=True)]
        kept = shorten(planned, limits.max_speed)
        if kept != planned:
            acceleration = [(new - v) / period for new, v in zip(kept, velocity, strict=True)]
    return shorten(acceleration, limits.max_acceleration)


def shorten(vector: Sequence[float], norm: float) -> list[float]:
    """Return the vector, shortened to the norm if it is longer."""
    factor = min(1.0, norm / max(math.hypot(*vector), norm))
    return [factor * number for number in vector]


def read_local_position(message: Any, origin: Sequence[float]) -> tuple[Vector, Vector] | None:
    """Return position and velocity of a LOCAL_POSITION_NED in the flock's frame; None if a number is not finite."""
    position = swap_ned_and_enu((message.x, message.y, message.z))
    velocity = swap_ned_and_enu((message.vx, message.vy, message.vz))
    if not all(map(math.isfinite, [*position, *velocity])):
        return None
    x, y, z = (a + b for a, b in zip(position, origin, strict=True))
    return (x, y, z), velocity


def check_mavlink() -> None:
    """Raise InputError if pymavlink is missing."""
    require_modules("mavlink", "mavlink", "pymavlink")


class MavlinkVehicle:
    """A connection to a vehicle. It neither arms the vehicle nor changes its mode."""

    def __init__(self, settings: VehicleSettings) -> None:
        check_mavlink()
        self.settings = settings
        self.system_id: int | None = settings.system_id
        """System of the vehicle, once known."""
        self._component = 0
        self._has_requested = False
        self._position: tuple[Vector, Vector] | None = None
        self._next_heartbeat = -math.inf
        self._link = _open_link(settings)

    def __enter__(self) -> MavlinkVehicle:
        return self

    def __exit__(self, *error: object) -> None:
        self._link.close()

    def fileno(self) -> int:
        """Return the file descriptor, for `select`."""
        return int(self._link.fd)

    def read(self) -> tuple[Vector, Vector] | None:
        """Read what has arrived. Return the vehicle's newest position and velocity, or None if none has come.

        Raise VehicleSilentError if the connection is lost, as all that sends does.
        """
        newest = None
        with self._report_loss():
            for _ in range(MAX_MESSAGES):
                message = self._link.recv_msg()
                if message is None:
                    break
                if self._is_from_vehicle(message) and message.get_type() == "LOCAL_POSITION_NED":
                    newest = read_local_position(message, self.settings.origin) or newest
        self._position = newest or self._position
        return newest

    def send_setpoint(self, setpoint: Setpoint) -> None:
        """Send a set-point of the agent, and in the plane a vertical one that keeps the altitude."""
        vector = getattr(setpoint, self.settings.setpoint)
        if self.settings.dimensions == 2:
            vector = self._add_vertical(vector)
        self._send_target(self.settings.setpoint, vector)

    def _add_vertical(self, horizontal: Sequence[float]) -> Sequence[float]:
        """Return a set-point of all axes, which keeps the altitude, and as a whole the limits."""
        assert self._position is not None, "no position has arrived"
        settings, ((_, _, altitude), velocity) = self.settings, self._position
        acceleration, climb = hold_altitude(settings.altitude - altitude, velocity[2])
        if settings.setpoint == "acceleration":
            vector = *horizontal, acceleration
            limits = settings.limits
            return vector if limits is None else limit_acceleration(vector, velocity, limits, 1.0 / settings.rate)
        vector = *horizontal, climb
        max_speed = None if settings.limits is None else settings.limits.max_speed
        return vector if max_speed is None else shorten(vector, max_speed)

    def send_stop(self) -> None:
        """Ask the vehicle for zero velocity."""
        self._send_target("velocity", (0.0, 0.0, 0.0))

    def send_heartbeat(self, now: float) -> None:
        """Send a heartbeat if one is due, as a component of the vehicle's system, or of system 1 if it is unknown."""
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + HEARTBEAT_INTERVAL
            with self._report_loss():
                self._link.mav.heartbeat_send(ONBOARD_CONTROLLER_TYPE, INVALID_AUTOPILOT, 0, 0, ACTIVE_STATE)

    def _is_from_vehicle(self, message: Any) -> bool:
        """Return whether a message is from the vehicle. At its first one, request positions at the rate."""
        kind, system = message.get_type(), message.get_srcSystem()
        is_autopilot = kind == "LOCAL_POSITION_NED" or (kind == "HEARTBEAT" and message.autopilot != INVALID_AUTOPILOT)
        if self.system_id is None and is_autopilot:
            self.system_id = system
        if system != self.system_id or kind == "BAD_DATA":
            return False
        if not self._has_requested and is_autopilot:
            self._has_requested, self._component = True, message.get_srcComponent()
            self._link.mav.srcSystem = system
            interval = 1e6 / self.settings.rate
            numbers = LOCAL_POSITION_ID, interval, 0.0, 0.0, 0.0, 0.0, 0.0
            self._link.mav.command_long_send(system, self._component, SET_MESSAGE_INTERVAL, 0, *numbers)
        return True

    def _send_target(self, kind: SetpointKind, vector: Sequence[float]) -> None:
        """Send SET_POSITION_TARGET_LOCAL_NED with this vector, east, north, up, as acceleration or velocity."""
        zero, ned = (0.0, 0.0, 0.0), swap_ned_and_enu(vector)
        velocity, acceleration = (zero, ned) if kind == "acceleration" else (ned, zero)
        with self._report_loss():
            self._link.mav.set_position_target_local_ned_send(
                int(time.monotonic() * 1e3) % 2**32,
                self.system_id or 0,
                self._component,
                LOCAL_NED_FRAME,
                TYPE_MASKS[kind],
                *zero,
                *velocity,
                *acceleration,
                0.0,
                0.0,
            )

    @contextmanager
    def _report_loss(self) -> Iterator[None]:
        """Raise VehicleSilentError if the connection is lost in this block."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or " ".join(str(error).split())
            raise VehicleSilentError(
                f"the connection {self.settings.address} to the vehicle is lost: {reason}"
            ) from None


def _open_link(settings: VehicleSettings) -> Any:
    """Return the connection of pymavlink. Raise InputError if the address is wrong or in use."""
    expected = "connection must begin with udp:, udpin:, udpout:, tcp: or /dev/, such as udp:127.0.0.1:14550"
    if not settings.address.startswith(CONNECTIONS):
        raise InputError(f"{expected}; got {shorten_repr(settings.address)}")
    # Read at import: version 2 of MAVLink, and the messages that all autopilots share.
    os.environ.setdefault("MAVLINK20", "1")
    os.environ.setdefault("MAVLINK_DIALECT", "common")
    from pymavlink import mavutil

    try:
        link = mavutil.mavlink_connection(
            settings.address,
            baud=settings.baud,
            source_system=settings.system_id or 1,
            source_component=ONBOARD_COMPUTER,
            retries=0,
        )
    # pymavlink raises OSError, ValueError or OverflowError, and errors of pyserial, which are OSErrors.
    except (OSError, ValueError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise InputError(f"cannot open the connection {settings.address}: {reason}") from None
    # By default a TCP connection prints a line at each read after its end, and goes on.
    link.handle_eof = link.handle_disconnect = _raise_connection_error
    return link


def _raise_connection_error() -> NoReturn:
    raise ConnectionError("the vehicle has closed it")


def _clamp(value: float, limit: float) -> float:
    return min(max(value, -limit), limit)
