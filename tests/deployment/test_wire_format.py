from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock.deployment.wire_format import (
    Message,
    count_message_bytes,
    decode_message,
    encode_message,
    make_zero_hops,
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
