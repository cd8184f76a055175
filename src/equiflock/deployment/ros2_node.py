"""The ROS 2 node of one robot: odometry and messages of the flock in, set-points and messages out.

`Ros2Node` imports rclpy when it is made. The functions that read messages do without, so they are tested without ROS 2.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from equiflock._runtime.checks import InputError, shorten_repr
from equiflock._runtime.imports import require_modules
from equiflock.deployment.coordinates import is_orientation, rotate_by_quaternion
from equiflock.deployment.onboard_agent import TargetVelocity
from equiflock.deployment.onboard_steps import OnboardSteps, Output, SetpointKind

MODULES = ("rclpy", "geometry_msgs", "nav_msgs", "std_msgs")
FLOCK_DEPTH = 256
"""Messages of the flock, of all senders together, that wait for the node; the 5 of ROS 2's sensor data lose some."""
LONGEST_WAIT = 0.1
"""Seconds after which the node notices Ctrl-C at the latest."""
STOP_SECONDS = 1.0
"""Longest time for which a robot brakes at the end, in seconds."""
OWN_NUMBER_REASON = "sender has this agent's own number"


@dataclass(frozen=True)
class Ros2Settings:
    """Names and frames of a node. Names of topics without a leading / are in the node's namespace."""

    number: int
    dimensions: int = 2
    setpoint: SetpointKind = "acceleration"
    frame: str = "map"
    """Frame that all robots share, in which odometry and set-points are."""
    odometry_topic: str = "odom"
    setpoint_topic: str = "setpoint"
    flock_topic: str = "/flock"
    velocity_topic: str = "cmd_vel"
    ros_arguments: tuple[str, ...] = ()
    """Arguments of ROS 2, such as --ros-args -r __ns:=/robot7."""


def read_odometry(odometry: Any, frame: str, dimensions: int) -> tuple[list[float], list[float]] | str:
    """Return position and velocity of a nav_msgs/Odometry in `frame`, D numbers each, or why it is not usable.

    The twist is in the frame `child_frame_id`, which the pose's orientation rotates into `frame`. Raise InputError if
    the pose is in another frame.
    """
    check_frame("odometry", odometry.header.frame_id, frame)
    place, orientation, speed = odometry.pose.pose.position, odometry.pose.pose.orientation, odometry.twist.twist.linear
    position, velocity = [place.x, place.y, place.z], [speed.x, speed.y, speed.z]
    if not all(map(math.isfinite, [*position, *velocity])):
        return "a position or velocity is not finite"
    if odometry.child_frame_id != frame:
        quaternion = orientation.x, orientation.y, orientation.z, orientation.w
        if not is_orientation(quaternion):
            return "the orientation is not a quaternion of norm 1"
        velocity = list(rotate_by_quaternion(velocity, quaternion))
    return position[:dimensions], velocity[:dimensions]


def read_velocity(twist: Any, frame: str, dimensions: int) -> list[float] | str:
    """Return the velocity of a geometry_msgs/TwistStamped, D numbers, or why it is not usable.

    Raise InputError if it is in another frame than `frame`.
    """
    check_frame("the target velocity", twist.header.frame_id, frame)
    velocity = [twist.twist.linear.x, twist.twist.linear.y, twist.twist.linear.z]
    if not all(map(math.isfinite, velocity)):
        return "a velocity is not finite"
    return velocity[:dimensions]


def compute_age(info: Mapping[str, Any]) -> float:
    """Return for how many seconds a message of ROS 2 has waited in the queue of its subscription; 0 if unknown."""
    received = info.get("received_timestamp") or 0
    return max(time.time_ns() - received, 0) / 1e9 if received else 0.0


def check_frame(name: str, frame_id: str, frame: str) -> None:
    """Raise InputError if a message is in another frame than the one that the robots share."""
    if frame_id != frame:
        raise InputError(
            f"{name} must be in the frame {frame!r}, which all robots share, but its frame_id is "
            f"{shorten_repr(frame_id)}: transform it, or name the frame of all robots with --frame"
        )


def check_ros2() -> None:
    """Raise InputError if rclpy or one of the message packages is missing or does not load."""
    try:
        require_modules("ros2", "ros2", *MODULES)
    except InputError as error:
        raise InputError(f"{error}, or source the setup file of a ROS 2 installation") from None
    try:
        import rclpy  # noqa: F401
    except ImportError as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"rclpy does not load ({reason}): source the setup file of the ROS 2 installation, or start a new shell"
        ) from None


class Ros2Node:
    """A node that runs the steps of a robot; with a `target`, those of a leader. Use it as a context manager."""

    def __init__(self, steps: OnboardSteps, settings: Ros2Settings, target: TargetVelocity | None = None) -> None:
        check_ros2()
        import rclpy
        from rclpy.executors import SingleThreadedExecutor
        from rclpy.signals import SignalHandlerOptions

        self.steps, self.settings, self.target = steps, settings, target
        self._context = rclpy.Context()
        try:
            # The command handles signals.
            rclpy.init(
                args=list(settings.ros_arguments),
                context=self._context,
                signal_handler_options=SignalHandlerOptions.NO,
            )
            self._node = rclpy.create_node(
                f"equiflock_{settings.number}", context=self._context, start_parameter_services=False
            )
        except Exception as error:  # rclpy has no common class of errors for wrong arguments
            given, reason = shorten_repr(settings.ros_arguments), " ".join(str(error).split())
            raise InputError(f"ROS 2 does not accept the arguments {given}: {reason}") from None
        self._log = self._node.get_logger()
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._reported: set[str] = set()
        self._description = ""
        self._create_endpoints()

    def __enter__(self) -> Ros2Node:
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the robot if it was asked for anything, and leave ROS 2."""
        try:
            # Odometry in another frame has been reported.
            with suppress(InputError):
                self.stop()
        finally:
            self._executor.shutdown(timeout_sec=STOP_SECONDS)
            self._node.destroy_node()
            self._context.try_shutdown()

    def run(self, should_stop: Callable[[], bool]) -> None:
        """Run the steps until `should_stop`, which is polled ten times a second, or until ROS 2 is shut down."""
        while self._context.ok() and not should_stop():
            self.spin_once()

    def spin_once(self) -> None:
        """Do what is due, and wait for the next time that something is, or for one message."""
        self._publish(self.steps.advance(time.monotonic()))
        self._report_state()
        wait = self.steps.next_time - time.monotonic()
        self._executor.spin_once(timeout_sec=min(max(wait, 0.0), LONGEST_WAIT))

    def stop(self) -> None:
        """Brake as long as odometry comes, for STOP_SECONDS at most, and publish a last set-point of zero.

        A robot that is silent and takes accelerations gets none: its own watchdog has to stop it.
        """
        if self.steps.state == "waiting":
            return
        deadline = time.monotonic() + STOP_SECONDS
        try:
            while self._context.ok() and (tick := time.monotonic()) < deadline:
                brake = self.steps.make_brake(tick)
                if brake is None:
                    break
                self._publish(Output(setpoint=brake))
                while (left := tick + self.steps.timing.period - time.monotonic()) > 0.0:
                    self._executor.spin_once(timeout_sec=left)
        finally:
            if self._context.ok():
                self._publish(Output(setpoint=self.steps.make_last_setpoint()))

    def _create_endpoints(self) -> None:
        """Create publishers and subscriptions. Messages and measurements are best effort: the newest one counts."""
        from geometry_msgs.msg import AccelStamped, TwistStamped
        from nav_msgs.msg import Odometry
        from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
        from std_msgs.msg import String, UInt8MultiArray

        settings, node = self.settings, self._node
        self._setpoint_type = AccelStamped if settings.setpoint == "acceleration" else TwistStamped
        self._message_type, self._state_type = UInt8MultiArray, String
        newest = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        flock = QoSProfile(depth=FLOCK_DEPTH, reliability=ReliabilityPolicy.BEST_EFFORT)
        kept = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._messages = node.create_publisher(UInt8MultiArray, settings.flock_topic, flock)
        self._setpoints = node.create_publisher(self._setpoint_type, settings.setpoint_topic, 10)
        self._states = node.create_publisher(String, "~/state", kept)
        node.create_subscription(UInt8MultiArray, settings.flock_topic, self._receive, flock)
        node.create_subscription(Odometry, settings.odometry_topic, self._measure, newest)
        if self.target is not None:
            node.create_subscription(TwistStamped, settings.velocity_topic, self._set_target, newest)

    def _measure(self, odometry: Any, info: Mapping[str, Any]) -> None:
        measured = read_odometry(odometry, self.settings.frame, self.settings.dimensions)
        if isinstance(measured, str):
            self._warn_once(f"dropped odometry: {measured}")
        else:
            self.steps.measure(*measured, time.monotonic() - compute_age(info))

    def _receive(self, message: Any, info: Mapping[str, Any]) -> None:
        reason = self.steps.receive(bytes(message.data), time.monotonic(), compute_age(info))
        if reason is not None:
            self._log.debug(f"dropped a message: {reason}")
        if reason == OWN_NUMBER_REASON:
            self._warn_once(f"another robot sends as number {self.settings.number}: give each robot its own --number")

    def _set_target(self, twist: Any) -> None:
        assert self.target is not None
        velocity = read_velocity(twist, self.settings.frame, self.settings.dimensions)
        if isinstance(velocity, str):
            self._warn_once(f"dropped target velocity: {velocity}")
        else:
            self.target.set(velocity, time.monotonic())

    def _publish(self, output: Output) -> None:
        """Publish what a step sends."""
        if output.setpoint is not None:
            numbers = getattr(output.setpoint, self.settings.setpoint)
            if numbers is not None:
                self._setpoints.publish(self._make_setpoint(numbers))
        if output.message is not None:
            self._messages.publish(self._message_type(data=output.message))

    def _make_setpoint(self, numbers: Sequence[float]) -> Any:
        """Return the message of a set-point, an AccelStamped or a TwistStamped."""
        setpoint = self._setpoint_type()
        setpoint.header.stamp = self._node.get_clock().now().to_msg()
        setpoint.header.frame_id = self.settings.frame
        vector = (setpoint.accel if self.settings.setpoint == "acceleration" else setpoint.twist).linear
        for axis, number in zip("xyz", numbers, strict=False):
            setattr(vector, axis, number)
        return setpoint

    def _report_state(self) -> None:
        """Log and publish the state if it has changed."""
        description = self.steps.description
        if description != self._description:
            self._description = description
            self._states.publish(self._state_type(data=description))
            topic = self.settings.odometry_topic
            end = "set-points are zero" if self.settings.setpoint == "velocity" else "no more set-points"
            cause = f"no odometry on {topic} for {self.steps.timing.timeout:g} s"
            if self.steps.is_slow:
                cause = f"no step ended in time for {self.steps.longest_debt:g} s (use a lower --rate)"
            details = {
                "waiting": f" for odometry on {topic}",
                "silent": f": {cause}, {end}",
            }
            self._log.info(description + details.get(self.steps.state, ""))

    def _warn_once(self, text: str) -> None:
        """Log a warning, the first time."""
        if text not in self._reported:
            self._reported.add(text)
            self._log.warning(text)
