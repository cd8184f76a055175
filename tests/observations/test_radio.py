"""The radio: its kernels agree with their slow twin, it is local, and it stands changes of the flock."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equiflock._runtime import threads
from equiflock._runtime.checks import InputError
from equiflock.features import Senses, paper_senses
from equiflock.flock import Flock
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.observations.orbit import Orbit
from equiflock.observations.radio import Radio
from equiflock.scenarios import random_disk
from tests.flocks import flocks
from tests.observations.radio_twin import RadioTwin
from tests.observations.test_aggregation import wandering

STILL_PERFECT = Radio(packet_loss=1e-300)
"""Not perfect by its settings, but no message of it is ever lost."""
SENSES = [
    paper_senses("mean", 3),
    paper_senses("sum", 1),
    paper_senses("sum", 2, "fixed"),
    Senses((("velocity", "sum"), ("inverse-square", "mean")), hops=2),
]


@st.composite
def radios(draw: st.DrawFn) -> Radio:
    """Radios with any of their faults, alone and together."""
    packet_loss = draw(st.sampled_from([0.0, 0.2, 0.6, 1.0]))
    return Radio(
        packet_loss=packet_loss,
        burst=draw(st.sampled_from([None, 1.5, 3.5])),
        delay=draw(st.integers(0, 2)),
        jitter=draw(st.sampled_from([0, 0, 1, 2])),
        noise=draw(st.sampled_from([0.0, 0.05])),
        quantization=draw(st.sampled_from([None, 12, 16])),
        send_interval=draw(st.sampled_from([1, 1, 2])),
        last_known=draw(st.sampled_from([0, 0, 2])),
        seed=draw(st.integers(0, 5)),
    )


@pytest.mark.slow
@settings(max_examples=120)
@given(flocks(max_agents=12), radios(), st.sampled_from(SENSES), st.sampled_from([None, Orbit()]))
def test_observations_match_the_radio_twin(flock: Flock, radio: Radio, senses: Senses, orbit: Orbit | None) -> None:
    ours, twin = DelayedAggregation(senses, radio=radio, orbit=orbit), RadioTwin(senses, radio, orbit)
    for now in wandering(flock, 5):
        known, expected = ours.observe(now), twin.observe(now)
        assert np.isfinite(known).all()
        for b in range(len(flock)):
            scale = np.abs(expected[b]).max() + 1.0
            np.testing.assert_allclose(known[b], expected[b], rtol=5e-4, atol=1e-4 * scale)


@given(flocks(), st.sampled_from(SENSES))
def test_radio_without_losses_is_bit_identical_to_the_ideal_radio(flock: Flock, senses: Senses) -> None:
    perfect, ours = DelayedAggregation(senses), DelayedAggregation(senses, radio=STILL_PERFECT)
    for now in wandering(flock, 3):
        assert np.array_equal(perfect.observe(now), ours.observe(now))


@given(flocks(), st.sampled_from(SENSES), radios())
def test_observations_are_zero_if_all_messages_are_lost(flock: Flock, senses: Senses, radio: Radio) -> None:
    ours = DelayedAggregation(senses, radio=dataclasses.replace(radio, packet_loss=1.0))
    for now in wandering(flock, 3):
        assert not ours.observe(now).any()
        assert not len(ours.compute_message_graph(now).senders)


RADIOS = [
    Radio(packet_loss=0.3, seed=1),
    Radio(packet_loss=0.3, burst=4.0, delay=1, noise=0.02),
    Radio(delay=2, quantization=14, send_interval=2),
    Radio(packet_loss=0.4, jitter=2, last_known=3, noise=0.01),
]


@pytest.mark.parametrize("radio", RADIOS, ids=str)
@pytest.mark.parametrize("shape", [(7, 60), (1, 3_000)], ids=str)
def test_radio_does_not_depend_on_the_number_of_threads(radio: Radio, shape: tuple[int, int]) -> None:
    start = random_disk(*shape, seed=2, radius_rule="constant-density")
    found = []
    for count in (1, 2, 3):
        with threads.use(count):
            ours = DelayedAggregation(paper_senses("mean", 3), radio=radio)
            found.append(np.stack([ours.observe(now).copy() for now in wandering(start, 5)]))
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    assert found[0].any()


@pytest.mark.slow
@pytest.mark.parametrize("radio", RADIOS[:3], ids=str)
def test_radio_is_bit_identical_for_large_and_small_flock_paths(radio: Radio, monkeypatch: pytest.MonkeyPatch) -> None:
    start = random_disk(1, 400, seed=3)
    ours, large = (DelayedAggregation(paper_senses("mean", 3), radio=radio) for _ in range(2))
    small = [ours.observe(now).copy() for now in wandering(start, 4)]
    monkeypatch.setattr("equiflock.observations.aggregation.MAX_SMALL_FLOCK", 10)
    assert all(np.array_equal(one, large.observe(now)) for one, now in zip(small, wandering(start, 4), strict=True))


@pytest.mark.parametrize("radio", RADIOS, ids=str)
def test_agents_out_of_reach_do_not_change_observations_by_radio(radio: Radio) -> None:
    start = random_disk(1, 40, seed=5)
    # Three more agents out of reach; the others keep their indices.
    far = np.array([[[50.0, 3.0], [50.5, 3.1], [-70.0, 9.0]]])
    more = Flock(np.concatenate([start.positions, far], 1), np.concatenate([start.velocities, 0 * far], 1))
    alone, among = (DelayedAggregation(paper_senses("sum", 3), radio=radio) for _ in range(2))
    for one, other in zip(wandering(start, 4), wandering(more, 4), strict=True):
        assert np.array_equal(alone.observe(one), among.observe(other)[:, :40])


def test_links_are_independent() -> None:
    """A second sender comes within reach of agent 0: what agent 0 gets from the first one stays as it was."""
    alone = Flock([[[0.0, 0.0], [0.5, 0.0], [9.0, 0.0]]], np.zeros((1, 3, 2)))
    joined = Flock([[[0.0, 0.0], [0.5, 0.0], [0.0, 0.5]]], np.zeros((1, 3, 2)))
    ours, others = (
        DelayedAggregation(paper_senses("sum", 1), radio=Radio(packet_loss=0.5, burst=3.0)) for _ in range(2)
    )
    for _ in range(50):
        ours.observe(alone)
        others.observe(joined)
        assert (1 in ours.compute_message_graph(alone).neighbours(0, 0)) == (
            1 in others.compute_message_graph(joined).neighbours(0, 0)
        )


def test_new_agents_send_from_their_first_step_and_messages_in_transit_are_kept() -> None:
    radio = Radio(delay=2)
    one = Flock([[[0.0, 0.0], [0.5, 0.0]]], np.zeros((1, 2, 2)))
    two = Flock([[[0.0, 0.0], [0.5, 0.0], [0.0, 0.5]]], np.zeros((1, 3, 2)))
    for late in (radio, dataclasses.replace(radio, last_known=1)):
        ours = DelayedAggregation(paper_senses("mean", 2), radio=late)
        for _ in range(4):
            ours.observe(one)
        ours.replace(two, np.ones(2, bool))
        degrees = []
        for _ in range(4):
            ours.observe(two)
            degrees.append(len(ours.compute_message_graph(two).neighbours(0, 0)))
        assert degrees == [1, 1, 2, 2]


def test_new_agents_receive_no_earlier_messages() -> None:
    one = Flock([[[0.0, 0.0], [0.5, 0.0]]], np.zeros((1, 2, 2)))
    two = Flock([[[0.0, 0.0], [0.5, 0.0], [0.0, 0.5]]], np.zeros((1, 3, 2)))
    for radio in (Radio(delay=2), Radio(delay=2, last_known=1)):
        ours = DelayedAggregation(paper_senses("mean", 2), radio=radio)
        for _ in range(4):
            ours.observe(one)
        ours.replace(two, np.ones(2, bool))
        receptions = []
        for _ in range(3):
            known = ours.observe(two)
            receptions.append((len(ours.compute_message_graph(two).neighbours(0, 2)), bool(known[0, 2].any())))
        assert receptions == [(0, False), (0, False), (2, True)]


@pytest.mark.parametrize("radio", [Radio(delay=2, packet_loss=0.2), Radio(delay=1, last_known=2)], ids=str)
def test_replaced_flock_in_other_units_has_the_same_observations(radio: Radio) -> None:
    """Everything five times as long and fifteen times as slow, before and after an agent joins."""
    start = random_disk(1, 20, seed=3)
    more = Flock(*(np.concatenate([array, array[:, :1] * 0.5], axis=1) for array in start.arrays[:2]))
    own = DelayedAggregation(paper_senses("mean", 2), radio=radio)
    scaled = DelayedAggregation(dataclasses.replace(own.senses, length_scale=4.0, time_scale=16.0), radio=radio)
    for _ in range(4):
        assert np.array_equal(own.observe(start), scaled.observe(start.in_units(1 / 4, 1 / 16)))
    for senses, flock in ((own, more), (scaled, more.in_units(1 / 4, 1 / 16))):
        senses.replace(flock, np.ones(20, bool))
    for _ in range(4):
        assert np.array_equal(own.observe(more), scaled.observe(more.in_units(1 / 4, 1 / 16)))


@pytest.mark.parametrize(
    "radio", [Radio(packet_loss=0.5), Radio(delay=1), Radio(last_known=1), Radio(jitter=1)], ids=str
)
def test_out_of_range_velocities_are_rejected_by_every_radio(radio: Radio) -> None:
    slow = Flock([[[0.0, 0.0], [0.5, 0.0]]], [[[1.0, 0.0], [0.0, 0.0]]])
    flock = Flock.view(slow.positions, slow.velocities * 1e60, *slow.arrays[2:], comm_radius=1.0)
    ours = DelayedAggregation(paper_senses("mean", 2), radio=radio)
    with pytest.raises(InputError, match="off the scale"):
        for _ in range(3):
            ours.observe(flock)


@pytest.mark.parametrize("radio", [*RADIOS, Radio(packet_loss=0.5, last_known=2)], ids=str)
def test_radio_does_not_depend_on_the_order_in_memory(radio: Radio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents in another order in memory, known by their numbers, before and after they are put into a third one."""
    monkeypatch.setattr("equiflock.observations.aggregation.MAX_SMALL_FLOCK", 10)
    start = random_disk(1, 1_000, seed=4, radius_rule="constant-density")
    rng = np.random.default_rng(0)
    agent_ids, other = rng.permutation(1_000), rng.permutation(1_000)
    plain, shuffled = (DelayedAggregation(paper_senses("mean", 2), radio=radio) for _ in range(2))
    for step, now in enumerate(wandering(start, 6)):
        if step == 3:
            shuffled.renumber(other)
            agent_ids = agent_ids[other]
        moved = Flock(*(array[:, agent_ids] for array in now.arrays[:2]))
        known = plain.observe(now)
        assert np.array_equal(known[:, agent_ids], shuffled.observe(moved, agent_ids=agent_ids))
        here, there = (
            plain.compute_message_graph(now),
            shuffled.compute_message_graph(moved, agent_ids).renumber_agents(agent_ids),
        )
        assert np.array_equal(here.degrees, there.degrees)


def test_restarted_radio_does_not_repeat_its_losses() -> None:
    flock = random_disk(1, 40, seed=1)
    ours = DelayedAggregation(paper_senses("mean", 2), radio=Radio(packet_loss=0.5))
    first = [ours.observe(flock).copy() for _ in range(3)]
    ours.radio = None
    ours.observe(flock)
    ours.radio = Radio(packet_loss=0.5)
    again = [ours.observe(flock).copy() for _ in range(3)]
    assert not any(np.array_equal(one[:, :, 0], other[:, :, 0]) for one in first for other in again)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"packet_loss": 1.5}, "packet_loss must be a share from 0 to 1; got 1.5"),
        ({"packet_loss": float("nan")}, "packet_loss must be a share from 0 to 1; got nan"),
        ({"burst": 0.5}, "burst must be from 1 to 1,000 steps with packet_loss = 0; got 0.5"),
        ({"packet_loss": 0.5, "burst": 1.0}, "burst must be from 1.1 to 1,000 steps with packet_loss = 0.5; got 1.0"),
        ({"packet_loss": 0.9, "burst": 2.0}, "burst must be from 9 to 1,000 steps with packet_loss = 0.9; got 2.0"),
        ({"delay": -1}, "delay must be a whole number of at least 0; got -1"),
        ({"delay": 0.5}, "delay must be a whole number of at least 0; got 0.5"),
        ({"delay": 2_000}, "delay + jitter + last_known must be at most 1,000 steps; got 2,000"),
        ({"jitter": -2}, "jitter must be a whole number of at least 0; got -2"),
        ({"noise": 1.1}, "noise must be from 0 to 1 communication radius; got 1.1"),
        ({"quantization": 9}, "quantization must be from 10 to 32 bits per number; got 9"),
        ({"send_interval": 0}, "send_interval must be a whole number of at least 1; got 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0; got -1"),
    ],
    ids=str,
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        Radio(**settings)
    assert str(refused.value) == said


def test_sender_mean_needs_an_ideal_radio() -> None:
    with pytest.raises(InputError, match="a sender cannot know how many agents receive from it"):
        DelayedAggregation(paper_senses("mean", 2, hop_mean="sender"), radio=Radio(packet_loss=0.1))


def test_radio_must_be_a_radio() -> None:
    with pytest.raises(
        InputError, match=r"radio must be a Radio, such as equiflock.Radio\(packet_loss=0.2\), or None; got 0.2"
    ):
        DelayedAggregation(paper_senses(), radio=0.2)


def test_messages_that_do_not_fit_into_memory_are_refused_before_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    sensing = DelayedAggregation(paper_senses("mean", 1), radio=Radio(delay=1000))
    monkeypatch.setattr("equiflock._runtime.memory.read_physical_memory", lambda: 1e6)
    with pytest.raises(InputError, match=r"keeping the messages of 1,001 steps needs .* GiB, .*: lower delay"):
        sensing.observe(random_disk(agents=30))
