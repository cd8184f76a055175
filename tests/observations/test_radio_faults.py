"""The radio loses, delays and distorts messages as often and as much as it was asked to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equiflock.features import Senses, paper_senses
from equiflock.flock import Flock
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.observations.radio import Radio
from tests.observations import radio_twin


def record_arrivals(radio: Radio, steps: int, agents: int = 12) -> Any:
    """(steps, agents, agents): whose message each of some agents uses, all within reach of all, standing still."""
    circle = np.stack([np.cos(np.arange(agents)), np.sin(np.arange(agents))], axis=-1)[None] * 0.4
    flock = Flock(circle, np.zeros_like(circle))
    ours = DelayedAggregation(paper_senses("mean", 1), radio=radio)
    found = np.zeros((steps, agents, agents), bool)
    for step in range(steps):
        ours.observe(flock)
        receivers, senders = ours.compute_message_graph(flock).edges(0).T
        found[step, receivers, senders] = True
    links = ~np.eye(agents, dtype=bool)
    return found[:, links]


@pytest.mark.parametrize("packet_loss", [0.05, 0.3, 0.9])
def test_packet_loss_is_the_share_of_lost_messages(packet_loss: float) -> None:
    arrived = record_arrivals(Radio(packet_loss=packet_loss, seed=4), 300)
    error = (packet_loss * (1 - packet_loss) / arrived.size) ** 0.5
    assert abs((~arrived).mean() - packet_loss) < 4 * error
    # Steps and links are independent: neither one link nor one step loses more than chance allows.
    assert np.abs((~arrived).mean(axis=0) - packet_loss).max() < 5 * (packet_loss * (1 - packet_loss) / 300) ** 0.5
    assert abs(np.corrcoef(arrived[1:].ravel(), arrived[:-1].ravel())[0, 1]) < 4 / arrived.size**0.5


@pytest.mark.parametrize(("packet_loss", "burst"), [(0.2, 1.0), (0.2, 5.0), (0.5, 8.0), (0.7, 2.5)])
def test_bursts_have_the_given_mean_length_and_packet_loss(packet_loss: float, burst: float) -> None:
    lost = ~record_arrivals(Radio(packet_loss=packet_loss, burst=burst, seed=6), 1_000)
    # Runs that begin and end within the time; each length is geometric, with a standard deviation of about the mean.
    begins = lost[1:] & ~lost[:-1]
    lengths = lost.sum() / max((begins.sum() + lost[0].sum()), 1)
    runs = begins.sum()
    assert abs(lengths - burst) < 5 * burst / runs**0.5 + burst * burst / 1_000
    # Losses of one link are alike for some burst lengths, so the effective sample is smaller by that factor.
    assert abs(lost.mean() - packet_loss) < 5 * (packet_loss * (1 - packet_loss) * 2 * burst / lost.size) ** 0.5


@pytest.mark.parametrize("burst", [None, 3.0])
def test_burst_state_matches_a_simulated_chain(burst: float | None) -> None:
    radio = Radio(packet_loss=0.4, burst=burst, seed=9)
    arrived = record_arrivals(radio, 12, agents=3)
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
    for step in range(12):
        expected = [not radio_twin.is_lost(radio, 0, step, j, i) for i, j in pairs]
        assert arrived[step].tolist() == expected


def test_delayed_message_has_the_sent_position() -> None:
    """Agent 1 flies away from agent 0, which stands still and observes where agent 1 was two steps ago."""
    flights = [Flock([[[0.0, 0.0], [0.1 * n, 0.0]]], [[[0.0, 0.0], [1.0, 0.0]]]) for n in range(1, 12)]
    ours = DelayedAggregation(Senses((("velocity", "sum"), ("inverse-square", "sum"))), radio=Radio(delay=2))
    known = [ours.observe(flock)[0, 0, 0].copy() for flock in flights]
    assert not known[0].any() and not known[1].any()
    for n in range(2, 11):
        np.testing.assert_allclose(known[n], [[-1.0, 0.0], [-1 / (0.1 * (n - 1)), 0.0]], rtol=1e-6)


def test_reach_is_decided_at_the_send_step() -> None:
    far, near = ([[[0.0, 0.0], [x, 0.0]]] for x in (1.5, 0.5))
    ours = DelayedAggregation(paper_senses("mean", 1), radio=Radio(delay=1))
    for positions, arrived in ((far, 0), (near, 0), (near, 1), (far, 1), (far, 0)):
        flock = Flock(positions, np.zeros((1, 2, 2)))
        ours.observe(flock)
        assert len(ours.compute_message_graph(flock).neighbours(0, 0)) == arrived


def test_jitter_is_uniform_and_adds_to_the_delay() -> None:
    """Agents send at one step of many, so the arrival of a message shows its delay."""
    radio = Radio(delay=1, jitter=3, send_interval=10, seed=3)
    arrived = record_arrivals(radio, 203, agents=20)
    senders = np.array([j for i in range(20) for j in range(20) if i != j])
    phases = np.array([next(m for m in range(10) if radio_twin.sends(radio, 0, m, j)) for j in senders.tolist()])
    steps, links = np.nonzero(arrived)
    took = (steps - phases[links]) % 10
    counts = np.bincount(took, minlength=10)
    assert counts[0] == 0 and not counts[5:].any()
    assert np.abs(counts[1:5] / counts.sum() - 0.25).max() < 5 * (0.25 * 0.75 / counts.sum()) ** 0.5


def test_send_interval_and_phases() -> None:
    arrived = record_arrivals(Radio(send_interval=4, seed=2), 40, agents=20)
    assert (arrived.sum(axis=0) == 10).all()
    assert (np.diff(np.nonzero(arrived.T)[1].reshape(-1, 10), axis=1) == 4).all()
    assert len({tuple(link) for link in arrived[:4].T.tolist()}) == 4


def test_last_known_message_is_used_until_it_expires() -> None:
    arrived = record_arrivals(Radio(send_interval=5, last_known=2, seed=2), 50, agents=6)
    assert (arrived[10:].sum(axis=0) == 3 * 8).all()  # at its arrival and two steps more, of five
    assert record_arrivals(Radio(send_interval=5, last_known=4, seed=2), 50, agents=6)[5:].all()


@pytest.mark.parametrize("D", [2, 3])
def test_noise_has_the_given_standard_deviation(D: int) -> None:
    rng = np.random.default_rng(0)
    positions, velocities = rng.uniform(-0.2, 0.2, (40, 6, D)), rng.normal(size=(40, 6, D))
    flock = Flock(positions, velocities, comm_radius=2.0)

    def sums(radio: Radio) -> Any:
        ours = DelayedAggregation(Senses((("velocity", "sum"), ("offset", "sum"))), radio=radio)
        return np.stack([ours.observe(flock)[:, :, 0].copy() for _ in range(20)])

    from equiflock.features import FEATURES, feature

    feature("offset", vector="position")(lambda square: 1.0)
    try:
        noise = sums(Radio(noise=0.03)) - sums(Radio(packet_loss=1e-300))
    finally:
        del FEATURES.parts["offset"]
    # Five messages each, so the variance of a sum is five times that of a message; in R = 2 and R per second.
    for channel in range(2):
        found = noise[:, :, :, channel].std()
        assert abs(found / (0.06 * 5**0.5) - 1) < 5 / (2 * noise[:, :, :, channel].size) ** 0.5


@given(st.floats(-1e6, 1e6), st.integers(10, 32))
def test_quantization_rounds_to_the_nearest(x: float, bits: int) -> None:
    from equiflock.observations.message_buffer import MessageBuffer
    from equiflock.observations.radio_kernels import quantize

    found = quantize(x, MessageBuffer(Radio(quantization=bits))._splitter)
    fraction, _ = np.frexp(found)
    assert fraction * 2 ** (bits - 8) == np.rint(fraction * 2 ** (bits - 8))
    assert abs(found - x) <= 2.0 ** -(bits - 8) * abs(x)
    if bits == 32 and abs(x) > 1e-30:
        assert found == np.float32(x)
