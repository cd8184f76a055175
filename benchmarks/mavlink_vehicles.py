"""Vehicles with simulated MAVLink autopilots in real time: `equiflock mavlink` for each of 3 at 50 Hz; missed steps.

python benchmarks/mavlink_vehicles.py

Each robot's onboard computer is a process of its own, with its own clock. This one is the autopilots: it moves the
vehicles 100 times a second, by the set-points that it last received, and sends their positions.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import equiflock as ef
from equiflock.cli.terminal import out, print_table
from ros2 import START_TIMEOUT, compute_variance, parse_counts, stop_nodes

FLIGHTS, ROBOTS, RATE, SECONDS, MOVES_PER_SECOND = 3, 3, 50, 20, 100
COMM_RADIUS, ALTITUDE, MAX_ACCELERATION = 5.0, 10.0, 4.0
CONTROLLER = f"starling:comm_radius={COMM_RADIUS:g}:time_scale=8"
QUADROTOR, PX4, AUTOPILOT = 2, 12, 1
"""MAV_TYPE_QUADROTOR, MAV_AUTOPILOT_PX4 and MAV_COMP_ID_AUTOPILOT1."""


class Vehicle:
    """A vehicle with a MAVLink autopilot that sends to a UDP port, as an onboard computer sees it."""

    def __init__(self, system: int, port: int) -> None:
        os.environ.setdefault("MAVLINK20", "1")
        os.environ.setdefault("MAVLINK_DIALECT", "common")
        from pymavlink import mavutil

        self.link = mavutil.mavlink_connection(
            f"udpout:127.0.0.1:{port}", source_system=system, source_component=AUTOPILOT
        )
        self.setpoints: list[Any] = []
        """All SET_POSITION_TARGET_LOCAL_NED received."""
        self.heartbeats: list[Any] = []
        """Heartbeats of the onboard computer."""
        self.requests: list[Any] = []
        """Commands of the onboard computer."""
        self._time = 0

    def __enter__(self) -> Vehicle:
        return self

    def __exit__(self, *error: object) -> None:
        self.link.close()

    def send_heartbeat(self) -> None:
        """Send a heartbeat."""
        self.link.mav.heartbeat_send(QUADROTOR, PX4, 0, 0, 4)

    def send_position(self, position: Sequence[float], velocity: Sequence[float]) -> None:
        """Send LOCAL_POSITION_NED for a position and velocity east, north, up."""
        self._time += 1
        (east, north, up), (east_speed, north_speed, climb) = position, velocity
        numbers = north, east, -up, north_speed, east_speed, -climb
        self.link.mav.local_position_ned_send(self._time, *map(float, numbers))

    def read(self) -> None:
        """Read what has arrived."""
        while (message := self.link.recv_msg()) is not None:
            kept = {
                "SET_POSITION_TARGET_LOCAL_NED": self.setpoints,
                "HEARTBEAT": self.heartbeats,
                "COMMAND_LONG": self.requests,
            }
            kept.get(message.get_type(), []).append(message)


def get_acceleration(setpoint: Any) -> tuple[float, float, float]:
    """Return the acceleration of a set-point: east, north, up."""
    return setpoint.afy, setpoint.afx, -setpoint.afz


def find_ports(count: int) -> list[int]:
    """Return UDP ports that are free."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextmanager
def run_robots(robots: int, *options: str) -> Iterator[tuple[list[subprocess.Popen[str]], list[Vehicle]]]:
    """Start `equiflock mavlink` with these options for robots 0, 1, ... with their vehicles; wait for heartbeats.

    Kill those that the block has not stopped.
    """
    ports = find_ports(2 * robots)
    links, peers = ports[:robots], ports[robots:]
    processes = []
    for i in range(robots):
        others = ",".join(f"127.0.0.1:{port}" for port in peers if port != peers[i])
        words = f"--number {i} --connection udp:127.0.0.1:{links[i]} --port {peers[i]} --wait {START_TIMEOUT:g}".split()
        words += ["--altitude", f"{ALTITUDE:g}"]
        command = [sys.executable, "-m", "equiflock", "mavlink", *words, "--peers", others, *options]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    vehicles = [Vehicle(i + 1, link) for i, link in enumerate(links)]
    try:
        wait_for_heartbeats(vehicles)
        yield processes, vehicles
    finally:
        for vehicle in vehicles:
            vehicle.link.close()
        for process in processes:
            process.kill()
            process.communicate()


def wait_for_heartbeats(vehicles: Sequence[Vehicle]) -> None:
    """Send heartbeats until every vehicle has one of its onboard computer."""
    deadline = time.monotonic() + START_TIMEOUT
    while not all(vehicle.heartbeats for vehicle in vehicles):
        assert time.monotonic() < deadline, "an onboard computer did not start"
        for vehicle in vehicles:
            vehicle.send_heartbeat()
            vehicle.read()
        time.sleep(0.05)


def fly(seed: int) -> list[str]:
    """Fly a flock in real time. Return a row of the table."""
    flock = ef.random_disk(flocks=1, agents=ROBOTS, seed=seed, comm_radius=COMM_RADIUS, max_speed=1.0, min_degree=1)
    positions, velocities = (np.pad(array[0], ((0, 0), (0, 1))) for array in flock.arrays[:2])
    positions[:, 2] = ALTITUDE
    first = velocities.copy()
    with run_robots(ROBOTS, "--controller", CONTROLLER, "--rate", str(RATE)) as (processes, vehicles):
        tick = time.monotonic()
        late_moves = 0
        for _ in range(SECONDS * MOVES_PER_SECOND):
            for i, vehicle in enumerate(vehicles):
                vehicle.send_position(positions[i], velocities[i])
            tick += 1.0 / MOVES_PER_SECOND
            left = tick - time.monotonic()
            late_moves += left < 0.0
            tick = max(tick, time.monotonic())
            time.sleep(max(left, 0.0))
            for i, vehicle in enumerate(vehicles):
                vehicle.read()
                if vehicle.setpoints:
                    acceleration = np.clip(get_acceleration(vehicle.setpoints[-1]), -MAX_ACCELERATION, MAX_ACCELERATION)
                    positions[i] += velocities[i] / MOVES_PER_SECOND
                    velocities[i] += acceleration / MOVES_PER_SECOND
        counts = np.sum([parse_counts(printed) for printed, _ in stop_nodes(processes)], axis=0)
    made, missed, silences, sent, received, _ = counts
    return [
        str(seed),
        f"{missed:,} of {made + missed:,}",
        str(silences),
        f"{received / (sent * (ROBOTS - 1)):.1%}",
        f"{compute_variance(first):.3f}",
        f"{compute_variance(velocities):.5f}",
        str(late_moves),
    ]


def main() -> None:
    header = "seed", "missed", "silences", "received", "variance", "at the end", "late moves"
    rows = [fly(seed) for seed in range(FLIGHTS)]
    print_table(f"{ROBOTS} MAVLink vehicles at {RATE} Hz for {SECONDS} s under {CONTROLLER}", (header, rows))
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    out.print(f"{os.cpu_count()} cores; load average over 1, 5 and 15 minutes, including ours: {load}", highlight=False)


if __name__ == "__main__":
    main()
