"""Only new frames of the right sender are accepted; all others are rejected and counted by reason."""

from __future__ import annotations

import pytest

from equiflock.deployment.frame_authentication import OVERHEAD, FrameSigner, FrameVerifier, derive_keys

KEYS = derive_keys(b"r" * 32, 3)
TAG, REPLAY = "wrong authentication tag", "replayed or out of order"


def make_link() -> tuple[FrameSigner, FrameVerifier]:
    return FrameSigner(KEYS.to_robot), FrameVerifier(KEYS.to_robot)


def test_authentic_frames_are_accepted_in_their_order_also_with_gaps() -> None:
    signer, verifier = make_link()
    signed = [signer.sign(frame) for frame in (b"", b"one", b"lost", b"three")]
    assert [verifier.verify(data) for data in (signed[0], signed[1], signed[3])] == [b"", b"one", b"three"]
    assert len(signed[1]) == len(b"one") + OVERHEAD == 3 + 24
    assert not verifier.rejected


def test_a_frame_with_any_bit_flipped_is_rejected() -> None:
    signer, verifier = make_link()
    data = signer.sign(b"stop")
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert verifier.verify(bytes(flipped)) is None
    assert verifier.rejected == {TAG: 8 * len(data)}
    assert verifier.verify(data) == b"stop"


def test_a_truncated_or_extended_frame_is_rejected() -> None:
    signer, verifier = make_link()
    data = signer.sign(b"stop")
    for size in range(len(data)):
        assert verifier.verify(data[:size]) is None
        assert verifier.verify(data[size + 1 :]) is None
    assert verifier.verify(data + b"\0") is None
    assert verifier.rejected == {"too short": 2 * OVERHEAD, TAG: 2 * len(b"stop") + 1}


def test_replayed_and_reordered_frames_are_rejected() -> None:
    signer, verifier = make_link()
    first, second, third = (signer.sign(bytes([number])) for number in range(3))
    assert verifier.verify(first) == b"\0"
    assert verifier.verify(first) is None
    assert verifier.verify(third) == b"\2"
    assert verifier.verify(second) is None
    assert verifier.rejected == {REPLAY: 2}


@pytest.mark.parametrize(
    "key",
    [KEYS.to_host, derive_keys(b"r" * 32, 4).to_robot, derive_keys(b"s" * 32, 3).to_robot],
    ids=["other direction", "other robot", "other run"],
)
def test_frames_with_another_key_are_rejected(key: bytes) -> None:
    _, verifier = make_link()
    assert verifier.verify(FrameSigner(key).sign(b"stop")) is None
    assert verifier.rejected == {TAG: 1}
