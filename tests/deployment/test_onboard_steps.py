"""The steps of a robot's agent: their timing, silence, gaps and counts, without a clock and without a network."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest

from equiflock._runtime.checks import InputError
from equiflock.controllers.safety_limits import SafetyLimits
from equiflock.deployment.onboard_steps import OnboardSteps, Setpoint, StepTiming

PERIOD, LISTEN = 0.1, 0.05
PLACE, SPEED = (1.0, 2.0), (0.5, 0.25)


class EchoAgent:
    """An agent that accelerates by the number of messages it has received in a step."""

    def __init__(self) -> None:
        self.step = 0
        self.received: list[bytes] = []

    def begin(self, position: Any, velocity: Any) -> bytes:
        self.measured = position, velocity
        return make_message(0, self.step)

    def receive(self, message: bytes) -> str | None:
        if len(message) != 12:
            return "wrong length"
        self.received.append(message)
        return None

    def end(self) -> list[float]:
        self.step += 1
        count, self.received = len(self.received), []
        return [float(count), -1.0]


def make_message(sender: int, step: int = 0) -> bytes:
    return struct.pack("<2sBBII", b"EF", 1, 0, sender, step)


def make_steps(**timing: Any) -> OnboardSteps:
    return OnboardSteps(EchoAgent, StepTiming(**{"rate": 1 / PERIOD, **timing}))


def end_step(steps: OnboardSteps, now: float) -> Setpoint:
    setpoint = steps.advance(now).setpoint
    assert setpoint is not None
    return setpoint


def fly(steps: OnboardSteps, start: float, count: int) -> list[Any]:
    """Measure and advance at the beginning and the end of steps. Return the set-points."""
    setpoints = []
    for k in range(count):
        steps.measure(PLACE, SPEED, start + k * PERIOD)
        assert steps.advance(start + k * PERIOD).message is not None
        setpoints.append(steps.advance(start + k * PERIOD + LISTEN).setpoint)
    return setpoints


def test_nothing_is_sent_before_the_first_measurement() -> None:
    steps = make_steps()
    assert steps.advance(5.0) == (None, None)
    assert steps.state == "waiting" and steps.next_time == math.inf


def test_a_step_sends_its_message_at_once_and_its_setpoint_after_listening() -> None:
    steps = make_steps()
    steps.measure(PLACE, SPEED, 1.0)
    assert steps.advance(1.0) == (make_message(0, 0), None)
    assert steps.next_time == pytest.approx(1.0 + LISTEN)
    assert steps.receive(make_message(7), 1.01) is None
    assert steps.advance(1.0 + LISTEN - 1e-6) == (None, None)
    setpoint = end_step(steps, 1.0 + LISTEN)
    assert setpoint.acceleration == (1.0, -1.0)
    assert setpoint.velocity == pytest.approx((0.5 + 0.1, 0.25 - 0.1))
    assert steps.next_time == pytest.approx(1.0 + PERIOD)


def test_steps_keep_the_rate_although_each_begins_a_little_late() -> None:
    steps = make_steps()
    for k in range(50):
        now = k * PERIOD + (0.01 if k else 0.0)
        steps.measure(PLACE, SPEED, now)
        assert steps.advance(now).message is not None
        assert steps.advance(now + LISTEN).setpoint is not None
        assert steps.next_time == pytest.approx((k + 1) * PERIOD)
    assert steps.counts.missed_steps == 0 and steps.counts.steps == 50


def test_messages_between_two_steps_are_used_in_the_next_one() -> None:
    steps = make_steps()
    fly(steps, 0.0, 1)
    steps.receive(make_message(7), 0.07)
    assert fly(steps, PERIOD, 1)[0].acceleration == (1.0, -1.0)


def test_messages_before_the_first_measurement_are_used_unless_they_are_old() -> None:
    steps = make_steps()
    steps.receive(make_message(7), 1.0)
    steps.receive(make_message(8), 1.05)
    assert fly(steps, 1.11, 1)[0].acceleration == (1.0, -1.0)
    assert steps.counts.received == 1


def test_a_message_that_was_read_too_late_is_dropped() -> None:
    steps = make_steps()
    steps.measure(PLACE, SPEED, 0.0)
    steps.advance(0.0)
    assert steps.receive(make_message(7), 0.01, age=0.09) is None
    assert steps.receive(make_message(8), 0.01, age=0.11) == "waited for longer than a step to be read"
    assert (steps.counts.received, steps.counts.dropped.total()) == (1, 1)
    assert end_step(steps, LISTEN).acceleration == (1.0, -1.0)


def test_a_step_ends_early_when_all_others_have_been_received() -> None:
    steps = make_steps(agents=3)
    steps.measure(PLACE, SPEED, 0.0)
    steps.advance(0.0)
    for message in (make_message(7), make_message(7, 1)):
        steps.receive(message, 0.01)
        assert steps.advance(0.01).setpoint is None
    steps.receive(make_message(8), 0.02)
    assert steps.next_time < 0.02
    assert steps.advance(0.02).setpoint is not None


def test_a_step_for_which_all_messages_came_early_ends_at_once() -> None:
    steps = make_steps(agents=2)
    assert all(fly(steps, 0.0, 1))
    steps.receive(make_message(7), 0.06)
    steps.measure(PLACE, SPEED, PERIOD)
    assert steps.advance(PERIOD).message is not None
    assert steps.next_time < PERIOD
    assert steps.advance(PERIOD).setpoint is not None


def test_after_missed_steps_a_new_agent_goes_on_with_a_later_step() -> None:
    steps = make_steps()
    fly(steps, 0.0, 3)
    agent = steps.agent
    steps.measure(PLACE, SPEED, 0.52)
    assert steps.advance(0.52).message == make_message(0, 5)
    assert steps.agent is not agent
    assert steps.counts.missed_steps == 2


def test_a_setpoint_after_the_period_counts_as_missed_but_keeps_the_agent() -> None:
    steps = make_steps()
    steps.measure(PLACE, SPEED, 0.0)
    steps.advance(0.0)
    agent = steps.agent
    steps.measure(PLACE, SPEED, 0.12)
    message, setpoint = steps.advance(0.12)
    assert setpoint is not None and message == make_message(0, 1)
    assert steps.agent is agent and steps.counts.missed_steps == 1


def test_a_setpoint_that_is_two_periods_late_is_not_sent() -> None:
    steps = make_steps()
    steps.measure(PLACE, SPEED, 0.0)
    steps.advance(0.0)
    steps.measure(PLACE, SPEED, 0.31)
    message, setpoint = steps.advance(0.31)
    assert setpoint is None and message is not None
    assert steps.counts.missed_steps == 3 and steps.counts.steps == 0


def test_a_robot_without_measurements_is_asked_to_stop_once_per_period() -> None:
    steps = make_steps()
    fly(steps, 0.0, 2)
    # The last measurement was at 0.1.
    while (now := steps.next_time) < 0.6 - 1e-9:
        assert steps.advance(now).setpoint is None or steps.state == "flying"
    setpoints = [steps.advance(0.6 + 0.05 * k).setpoint for k in range(5)]
    assert [each is not None for each in setpoints] == [True, False, True, False, True]
    # Without its velocity, no acceleration stops it.
    assert setpoints[0] == (None, (0.0, 0.0))
    assert steps.state == steps.description == "silent" and steps.counts.silences == 1


class RestartingAgent(EchoAgent):
    """An agent with limits, which goes on after a gap."""

    restarts = 0
    state = "OK"

    def restart(self) -> None:
        self.restarts, self.received = self.restarts + 1, []


def test_an_agent_that_can_restart_goes_on_after_a_gap_and_after_silence() -> None:
    steps: Any = OnboardSteps(RestartingAgent, StepTiming(rate=1 / PERIOD))
    agent = steps.agent
    fly(steps, 0.0, 3)
    fly(steps, 0.52, 1)
    assert steps.agent is agent and agent.restarts == 1 and agent.step == 6
    assert steps.advance(2.0).message is None and steps.state == "silent"
    fly(steps, 3.0, 1)
    assert steps.agent is agent and agent.restarts == 2


@pytest.mark.parametrize("make", [EchoAgent, RestartingAgent])
def test_messages_that_arrive_before_a_late_step_are_used_in_it(make: Any) -> None:
    steps = OnboardSteps(make, StepTiming(rate=1 / PERIOD, agents=3))
    fly(steps, 0.0, 1)
    steps.receive(make_message(8), 0.06, age=0.01)
    steps.receive(make_message(7), 0.16)
    steps.measure(PLACE, SPEED, 0.21)
    # The step began more than a period late, when the first message was too old.
    assert steps.advance(0.21).message == make_message(0, 2)
    assert steps.next_time == pytest.approx(0.21 + LISTEN)
    assert end_step(steps, 0.21 + LISTEN).acceleration == (1.0, -1.0)
    assert steps.counts.received == 1


def test_a_velocity_setpoint_starts_from_the_velocity_with_which_the_step_began() -> None:
    steps = make_steps()
    steps.measure(PLACE, SPEED, 0.0)
    steps.advance(0.0)
    steps.measure(PLACE, (0.9, 0.25), 0.04)
    assert end_step(steps, LISTEN).velocity == pytest.approx((0.5, 0.25 - 0.1))


def test_the_velocity_setpoint_of_an_invalid_state_is_zero() -> None:
    steps = OnboardSteps(RestartingAgent, StepTiming(rate=1 / PERIOD))
    steps.agent.state = "INVALID"  # type: ignore[attr-defined]
    steps.measure(PLACE, SPEED, 0.0)
    steps.advance(0.0)
    assert end_step(steps, LISTEN) == ((0.0, -1.0), (0.0, 0.0))


@pytest.mark.parametrize("begins_on_measurement", [False, True])
def test_a_loop_that_never_ends_a_step_in_time_falls_silent(begins_on_measurement: bool) -> None:
    steps = make_steps(begins_on_measurement=begins_on_measurement)
    states = []
    for k in range(5):
        now = 0.21 * k
        if steps.state != "silent":
            steps.measure(PLACE, SPEED, now)
        assert steps.advance(now).setpoint in (None, (None, (0.0, 0.0)))
        states.append(steps.state)
    # After the timeout of 0.5.
    assert states == ["flying"] * 3 + ["silent"] * 2
    assert steps.is_slow and steps.counts.silences == 1


def test_a_step_that_takes_longer_than_the_timeout_is_not_slow() -> None:
    steps = make_steps(timeout=0.04, listen=0.9)
    steps.measure(PLACE, SPEED, 0.0)
    steps.advance(0.0)
    for now in (0.03, 0.06, 0.095):
        steps.measure(PLACE, SPEED, now)
        setpoint = steps.advance(now).setpoint
    assert setpoint is not None and steps.state == "flying"


def test_a_brake_is_against_a_measured_velocity_and_within_the_limits() -> None:
    steps = OnboardSteps(EchoAgent, StepTiming(rate=1 / PERIOD), SafetyLimits(max_acceleration=2.0))
    assert steps.make_brake(0.0) is None
    steps.measure(PLACE, (0.4, -0.2), 0.0)
    brake = steps.make_brake(0.1)
    assert brake is not None and brake.acceleration == pytest.approx((-1.0, 0.5)) and brake.velocity == (0.0, 0.0)
    steps.measure(PLACE, (30.0, 40.0), 0.1)
    brake = steps.make_brake(0.1)
    assert brake is not None and brake.acceleration == pytest.approx((-1.2, -1.6))
    # A velocity that is two periods old, and a robot that stands.
    assert steps.make_brake(0.31) is None
    steps.measure(PLACE, (0.01, 0.0), 0.3)
    assert steps.make_brake(0.31) is None
    assert steps.make_last_setpoint() == ((0.0, 0.0), (0.0, 0.0))


def test_after_silence_a_new_agent_begins_with_the_next_measurement() -> None:
    steps = make_steps()
    fly(steps, 0.0, 2)
    agent = steps.agent
    steps.advance(0.7)
    steps.receive(make_message(7), 0.8)
    steps.receive(make_message(8), 8.95)
    steps.measure(PLACE, SPEED, 9.0)
    message = steps.advance(9.0).message
    assert steps.agent is not agent and steps.state == "flying"
    assert struct.unpack_from("<2sBBII", message or b"")[4] > 1
    # The message of 0.8 is too old.
    assert end_step(steps, 9.0 + LISTEN).acceleration == (1.0, -1.0)


def test_with_measurements_as_the_clock_each_begins_a_step() -> None:
    steps = make_steps(begins_on_measurement=True, listen=0.5)
    for k, now in enumerate([0.0, 0.03, 0.3]):
        steps.measure(PLACE, SPEED, now)
        message, setpoint = steps.advance(now)
        assert message == make_message(0, k)
        # The second ends the first step, which is then late; the third comes after the end of the second.
        assert (setpoint is not None) == (k == 1)
        assert steps.next_time == pytest.approx(now + LISTEN)
        if k == 1:
            assert steps.advance(now + LISTEN).setpoint is not None
    assert steps.counts.missed_steps == 1


def test_copies_of_own_messages_are_ignored_and_others_are_counted_by_reason() -> None:
    steps = make_steps()
    steps.measure(PLACE, SPEED, 0.0)
    own = steps.advance(0.0).message
    assert own is not None and steps.receive(own, 0.01) is None
    assert steps.receive(b"EF", 0.01) == "wrong length"
    assert (steps.counts.received, steps.counts.dropped) == (0, {"wrong length": 1})
    assert "0 received, 1 dropped (wrong length: 1)" in steps.counts.summary


def test_the_state_of_an_agent_that_has_one_is_part_of_the_description() -> None:
    steps = make_steps()
    steps.agent.state = "limited"  # type: ignore[attr-defined]
    assert steps.description == "waiting"
    fly(steps, 0.0, 1)
    assert steps.description == "flying, limited"


@pytest.mark.parametrize(
    ("timing", "expected"),
    [
        ({"rate": 0.0}, "rate must be"),
        ({"timeout": -1.0}, "timeout must be"),
        ({"listen": 1.0}, "listen must be below 1,"),
        ({"listen": 5.0, "begins_on_measurement": True}, r"listen must be below timeout \* rate = 5,"),
        ({"agents": 0}, "agents must be"),
    ],
)
def test_wrong_timing_is_an_error(timing: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        StepTiming(**{"rate": 10.0, **timing})
