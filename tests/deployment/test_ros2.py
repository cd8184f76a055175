"""`equiflock ros2`: reading ROS 2 messages, without ROS 2, and a flock of nodes against the simulator."""

from __future__ import annotations

import functools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.cli.ros2 import join_ros_arguments
from equiflock.deployment.export.program import read_program
from equiflock.deployment.onboard_agent import LeaderAgent, OnboardAgent, TargetVelocity
from equiflock.deployment.onboard_steps import OnboardSteps, StepTiming
from equiflock.deployment.ros2_node import Ros2Node, Ros2Settings, check_ros2, compute_age, read_odometry, read_velocity
from equiflock.deployment.swarm_host import SwarmHost
from equiflock.deployment.swarm_results import Parity
from equiflock.simulation.environment import Environment
from ros2 import COMM_RADIUS, CONTROLLER, MAX_DOMAIN, RATE, Host, make_environment, parse_counts, run_nodes, stop_nodes
from tests.cli.commands import failure

ROBOTS, STEPS = 4, 40
LISTEN, TIMEOUT, PATIENCE = 5.0, 6.0, 60.0
"""Seconds that a node waits for messages and for odometry, and that the test waits for a node.

A step ends as soon as all messages are there, so a busy machine may make a process wait for seconds.
"""
RETRY_SECONDS = 1.0
"""Seconds after which odometry is published again, as long as nodes have not found each other."""


needs_no_lark_warning = pytest.mark.filterwarnings("ignore:module 'sre_:DeprecationWarning")
"""For tests in which ROS 2 imports lark."""


def xyz(x: float = 0.0, y: float = 0.0, z: float = 0.0, **more: float) -> SimpleNamespace:
    return SimpleNamespace(x=x, y=y, z=z, **more)


def make_odometry(frame: str = "map", child: str = "base_link", yaw: float = 0.0, **changes: Any) -> SimpleNamespace:
    pose = SimpleNamespace(position=xyz(1.0, 2.0, 3.0), orientation=xyz(z=math.sin(yaw / 2), w=math.cos(yaw / 2)))
    vars(pose).update(changes)
    twist = SimpleNamespace(linear=xyz(0.5, 0.0, 0.25))
    nested = {"pose": SimpleNamespace(pose=pose), "twist": SimpleNamespace(twist=twist)}
    return SimpleNamespace(header=SimpleNamespace(frame_id=frame), child_frame_id=child, **nested)


def read(odometry: Any, dimensions: int) -> tuple[list[float], list[float]]:
    measured = read_odometry(odometry, "map", dimensions)
    assert not isinstance(measured, str)
    return measured


def test_the_twist_is_rotated_from_the_robots_frame_into_the_shared_one() -> None:
    position, velocity = read(make_odometry(yaw=math.pi / 2), 2)
    assert position == [1.0, 2.0]
    np.testing.assert_allclose(velocity, [0.0, 0.5], atol=1e-15)
    position, velocity = read(make_odometry(yaw=math.pi), 3)
    assert position == [1.0, 2.0, 3.0]
    np.testing.assert_allclose(velocity, [-0.5, 0.0, 0.25], atol=1e-15)


def test_a_twist_in_the_shared_frame_is_not_rotated() -> None:
    assert read_odometry(make_odometry(child="map", yaw=1.0), "map", 2) == ([1.0, 2.0], [0.5, 0.0])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"position": xyz(math.nan)}, "not finite"),
        ({"orientation": xyz(w=0.0)}, "quaternion of norm 1"),
        ({"orientation": xyz(w=math.nan)}, "quaternion of norm 1"),
    ],
)
def test_unusable_odometry_is_dropped_with_a_reason(changes: dict[str, Any], expected: str) -> None:
    assert expected in read_odometry(make_odometry(**changes), "map", 2)


def test_messages_in_another_frame_are_an_error_that_names_both_frames() -> None:
    with pytest.raises(InputError, match=r"frame 'map', .* its frame_id is 'odom'"):
        read_odometry(make_odometry(frame="odom"), "map", 2)
    twist = SimpleNamespace(header=SimpleNamespace(frame_id="base_link"), twist=SimpleNamespace(linear=xyz(1.0)))
    with pytest.raises(InputError, match="target velocity must be in the frame 'map'"):
        read_velocity(twist, "map", 2)


def test_a_target_velocity_has_as_many_numbers_as_dimensions() -> None:
    twist = SimpleNamespace(header=SimpleNamespace(frame_id="map"), twist=SimpleNamespace(linear=xyz(1.0, 2.0, 3.0)))
    assert read_velocity(twist, "map", 2) == [1.0, 2.0]
    twist.twist.linear.y = math.inf
    assert read_velocity(twist, "map", 2) == "a velocity is not finite"


def test_the_age_of_a_message_is_the_time_since_it_was_received() -> None:
    assert 2.0 <= compute_age({"received_timestamp": time.time_ns() - 2 * 10**9}) < 2.0 + PATIENCE
    assert compute_age({"received_timestamp": time.time_ns() + 10**12}) == 0.0
    assert compute_age({"received_timestamp": 0}) == compute_age({}) == 0.0


def test_the_arguments_of_ros_2_are_the_rest_of_the_command_line() -> None:
    words = ["ros2", "--number", "3", "--ros-args", "-r", "__ns:=/a b"]
    assert join_ros_arguments(words) == [*words[:3], "--ros-args=-r '__ns:=/a b'"]
    assert join_ros_arguments(["--ros-args", "-p", "x:=1", "--", "--rate", "9"]) == [
        "--ros-args=-p x:=1",
        "--rate",
        "9",
    ]
    assert join_ros_arguments(words[:3]) == words[:3]
    with pytest.raises(InputError, match="must be given once"):
        join_ros_arguments(["--ros-args", "-r", "a:=b", "--", "--ros-args"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "--number is missing"),
        (("--number", "-1"), "number must be a whole number of at least 0"),
        (("--number", "1", "--rate", "0"), "rate must be a finite number above 0"),
        (("--number", "1", "--listen", "1"), "listen must be below 1"),
        (("--number", "1", "--step-on-measurement", "--listen", "11"), "listen must be below timeout * rate = 10"),
        (("--number", "1", "--group", "255"), "group must be at most 254"),
        (("--number", "1", "--max-range", "0"), "max_range must be"),
        (("--number", "1", "--safety", "max_speed=1"), "limits must have a max_acceleration"),
        (("--number", "1", "--leader", "--safety", "max_acceleration=4"), "--safety has no effect on a leader"),
    ],
)
def test_wrong_options_are_one_line(
    arguments: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = failure(capsys, "ros2", *arguments)
    assert expected in printed
    assert len(printed.strip().splitlines()) == 1


def test_a_missing_extra_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("equiflock.deployment.ros2_node.MODULES", ("no_rclpy",))
    printed = failure(capsys, "ros2", "--number", "1")
    assert "ros2 needs no_rclpy: pip install 'equiflock[ros2]', or source the setup file of a ROS 2" in printed


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables of nodes; skip the test where ROS 2 is missing, and fail there in CI."""
    try:
        check_ros2()
    except InputError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(f"{error}: no ROS 2 node was tested")
    return make_environment(1 + os.getpid() % MAX_DOMAIN, tmp_path_factory.mktemp("log"))


def list_commands(host: Host) -> list[list[tuple[float, ...]]]:
    """Return the set-points of all robots but those of zero, which a robot without neighbours gets."""
    return [[setpoint for setpoint in each if any(setpoint)] for each in host.setpoints]


def fly_step(host: Host, positions: Any, velocities: Any, patience: float = PATIENCE) -> Any:
    """Publish odometry, and return the set-points of all robots, (N, D); None if some are missing after that time."""
    counts = list(map(len, list_commands(host)))
    host.publish(positions, velocities)
    deadline = time.monotonic() + patience
    while any(len(each) <= count for each, count in zip(list_commands(host), counts, strict=True)):
        if time.monotonic() > deadline:
            return None
        host.spin(0.1)
    return np.array([each[-1][:2] for each in list_commands(host)])


def find_each_other(host: Host, positions: Any, velocities: Any) -> int:
    """Fly steps until every node has received all others: only then it acts before its listening time is over.

    Return how many steps failed.
    """
    deadline, failed = time.monotonic() + PATIENCE, 0
    while fly_step(host, positions, velocities, RETRY_SECONDS) is None:
        assert time.monotonic() < deadline, "nodes do not receive each other"
        failed += 1
    return failed


def fall_silent(host: Host) -> None:
    """Publish nothing until every robot is silent."""
    deadline = time.monotonic() + PATIENCE
    while set(host.states) != {"silent"}:
        assert time.monotonic() < deadline, "a node does not fall silent without odometry"
        host.spin(0.1)


class Ends:
    """A node in this process, and what is at the other ends of its topics."""

    def __init__(self, node: Ros2Node) -> None:
        import rclpy
        from geometry_msgs.msg import AccelStamped, TwistStamped
        from nav_msgs.msg import Odometry
        from rclpy.executors import SingleThreadedExecutor
        from std_msgs.msg import String, UInt8MultiArray

        self.node = node
        self.received: list[Any] = []
        self.context = rclpy.Context()
        rclpy.init(context=self.context)
        other = rclpy.create_node("other", context=self.context, start_parameter_services=False)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(other)
        self.types = {"odom": Odometry, "cmd_vel": TwistStamped, "/flock": UInt8MultiArray}
        self.publishers = {topic: other.create_publisher(kind, topic, 10) for topic, kind in self.types.items()}
        kinds = {"accelerations": AccelStamped, "velocities": TwistStamped, "equiflock_5/state": String}
        for topic, kind in kinds.items():
            other.create_subscription(kind, topic, self.received.append, 10)

    def publish(self, topic: str, change: Callable[[Any], object]) -> None:
        """Publish a message, whose frame is "map", after a change."""
        message = self.types[topic]()
        if topic != "/flock":
            message.header.frame_id = "map"
        change(message)
        self.publishers[topic].publish(message)

    def spin_until(self, is_done: Callable[[], bool], publish: Callable[[], object]) -> None:
        """Let both ends run, and publish ten times a second, until something holds."""
        deadline = time.monotonic() + PATIENCE
        again = 0.0
        while not is_done():
            assert time.monotonic() < deadline, "the node does not do it"
            if time.monotonic() > again:
                publish()
                again = time.monotonic() + 0.1
            self.node.spin_once()
            self.executor.spin_once(timeout_sec=0.0)


@contextmanager
def make_ends(
    setpoint: Any, agent: Any, target: TargetVelocity | None = None, rate: float = 20.0, timeout: float = PATIENCE
) -> Iterator[Ends]:
    steps = OnboardSteps(lambda: agent, StepTiming(rate=rate, timeout=timeout))
    topic = {"acceleration": "accelerations", "velocity": "velocities"}[setpoint]
    settings = Ros2Settings(5, setpoint=setpoint, setpoint_topic=topic)
    with Ros2Node(steps, settings, target) as node:
        ends = Ends(node)
        try:
            yield ends
        finally:
            ends.executor.shutdown()
            ends.context.try_shutdown()


@pytest.fixture
def domain(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep nodes of this process apart from others."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def place(odometry: Any) -> None:
    """Stand at (1, 2), with a velocity of 0.5 ahead, which is +y."""
    odometry.child_frame_id = "base_link"
    odometry.pose.pose.position.x, odometry.pose.pose.position.y = 1.0, 2.0
    odometry.pose.pose.orientation.z = odometry.pose.pose.orientation.w = math.sqrt(0.5)
    odometry.twist.twist.linear.x = 0.5


@needs_no_lark_warning
def test_a_leader_asks_for_its_target_velocity_and_reports_its_state(domain: None) -> None:
    target = TargetVelocity(2, timeout=PATIENCE)
    settings = OnboardAgent(number=5, dimensions=2, period=0.05)
    leader = LeaderAgent(ef.load("starling"), settings, lambda: target.get(time.monotonic()), response=0.05)
    with make_ends("velocity", leader, target) as ends:

        def publish() -> None:
            ends.publish("odom", place)
            ends.publish("cmd_vel", lambda twist: setattr(twist.twist.linear, "x", 0.75))

        def get_setpoints() -> list[Any]:
            return [each for each in ends.received if hasattr(each, "twist") and each.twist.linear.x]

        def get_states() -> list[str]:
            return [each.data for each in ends.received if hasattr(each, "data")]

        ends.spin_until(lambda: bool(get_setpoints()) and "flying" in get_states(), publish)
        setpoint = get_setpoints()[0]
        assert (setpoint.header.frame_id, setpoint.header.stamp.sec > 0) == ("map", True)
        velocity = setpoint.twist.linear
        assert (velocity.x, velocity.y, velocity.z) == pytest.approx((0.75, 0.0, 0.0), abs=1e-12)


def get_vectors(ends: Ends) -> list[tuple[float, float]]:
    """Return the set-points that have been received."""
    stamped = [each for each in ends.received if hasattr(each, "header")]
    vectors = [(each.accel if hasattr(each, "accel") else each.twist).linear for each in stamped]
    return [(each.x, each.y) for each in vectors]


@needs_no_lark_warning
@pytest.mark.parametrize(("setpoint", "expected"), [("acceleration", (0.0, -0.25)), ("velocity", (0.0, 0.0))])
def test_a_robot_whose_odometry_comes_brakes_at_the_end_until_it_stands(
    setpoint: Any, expected: tuple[float, float], domain: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("equiflock.deployment.ros2_node.STOP_SECONDS", PATIENCE)
    leader = LeaderAgent(ef.load("starling"), OnboardAgent(number=5, dimensions=2, period=0.5), lambda: (9.0, 9.0))
    with make_ends(setpoint, leader, rate=2.0) as ends:
        ends.spin_until(lambda: bool(get_vectors(ends)), lambda: ends.publish("odom", place))
        # The measurement of this moment is newer than two periods, of a second.
        ends.publish("odom", place)
        ends.received.clear()
        stop = threading.Thread(target=ends.node.stop)
        stop.start()
        deadline = time.monotonic() + PATIENCE
        while stop.is_alive():
            assert time.monotonic() < deadline, "the robot does not end its flight"
            # Once it brakes, it stands.
            if get_vectors(ends):
                ends.publish("odom", lambda odometry: None)
            ends.executor.spin_once(timeout_sec=0.05)
        stop.join()
        while len(get_vectors(ends)) < 2 and time.monotonic() < deadline:
            ends.executor.spin_once(timeout_sec=0.05)
    assert get_vectors(ends)[0] == pytest.approx(expected, abs=1e-9)
    assert get_vectors(ends)[-1] == (0.0, 0.0)


@needs_no_lark_warning
@pytest.mark.parametrize(("setpoint", "count"), [("acceleration", 0), ("velocity", 3)])
def test_a_silent_robot_gets_zero_velocities_but_no_accelerations(setpoint: Any, count: int, domain: None) -> None:
    leader = LeaderAgent(ef.load("starling"), OnboardAgent(number=5, dimensions=2, period=0.05), lambda: (9.0, 9.0))
    with make_ends(setpoint, leader, timeout=0.3) as ends:
        ends.spin_until(lambda: bool(get_vectors(ends)), lambda: ends.publish("odom", place))
        ends.spin_until(lambda: ends.node.steps.state == "silent", lambda: None)
        ends.node.spin_once()
        ends.received.clear()
        silent_until = time.monotonic() + 0.3
        ends.spin_until(lambda: len(get_vectors(ends)) >= count and time.monotonic() > silent_until, lambda: None)
        ends.node.stop()
        ends.executor.spin_once(timeout_sec=0.1)
    assert set(get_vectors(ends)) == ({(0.0, 0.0)} if count else set())


@needs_no_lark_warning
def test_odometry_in_another_frame_ends_the_node_with_one_line(domain: None) -> None:
    leader = LeaderAgent(ef.load("starling"), OnboardAgent(number=5, dimensions=2, period=0.05), lambda: (0.0, 0.0))
    with make_ends("acceleration", leader) as ends:
        wrong = functools.partial(ends.publish, "odom", lambda each: setattr(each.header, "frame_id", "odom"))
        with pytest.raises(InputError, match="odometry must be in the frame 'map'"):
            ends.spin_until(lambda: False, wrong)


@needs_no_lark_warning
def test_a_robot_with_the_same_number_is_reported_once(domain: None, capfd: pytest.CaptureFixture[str]) -> None:
    make = [OnboardAgent(number=5, dimensions=2, period=0.05, group=group) for group in (0, 1)]
    leader, double = (LeaderAgent(ef.load("starling"), settings, lambda: (0.0, 0.0)) for settings in make)
    message = double.begin((0.0, 0.0), (0.0, 0.0))
    with make_ends("acceleration", leader) as ends:

        def publish() -> None:
            ends.publish("odom", place)
            ends.publish("/flock", lambda each: setattr(each, "data", message))

        ends.spin_until(lambda: ends.node.steps.counts.dropped.total() > 2, publish)
    assert capfd.readouterr().err.count("another robot sends as number 5") == 1


@pytest.mark.slow
@pytest.mark.flaky(reruns=1)  # a busy machine may delay a process by many seconds
@needs_no_lark_warning
def test_nodes_fly_as_the_simulator_and_stop_without_odometry(variables: dict[str, str], domain: None) -> None:
    controller: Any = ef.load(CONTROLLER)
    start = ef.random_disk(flocks=1, agents=ROBOTS, seed=0, comm_radius=COMM_RADIUS, max_speed=1.0)
    swarm = SwarmHost(start, controller, 1 / RATE, Environment(), None)
    parity = Parity(controller, 1 / RATE, read_program(controller, 2))
    options = f"--controller {CONTROLLER} --rate {RATE} --step-on-measurement --agents {ROBOTS}".split()
    options += f"--listen {LISTEN * RATE:g} --timeout {TIMEOUT:g}".split()
    with Host(ROBOTS) as host, run_nodes(ROBOTS, *options, variables=variables) as nodes:
        host.wait_for_nodes()
        flock = swarm.moment.flock
        failed = find_each_other(host, flock.positions[0], flock.velocities[0])
        # After silence, all begin anew with the same step.
        fall_silent(host)
        for _ in range(STEPS):
            flock = swarm.moment.flock
            commands = fly_step(host, flock.positions[0], flock.velocities[0])
            assert commands is not None, f"a node sent no set-point at step {swarm.moment.step}"
            parity.compare(swarm.moment, commands)
            swarm.advance(commands)
        counts = np.array([parse_counts(printed) for printed, _ in stop_nodes(nodes)])
    assert [node.returncode for node in nodes] == [0] * ROBOTS
    assert parity.summary.startswith(f"yes: {STEPS * ROBOTS} of {STEPS * ROBOTS} accelerations")
    steps, missed, silences, sent, received, dropped = counts.T
    assert (steps > STEPS).all() and (steps == sent).all()
    # After the first steps, every one had its set-points.
    assert (missed <= failed).all() and dropped.sum() == 0
    assert (silences == 1).all()
    assert (received >= STEPS * (ROBOTS - 1)).all()
    assert parity.largest_difference < 1e-4
