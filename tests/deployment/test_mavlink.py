"""`equiflock mavlink`: vehicles on loopback against the simulator, silence, and the altitude hold."""

from __future__ import annotations

import os
import select
import signal
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.deployment.export.program import read_program
from equiflock.deployment.mavlink_vehicle import (
    MAX_VERTICAL_ACCELERATION,
    TYPE_MASKS,
    AltitudeHold,
    MavlinkVehicle,
    VehicleSettings,
    check_mavlink,
    read_local_position,
)
from equiflock.deployment.onboard_steps import Setpoint
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


def test_in_the_plane_a_vehicle_returns_to_its_altitude_without_overshoot() -> None:
    hold, altitude, climb, step = AltitudeHold(), 10.0, 0.0, 0.02
    assert hold.compute(altitude, climb) == (0.0, 0.0)
    altitude, heights = 14.0, []
    for _ in range(600):
        acceleration, velocity = hold.compute(altitude, climb)
        assert abs(acceleration) <= MAX_VERTICAL_ACCELERATION and -1.0 <= velocity <= 0.0
        altitude, climb = altitude + step * climb, climb + step * acceleration
        heights.append(altitude)
    assert heights[-1] == pytest.approx(10.0, abs=0.01)
    assert min(heights) > 9.99


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
        (("--number", "1", "--controller", "tanner"), "tanner is privileged"),
    ],
)
def test_wrong_options_are_one_line(
    arguments: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = failure(capsys, "mavlink", *arguments)
    assert expected in printed
    assert len([line for line in printed.splitlines() if line.startswith("equiflock: ")]) == 1


def test_a_silent_connection_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    link, port = find_ports(2)
    options = f"--number 1 --connection udp:127.0.0.1:{link} --port {port} --wait 0.2".split()
    printed = failure(capsys, "mavlink", *options, "--controller", CONTROLLER)
    assert printed.splitlines()[-1] == (
        f"equiflock: the vehicle at udp:127.0.0.1:{link} sent nothing within 0.2 s: check --connection"
    )


@pytest.mark.parametrize(("controller", "warns"), [("starling", True), (CONTROLLER, False)])
def test_a_controller_in_units_of_its_radius_is_a_warning(
    controller: str, warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = failure(capsys, "mavlink", "--number", "1", "--controller", controller, "--connection", "nowhere")
    assert ("use starling:comm_radius=..:time_scale=.." in printed) == warns


def test_a_missing_extra_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "mavlink needs pymavlink: pip install 'equiflock[mavlink]'" in failure(capsys, "mavlink", "--number", "1")


def test_heartbeats_go_both_ways() -> None:
    ours, vehicle = connect()
    with ours, vehicle:
        ours.send_heartbeat(0.0)
        ours.send_heartbeat(0.5)
        wait_for_heartbeats([vehicle])
        assert [(each.type, each.autopilot) for each in vehicle.heartbeats] == [(18, 8)]
