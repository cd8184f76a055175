"""`equiflock mavlink`: vehicles on loopback against the simulator, silence, and the altitude hold."""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import struct
import threading
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock import cli
from equiflock._runtime.checks import InputError
from equiflock.deployment.export.program import read_program
from equiflock.deployment.mavlink_robot import MavlinkRobot
from equiflock.deployment.mavlink_vehicle import (
    MAX_VERTICAL_ACCELERATION,
    MAX_VERTICAL_SPEED,
    TYPE_MASKS,
    MavlinkVehicle,
    VehicleSettings,
    VehicleSilentError,
    check_mavlink,
    hold_altitude,
    limit_acceleration,
    read_local_position,
)
from equiflock.deployment.onboard_agent import LeaderAgent, OnboardAgent
from equiflock.deployment.onboard_steps import OnboardSteps, Setpoint, StepTiming
from equiflock.deployment.swarm_host import SwarmHost
from equiflock.deployment.swarm_results import Parity
from equiflock.simulation.environment import Environment
from mavlink_vehicles import (
    ALTITUDE,
    COMM_RADIUS,
    CONTROLLER,
    RATE,
    Vehicle,
    find_ports,
    get_acceleration,
    run_robots,
    wait_for_heartbeats,
)
from ros2 import parse_counts
from tests.cli.commands import failure

ROBOTS, STEPS, PATIENCE = 3, 60, 30.0
LISTEN, TIMEOUT = 2.0, 3.0
"""Seconds that a robot waits for messages and for its vehicle."""


@pytest.fixture(autouse=True)
def pymavlink() -> None:
    """Skip tests where pymavlink is missing, and fail there in CI."""
    try:
        check_mavlink()
    except InputError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(f"{error}: no MAVLink vehicle was tested")


def wait_for_setpoints(vehicles: list[Vehicle], counts: list[int]) -> None:
    """Wait until each vehicle has more set-points than these."""
    deadline = time.monotonic() + PATIENCE
    while any(len(each.setpoints) <= count for each, count in zip(vehicles, counts, strict=True)):
        assert time.monotonic() < deadline, "a robot sent no set-point"
        select.select([vehicle.link.fd for vehicle in vehicles], [], [], 0.1)
        for vehicle in vehicles:
            vehicle.read()


def fly_step(vehicles: list[Vehicle], positions: Any, velocities: Any) -> list[Any]:
    """Send positions in the plane, and return the set-point of each vehicle."""
    counts = [len(vehicle.setpoints) for vehicle in vehicles]
    for vehicle, position, velocity in zip(vehicles, positions, velocities, strict=True):
        vehicle.send_position((*position, ALTITUDE), (*velocity, 0.0))
    wait_for_setpoints(vehicles, counts)
    assert [len(vehicle.setpoints) for vehicle in vehicles] == [count + 1 for count in counts]
    return [vehicle.setpoints[-1] for vehicle in vehicles]


@pytest.mark.slow
@pytest.mark.flaky(reruns=1)  # a busy machine may delay a process by many seconds
def test_vehicles_fly_as_the_simulator_with_a_setpoint_per_position_and_stop_in_silence() -> None:
    controller: Any = ef.load(CONTROLLER)
    start = ef.random_disk(flocks=1, agents=ROBOTS, seed=0, comm_radius=COMM_RADIUS, max_speed=1.0, min_degree=1)
    swarm = SwarmHost(start, controller, 1 / RATE, Environment(), None)
    parity = Parity(controller, 1 / RATE, read_program(controller, 2))
    options = f"--controller {CONTROLLER} --rate {RATE} --step-on-measurement --agents {ROBOTS}".split()
    options += f"--listen {LISTEN * RATE:g} --timeout {TIMEOUT:g}".split()
    with run_robots(ROBOTS, *options) as (processes, vehicles):
        for _ in range(STEPS):
            flock = swarm.moment.flock
            setpoints = fly_step(vehicles, flock.positions[0], flock.velocities[0])
            assert {each.type_mask for each in setpoints} == {TYPE_MASKS["acceleration"]}
            commands = np.array([get_acceleration(each) for each in setpoints])
            # At its altitude, without vertical velocity.
            assert not commands[:, 2].any()
            parity.compare(swarm.moment, commands[:, :2])
            swarm.advance(commands[:, :2])
        for number, vehicle in enumerate(vehicles):
            assert {each.get_srcSystem() for each in vehicle.heartbeats[1:]} <= {number + 1}
            assert {each.get_srcComponent() for each in vehicle.heartbeats} == {191}
            assert [(each.command, each.param1, each.param2) for each in vehicle.requests] == [(511, 32.0, 1e6 / RATE)]
        # The first ends by Ctrl-C, the others when their vehicles fall silent.
        processes[0].send_signal(signal.SIGINT)
        printed = [process.communicate(timeout=PATIENCE) for process in processes]
        for vehicle in vehicles:
            vehicle.read()
    assert parity.summary.startswith(f"yes: {STEPS * ROBOTS} of {STEPS * ROBOTS} accelerations")
    for vehicle in vehicles:
        last = vehicle.setpoints[-10:]
        assert {(each.type_mask, each.vx, each.vy, each.vz) for each in last} == {(TYPE_MASKS["velocity"], 0, 0, 0)}
    assert [process.returncode for process in processes] == [0, 1, 1]
    assert [text.splitlines()[-1] for _, text in printed[1:]] == [
        f"equiflock: the vehicle sent no LOCAL_POSITION_NED for {TIMEOUT:g} s: asking it for zero velocity"
    ] * 2
    for silences, (text, _) in zip((0, 1, 1), printed, strict=True):
        assert parse_counts(text) == (STEPS, 0, silences, STEPS, STEPS * (ROBOTS - 1), 0)


def make_setpoint(acceleration: tuple[float, ...], velocity: tuple[float, ...]) -> Setpoint:
    return Setpoint(acceleration, velocity)


def connect(**settings: Any) -> tuple[MavlinkVehicle, Vehicle]:
    """Return a connection and the vehicle at its other end, which know each other."""
    (port,) = find_ports(1)
    ours = MavlinkVehicle(VehicleSettings(address=f"udpin:127.0.0.1:{port}", rate=50.0, **settings))
    vehicle = Vehicle(7, port)
    vehicle.send_heartbeat()
    wait_for(ours)
    return ours, vehicle


def wait_for(*ends: Any) -> Any:
    """Wait until something has arrived at each end, and read it."""
    result = None
    for end in ends:
        fileno = end if isinstance(end, MavlinkVehicle) else end.link.fd
        assert select.select([fileno], [], [], PATIENCE)[0]
        result = end.read()
    return result


def test_positions_are_turned_to_east_north_up_and_shifted_by_the_origin() -> None:
    message = SimpleNamespace(x=1.0, y=2.0, z=-3.0, vx=0.1, vy=0.2, vz=-0.3)
    assert read_local_position(message, (10.0, 20.0, 30.0)) == ((12.0, 21.0, 33.0), (0.2, 0.1, 0.3))
    message.vz = float("nan")
    assert read_local_position(message, (0.0, 0.0, 0.0)) is None


def test_velocity_setpoints_in_space_have_all_axes_and_their_own_mask() -> None:
    ours, vehicle = connect(setpoint="velocity", dimensions=3)
    with ours, vehicle:
        ours.send_setpoint(make_setpoint((9.0, 9.0, 9.0), (1.0, 2.0, 3.0)))
        wait_for(vehicle)
        (setpoint,) = vehicle.setpoints
    assert setpoint.type_mask == 0b110111000111 and setpoint.coordinate_frame == 1
    assert (setpoint.vx, setpoint.vy, setpoint.vz) == (2.0, 1.0, -3.0)
    assert (setpoint.target_system, setpoint.get_srcSystem(), setpoint.get_srcComponent()) == (7, 7, 191)


def test_positions_of_another_system_are_ignored() -> None:
    ours, vehicle = connect()
    with ours, vehicle:
        vehicle.link.mav.srcSystem = 8
        vehicle.send_position((1.0, 2.0, 3.0), (0.0, 0.0, 0.0))
        assert wait_for(ours) is None
        vehicle.link.mav.srcSystem = 7
        vehicle.send_position((1.0, 2.0, 3.0), (0.0, 0.0, 0.0))
        assert wait_for(ours) == ((1.0, 2.0, 3.0), (0.0, 0.0, 0.0))


@pytest.mark.parametrize("start", [0.0, 14.0, 60.0])
def test_in_the_plane_a_vehicle_flies_to_its_altitude_slowly_and_without_overshoot(start: float) -> None:
    altitude, climb, step, errors = start, 0.0, 0.02, []
    assert hold_altitude(0.0, 0.0) == (0.0, 0.0)
    for _ in range(3500):
        acceleration, velocity = hold_altitude(10.0 - altitude, climb)
        assert abs(acceleration) <= MAX_VERTICAL_ACCELERATION and abs(velocity) <= MAX_VERTICAL_SPEED
        altitude, climb = altitude + step * climb, climb + step * acceleration
        assert abs(climb) <= MAX_VERTICAL_SPEED + 1e-9
        errors.append((10.0 - altitude) * math.copysign(1.0, 10.0 - start))
    assert errors[-1] == pytest.approx(0.0, abs=0.01)
    assert min(errors) > -0.01


def test_the_altitude_is_the_given_one_although_the_first_setpoint_is_sent_on_the_ground() -> None:
    ours, vehicle = connect(altitude=10.0, origin=(0.0, 0.0, 5.0))
    with ours, vehicle:
        for height in (0.0, 5.0):
            vehicle.send_position((0.0, 0.0, height), (0.0, 0.0, 0.0))
            wait_for(ours)
            ours.send_setpoint(make_setpoint((0.5, 0.0), (0.0, 0.0)))
            wait_for(vehicle)
    assert [get_acceleration(each) for each in vehicle.setpoints] == [(0.5, 0.0, 2.0), (0.5, 0.0, 0.0)]


@pytest.mark.parametrize(("setpoint", "limit"), [("acceleration", 1.25), ("velocity", 0.75)])
def test_limits_shorten_the_whole_setpoint_of_a_vehicle_in_the_plane(setpoint: Any, limit: float) -> None:
    limits = ef.SafetyLimits(max_acceleration=1.25, max_speed=0.75)
    # Far below its altitude it shall climb by 2 m/s^2 or 1 m/s.
    unlimited = math.hypot(1.0, 2.0) if setpoint == "acceleration" else math.hypot(0.5, 1.0)
    for given, expected in ((limits, limit), (None, unlimited)):
        ours, vehicle = connect(altitude=10.0, setpoint=setpoint, limits=given)
        with ours, vehicle:
            vehicle.send_position((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
            wait_for(ours)
            ours.send_setpoint(make_setpoint((1.0, 0.0), (0.5, 0.0)))
            wait_for(vehicle)
        (sent,) = vehicle.setpoints
        east, north, up = get_acceleration(sent) if setpoint == "acceleration" else (sent.vy, sent.vx, -sent.vz)
        assert north == 0.0 and up / east == pytest.approx(2.0)
        assert math.hypot(east, up) == pytest.approx(expected)


def test_limits_of_a_vehicle_in_the_plane_keep_its_speed_and_then_its_acceleration() -> None:
    limits, period = ef.SafetyLimits(max_acceleration=4.0, max_speed=1.5), 0.02
    velocity = np.array([1.2, 0.0, 0.9])
    found = np.array(limit_acceleration((3.0, 0.0, 2.0), tuple(velocity), limits, period))
    assert np.linalg.norm(velocity + period * found) == pytest.approx(1.5)
    assert np.linalg.norm(found) < 4.0
    fast = np.array(limit_acceleration((3.0, 0.0, 2.0), (9.0, 0.0, 0.9), limits, period))
    assert np.linalg.norm(fast) == pytest.approx(4.0) and fast[0] < -3.9
    assert limit_acceleration((3.0, 0.0, 2.0), (0.0, 0.0, 0.0), limits, period) == [3.0, 0.0, 2.0]


class Autopilot:
    """A TCP server that sends positions to the first client and then closes, or resets, the connection."""

    def __init__(self, resets: bool) -> None:
        self._resets = resets
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp:127.0.0.1:{self._server.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        from pymavlink.dialects.v20 import common

        link, _ = self._server.accept()
        mav = common.MAVLink(None, srcSystem=1, srcComponent=1)
        for _ in range(3):
            link.sendall(mav.local_position_ned_encode(0, 0.0, 0.0, -10.0, 0.1, 0.0, 0.0).pack(mav))
        assert link.recv(1)  # the client has read something
        if not self._resets:
            link.setblocking(False)
            with suppress(BlockingIOError):
                while link.recv(4096):
                    pass
        # Closing a socket with unread data, or without lingering, resets the connection.
        if self._resets:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        link.close()

    def __enter__(self) -> Autopilot:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.join(PATIENCE)
        self._server.close()


@pytest.mark.parametrize("resets", [False, True])
def test_a_lost_connection_is_one_line_and_exit_code_1(resets: bool, capfd: pytest.CaptureFixture[str]) -> None:
    (port,) = find_ports(1)
    with Autopilot(resets) as autopilot, pytest.raises(SystemExit) as ended:
        words = f"mavlink --number 1 --connection {autopilot.address} --port {port} --altitude 10 --timeout 20".split()
        cli.main([*words, "--controller", CONTROLLER])
    printed, errors = capfd.readouterr()
    assert ended.value.code == 1
    assert f"equiflock: the connection {autopilot.address} to the vehicle is lost: " in errors
    assert len(printed.splitlines()) <= 1 and len(errors.splitlines()) < 10


class SlowPeers:
    """Peers whose messages take five periods to read."""

    def __init__(self, vehicle: MavlinkVehicle) -> None:
        self._vehicle = vehicle

    def fileno(self) -> int:
        return self._vehicle.fileno()

    def send(self, message: bytes) -> None:
        pass

    def receive(self) -> list[bytes]:
        time.sleep(0.05)
        return []


def test_a_robot_that_ends_no_step_in_time_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, vehicle = connect(altitude=10.0)
    settings = OnboardAgent(number=1, dimensions=2, period=0.01)
    leader = LeaderAgent(ef.load("starling"), settings, lambda: (0.0, 0.0))
    steps = OnboardSteps(lambda: leader, StepTiming(rate=100.0, timeout=0.2))
    peers: Any = SlowPeers(ours)
    monkeypatch.setattr(ours, "read", lambda: ((0.0, 0.0, 10.0), (0.0, 0.0, 0.0)))
    with ours, vehicle:
        robot = MavlinkRobot(steps, ours, peers, lambda state: None)
        robot.wait(PATIENCE)
        with pytest.raises(VehicleSilentError, match=r"got no set-point for 0\.2 s, use a lower --rate"):
            robot.fly()
        vehicle.read()
    assert not vehicle.setpoints


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "--number is missing"),
        (("--number", "1", "--rate", "-5"), "rate must be a finite number above 0"),
        (("--number", "1", "--connection", "nowhere"), "connection must begin with udp:"),
        (("--number", "1", "--connection", "udp:127.0.0.1"), "cannot open the connection udp:127.0.0.1"),
        (("--number", "1", "--connection", "/dev/no-such-line"), "cannot open the connection /dev/no-such-line"),
        (("--number", "1", "--peers", "robot2"), "an address must be host:port"),
        (("--number", "1", "--system-id", "256"), "system_id must be from 1 to 255"),
        (("--number", "1", "--altitude", "nan"), "altitude must be a finite number of metres"),
        (("--number", "1", "--dimensions", "2"), "--altitude is missing"),
        (("--number", "1", "--dimensions", "3", "--altitude", "10"), "--altitude is for a vehicle with --dimensions 2"),
        (("--number", "1", "--controller", "tanner"), "tanner is privileged"),
        (("--number", "1", "--controller", "etdagnn"), "etdagnn is for comm_radius = 1 and is not scaled to a robot"),
    ],
)
def test_wrong_options_are_one_line(
    arguments: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    altitude = () if "--altitude" in arguments or "--dimensions" in arguments else ("--altitude", "10")
    scaled = () if "--controller" in arguments else ("--controller", "starling:comm_radius=3:time_scale=8")
    printed = failure(capsys, "mavlink", *arguments, *altitude, *scaled)
    assert expected in printed
    assert len([line for line in printed.splitlines() if line.startswith("equiflock: ")]) == 1


def test_a_silent_connection_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    link, port = find_ports(2)
    options = f"--number 1 --altitude 10 --connection udp:127.0.0.1:{link} --port {port} --wait 0.2".split()
    printed = failure(capsys, "mavlink", *options, "--controller", CONTROLLER)
    assert printed.splitlines()[-1] == (
        f"equiflock: the vehicle at udp:127.0.0.1:{link} sent nothing within 0.2 s: check --connection"
    )


@pytest.mark.parametrize(("controller", "warns"), [("starling", True), (CONTROLLER, False)])
def test_a_controller_in_units_of_its_radius_is_a_warning(
    controller: str, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = failure(
        capsys, "mavlink", "--number", "1", "--altitude", "9", "--controller", controller, "--connection", "nowhere"
    )
    assert ("use starling:comm_radius=..:time_scale=.." in printed) == warns


@pytest.mark.parametrize(
    ("options", "warns"),
    [("--altitude 9", True), ("--altitude 9 --safety max_acceleration=4", False), ("--leader", False)],
)
def test_a_robot_without_limits_is_a_warning(options: str, warns: bool, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"--number 1 --controller {CONTROLLER} --connection nowhere {options}".split()
    assert ("no limits: pass --safety max_acceleration=" in failure(capsys, "mavlink", *words)) == warns


def test_a_missing_extra_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "mavlink needs pymavlink: pip install 'equiflock[mavlink]'" in failure(
        capsys, "mavlink", "--number", "1", "--altitude", "9"
    )


def test_heartbeats_go_both_ways() -> None:
    ours, vehicle = connect()
    with ours, vehicle:
        ours.send_heartbeat(0.0)
        ours.send_heartbeat(0.5)
        wait_for_heartbeats([vehicle])
        assert [(each.type, each.autopilot) for each in vehicle.heartbeats] == [(18, 8)]
