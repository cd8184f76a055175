"""Exported agents handle any bytes that they receive."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock.deployment.exported_agents import COMPILER_FLAGS
from equiflock.deployment.wire_format import (
    OBSTACLE_GROUP,
    Message,
    count_message_bytes,
    encode_message,
    make_zero_hops,
)
from tests.deployment.exported import compiled, imported

SENSES = ef.load("etdagnn").senses
MAKERS: dict[str, Any] = {"c": compiled, "numpy": imported}


@pytest.fixture(scope="module", params=MAKERS)
def make(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return MAKERS[request.param](ef.load("etdagnn"), tmp_path_factory.mktemp(request.param))


def said(sender: int = 1, step: int = 0, x: float = 0.5, group: int = 0, D: int = 2) -> bytes:
    position, velocity = np.zeros(D, np.float32), np.ones(D, np.float32)
    position[0] = x
    return encode_message(Message(sender, step, position, velocity, make_zero_hops(SENSES, D), group))


def acted(agent: Any, *messages: bytes) -> list[str | None]:
    agent.begin((0.0, 0.0), (0.0, 0.0))
    return [agent.receive(message) for message in messages]


GARBAGE = [
    (b"", "length|bytes"),
    (said()[:-1], "length|bytes"),
    (said() + b"\0", "length|bytes"),
    (b"FE" + said()[2:], "begin with EF"),
    (said()[:2] + b"\x09" + said()[3:], "version"),
    (said()[:12] + struct.pack("<f", np.nan) + said()[16:], "finite"),
    (said()[:12] + struct.pack("<f", 1e9) + said()[16:], "too large"),
    (said()[:-4] + struct.pack("<f", -np.inf), "finite"),
    (said(sender=0), "own number"),
]


@pytest.mark.parametrize(("garbage", "reason"), GARBAGE)
def test_garbage_is_dropped_with_a_reason_and_changes_nothing(make: Any, garbage: bytes, reason: str) -> None:
    agent, other = make(0, 0), make(0, 0)
    told = acted(agent, said(), garbage, said(sender=2, x=-0.2))
    assert told[0] is None
    assert told[2] is None
    assert any(word in str(told[1]) for word in reason.split("|"))
    acted(other, said(), said(sender=2, x=-0.2))
    np.testing.assert_array_equal(agent.end(), other.end())


@given(st.lists(st.binary(max_size=100) | st.binary(min_size=73, max_size=73).map(lambda b: b"EF\x01" + b), max_size=5))
def test_arbitrary_bytes_give_finite_accelerations(make: Any, messages: list[bytes]) -> None:
    agent = make(0, 0)
    for _ in range(2):
        acted(agent, *messages)
        assert np.isfinite(agent.end()).all()


def test_only_the_newest_message_of_a_sender_counts(make: Any) -> None:
    agent, other = make(0, 0), make(0, 0)
    told = acted(agent, said(step=3, x=0.9), said(step=3), said(step=2), said(step=4, x=0.5))
    assert told[0] is None
    assert "newer" in str(told[1])
    assert "newer" in str(told[2])
    assert told[3] is None
    acted(other, said(step=0, x=0.5))
    np.testing.assert_array_equal(agent.end(), other.end())


def test_steps_are_counted_beyond_the_largest_number(make: Any) -> None:
    agent = make(0, 0)
    assert acted(agent, said(step=2**32 - 1), said(step=0), said(step=2**32 - 1))[:2] == [None, None]


def test_the_order_in_which_messages_come_changes_no_bit(make: Any) -> None:
    messages = [said(sender=n, x=0.1 + 0.07 * n) for n in (9, 4, 7, 1, 30)]
    answers = []
    for order in (messages, messages[::-1], sorted(messages)):
        agent = make(0, 0)
        acted(agent, *order)
        answers.append(agent.end())
    np.testing.assert_array_equal(answers[0], answers[1])
    np.testing.assert_array_equal(answers[0], answers[2])


def test_a_message_is_what_the_wire_format_says(make: Any) -> None:
    agent = make(77, 3)
    sent = agent.begin((0.25, -1.5), (2.0, 0.125))
    position, velocity = np.array([0.25, -1.5], np.float32), np.array([2.0, 0.125], np.float32)
    assert sent == encode_message(Message(77, 0, position, velocity, make_zero_hops(SENSES, 2), 3))
    agent.end()
    assert struct.unpack_from("<I", agent.begin((0, 0), (0, 0)), 8) == (1,)


def test_agents_in_one_place_do_no_harm(make: Any) -> None:
    agent = make(0, 0)
    acted(agent, said(x=0.0), said(sender=2, x=1e-9), said(sender=3, x=1e-7))
    assert np.isfinite(agent.end()).all()
    assert np.isfinite(struct.unpack("<16f", agent.begin((0, 0), (0, 0))[12:])).all()


def test_more_neighbours_than_there_is_room_for_are_dropped(tmp_path: Path) -> None:
    agent = compiled(ef.load("etdagnn"), tmp_path, neighbours=2)(0, 0)
    told = acted(agent, said(sender=1), said(sender=2), said(sender=3), said(sender=2, step=1))
    assert [reason is None for reason in told] == [True, True, False, True]
    assert "room" in str(told[2])


@pytest.mark.parametrize("order", [(0.2, 0.4, 0.9), (0.9, 0.4, 0.2), (0.4, 0.9, 0.2)])
def test_of_more_neighbours_than_there_is_room_for_the_nearest_are_used(
    order: tuple[float, ...], tmp_path: Path
) -> None:
    make = compiled(ef.load("etdagnn"), tmp_path, neighbours=2)
    agent, only_near = make(0, 0), make(0, 0)
    acted(agent, *(said(sender=round(10 * x), x=x) for x in order))
    acted(only_near, said(sender=2, x=0.2), said(sender=4, x=0.4))
    np.testing.assert_array_equal(agent.end(), only_near.end())


def test_messages_from_beyond_the_range_are_not_used(tmp_path: Path) -> None:
    controller = ef.load("etdagnn")
    makers = [compiled(controller, tmp_path, flags=(*COMPILER_FLAGS, "-DAGENT_RANGE=0.6f"))]
    module: Any = imported(controller, tmp_path)
    makers.append(lambda number, group: module(number, group, max_range=0.6))
    for maker in makers:
        near, both = maker(0, 0), maker(0, 0)
        acted(near, said())
        assert acted(both, said(), said(sender=2, x=0.7)) == [None, None]
        np.testing.assert_array_equal(near.end(), both.end())


def test_there_are_no_obstacle_agents_in_space(tmp_path: Path) -> None:
    for made in (compiled, imported):
        agent = made(ef.load("etdagnn"), tmp_path, 3)(0, 0)
        agent.begin((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
        assert agent.receive(said(group=OBSTACLE_GROUP, D=3)) is not None


def test_a_fixed_topology_is_that_of_the_first_step(tmp_path: Path) -> None:
    controller: Any = ef.load("tanner-fixed")
    first, second = (said(sender)[:28] for sender in (1, 2))
    for made in (compiled, imported):
        agent = made(controller, tmp_path)(0, 0)
        assert acted(agent, first) == [None]
        agent.end()
        assert [reason is None for reason in acted(agent, first, second)] == [True, False]


@pytest.mark.parametrize("step", [5, 2**32 - 2])
def test_a_fixed_topology_is_that_of_an_agents_own_first_step_whatever_its_number(step: int, tmp_path: Path) -> None:
    first, second = (said(sender)[:28] for sender in (1, 2))
    for made in (compiled, imported):
        agent = made(ef.load("tanner-fixed"), tmp_path)(0, 0)
        agent.step = step
        assert acted(agent, first) == [None]
        assert np.any(agent.end())
        # Beyond the largest number of a step, too.
        for _ in range(3):
            assert [reason is None for reason in acted(agent, first, second)] == [True, False]
            assert np.any(agent.end())


@pytest.mark.parametrize("name", ["tanner-dynamic:clamp_by=entry", "tanner-dynamic", "cucker-smale-local", "etdagnn"])
@pytest.mark.parametrize("where", [((np.nan, 0.0), (0.0, 0.0)), ((0.0, 0.0), (0.0, np.nan))])
def test_an_agent_without_a_finite_state_does_nothing(name: str, where: Any, tmp_path: Path) -> None:
    controller: Any = ef.load(name)
    for made in (compiled, imported):
        agent = made(controller, tmp_path)(0, 0)
        message = said()[: count_message_bytes(controller.senses, 2)]
        agent.begin(*where)
        assert agent.receive(message) is None
        np.testing.assert_array_equal(agent.end(), [0.0, 0.0])
        # It recovers as soon as the state is finite.
        acted(agent, message)
        assert np.any(agent.end())


def test_a_position_of_another_dimension_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ef.InputError, match="2 numbers"):
        compiled(ef.load("etdagnn"), tmp_path)(0, 0).begin((0.0, 0.0, 0.0), (0.0, 0.0))
