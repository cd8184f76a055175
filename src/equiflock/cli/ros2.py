"""`equiflock ros2`."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from equiflock._runtime.checks import InputError
from equiflock.cli.interrupts import defer_signals
from equiflock.cli.onboard_options import OnboardOptions
from equiflock.cli.terminal import print_line
from equiflock.deployment.onboard_agent import TargetVelocity
from equiflock.deployment.ros2_node import Ros2Node, Ros2Settings, check_ros2

ROS_OPTION = "--ros-args"


@dataclass(frozen=True)
class Ros2(OnboardOptions):
    """Fly one robot of a flock as a ROS 2 node.

    The node reads nav_msgs/Odometry, exchanges messages with the other robots on a topic (std_msgs/UInt8MultiArray),
    and publishes set-points: geometry_msgs/AccelStamped, or TwistStamped for velocities. Messages are checked, but not
    authenticated. Without odometry for --timeout seconds, velocity set-points are zero, and there are no acceleration
    set-points: no acceleration stops a robot whose velocity is unknown, so its own watchdog must. At Ctrl-C or SIGTERM
    the robot brakes, for a second at most, as long as odometry comes.
    """

    leader: bool = False
    """Lead: follow the target velocity, zero if it is older than --timeout, and send messages without observations."""
    frame: str = "map"
    """Frame that all robots share: the frame_id of odometry, set-points and target velocities."""
    odometry_topic: str = "odom"
    """Topic of the robot's odometry: the pose in --frame, the twist in the frame child_frame_id."""
    setpoint_topic: str = "setpoint"
    """Topic of the set-points."""
    flock_topic: str = "/flock"
    """Topic of the messages between robots, the same for all."""
    velocity_topic: str = "cmd_vel"
    """Topic of the target velocity, a TwistStamped in --frame; for a leader."""
    ros_args: str = ""
    """Arguments of ROS 2 follow as the last of the command line: --ros-args -r __ns:=/robot7 -r odom:=odometry."""

    def run(self) -> None:
        """Run the node until Ctrl-C, stop the robot and print a summary."""
        timing, settings = self.make_timing(), self._make_settings()
        check_ros2()
        target = TargetVelocity(self.dimensions, self.timeout) if self.leader else None
        get_target = None if target is None else lambda: target.get(time.monotonic())
        # Ctrl-C is the normal way to stop a node, not an error.
        with (
            suppress(KeyboardInterrupt),
            self.open_steps(timing, get_target) as steps,
            defer_signals() as get_signal,
            Ros2Node(steps, settings, target) as node,
        ):
            try:
                node.run(lambda: get_signal() is not None)
            finally:
                print_line(f"robot {settings.number}: {steps.counts.summary}")
            if get_signal() == signal.SIGTERM:
                sys.exit(128 + signal.SIGTERM)

    def _make_settings(self) -> Ros2Settings:
        return Ros2Settings(
            number=self.make_agent_settings().number,
            dimensions=self.dimensions,
            setpoint=self.setpoint,
            frame=self.frame,
            odometry_topic=self.odometry_topic,
            setpoint_topic=self.setpoint_topic,
            flock_topic=self.flock_topic,
            velocity_topic=self.velocity_topic,
            ros_arguments=(ROS_OPTION, *shlex.split(self.ros_args)) if self.ros_args else (),
        )


def join_ros_arguments(arguments: Sequence[str]) -> list[str]:
    """Return a command line in which the words after --ros-args, up to -- or the end, are one value of this option.

    ROS 2 has options such as -r and -p, which the command does not know.
    """
    words = list(arguments)
    if ROS_OPTION not in words:
        return words
    begin = words.index(ROS_OPTION)
    end = words.index("--", begin) if "--" in words[begin:] else len(words)
    if ROS_OPTION in words[end:]:
        raise InputError(f"{ROS_OPTION} must be given once, followed by all arguments of ROS 2")
    return [*words[:begin], f"{ROS_OPTION}={shlex.join(words[begin + 1 : end])}", *words[end + 1 :]]
