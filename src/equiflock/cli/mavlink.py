"""`equiflock mavlink`."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, replace

from equiflock._runtime.checks import InputError, is_finite, shorten_repr
from equiflock.cli.onboard_options import OnboardOptions
from equiflock.cli.terminal import err, print_line, print_warning
from equiflock.deployment.mavlink_robot import MavlinkRobot
from equiflock.deployment.mavlink_vehicle import MavlinkVehicle, VehicleSettings, VehicleSilentError, check_mavlink
from equiflock.deployment.peer_socket import PeerSocket, parse_address


@dataclass(frozen=True)
class Mavlink(OnboardOptions):
    """Fly one vehicle of a flock through its MAVLink autopilot, from its onboard computer.

    Reads LOCAL_POSITION_NED and sends SET_POSITION_TARGET_LOCAL_NED at the rate. It neither arms nor changes modes: the
    pilot does, and can take over at any time by another mode. The flock's frame is x east, y north, z up, in metres.
    With two dimensions the vehicle keeps --altitude, and --safety shortens its whole set-point, vertical part included.
    If the vehicle sends no position for --timeout seconds, or gets no set-point in time, it is asked for zero velocity
    for a second, and the command ends with exit code 1, as after a lost connection. Tested with simulated vehicles, not
    with PX4 or ArduPilot themselves.
    """

    connection: str = "udp:127.0.0.1:14550"
    """MAVLink connection: udp:HOST:PORT listens there, udpout:HOST:PORT sends first, tcp:HOST:PORT, /dev/ttyAMA0."""
    rate: float = 50.0
    """Steps and set-points per second, the same on all robots."""
    peers: str = ""
    """Addresses of all other robots, host:port,host:port. Their messages are checked, but not authenticated."""
    host: str = "127.0.0.1"
    """Address of this computer at which messages of the peers arrive, as their --peers name it."""
    port: int = 14600
    """Port at which messages of the peers arrive."""
    origin: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The vehicle's local origin in the frame that all share: metres east, north, up. Where it booted, for PX4."""
    altitude: float | None = None
    """Altitude that the vehicle keeps, in metres up in the frame that all share; required with two dimensions."""
    system_id: int | None = None
    """MAVLink system of the vehicle; by default that of the first autopilot that sends anything."""
    baud: int = 115_200
    """Speed of a serial line."""
    wait: float = 10.0
    """Seconds to wait for the first position."""
    leader: bool = False
    """Lead: the pilot flies the vehicle; only messages are sent, without observations, and no set-points."""

    def run(self) -> None:
        """Fly until Ctrl-C, ask for zero velocity and print a summary. Exit with code 1 if the vehicle falls silent."""
        timing, settings = self.make_timing(), self._make_vehicle_settings()
        number = self.make_agent_settings().number
        peers = [parse_address(peer) for peer in self.peers.split(",") if peer.strip()]
        check_mavlink()
        get_target = (lambda: (0.0,) * self.dimensions) if self.leader else None
        if not peers:
            print_warning("without --peers the vehicle flies alone: no messages are sent or received")
        with (
            self.open_steps(timing, get_target) as steps,
            PeerSocket(parse_address(f"{self.host}:{self.port}"), peers) as peer_socket,
            MavlinkVehicle(replace(settings, limits=steps.limits)) as vehicle,
        ):
            robot = MavlinkRobot(steps, vehicle, peer_socket, lambda state: _report(number, state), self.leader)
            try:
                # Ctrl-C is the normal way to stop, not an error.
                with suppress(KeyboardInterrupt):
                    robot.wait(self.wait)
                    robot.fly()
            except VehicleSilentError as error:
                err.print(f"equiflock: {error}", style="bold red", highlight=False, markup=False, soft_wrap=True)
                sys.exit(1)
            finally:
                if steps.state != "waiting":
                    with suppress(KeyboardInterrupt):
                        robot.stop()
                    strangers = f", {peer_socket.strangers:,} from strangers" if peer_socket.strangers else ""
                    print_line(f"robot {number}: {steps.counts.summary}{strangers}")

    def _make_vehicle_settings(self) -> VehicleSettings:
        if not all(map(is_finite, self.origin)):
            raise InputError(f"origin must be three finite numbers; got {shorten_repr(self.origin)}")
        is_held = self.dimensions == 2 and not self.leader
        if is_held and self.altitude is None:
            raise InputError(
                "--altitude is missing: with two dimensions the vehicle keeps one, such as --altitude 10 (metres up in "
                "the frame that all share)"
            )
        if self.altitude is not None and not is_held:
            raise InputError("--altitude is for a vehicle with --dimensions 2 that does not lead: leave it out")
        if self.altitude is not None and not is_finite(self.altitude):
            raise InputError(f"altitude must be a finite number of metres; got {shorten_repr(self.altitude)}")
        if self.system_id is not None and not 1 <= self.system_id <= 255:
            raise InputError(f"system_id must be from 1 to 255; got {self.system_id}")
        return VehicleSettings(
            address=self.connection,
            rate=self.rate,
            dimensions=self.dimensions,
            altitude=self.altitude or 0.0,
            setpoint=self.setpoint,
            origin=self.origin,
            baud=self.baud,
            system_id=self.system_id,
        )


def _report(number: int, state: str) -> None:
    """Print a state of the robot on stderr."""
    err.print(f"robot {number}: {state}", highlight=False, markup=False, soft_wrap=True)
