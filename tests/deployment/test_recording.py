"""Recordings match the package, and compiled agents reproduce them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock.deployment.microcontroller import record_agent
from equiflock.deployment.wire_format import Message, decode_message
from tests.deployment.exported import compiled
from tests.deployment.lockstep import busiest, start_of


def sender_of(message: bytes) -> int:
    return int.from_bytes(message[4:8], "little")


@pytest.mark.parametrize("D", [2, 3])
def test_a_compiled_agent_reproduces_a_recording(D: int, tmp_path: Path) -> None:
    controller: Any = ef.load("etdagnn")
    start = start_of(dimensions=D)
    recording = record_agent(controller, start, busiest(start), steps=6)
    agent = compiled(controller, tmp_path, D)(recording.number, recording.group)
    answers = []
    for position, velocity, messages, known in zip(
        recording.positions, recording.velocities, recording.messages, recording.observations, strict=True
    ):
        agent.begin(position, velocity)
        assert [agent.receive(message) for message in messages] == [None] * len(messages)
        answers.append(agent.end())
        np.testing.assert_allclose(agent.read_observations(3, 3), known, atol=1e-5 * max(1.0, np.abs(known).max()))
    assert min(map(len, recording.messages)) > 3
    assert recording.compute_largest_error(answers) < 1e-5
    assert recording.compute_largest_error(np.zeros_like(answers)) > 1e-2


def test_messages_contain_the_senders_observations_of_the_previous_step() -> None:
    controller: Any = ef.load("etdagnn")
    start = start_of()
    one = record_agent(controller, start, busiest(start), steps=4)
    sender = sender_of(one.messages[0][0])
    other = record_agent(controller, start, sender, steps=4)
    assert sender in [sender_of(message) for message in one.messages[3]]
    for step in range(1, 4):
        messages = (decode_message(message, controller.senses, 2) for message in one.messages[step])
        for message in messages:
            assert isinstance(message, Message)
            assert message.step == step
            if message.sender == sender:
                np.testing.assert_array_equal(message.hops, other.observations[step - 1, :2])


def test_only_followers_can_be_recorded() -> None:
    flock = start_of(agents=3)
    led = ef.Flock(flock.positions, flock.velocities, [[1, 0, 0]])
    with pytest.raises(ef.InputError, match="agent 0 is not one"):
        record_agent(ef.load("reynolds"), led, 0, steps=1)
