"""One robot with a MAVLink autopilot: its steps, its vehicle, and the messages of its peers, in one loop."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from contextlib import suppress

from equiflock._runtime.checks import InputError, check_positive
from equiflock.deployment.mavlink_vehicle import HEARTBEAT_INTERVAL, MavlinkVehicle, VehicleSilentError
from equiflock.deployment.onboard_steps import OnboardSteps
from equiflock.deployment.peer_socket import PeerSocket

STOP_SECONDS = 1.0
"""Seconds for which a vehicle is asked for zero velocity at the end."""


class MavlinkRobot:
    """Flies a vehicle by its agent until an exception. `leads` sends messages, but no set-points: the pilot flies."""

    def __init__(
        self,
        steps: OnboardSteps,
        vehicle: MavlinkVehicle,
        peers: PeerSocket,
        on_state: Callable[[str], object],
        leads: bool = False,
    ) -> None:
        self.steps, self.vehicle, self.peers = steps, vehicle, peers
        self._on_state, self._leads = on_state, leads
        self._state = ""

    def wait(self, timeout: float) -> None:
        """Wait for the vehicle's first position. Raise InputError if none comes within `timeout` seconds."""
        deadline = time.monotonic() + check_positive("wait", timeout)
        self._report_state()
        while self.steps.state == "waiting":
            self._read(deadline)
            if time.monotonic() >= deadline and self.steps.state == "waiting":
                address = self.vehicle.settings.address
                missing = "no LOCAL_POSITION_NED" if self.vehicle.system_id else "nothing"
                raise InputError(f"the vehicle at {address} sent {missing} within {timeout:g} s: check --connection")

    def fly(self) -> None:
        """Run the steps. Raise VehicleSilentError when the vehicle falls silent, or gets no set-point in time."""
        while True:
            output = self.steps.advance(time.monotonic())
            self._report_state()
            if self.steps.state == "silent":
                reason = f"the vehicle sent no LOCAL_POSITION_NED for {self.steps.timing.timeout:g} s"
                if self.steps.is_slow:
                    reason = f"the vehicle got no set-point for {self.steps.longest_debt:g} s, use a lower --rate"
                raise VehicleSilentError(f"{reason}: asking it for zero velocity")
            if output.setpoint is not None and not self._leads:
                self.vehicle.send_setpoint(output.setpoint)
            if output.message is not None:
                self.peers.send(output.message)
            self._read(self.steps.next_time)

    def stop(self) -> None:
        """Ask the vehicle for zero velocity, for STOP_SECONDS at the rate, unless the connection is lost."""
        if self._leads:
            return
        deadline = time.monotonic() + STOP_SECONDS
        with suppress(VehicleSilentError):
            while time.monotonic() < deadline:
                self.vehicle.send_stop()
                time.sleep(self.steps.timing.period)

    def _read(self, until: float) -> None:
        """Wait for the vehicle or a message until that time, and pass on what has come."""
        self.vehicle.send_heartbeat(time.monotonic())
        wait = min(max(until - time.monotonic(), 0.0), HEARTBEAT_INTERVAL)
        select.select([self.vehicle.fileno(), self.peers.fileno()], [], [], wait)
        for message in self.peers.receive():
            self.steps.receive(message, time.monotonic())
        measured = self.vehicle.read()
        if measured is not None:
            position, velocity = (vector[: self.vehicle.settings.dimensions] for vector in measured)
            self.steps.measure(position, velocity, time.monotonic())

    def _report_state(self) -> None:
        """Call `on_state` if the state has changed."""
        if self.steps.description != self._state:
            self._state = self.steps.description
            self._on_state(self._state)
