"""A flock of ROS 2 nodes in real time: `equiflock ros2` for each of 8 robots at 20 Hz; missed steps and messages.

python benchmarks/ros2.py

Each robot is a process of its own, with its own clock. This one moves the bodies 50 times a second, by the set-points
that it last received, and publishes odometry.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import equiflock as ef
from equiflock.cli.terminal import out, print_table

FLIGHTS, ROBOTS, RATE, STEPS, MOVES_PER_SECOND = 3, 8, 20, 200, 50
COMM_RADIUS = 3.0
CONTROLLER = f"starling:comm_radius={COMM_RADIUS:g}:time_scale=8"
EXIT_TIMEOUT = 20.0
"""Seconds that a node may take to end."""
START_TIMEOUT = 60.0
"""Seconds that nodes may take to start and to find each other."""
MAX_ACCELERATION = 4.0
MAX_DOMAIN = 101
"""Domains of ROS 2 up to this one have ports outside of those that the system gives away."""


def make_environment(domain: int, log_dir: str | Path) -> dict[str, str]:
    """Return variables of ROS 2 that keep nodes on this machine, and apart from others with another domain.

    Logs are in `log_dir`, and there is no shared memory, whose files would outlive a killed process.
    """
    return {
        "ROS_DOMAIN_ID": str(domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "ROS_LOG_DIR": str(log_dir),
        "FASTDDS_BUILTIN_TRANSPORTS": "UDPv4",
    }


class Host:
    """Robots as their ROS 2 nodes see them: publishes odometry and receives set-points of `/robot0`, `/robot1`, ..."""

    def __init__(self, robots: int) -> None:
        import rclpy
        from geometry_msgs.msg import AccelStamped
        from nav_msgs.msg import Odometry
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.qos import DurabilityPolicy, QoSProfile
        from std_msgs.msg import String

        self._context, self._odometry_type = rclpy.Context(), Odometry
        rclpy.init(context=self._context)
        self._node = rclpy.create_node("host", context=self._context, start_parameter_services=False)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self.setpoints: list[list[tuple[float, float, float]]] = [[] for _ in range(robots)]
        """Accelerations received, by robot."""
        self.states = [""] * robots
        """The last state of each node."""
        kept = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._publishers = [self._node.create_publisher(Odometry, f"/robot{i}/odom", 10) for i in range(robots)]
        for i in range(robots):
            self._node.create_subscription(AccelStamped, f"/robot{i}/setpoint", self._make_callback(i), 100)
            topic = f"/robot{i}/equiflock_{i}/state"
            self._node.create_subscription(String, topic, partial(self._keep_state, i), kept)

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *error: object) -> None:
        self._executor.shutdown()
        self._node.destroy_node()
        self._context.try_shutdown()

    def publish(self, positions: Any, velocities: Any) -> None:
        """Publish the odometry of all robots, whose headings differ: the twist is in the frame of the robot."""
        for i, publisher in enumerate(self._publishers):
            odometry, yaw = self._odometry_type(), 0.7 * i
            odometry.header.frame_id, odometry.child_frame_id = "map", "base_link"
            odometry.header.stamp = self._node.get_clock().now().to_msg()
            pose, twist = odometry.pose.pose, odometry.twist.twist.linear
            pose.position.x, pose.position.y = map(float, positions[i])
            pose.orientation.z, pose.orientation.w = math.sin(0.5 * yaw), math.cos(0.5 * yaw)
            x, y = map(float, velocities[i])
            twist.x, twist.y = math.cos(yaw) * x + math.sin(yaw) * y, math.cos(yaw) * y - math.sin(yaw) * x
            publisher.publish(odometry)

    def wait_for_nodes(self) -> None:
        """Wait until odometry has a subscriber on each robot, and set-points a publisher."""
        deadline = time.monotonic() + START_TIMEOUT
        while not all(each.get_subscription_count() for each in self._publishers) or not all(
            self._node.count_publishers(f"/robot{i}/setpoint") for i in range(len(self._publishers))
        ):
            assert time.monotonic() < deadline, "some nodes did not start"
            self.spin(0.05)

    def spin(self, seconds: float) -> None:
        """Receive for some time, at most one message."""
        self._executor.spin_once(timeout_sec=max(seconds, 0.0))

    def _keep_state(self, robot: int, state: Any) -> None:
        self.states[robot] = state.data

    def _make_callback(self, robot: int) -> Any:
        def keep(setpoint: Any) -> None:
            vector = setpoint.accel.linear
            self.setpoints[robot].append((vector.x, vector.y, vector.z))

        return keep


@contextmanager
def run_nodes(robots: int, *options: str, variables: dict[str, str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Start `equiflock ros2` with these options for robots 0, 1, ...; kill those that the block has not stopped."""
    command = sys.executable, "-m", "equiflock", "ros2"
    nodes = [
        subprocess.Popen(
            [*command, "--number", str(i), *options, "--ros-args", "-r", f"__ns:=/robot{i}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        for i in range(robots)
    ]
    try:
        yield nodes
    finally:
        for node in nodes:
            node.kill()
            node.communicate()


def stop_nodes(nodes: Sequence[subprocess.Popen[str]]) -> list[tuple[str, str]]:
    """Stop nodes by Ctrl-C. Return what each has printed, on standard output and on standard error."""
    for node in nodes:
        node.send_signal(signal.SIGINT)
    return [node.communicate(timeout=EXIT_TIMEOUT) for node in nodes]


def parse_counts(printed: str) -> tuple[int, ...]:
    """Return steps, missed steps, silences, and messages sent, received and dropped, from the summary of a node."""
    summary = next(line for line in printed.splitlines() if " steps, " in line)
    return tuple(int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", summary.partition(":")[2])[:6])


def compute_variance(velocities: Any) -> float:
    """Return the mean squared distance of velocities from their mean."""
    return float(np.square(velocities - velocities.mean(axis=0)).sum(axis=1).mean())


def fly(seed: int, variables: dict[str, str]) -> list[str]:
    """Fly a flock in real time. Return a row of the table."""
    flock = ef.random_disk(flocks=1, agents=ROBOTS, seed=seed, comm_radius=COMM_RADIUS, max_speed=1.0)
    positions, velocities = flock.positions[0].copy(), flock.velocities[0].copy()
    options = "--controller", CONTROLLER, "--rate", str(RATE)
    late_moves = 0
    with Host(ROBOTS) as host, run_nodes(ROBOTS, *options, variables=variables) as nodes:
        host.wait_for_nodes()
        tick = time.monotonic()
        while min(map(len, host.setpoints)) < STEPS:
            host.publish(positions, velocities)
            tick += 1.0 / MOVES_PER_SECOND
            if (late := time.monotonic() - tick) > 0.0:
                late_moves, tick = late_moves + 1, tick + late
            while (left := tick - time.monotonic()) > 0.0:
                host.spin(left)
            accelerations = np.array([each[-1][:2] if each else (0.0, 0.0) for each in host.setpoints])
            positions += velocities / MOVES_PER_SECOND
            velocities += np.clip(accelerations, -MAX_ACCELERATION, MAX_ACCELERATION) / MOVES_PER_SECOND
        printed = [text for text, _ in stop_nodes(nodes)]
    made, missed, silences, sent, received, _ = np.sum([parse_counts(text) for text in printed], axis=0)
    return [
        str(seed),
        f"{missed:,} of {made + missed:,}",
        str(silences),
        f"{received / (sent * (ROBOTS - 1)):.1%}",
        f"{compute_variance(flock.velocities[0]):.3f}",
        f"{compute_variance(velocities):.5f}",
        str(late_moves),
    ]


def main() -> None:
    header = "seed", "missed", "silences", "received", "variance", "at the end", "late moves"
    with TemporaryDirectory() as folder:
        variables = make_environment(1 + os.getpid() % MAX_DOMAIN, folder)
        os.environ.update(variables)
        rows = [fly(seed, variables) for seed in range(FLIGHTS)]
    print_table(f"{ROBOTS} ROS 2 nodes at {RATE} Hz under {CONTROLLER}", (header, rows))
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    out.print(f"{os.cpu_count()} cores; load average over 1, 5 and 15 minutes, including ours: {load}", highlight=False)


if __name__ == "__main__":
    main()
