"""The agent on the robot's computer: the exported one, a leader, and their settings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.deployment.onboard_agent import LeaderAgent, OnboardAgent, TargetVelocity, export_onboard_agent
from equiflock.deployment.onboard_steps import OnboardSteps, StepTiming
from equiflock.deployment.wire_format import Message, decode_message, encode_message, make_zero_hops


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_an_exported_agent_uses_no_message_from_beyond_the_range(tmp_path: Path) -> None:
    controller: Any = ef.load("starling", comm_radius=3.0, time_scale=8.0)
    settings = OnboardAgent(number=1, dimensions=2, period=0.05, max_range=3.0)
    with export_onboard_agent(controller, settings) as make_agent:
        one, other = make_agent(), make_agent()
        hops = make_zero_hops(controller.senses, 2)
        for agent, distance in ((one, 2.9), (other, 3.1)):
            agent.begin((0.0, 0.0), (0.1, 0.0))
            position, velocity = np.array([distance, 0.0], np.float32), np.zeros(2, np.float32)
            assert agent.receive(encode_message(Message(2, 0, position, velocity, hops))) is None
        assert any(one.end()) and not any(other.end())
    assert list(tmp_path.iterdir()) == []


def test_an_exported_agent_keeps_limits_and_counts_silence_by_the_clock_of_its_steps() -> None:
    scaled = ef.load("starling", comm_radius=3.0, time_scale=8.0)
    controller = ef.Safe(scaled, max_acceleration=2.0, max_silence=0.25)
    settings = OnboardAgent(number=1, dimensions=2, period=0.05, delay=0.05)
    with export_onboard_agent(controller, settings) as make_agent:
        steps = OnboardSteps(make_agent, StepTiming(rate=20.0, timeout=1.0))
        descriptions, accelerations = [], []
        for tick in range(8):
            steps.measure((0.0, 0.0), (1.0, 0.0), now=0.05 * tick)
            steps.advance(now=0.05 * tick)
            setpoint = steps.advance(now=0.05 * tick + 0.03).setpoint
            assert setpoint is not None
            accelerations.append(setpoint.acceleration)
            descriptions.append(steps.description)
    assert descriptions == ["flying, ALONE"] * 5 + ["flying, STALE"] * 3
    assert accelerations[:5] == [(0.0, 0.0)] * 5
    assert accelerations[5:] == [pytest.approx((-2.0, 0.0))] * 3  # 1 / (4 periods), limited


@pytest.mark.parametrize("gap", [0.06, 0.3, 2.0])
def test_an_agent_that_brakes_alone_goes_on_braking_after_late_steps_and_silence(gap: float) -> None:
    controller = ef.Safe(ef.load("starling", comm_radius=3.0, time_scale=8.0), max_acceleration=2.0, max_silence=0.25)
    with export_onboard_agent(controller, OnboardAgent(number=1, dimensions=2, period=0.05)) as make_agent:
        steps = OnboardSteps(make_agent, StepTiming(rate=20.0, timeout=1.0))
        setpoints = []
        for tick in range(12):
            now = 0.05 * tick + (gap if tick >= 8 else 0.0)
            steps.advance(now - 1e-3)
            steps.measure((0.0, 0.0), (1.0, 0.0), now)
            steps.advance(now)
            setpoints.append(steps.advance(now + 0.03).setpoint)
            assert steps.description == ("flying, ALONE" if tick < 5 else "flying, STALE")
    assert all(each is not None and each.acceleration == pytest.approx((-2.0, 0.0)) for each in setpoints[5:])


def test_a_privileged_controller_is_refused() -> None:
    with (
        pytest.raises(InputError, match="tanner is privileged"),
        export_onboard_agent(ef.load("tanner"), OnboardAgent(number=1, dimensions=2, period=0.05)),
    ):
        pass


def test_a_leader_sends_zeros_as_observations_and_accelerates_towards_its_target() -> None:
    controller: Any = ef.load("starling")
    target = TargetVelocity(2, timeout=1.0)
    settings = OnboardAgent(number=4, dimensions=2, period=0.1, group=2)
    leader = LeaderAgent(controller, settings, lambda: target.get(5.5), response=0.5)
    target.set((1.0, 0.0), now=5.0)
    message = decode_message(leader.begin((3.0, 4.0), (0.5, 0.5)), controller.senses, 2)
    assert isinstance(message, Message)
    assert (message.sender, message.step, message.group) == (4, 0, 2)
    assert message.position.tolist() == [3.0, 4.0] and message.velocity.tolist() == [0.5, 0.5]
    assert not message.hops.any()
    assert leader.end() == pytest.approx([1.0, -1.0])
    assert leader.step == 1


def test_a_leader_uses_no_message_and_says_what_is_wrong_with_one() -> None:
    controller: Any = ef.load("starling")
    make = [OnboardAgent(number=number, dimensions=2, period=0.1) for number in (1, 2)]
    one, other = (LeaderAgent(controller, settings, lambda: (0.0, 0.0)) for settings in make)
    message = other.begin((0.0, 0.0), (0.0, 0.0))
    assert one.receive(message) is None
    assert one.receive(message[:-1]) is not None and one.receive(b"") is not None
    assert other.receive(message) == "sender has this agent's own number"


def test_an_old_target_velocity_is_zero() -> None:
    target = TargetVelocity(3, timeout=0.5)
    assert target.get(0.0) == (0.0, 0.0, 0.0)
    target.set((1.0, 2.0, 3.0), now=1.0)
    assert target.get(1.4) == (1.0, 2.0, 3.0)
    assert target.get(1.5) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"number": 2**32}, "number must be at most 4,294,967,295"),
        ({"group": 255}, "group must be at most 254"),
        ({"last_known": -1}, "last_known must be"),
        ({"max_range": math.nan}, "max_range must be"),
    ],
)
def test_wrong_settings_are_an_error(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        OnboardAgent(**{"number": 1, "dimensions": 2, "period": 0.1, **changes})
