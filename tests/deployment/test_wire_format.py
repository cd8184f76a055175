from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock.deployment.wire_format import (
    CompactFormat,
    Message,
    count_message_bytes,
    decode_message,
    dequantize,
    encode_message,
    make_zero_hops,
    quantize,
)

SENSES = ef.paper_senses(hops=3)
WHOLE = st.integers(0, 2**32 - 1)


def message(hops: int = 3, channels: int = 3, D: int = 2, **fields: int) -> tuple[Message, ef.Senses]:
    senses = ef.Senses((("velocity", "mean"),) * channels, hops)
    numbers = np.random.default_rng(hops * 100 + channels * 10 + D).normal(size=(2 * D + (hops - 1) * channels * D))
    position, velocity, relayed = np.split(numbers.astype(np.float32), [D, 2 * D])
    header = {"sender": 7, "step": 9, **fields}
    return Message(position=position, velocity=velocity, hops=relayed.reshape(hops - 1, channels, D), **header), senses


@given(st.integers(1, 5), st.integers(1, 6), st.sampled_from((2, 3)), WHOLE, WHOLE, st.integers(0, 255))
def test_what_is_decoded_is_what_was_encoded(
    hops: int, channels: int, D: int, sender: int, step: int, group: int
) -> None:
    sent, senses = message(hops, channels, D, sender=sender, step=step, group=group)
    data = encode_message(sent)
    assert len(data) == count_message_bytes(senses, D) == 12 + 8 * D + 4 * (hops - 1) * channels * D
    got = decode_message(data, senses, D)
    assert isinstance(got, Message)
    assert (got.sender, got.step, got.group, got.is_obstacle) == (sender, step, group, group == 255)
    for name in ("position", "velocity", "hops"):
        np.testing.assert_array_equal(getattr(got, name), getattr(sent, name))


def test_every_byte_is_where_the_format_says() -> None:
    sent, _ = message(hops=2, channels=1, D=2, sender=0x01020304, step=0x0A0B0C0D, group=5)
    data = encode_message(sent)
    assert data[:12] == b"EF\x01\x05\x04\x03\x02\x01\x0d\x0c\x0b\x0a"
    assert struct.unpack("<6f", data[12:]) == (*sent.position, *sent.velocity, *sent.hops.ravel())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: b"", "expected 76 bytes, got 0"),
        (lambda data: data[:-1], "expected 76 bytes, got 75"),
        (lambda data: data + b"\0", "got 77"),
        (lambda data: b"XX" + data[2:], "begin with EF"),
        (lambda data: data[:2] + b"\x02" + data[3:], "expected version 1, got 2"),
        (lambda data: data[:12] + struct.pack("<f", np.nan) + data[16:], "not finite"),
        (lambda data: data[:20] + struct.pack("<f", -np.inf) + data[24:], "not finite"),
        (lambda data: data[:12] + struct.pack("<f", 1e9) + data[16:], "too large"),
        (lambda data: data[:-4] + struct.pack("<f", 1e19), "too large"),
    ],
)
def test_invalid_messages_are_rejected_with_a_reason(change: object, reason: str) -> None:
    refused = decode_message(change(encode_message(message()[0])), SENSES, 2)  # type: ignore[operator]
    assert isinstance(refused, str)
    assert reason in refused


@given(st.binary(min_size=76, max_size=76))
def test_arbitrary_bytes_neither_raise_an_error_nor_decode_to_nan(data: bytes) -> None:
    for candidate in (data, b"EF\x01" + data[3:]):
        got = decode_message(candidate, SENSES, 2)
        assert isinstance(got, str) or np.isfinite(got.hops).all()


@pytest.mark.parametrize("field", [{"sender": -1}, {"sender": 2**32}, {"step": 2**32}, {"group": 256}])
def test_numbers_that_do_not_fit_are_an_error(field: dict[str, int]) -> None:
    with pytest.raises(ef.InputError, match=next(iter(field))):
        encode_message(message(**field)[0])


def test_zero_hops_are_zero() -> None:
    assert make_zero_hops(SENSES, 3).shape == (2, 3, 3)
    assert not make_zero_hops(SENSES, 3).any()


def compact(hops: int = 3, channels: int = 3, D: int = 2, relayed_hops: int = 2, packets: int = 1) -> CompactFormat:
    return CompactFormat(ef.Senses((("velocity", "mean"),) * channels, hops), D, 1.0, relayed_hops, packets)


@given(st.integers(1, 4), st.integers(1, 5), st.sampled_from((2, 3)), st.integers(0, 3), st.integers(1, 15), WHOLE)
def test_a_compact_message_is_decoded_to_its_precision(
    hops: int, channels: int, D: int, relayed_hops: int, packets: int, step: int
) -> None:
    relayed_hops = min(relayed_hops, hops - 1)
    sent, _ = message(hops, channels, D, sender=2**16 - 1, step=step, group=255)
    form = compact(hops, channels, D, relayed_hops, packets)
    data = form.encode(sent)
    vectors = math.ceil((1 + relayed_hops * channels) / packets)
    assert [len(packet) for packet in data] == [10 + 2 * D * (1 + vectors)] * packets
    got = form.decode(data[::-1], sent.position + 7.9, sent.velocity - 31.9)
    assert isinstance(got, Message)
    assert (got.sender, got.step, got.group, got.is_obstacle) == (2**16 - 1, step % 2**16, 255, True)
    for name, half_quantum in (("position", 2**-13), ("velocity", 2**-11)):
        np.testing.assert_allclose(getattr(got, name), getattr(sent, name), rtol=0, atol=half_quantum * 1.001)
    np.testing.assert_array_equal(got.hops[:relayed_hops], sent.hops[:relayed_hops].astype(np.float16))
    assert not got.hops[relayed_hops:].any()


@given(st.floats(-1e5, 1e5), st.floats(-7.999, 7.999), st.sampled_from((0.01, 1.0, 3.0, 200.0)), st.floats(-3e-4, 3e-4))
def test_the_representative_nearest_to_the_receiver_is_decoded(
    own: float, distance: float, radius: float, beyond: float
) -> None:
    quantum = 16.0 * radius / 2**16
    own = float(np.float32(own * radius))
    # Float32 resolves positions far away from the origin worse than the quantum.
    tolerance = 0.51 * quantum + 2e-7 * abs(own)
    other = float(np.float32(own + distance * radius))
    assert abs(float(dequantize(quantize(other, quantum), own, quantum)) - other) <= tolerance
    # At the edge of the window it may be the other side.
    edge = own + (8.0 + beyond) * radius
    error = float(dequantize(quantize(edge, quantum), own, quantum)) - edge
    assert min(abs(error), abs(error + 16.0 * radius)) <= tolerance + 1e-6 * radius


def test_what_is_beyond_the_window_appears_at_another_place() -> None:
    quantum = compact().quanta[0]
    decoded = dequantize(quantize(np.array([8.1, -8.1, 7.9]), quantum), np.zeros(3), quantum)
    np.testing.assert_allclose(decoded, [-7.9, 7.9, 7.9], atol=quantum)


def test_every_byte_of_a_packet_is_where_the_format_says() -> None:
    sent, _ = message(hops=2, channels=2, D=2, sender=0x0102, step=0x0A0B0C0D, group=5)
    form = compact(hops=2, channels=2, relayed_hops=1, packets=2)
    first, second = form.encode(sent)
    assert first[:10] == b"EF\x02\x05\x02\x01\x0d\x0c\x02" + bytes([form.layout])
    assert second[:10] == first[:8] + b"\x12" + first[9:10]
    assert first[10:14] == second[10:14] == quantize(sent.position, form.quanta[0]).tobytes()
    assert first[14:] == quantize(sent.velocity, form.quanta[1]).tobytes() + sent.hops[0, 0].astype("<f2").tobytes()
    assert second[14:] == sent.hops[0, 1].astype("<f2").tobytes() + bytes(4)


def test_quanta_of_velocities_are_in_the_robots_seconds() -> None:
    senses = ef.load("etdagnn", comm_radius=5.0, time_scale=15.0).senses
    assert CompactFormat(senses, 2, 5.0, 2).quanta == pytest.approx((5.0 / 4096.0, 5.0 / 1024.0 / 15.0), rel=1e-12)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-1], "expected 42 bytes, got 41"),
        (lambda data: b"XX" + data[2:], "begin with EF"),
        (lambda data: data[:2] + b"\x01" + data[3:], "expected version 2, got 1"),
        (lambda data: data[:8] + b"\x00" + data[9:], "not a packet of a valid state"),
        (lambda data: data[:8] + b"\x11" + data[9:], "not a packet"),
        (lambda data: data[:9] + bytes([data[9] ^ 1]) + data[10:], "layout"),
        (lambda data: data[:-2] + struct.pack("<e", np.inf), "not finite"),
    ],
)
def test_invalid_packets_are_rejected_with_a_reason(change: Callable[[bytes], bytes], reason: str) -> None:
    (packet,) = compact().encode(message()[0])
    refused = compact().decode([change(packet)], np.zeros(2, np.float32), np.zeros(2, np.float32))
    assert isinstance(refused, str)
    assert reason in refused


def test_a_message_without_all_packets_is_rejected() -> None:
    form = compact(packets=3)
    first, second, _ = form.encode(message()[0])
    refused = form.decode([first, second, first], np.zeros(2, np.float32), np.zeros(2, np.float32))
    assert refused == "expected 3 packets, got 2"


@pytest.mark.parametrize("value", [np.nan, np.inf, 2e8])
def test_a_sender_without_a_valid_state_says_so(value: float) -> None:
    sent = replace(message()[0], velocity=np.array([value, 0.0], np.float32))
    (packet,) = compact().encode(sent)
    assert packet[8] == 0


def test_formats_that_differ_have_different_layouts() -> None:
    formats = [
        compact(),
        compact(D=3),
        compact(relayed_hops=1),
        compact(packets=2),
        replace(compact(), comm_radius=2.0),
    ]
    assert len({each.layout for each in formats}) == len(formats)


@pytest.mark.parametrize("field", [{"sender": 2**16}, {"sender": -1}, {"group": 256}])
def test_numbers_that_do_not_fit_into_a_packet_are_an_error(field: dict[str, int]) -> None:
    with pytest.raises(ef.InputError, match=next(iter(field))):
        compact().encode(message(**field)[0])
