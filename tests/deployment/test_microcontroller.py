"""Recordings match the package; compiled agents reproduce them, also in the emulator of `make emulator`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock.deployment import microcontroller
from equiflock.deployment.export.c_header import count_agent_bytes
from equiflock.deployment.export.program import read_program
from equiflock.deployment.microcontroller import Recording, emulate, list_missing_tools, record_agent
from equiflock.deployment.wire_format import Message, decode_message
from tests.deployment.export.test_agents import course
from tests.deployment.export.test_safety import LAW, PERIOD, SCRIPT, limited, list_messages, run_script
from tests.deployment.export.test_starling import OBSTACLE, ORBIT, starling, strung
from tests.deployment.exported import compiled, imported
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


@pytest.fixture(scope="session")
def emulator() -> None:
    if missing := list_missing_tools():
        reason = f"{', '.join(missing)} not found, so nothing was tested on a Cortex-M4F: run `make emulator`"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.mark.parametrize(
    ("name", "D"), [("etdagnn", 2), ("etdagnn", 3), ("tdagnn", 2), ("tanner-dynamic", 2), ("bonding-local", 3)]
)
def test_a_cortex_m4_matches_the_package(name: str, D: int, emulator: None, tmp_path: Path) -> None:
    controller: Any = ef.load(name)
    start = start_of(dimensions=D)
    found = emulate(controller, record_agent(controller, start, busiest(start), steps=6), tmp_path)
    assert found.largest_error < 1e-5
    assert found.memory == count_agent_bytes(read_program(controller, D))
    assert found.neighbours > 3.0
    assert 500 < found.instructions < 100_000


def test_etdagnn_has_less_than_four_kilobytes(emulator: None, tmp_path: Path) -> None:
    controller: Any = ef.load("etdagnn")
    found = emulate(controller, record_agent(controller, start_of(), 4, steps=2), tmp_path)
    assert found.weights == 640
    assert found.weights < found.flash < 4096


@pytest.mark.slow
def test_a_cortex_m4_matches_the_package_near_obstacles(emulator: None, tmp_path: Path) -> None:
    controller: Any = ef.load("etdagnn")
    orbit = ef.Orbit(gravity_break=0.3)
    recording = record_agent(controller, course(), 4, steps=6, orbit=orbit)
    assert emulate(controller, recording, tmp_path, orbit=orbit).largest_error < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("agent", [5, 8, 26])
def test_a_cortex_m4_uses_the_weights_for_agents_near_obstacles(agent: int, emulator: None, tmp_path: Path) -> None:
    controller = starling()
    recording = record_agent(controller, strung(0), agent, steps=6, orbit=ORBIT)
    # The first receives from an obstacle agent, the second knows of it from neighbours, the third knows of none.
    hops = (recording.observations[-1, :, OBSTACLE] != 0.0).any(axis=-1)
    assert (bool(hops[0]), bool(hops.any())) == {5: (True, True), 8: (False, True), 26: (False, False)}[agent]
    found = emulate(controller, recording, tmp_path, orbit=ORBIT)
    assert found.largest_error < 1e-5
    # Two sets of a first layer for eight channels and three hops, and of the other layers, multiplied to one row.
    assert found.weights == 4 * 2 * (16 * 8 * 3 + 16)


@pytest.mark.slow
@pytest.mark.parametrize("time_step", [0.002, 0.02, 0.05])
def test_a_cortex_m4_has_the_gain_of_its_sampling_period(time_step: float, emulator: None, tmp_path: Path) -> None:
    controller = starling(gain_period=0.02)
    recording = record_agent(controller, strung(0), 8, steps=6, orbit=ORBIT, time_step=time_step)
    assert recording.time_step == time_step
    found = emulate(controller, recording, tmp_path, orbit=ORBIT)
    assert found.largest_error < 1e-5
    assert found.memory == count_agent_bytes(read_program(controller, 2))


def test_a_cortex_m4_keeps_every_limit(emulator: None, tmp_path: Path) -> None:
    agent = imported(limited(), tmp_path, time_step=PERIOD)(0, 0)
    accelerations, states = zip(*run_script(agent), strict=True)
    shape = len(SCRIPT), 1, len(ef.load(LAW).senses.channels), 2
    recording = Recording(
        number=0,
        group=0,
        time_step=PERIOD,
        positions=np.array([step.position for step in SCRIPT], np.float32),
        velocities=np.array([step.velocity for step in SCRIPT], np.float32),
        messages=tuple(tuple(list_messages(step)) for step in range(len(SCRIPT))),
        observations=np.zeros(shape, np.float32),
        accelerations=np.array(accelerations),
        # As for the speed limit of `SafetyFilter.compute_magnitude`.
        magnitudes=np.array([[1.0 + np.hypot(*step.velocity) / PERIOD] * 2 for step in SCRIPT]),
    )
    found = emulate(limited(), recording, tmp_path)
    assert found.largest_error < 1e-5
    assert [ef.SafetyState(state).name for state in found.states] == [step.state for step in SCRIPT] == list(states)


def test_limits_cost_at_most_a_kilobyte_and_a_half(emulator: None, tmp_path: Path) -> None:
    plain, safe = ef.load("etdagnn"), limited("etdagnn")
    usages = [emulate(each, record_agent(each, start_of(), 4, steps=6), tmp_path) for each in (plain, safe)]  # type: ignore[arg-type]
    assert 500 < usages[1].code - usages[0].code < 1536
    assert usages[1].memory == count_agent_bytes(read_program(safe)) == usages[0].memory + 28
    recording = record_agent(safe, start_of(), 4, steps=6)
    assert recording.states is not None and usages[1].states == tuple(recording.states) and usages[0].states == ()
    assert usages[1].largest_error < 1e-5


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(microcontroller, "TOOLS", ("no-such-gcc", "sh"))
    recording = record_agent(ef.load("reynolds"), start_of(), 0, steps=1)
    with pytest.raises(ef.InputError, match="no-such-gcc not found: run `make emulator`"):
        emulate(ef.load("reynolds"), recording, tmp_path)


@pytest.mark.parametrize(("found", "missing"), [("nano.specs", ["nano.specs of newlib"]), (__file__, [])])
def test_a_compiler_without_its_library_is_not_enough(
    found: str, missing: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = tmp_path / "gcc"
    compiler.write_text(f"#!/bin/sh\necho {found}\n")
    compiler.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(microcontroller, "TOOLS", (str(compiler), "sh"))
    assert list_missing_tools() == missing
