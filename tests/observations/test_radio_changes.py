"""Changes of the radio between two steps, and repaired agents."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equiflock._runtime.checks import InputError
from equiflock._runtime.threads import MAX_SMALL_FLOCK
from equiflock.features import Senses, paper_senses
from equiflock.flock import Condition, Flock
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.observations.radio import IDEAL_RADIO, Radio
from equiflock.scenarios import random_disk
from tests.flocks import flocks
from tests.observations.test_aggregation import wandering
from tests.observations.test_radio import radios

ONE_HOP = [paper_senses("sum", 1), paper_senses("mean", 1, "fixed"), Senses((("velocity", "sum"),))]
"""Senses of one hop, which have no memory."""


def fly(senses: Senses, radio: Radio, path: list[Flock], then: Radio | None = None, at: int = 0) -> list[np.ndarray]:
    """What is known at each step, with another radio from step `at` on."""
    return go_on(DelayedAggregation(senses, radio=radio), path, then, at)


def begin_after(before: Radio, steps: int, senses: Senses, radio: Radio, path: list[Flock]) -> list[np.ndarray]:
    """Return the observations at each step of a new radio that continues the step count of another."""
    ours = DelayedAggregation(senses)
    ours._radio_state.steps = -1 if before.is_ideal else steps - 1
    ours.radio = radio
    return go_on(ours, path)


def go_on(ours: DelayedAggregation, path: list[Flock], then: Radio | None = None, at: int = 0) -> list[np.ndarray]:
    known = []
    for step, now in enumerate(path):
        if then is not None and step == at:
            ours.radio = then
        known.append(ours.observe(now).copy())
    return known


@given(flocks(max_agents=12), radios(), st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from(ONE_HOP))
def test_new_packet_loss_applies_as_if_it_had_always_been_set(
    flock: Flock, radio: Radio, packet_loss: float, senses: Senses
) -> None:
    other = dataclasses.replace(radio, packet_loss=packet_loss, burst=None)
    if radio.is_ideal or other.is_ideal:
        return
    path = list(wandering(flock, 7))
    for found, wanted in zip(fly(senses, radio, path, other, 4)[4:], fly(senses, other, path)[4:], strict=True):
        assert np.array_equal(found, wanted)


@given(
    flocks(max_agents=12), radios(), radios(), st.sampled_from([each for each in ONE_HOP if each.topology != "fixed"])
)
def test_radio_with_another_memory_drops_messages_in_transit(
    flock: Flock, radio: Radio, other: Radio, senses: Senses
) -> None:
    if radio.memory == other.memory and not radio.is_ideal:
        return
    path = list(wandering(flock, 8))
    for found, wanted in zip(
        fly(senses, radio, path, other, 4)[4:], begin_after(radio, 4, senses, other, path[4:]), strict=True
    ):
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("radio", [Radio(packet_loss=0.3), Radio(delay=1), Radio(delay=2, noise=0.1), IDEAL_RADIO])
def test_large_flock_with_another_radio_starts_afresh(radio: Radio) -> None:
    path = list(wandering(random_disk(agents=MAX_SMALL_FLOCK + 1, radius_rule="constant-density"), 6))
    senses = paper_senses("mean", 1)
    for before in (IDEAL_RADIO, Radio(packet_loss=0.5, delay=3)):
        for found, wanted in zip(
            fly(senses, before, path, radio, 2)[2:], begin_after(before, 2, senses, radio, path[2:]), strict=True
        ):
            assert np.array_equal(found, wanted)


@pytest.mark.parametrize("delay", [0, 2])
def test_repaired_agent_sends_only_new_messages(delay: int) -> None:
    flock = random_disk(flocks=2, agents=12)
    conditions = np.zeros((2, 12), int)
    conditions[0, 3] = Condition.SILENT
    failed = dataclasses.replace(flock, conditions=conditions)
    ours = DelayedAggregation(paper_senses("mean", 1), radio=Radio(packet_loss=1e-300, delay=delay))
    for _ in range(5):
        ours.observe(failed)
    assert 3 not in ours.compute_message_graph(failed).edges(0)[:, 1]
    ours.replace(flock, np.ones(12, bool))
    for step in range(4):
        ours.observe(flock)
        assert (3 in ours.compute_message_graph(flock).edges(0)[:, 1]) == (step >= delay)
        assert (
            3 in ours.compute_message_graph(flock).edges(1)[:, 1]
        )  # the agent of that number in another flock always worked


def test_rejected_radio_leaves_the_state_unchanged() -> None:
    ours = DelayedAggregation(paper_senses("mean", 2, hop_mean="sender"))
    with pytest.raises(InputError, match="a sender cannot know how many agents receive from it"):
        ours.radio = Radio(packet_loss=0.1)
    with pytest.raises(InputError, match="radio must be a Radio"):
        ours.radio = 0.1  # type: ignore[assignment]
    assert ours.radio == IDEAL_RADIO
    ours.radio = None
    assert ours.radio is IDEAL_RADIO
