"""Exported agents without a common frame, which measure the rotation and position of their neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock.deployment.export.program import read_program
from equiflock.deployment.wire_format import Message, encode_message, make_zero_hops
from equiflock.observations.orbit import Orbit
from tests.deployment.export.compact_flight import as_packets, read_observations
from tests.deployment.exported import compiled, imported
from tests.deployment.lockstep import start_of

MAKERS: dict[str, Any] = {"c": compiled, "numpy": imported}
TIME_STEP = 0.01
Frames = tuple[Any, Any]
"""Rotations (N, D, D) and origins (N, D): a vector x of agent i is rotations[i] x in the common frame."""


def draw_frames(agents: int, D: int, same_origin: bool, seed: int = 0) -> Frames:
    chance = np.random.default_rng(seed)
    rotations = np.linalg.qr(chance.normal(size=(agents, D, D)))[0]
    rotations[:, :, 0] *= np.linalg.det(rotations)[:, None]
    origins = chance.uniform(-30.0, 30.0, (agents, D))
    return rotations, 0.0 * origins if same_origin else origins


def fly(
    controller: Any, start: ef.Flock, make: Callable[[int, int], Any], frames: Frames, offsets: bool, steps: int = 5
) -> float:
    """Fly agents with a common frame, and agents in the same places with frames of their own.

    Return the largest difference of accelerations relative to `Program.compute_magnitude`.
    """
    N, D = start.shape[1:]
    program, (rotations, origins), worst, flock = read_program(controller, D), frames, 0.0, start
    shared, own = ([make(i, 0) for i in range(N)] for _ in range(2))
    for _ in range(steps):
        r, v = (array[0].astype(np.float32) for array in flock.arrays[:2])
        sent = [as_packets(agent.begin(r[i], v[i])) for i, agent in enumerate(shared)]
        sent_own = [
            as_packets(agent.begin((r[i] - origins[i]) @ rotations[i], v[i] @ rotations[i]))
            for i, agent in enumerate(own)
        ]
        graph, accelerations = ef.radius_graph(flock), np.zeros((N, D))
        for i in range(N):
            for j in graph.neighbours(0, i):
                rotation = rotations[i].T @ rotations[j]
                offset = (r[j] - r[i]) @ rotations[i] if offsets else None
                assert [shared[i].receive(packet) for packet in sent[j]] == [None] * len(sent[j])
                assert [own[i].receive(packet, rotation, offset) for packet in sent_own[j]] == [None] * len(sent[j])
            accelerations[i] = shared[i].end()
            difference = np.abs(rotations[i] @ np.array(own[i].end()) - accelerations[i])
            observations = read_observations(shared[i], controller.senses)
            worst = max(worst, float((difference / program.compute_magnitude(observations, TIME_STEP)).max()))
        positions = flock.positions + TIME_STEP * flock.velocities
        flock = ef.Flock(positions, flock.velocities + TIME_STEP * np.clip(accelerations, -20.0, 20.0))
    return worst


@pytest.mark.parametrize("made", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(
    ("name", "D", "same_origin", "options", "tolerance"),
    [
        ("etdagnn", 2, True, {}, 1e-4),
        ("etdagnn", 3, False, {"message_bytes": 60}, 0.02),
        ("starling", 3, False, {}, 1e-4),
        ("starling", 2, True, {"message_bytes": 60}, 0.02),
    ],
)
def test_a_flight_without_a_common_frame_is_that_with_one(
    made: Any, name: str, D: int, same_origin: bool, options: dict[str, Any], tolerance: float, tmp_path: Path
) -> None:
    controller: Any = ef.load(name)
    make = made(controller, tmp_path, D, messages={**options, "own_frames": True})
    start = start_of(agents=10, dimensions=D)
    worst = fly(controller, start, make, draw_frames(10, D, same_origin), not same_origin)
    assert worst < tolerance


@pytest.mark.parametrize("made", MAKERS.values(), ids=MAKERS)
def test_a_network_that_is_not_equivariant_needs_a_common_frame(made: Any, tmp_path: Path) -> None:
    controller: Any = ef.load("tdagnn")
    make = made(controller, tmp_path, 2, messages={"own_frames": True})
    start, (rotations, origins) = start_of(agents=10), draw_frames(10, 2, False)
    assert fly(controller, start, make, (rotations, origins), True) > 0.1
    # Under a common heading, it needs no common origin.
    assert fly(controller, start, make, (np.broadcast_to(np.eye(2), (10, 2, 2)), origins), True) < 1e-4
    assert "Shared frame: needed." in (tmp_path / "agent.README.md").read_text()


@pytest.mark.parametrize(
    ("name", "is_needed"),
    [("etdagnn", False), ("starling", False), ("tanner-dynamic", False), ("tanner-dynamic:clamp_by=entry", True)],
)
def test_the_text_says_whether_a_common_frame_is_needed(name: str, is_needed: bool, tmp_path: Path) -> None:
    *_, readme = ef.export(name, tmp_path / "agent.h")
    assert (f"Shared frame: {'needed.' if is_needed else 'not needed'}" in readme.read_text()) is True
    assert read_program(ef.load(name)).is_equivariant is not is_needed


@pytest.mark.parametrize("made", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(("angle", "mirrors"), [(math.pi / 2, True), (1.2, False)])
def test_the_orbit_technique_rotates_with_the_frame_but_mirrors_only_for_a_right_angle(
    made: Any, angle: float, mirrors: bool, tmp_path: Path
) -> None:
    controller: Any = ef.load("etdagnn")
    make = made(controller, tmp_path, 2, Orbit(dodge_angle=angle), messages={"own_frames": True})
    assert ("Mirrored frames are possible" in (tmp_path / "agent.README.md").read_text()) is mirrors
    zero, hops = np.zeros(2, np.float32), make_zero_hops(controller.senses, 2)
    packet = encode_message(Message(1, 0, np.float32([0.4, 0.3]), zero, hops, 255))
    plain = make(0, 0)
    plain.begin((0.0, 0.0), (1.0, -0.2))
    plain.receive(packet)
    expected = np.array(plain.end())
    turned = np.array([[0.6, -0.8], [0.8, 0.6]])
    for frame, is_same in ((turned, True), (turned @ np.diag([1.0, -1.0]), mirrors)):
        agent = make(0, 0)
        agent.begin((0.0, 0.0), frame.T @ [1.0, -0.2])
        assert agent.receive(packet, frame.T) is None
        assert np.allclose(frame @ np.array(agent.end()), expected, atol=1e-5) is is_same


@pytest.mark.parametrize("made", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("options", [{}, {"message_bytes": 60}])
def test_invalid_frames_are_refused_and_change_nothing(made: Any, options: dict[str, Any], tmp_path: Path) -> None:
    controller: Any = ef.load("etdagnn")
    make = made(controller, tmp_path, messages={**options, "own_frames": True})
    agent, other, sender = make(0, 0), make(0, 0), make(1, 0)
    message = sender.begin((0.5, 0.0), (1.0, 1.0))
    for each in (agent, other):
        each.begin((0.0, 0.0), (0.0, 0.0))
    sheared = np.array([[1.0, 2e-3], [0.0, 1.0]])
    for rotation in (np.zeros((2, 2)), 1.01 * np.eye(2), sheared, np.full((2, 2), np.nan), np.full((2, 2), 1e30)):
        assert "not orthogonal" in str(agent.receive(message, rotation))
    for offset in ((np.nan, 0.0), (0.0, np.inf), (1e9, 0.0)):
        assert "offset" in str(agent.receive(message, None, offset))
    assert agent.receive(message, np.eye(2) + 1e-4 * np.array([[0.0, 1.0], [-1.0, 0.0]])) is None
    other.receive(message)
    np.testing.assert_allclose(agent.end(), other.end(), rtol=1e-2)
