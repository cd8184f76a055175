"""Exported agents with compact messages, version 2 of the format."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock.deployment.export.source_text import format_c_float
from equiflock.deployment.exported_agents import COMPILER_FLAGS, import_agent_class
from equiflock.deployment.wire_format import (
    CompactFormat,
    Message,
    dequantize,
    encode_message,
    make_zero_hops,
    quantize,
    round_to_float16,
)
from tests.deployment.export.compact_flight import as_packets, compare, read_observations
from tests.deployment.export.test_starling import ORBIT, starling, strung
from tests.deployment.exported import compiled, imported
from tests.deployment.lockstep import start_of

MAKERS: dict[str, Any] = {"c": compiled, "numpy": imported}
CLOSE = 1e-5
"""Tolerance relative to `Program.compute_magnitude`."""
SENSES = ef.load("etdagnn").senses
WHOLE, SPLIT = CompactFormat(SENSES, 2, 1.0, 2, 1), CompactFormat(SENSES, 2, 1.0, 2, 3)
OPTIONS = {1: {"message_bytes": 60}, 3: {"message_bytes": 26}}
"""Options of `export` for WHOLE and SPLIT, by number of packets."""


@pytest.fixture(scope="module", params=MAKERS)
def makers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what makes agents of WHOLE and of SPLIT, with these formats."""
    folder, export = tmp_path_factory.mktemp(request.param), MAKERS[request.param]
    made = [(export(ef.load("etdagnn"), folder, messages=OPTIONS[each.packets]), each) for each in (WHOLE, SPLIT)]
    return tuple(made)


@pytest.fixture
def whole(makers: Any) -> Any:
    return makers[0][0]


@pytest.fixture
def split(makers: Any) -> Any:
    return makers[1][0]


def said(sender: int = 1, step: int = 0, x: float = 0.5, compact: CompactFormat = WHOLE) -> list[bytes]:
    """Return the packets of an agent at (x, 0) with velocity (1, 1) that relays hops of random numbers."""
    hops = np.random.default_rng(sender).normal(size=(2, 3, 2)).astype(np.float32)
    return compact.encode(Message(sender, step, np.float32([x, 0.0]), np.float32([1.0, 1.0]), hops))


def act(agent: Any, *packets: bytes) -> list[str | None]:
    agent.begin((0.0, 0.0), (0.0, 0.0))
    return [agent.receive(packet) for packet in packets]


@pytest.mark.parametrize(
    ("name", "start", "options"),
    [
        ("etdagnn", start_of(), {"message_bytes": 60}),
        ("etdagnn", start_of(), {"message_bytes": 30, "packets": 2}),
        ("etdagnn:comm_radius=5:time_scale=15", start_of(radius=5.0), {"message_bytes": 60, "relayed_hops": 1}),
        ("starling", start_of(dimensions=3), {"message_bytes": 60}),
        ("tanner-fixed", start_of(), {"message_bytes": 20}),
    ],
)
def test_accelerations_are_those_of_the_decoded_messages(
    name: str, start: ef.Flock, options: dict[str, Any], tmp_path: Path
) -> None:
    controller: Any = ef.load(name)
    D = start.shape[2]
    hops = options.get("relayed_hops", controller.senses.hops - 1)
    for made in MAKERS.values():
        make = made(controller, tmp_path, D, messages=options)
        packets = len(as_packets(make(0, 0).begin([0.0] * D, [0.0] * D)))
        compact = CompactFormat(controller.senses, D, start.comm_radius, hops, packets)
        assert compare(controller, start, make, compact) < CLOSE


def test_a_random_network_among_groups_and_obstacles(tmp_path: Path) -> None:
    controller = starling()
    start = ef.Flock(*strung(1).arrays[:3], groups=np.where(strung(1).roles == 2, -1, np.arange(27) % 2))
    for made in MAKERS.values():
        make = made(controller, tmp_path, 2, ORBIT, messages={"message_bytes": 60})
        compact = CompactFormat(controller.senses, 2, 1.0, 2, 2)
        assert compare(controller, start, make, compact, ORBIT) < CLOSE


@pytest.mark.parametrize("position", [(0.25, -1.5), (1e5, -7.99), (100.1, 3e7)])
def test_a_message_is_what_the_wire_format_says(makers: Any, position: Any) -> None:
    for make, compact in makers:
        agent = make(77, 3)
        state, velocity = np.float32(position), np.float32([2.0, 0.1])
        for step in range(2):
            expected = compact.encode(Message(77, step, state, velocity, make_zero_hops(SENSES, 2), 3))
            assert as_packets(agent.begin(state, velocity)) == expected
            assert [len(packet) for packet in expected] == [compact.packet_bytes] * compact.packets
            agent.end()


def test_observations_are_sent_as_float16(makers: Any) -> None:
    for make, compact in makers:
        agent = make(0, 0)
        act(agent, *said(compact=compact), *said(sender=2, x=1e-2, compact=compact))
        agent.end()
        # The sum over an agent at a distance of 0.01 is beyond 65504.
        message = compact.decode(as_packets(agent.begin((0.0, 0.0), (0.0, 0.0))), np.zeros(2), np.zeros(2))
        observed = read_observations(agent, SENSES)
        assert isinstance(message, Message)
        assert np.abs(message.hops).max() == 65504.0
        np.testing.assert_array_equal(message.hops, round_to_float16(observed[:2]).astype(np.float32))


def test_steps_are_counted_modulo_two_to_the_sixteen(makers: Any) -> None:
    for make, compact in makers:
        agent = make(0, 0)
        for step, is_newer in ((2**16 - 1, True), (0, True), (2**16 - 1, False), (2**15 - 1, True), (2**15 - 1, False)):
            reasons = act(agent, *said(step=step, compact=compact))
            assert [reason is None for reason in reasons] == [is_newer] * compact.packets


def test_positions_are_relative_to_the_receiver_anywhere(whole: Any) -> None:
    expected = None
    for origin in ((0.0, 0.0), (4096.0, -80.0), (-16.0, 50000.0)):
        agent = whole(0, 0)
        position, velocity = np.float32(origin) + np.float32([0.5, 0.0]), np.float32([3.0, 1e3])
        sent = Message(1, 0, position, velocity, make_zero_hops(SENSES, 2))
        agent.begin(origin, (2.0, 1e3))
        assert agent.receive(*WHOLE.encode(sent)) is None
        acceleration = np.array(agent.end())
        expected = acceleration if expected is None else expected
        np.testing.assert_array_equal(acceleration, expected)


def damage(change: Any) -> list[bytes]:
    return [bytes(change(bytearray(packet))) for packet in said()]


def put(at: int, *values: int) -> Any:
    """Return a function that overwrites bytes."""

    def change(packet: bytearray) -> bytearray:
        packet[at : at + len(values)] = bytes(values)
        return packet

    return change


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        ([b""], "length|bytes"),
        (damage(lambda packet: packet[:-1]), "length|bytes"),
        (damage(lambda packet: packet + b"\0"), "length|bytes"),
        (damage(put(0, 70, 69)), "begin with EF"),
        (damage(put(2, 1)), "version"),
        (damage(put(8, 0)), "finite"),
        (damage(put(8, 2)), "finite"),
        (damage(put(8, 17)), "finite"),
        (damage(put(9, WHOLE.layout ^ 1)), "channels or units"),
        (damage(put(40, 0x00, 0x7C)), "finite"),
        (damage(put(18, 0x01, 0xFE)), "finite"),
        (said(sender=0), "own number"),
    ],
)
def test_garbage_is_dropped_with_a_reason_and_changes_nothing(whole: Any, garbage: list[bytes], reason: str) -> None:
    agent, other = whole(0, 0), whole(0, 0)
    reasons = act(agent, *said(), *garbage, *said(sender=2, x=-0.2))
    assert (reasons[0], reasons[2]) == (None, None)
    assert any(word in str(reasons[1]) for word in reason.split("|"))
    act(other, *said(), *said(sender=2, x=-0.2))
    np.testing.assert_array_equal(agent.end(), other.end())


def test_agents_of_one_version_drop_messages_of_the_other(whole: Any, tmp_path: Path) -> None:
    zero = np.zeros(2, np.float32)
    rest = Message(1, 0, zero, zero, make_zero_hops(SENSES, 2))
    assert "version" in str(act(whole(0, 0), encode_message(rest)[: WHOLE.packet_bytes])[0])
    for made in MAKERS.values():
        agent = made(ef.load("tanner-dynamic"), tmp_path)(0, 0)
        # As many bytes as a message of this law.
        assert "version" in str(act(agent, said()[0][:28])[0])


def test_agents_of_other_units_drop_messages_of_the_same_size(whole: Any) -> None:
    larger = CompactFormat(SENSES, 2, 3.0, 2)
    assert "channels or units" in str(act(whole(0, 0), *said(compact=larger))[0])


@pytest.mark.parametrize("where", [((np.nan, 0.0), (0.0, 0.0)), ((0.0, 0.0), (0.0, -np.inf)), ((2e8, 0.0), (0.0, 0.0))])
def test_an_agent_without_a_valid_state_sends_and_decodes_nothing_until_it_has_one(makers: Any, where: Any) -> None:
    for make, compact in makers:
        agent, other = make(0, 0), make(1, 0)
        packets = as_packets(agent.begin(*where))
        assert "finite" in str(act(other, *packets)[0])
        assert "no valid state" in str(agent.receive(said(compact=compact)[0]))
        np.testing.assert_array_equal(agent.end()[:1], [0.0])
        assert act(agent, *said(compact=compact)) == [None] * compact.packets
        assert np.any(agent.end())


def test_an_agent_decodes_nothing_before_its_first_step(whole: Any) -> None:
    assert "no valid state" in str(whole(0, 0).receive(*said()))


def test_packets_may_arrive_in_any_order_and_several_times(split: Any) -> None:
    packets, expected = [*said(compact=SPLIT), *said(sender=2, x=-0.3, compact=SPLIT)], None
    for order in itertools.islice(itertools.permutations(packets), 0, None, 37):
        agent = split(0, 0)
        reasons = act(agent, *order, *order[:2])
        assert [reason is None for reason in reasons] == [True] * 6 + [False] * 2
        answer = np.array(agent.end())
        expected = answer if expected is None else expected
        np.testing.assert_array_equal(answer, expected)
    alone = split(0, 0)
    act(alone, *said(compact=SPLIT))
    assert np.any(alone.end() != expected)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_message_without_one_of_its_packets_does_not_count(split: Any, missing: int) -> None:
    agent, other = split(0, 0), split(0, 0)
    packets = said(compact=SPLIT)
    del packets[missing]
    assert act(agent, *packets, *said(sender=2, x=-0.3, compact=SPLIT)) == [None] * 5
    act(other, *said(sender=2, x=-0.3, compact=SPLIT))
    np.testing.assert_array_equal(agent.end(), other.end())
    # The rest does not come with the next step.
    act(agent, said(compact=SPLIT)[missing])
    assert not np.any(agent.end())


def test_packets_of_two_steps_are_not_mixed(split: Any) -> None:
    agent, other = split(0, 0), split(0, 0)
    old, new = said(step=3, x=0.9, compact=SPLIT), said(step=4, compact=SPLIT)
    reasons = act(agent, old[0], new[1], old[1], old[2], new[2], new[0])
    assert [reason is None for reason in reasons] == [True, True, False, False, True, True]
    act(other, *new)
    np.testing.assert_array_equal(agent.end(), other.end())


def test_the_last_complete_message_is_used_while_the_next_one_is_incomplete(tmp_path: Path) -> None:
    make = compiled(ef.load("etdagnn"), tmp_path, messages=OPTIONS[3], flags=(*COMPILER_FLAGS, "-DAGENT_LAST_KNOWN=2"))
    other = imported(ef.load("etdagnn"), tmp_path, messages=OPTIONS[3])
    for agent in (make(0, 0), other(0, 0, last_known=2)):  # type: ignore[call-arg]
        assert act(agent, *said(compact=SPLIT)) == [None] * 3
        agent.end()
        for step in (1, 2, 3):
            act(agent, said(step=step, compact=SPLIT)[0])
            assert np.any(agent.end()) == (step < 3)


@pytest.fixture(scope="module", params=[0, 1, 2])
def split_pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what makes an agent of SPLIT in C and in NumPy, and the steps for which they use a last message."""
    folder, controller, last_known = tmp_path_factory.mktemp("split"), ef.load("etdagnn"), request.param
    flags = *COMPILER_FLAGS, f"-DAGENT_LAST_KNOWN={last_known}"
    c, numpy = (
        compiled(controller, folder, messages=OPTIONS[3], flags=flags),
        imported(controller, folder, messages=OPTIONS[3]),
    )
    return lambda: (c(0, 0), numpy(0, 0, last_known=last_known)), last_known  # type: ignore[call-arg]


def test_packets_wait_for_the_others_of_their_message_for_as_many_steps_as_it_is_used(split_pair: Any) -> None:
    make, last_known = split_pair
    for agent in make():
        for step in (0, 1):  # packets 1 and 2 of step 0 are lost, those of step 1 late
            act(agent, said(step=step, compact=SPLIT)[0])
            assert not np.any(agent.end())
        act(agent, *said(step=1, compact=SPLIT)[1:])
        assert np.any(agent.end()) == (last_known > 0)


def test_a_message_is_used_for_the_same_steps_whether_packets_of_a_newer_one_arrive(split_pair: Any) -> None:
    make, last_known = split_pair
    for agent in make():
        act(agent, *said(compact=SPLIT))
        agent.end()
        for step in range(1, 5):
            act(agent, said(step=step, compact=SPLIT)[step % 3])
            assert np.any(agent.end()) == (step <= last_known)


def test_agents_in_c_and_numpy_agree_about_late_lost_and_repeated_packets(split_pair: Any) -> None:
    make, _ = split_pair
    (c, numpy), chance, late = make(), np.random.default_rng(7), []  # type: ignore[var-annotated]
    used = 0
    for step in range(150):
        sent = [packet for n in (1, 2, 3) for packet in said(n, step, 0.4 * n - 0.9, SPLIT)]
        fates = chance.choice(["arrives", "twice", "late", "lost"], size=len(sent), p=[0.6, 0.1, 0.2, 0.1])
        due = [packet for at, packet in late if at <= step]
        late = [(at, packet) for at, packet in late if at > step]
        late += [(step + int(chance.integers(1, 4)), sent[k]) for k in np.flatnonzero(fates == "late")]
        arriving = due + [sent[k] for k in np.flatnonzero((fates == "arrives") | (fates == "twice"))]
        arriving += [sent[k] for k in np.flatnonzero(fates == "twice")]
        arriving = [arriving[k] for k in chance.permutation(len(arriving))] if chance.random() < 0.8 else []
        reasons = [[reason is None for reason in act(agent, *arriving)] for agent in (c, numpy)]
        assert reasons[0] == reasons[1]
        found, expected = (np.array(agent.end(), np.float64) for agent in (c, numpy))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)
        used += bool(expected.any())
    assert used > 30


@pytest.mark.parametrize("packets", [1, 3])
def test_the_nearest_neighbours_are_kept_in_any_order_of_arrival(packets: int, tmp_path: Path) -> None:
    compact = WHOLE if packets == 1 else SPLIT
    make = compiled(ef.load("etdagnn"), tmp_path, messages=OPTIONS[packets], neighbours=2)
    messages = [said(sender=n, x=x, compact=compact) for n, x in ((1, 0.9), (2, 0.3), (3, -0.6), (4, 0.7))]
    expected = make(0, 0)
    act(expected, *messages[1], *messages[2])
    answer = expected.end()
    chance = np.random.default_rng(0)
    flat = [packet for message in messages for packet in message]
    for _ in range(20):
        agent = make(0, 0)
        act(agent, *(flat[n] for n in chance.permutation(len(flat))))
        np.testing.assert_array_equal(agent.end(), answer)


@given(
    st.lists(
        st.binary(max_size=60)
        | st.binary(min_size=WHOLE.packet_bytes - 10, max_size=WHOLE.packet_bytes - 10).map(
            lambda rest: said()[0][:10] + rest
        )
        | st.binary(min_size=SPLIT.packet_bytes - 10, max_size=SPLIT.packet_bytes - 10).map(
            lambda rest: said(compact=SPLIT)[1][:10] + rest
        ),
        max_size=5,
    )
)
def test_arbitrary_bytes_give_finite_accelerations(makers: Any, messages: list[bytes]) -> None:
    for make, _ in makers:
        agent = make(0, 0)
        for _ in range(2):
            act(agent, *messages)
            assert np.isfinite(agent.end()).all()


LOOPS = """#include "{header}"
void to_half(const float *x, uint16_t *y, int count) {{ while (count-- > 0) y[count] = agent_to_half(x[count]); }}
void from_half(const uint16_t *x, float *y, int count) {{ while (count-- > 0) y[count] = agent_from_half(x[count]); }}
void quantize(const float *x, uint16_t *y, int count)
{{ while (count-- > 0) y[count] = agent_quantize(x[count], {per_quantum}); }}
void dequantize(const uint16_t *x, const float *own, float *y, int count)
{{ while (count-- > 0) y[count] = agent_dequantize(x[count], own[count], {quantum}, {per_quantum}); }}
"""
QUANTUM = CompactFormat(SENSES, 2, 3.0, 2).quanta[0]


@pytest.fixture(scope="module")
def conversions(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the conversions of an exported header, as a library with loops over arrays."""
    folder = tmp_path_factory.mktemp("conversions")
    header, _ = ef.export("tanner-dynamic", folder / "agent.h", message_bytes=20)
    numbers = {"quantum": format_c_float(QUANTUM), "per_quantum": format_c_float(1.0 / QUANTUM)}
    source, library = folder / "conversions.c", folder / "conversions.so"
    source.write_text(LOOPS.format(header=header, **numbers))
    subprocess.run(["cc", *COMPILER_FLAGS, "-shared", "-fPIC", str(source), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def convert(function: Any, result: Any, *arrays: Any) -> Any:
    """Return the array of type `result` that a C function fills in from others."""
    found = np.empty(len(arrays[0]), result)
    function(*(array.ctypes.data_as(ctypes.c_void_p) for array in (*arrays, found)), len(found))
    return found


def test_all_float16_numbers_are_converted_to_float_and_back(conversions: Any) -> None:
    halves = np.arange(2**16, dtype=np.uint16)
    numbers, found = halves.view(np.float16).astype(np.float32), convert(conversions.from_half, np.float32, halves)
    np.testing.assert_array_equal(found, numbers)
    np.testing.assert_array_equal(np.signbit(found), halves >= 2**15)
    finite = np.isfinite(numbers)
    np.testing.assert_array_equal(convert(conversions.to_half, np.uint16, found[finite]), halves[finite])


def test_floats_are_rounded_to_the_nearest_float16_with_ties_to_even(conversions: Any) -> None:
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves[:-1] + halves[1:]) / 2
    chance = np.random.default_rng(0)
    bits = chance.integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    near = (chance.normal(size=100_000) * 10.0 ** chance.uniform(-9.0, 6.0, 100_000)).astype(np.float32)
    special = np.float32([65504.0, 65519.9, 65520.0, np.inf, -np.inf, 0.0, -0.0])
    around = [ties, np.nextafter(ties, np.float32(0.0)), np.nextafter(ties, np.float32(np.inf))]
    floats = np.concatenate([*around, -ties, bits, near, special])
    found, is_nan = convert(conversions.to_half, np.uint16, floats), np.isnan(floats)
    np.testing.assert_array_equal(found[~is_nan], round_to_float16(floats[~is_nan]).view(np.uint16))
    assert np.isnan(found[is_nan].view(np.float16)).all()


def test_states_are_quantized_as_the_wire_format_says(conversions: Any) -> None:
    chance = np.random.default_rng(1)
    own = (chance.normal(size=50_000) * 10.0 ** chance.uniform(-3.0, 8.0, 50_000)).clip(-1e8, 1e8).astype(np.float32)
    words = chance.integers(0, 2**16, 50_000, dtype=np.uint16)
    np.testing.assert_array_equal(convert(conversions.quantize, np.uint16, own), quantize(own, QUANTUM))
    found = convert(conversions.dequantize, np.float32, words, own)
    np.testing.assert_array_equal(found, dequantize(words, own, QUANTUM))


@pytest.mark.parametrize("closing_speed", [0.5, 1.5, 2.0, 2.5, 3.0])
def test_a_neighbour_that_approaches_at_twice_the_speed_limit_is_evaded(closing_speed: float, tmp_path: Path) -> None:
    limits = ef.SafetyLimits(max_acceleration=4.0, max_speed=1.5, min_separation=0.2)
    accelerations = []
    for stem, messages in (("plain", {}), ("compact", {"message_bytes": 200})):
        ef.export(
            "starling:comm_radius=3:time_scale=12.9", tmp_path / f"{stem}.npz", dimensions=3, safety=limits, **messages
        )
        make_agent = import_agent_class(tmp_path / f"{stem}.py")
        one, other = (make_agent(number=n, period=0.05) for n in (1, 2))
        one.begin((0.0, 0.0, 0.0), (closing_speed / 2, 0.0, 0.0))
        assert one.receive(other.begin((0.4, 0.0, 0.0), (-closing_speed / 2, 0.0, 0.0))) is None
        accelerations.append(np.asarray(one.end()))
    assert accelerations[0][0] < -1.0
    np.testing.assert_allclose(accelerations[1], accelerations[0], rtol=0.02, atol=0.01)
