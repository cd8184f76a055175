"""The audit passes controllers that use only what they received, and catches all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock.deployment.audit import compute_causal_past

FEW = {"steps": 6, "agents": 3}


class Cheat:
    """Looks at the flock through the observations of others: far less than a thousandth of its command."""

    senses = ef.paper_senses("mean", hops=1)

    def __call__(self, observations: Any) -> Any:
        velocity = observations[:, :, 0, 0]
        return -velocity - 1e-5 * velocity.mean(axis=1, keepdims=True)


class Counter:
    """Uses how many agents there are, and nothing else that it should not."""

    senses = ef.paper_senses("mean", hops=1)

    def __call__(self, observations: Any) -> Any:
        return observations[:, :, 0, 0] * observations.shape[1]


class Moody:
    """Answers differently each time."""

    senses = ef.paper_senses("mean", hops=1)
    calls = 0

    def __call__(self, observations: Any) -> Any:
        self.calls += 1
        return observations[:, :, 0, 0] * self.calls


@pytest.mark.parametrize("name", ["etdagnn", "tdagnn", "tanner-fixed", "reynolds"])
def test_a_local_controller_passes(name: str) -> None:
    found = ef.audit(ef.load(name), **FEW)
    assert found.passed, str(found)
    assert all(change.changed_agents > 0 for change in found.changes)


def test_a_controller_in_other_units_is_audited_in_these() -> None:
    plain, scaled = (ef.audit(ef.load("etdagnn", **units), **FEW) for units in ({}, {"comm_radius": 4.0}))
    assert scaled.passed
    # A flock four times as large, with the same neighbours.
    assert [row[:3] for row in scaled.record] == [row[:3] for row in plain.record]


@pytest.mark.parametrize(
    "radio",
    [ef.Radio(packet_loss=0.3), ef.Radio(packet_loss=0.3, delay=1, jitter=1), ef.Radio(packet_loss=0.5, last_known=2)],
)
def test_a_local_controller_passes_with_any_radio(radio: ef.Radio) -> None:
    found = ef.audit(ef.load("etdagnn"), radio=radio, **FEW)
    assert found.passed, str(found)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_controller_that_looks_at_others_is_caught(seed: int) -> None:
    found = ef.audit(Cheat(), seed=seed, **FEW)
    assert not found.passed
    assert "used what it did not receive" in found.verdict


def test_a_controller_that_counts_the_flock_is_caught_by_the_agents_that_are_added() -> None:
    caught = {change.change_kind for change in ef.audit(Counter(), **FEW).changes if change.different_count > 0}
    assert caught == {"number of others", "all at once"}


def test_an_expert_fails() -> None:
    assert not ef.audit(ef.load("tanner"), **FEW).passed


def test_every_message_that_an_agent_used_is_on_record() -> None:
    start = ef.random_disk(flocks=1, agents=100, seed=0)
    found = ef.audit(ef.load("etdagnn"), start=start, **FEW)
    graph = ef.radius_graph(start)
    for agent in found.agents:
        senders = {row.sender for row in found.record if row.agent == agent and row.step == 0}
        assert senders == set(graph.neighbours(0, agent))
    assert {row.step for row in found.record} == set(range(6))


def test_the_page_has_the_verdict_and_the_record(tmp_path: Path) -> None:
    found = ef.audit(ef.load("etdagnn"), **FEW)
    text = found.save(tmp_path / "audit.html").read_text()
    assert found.verdict in text
    assert "passed" in text
    row = found.record[0]
    assert f"agent {row.agent}" in text


def test_a_flock_in_which_every_agent_reaches_every_other_is_an_error() -> None:
    near = ef.Flock(np.random.default_rng(0).uniform(0, 0.5, (1, 5, 2)), np.zeros((1, 5, 2)))
    with pytest.raises(ef.InputError, match="audit a wider one"):
        ef.audit(ef.load("tanner-dynamic"), start=near, **FEW)


def test_a_controller_that_is_not_deterministic_is_an_error() -> None:
    with pytest.raises(ef.InputError, match="different accelerations for the same observations"):
        ef.audit(Moody(), **FEW)


@pytest.mark.parametrize("start", [None, ef.random_disk(flocks=2, agents=30)])
def test_several_flocks_are_refused(start: ef.Flock | None) -> None:
    with pytest.raises(ef.InputError):
        ef.audit(ef.load("etdagnn"), start=start, steps=0 if start is None else 3)


def test_information_travels_one_hop_per_step() -> None:
    # A line 0 - 1 - 2 - 3: each agent receives from the next one, at every step.
    edges = [np.array([[0, 1], [1, 2], [2, 3]])] * 3
    reached = compute_causal_past(0, edges, 4, hops=3, memory=0)
    assert reached.astype(int).tolist() == [[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]]
    assert compute_causal_past(0, edges, 4, hops=1, memory=0).astype(int).tolist() == [[1, 1, 0, 0]] * 3
