"""Motion, messages and metrics of failed agents."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.flock import Condition, Flock, Role
from equiflock.simulation import metrics
from equiflock.simulation.failures import FailureKind
from tests import twins
from tests.simple import Push
from tests.simulation.failing import FIVE, KINDS, begin, moments


@pytest.fixture(scope="module")
def start() -> Flock:
    return begin()


# Their motion and their messages.


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("topology", ["dynamic", "fixed"])
def test_silent_and_stopped_agents_send_nothing_and_stopped_and_drifting_ones_receive_nothing(
    start: Flock, kind: FailureKind, topology: Any
) -> None:
    senses = ef.paper_senses("mean", 3, topology)
    flown = moments(start, Push(0.0, senses), 9, failures=FIVE[kind])
    expected = np.zeros_like(flown[0].observations, np.float64)
    for moment in flown:
        flock = moment.flock
        for b in range(len(start)):
            placed = flock if topology == "dynamic" else replace(flock, positions=start.positions)
            neighbours = twins.find_neighbours(placed, b, 1.0)
            expected[b] = twins.aggregate(flock, b, expected[b], neighbours, senses)
            scale = np.abs(expected[b]).max() + 1.0
            np.testing.assert_allclose(moment.observations[b], expected[b], rtol=2e-5, atol=3e-6 * scale)
    failed = flown[-1].flock.conditions != Condition.WORKING
    assert moment.observations[failed].any() == (kind == "silent")


def test_means_by_the_senders_degree_do_not_go_with_failures(start: Flock) -> None:
    senses = ef.paper_senses("mean", 3, hop_mean="sender")
    with pytest.raises(InputError, match="a sender cannot know how many agents receive from it"):
        moments(start, Push(0.0, senses), 9, failures=FIVE["silent"])


def test_stopped_agents_stand_still(start: Flock) -> None:
    flown = moments(start, ef.load("etdagnn"), 12, failures=FIVE["stopped"])
    failed = flown[5].flock.conditions == Condition.STOPPED
    for moment in flown[5:]:
        assert (moment.flock.velocities[failed] == 0.0).all()
        assert (moment.accelerations[failed] == 0.0).all()
        assert (moment.flock.positions[failed] == flown[5].flock.positions[failed]).all()


def test_drifting_agents_keep_their_velocity(start: Flock) -> None:
    flown = moments(start, ef.load("etdagnn"), 12, failures=FIVE["drifting"])
    failed = flown[5].flock.conditions == Condition.DRIFTING
    velocities = flown[5].flock.velocities[failed]
    for moment in flown[5:]:
        assert (moment.flock.velocities[failed] == velocities).all()
        assert (moment.accelerations[failed] == 0.0).all()
        expected = flown[5].flock.positions[failed] + (moment.step - 5) * 0.01 * velocities
        np.testing.assert_allclose(moment.flock.positions[failed], expected, rtol=1e-12)
    assert velocities.any(axis=1).all()


def test_silent_agents_fly_on_as_their_controller_says(start: Flock) -> None:
    flown = moments(start, ef.load("tanner-dynamic"), 12, failures=FIVE["silent"])
    failed = flown[5].flock.conditions == Condition.SILENT
    assert flown[8].accelerations[failed].any()
    for before, after in itertools.pairwise(flown):
        expected = before.flock.velocities + 0.01 * before.accelerations
        np.testing.assert_allclose(after.flock.velocities[failed], expected[failed], rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_out_of_reach_of_failed_agents_no_bit_changes(kind: FailureKind) -> None:
    """Two groups far from each other: what fails in one is nothing to the other."""
    drawn = ef.random_disk(1, 40, seed=1)
    apart = replace(drawn, positions=drawn.positions + np.where(np.arange(40) < 20, 0.0, 100.0)[None, :, None])
    # Whoever leads does not fail, so all that fail are in the first group.
    roles = np.where(np.arange(40) < 20, Role.FOLLOWER, Role.LEADER)[None]
    candidates = ef.Failures(kind, agents=5).draw_failure_steps(replace(apart, roles=roles), 0.01) == 0
    conditions = np.where(candidates, Condition[kind.upper()], Condition.WORKING)
    velocities = np.where((conditions == Condition.STOPPED)[..., None], 0.0, apart.velocities)
    failed = replace(apart, velocities=velocities, conditions=conditions)
    for one, other in zip(moments(apart, ef.load("etdagnn"), 10), moments(failed, ef.load("etdagnn"), 10), strict=True):
        assert one.observations[:, 20:].tobytes() == other.observations[:, 20:].tobytes()
        assert one.flock.positions[:, 20:].tobytes() == other.flock.positions[:, 20:].tobytes()
        assert one.flock.positions[:, :20].tobytes() != other.flock.positions[:, :20].tobytes() or one.step == 0


# What endings and metrics count, and what is kept.


def test_an_agent_that_failed_does_not_disconnect_a_flock_nor_join_its_halves() -> None:
    line = Flock([[[0.0, 0.0], [0.9, 0.0], [1.8, 0.0]]], np.zeros((1, 3, 2)))
    for kind, code in zip(KINDS, (1, 2, 3), strict=True):
        middle, end = (replace(line, conditions=[conditions]) for conditions in ([0, code, 0], [0, 0, code]))
        ending = ef.UntilDisconnected()
        assert ending(0.0, middle, np.ones(1, bool))[0] == ef.Outcome.DISCONNECTED, kind
        assert ending(0.0, end, np.ones(1, bool))[0] == ef.Outcome.FLYING, kind
        assert (metrics.component_count(middle)[0], metrics.component_count(end)[0]) == (2.0, 1.0)
    nobody = replace(line, conditions=[[3, 3, 3]])
    assert ef.UntilDisconnected()(0.0, nobody, np.ones(1, bool))[0] == ef.Outcome.FLYING


@pytest.mark.parametrize("kind", KINDS)
def test_metrics_of_a_trajectory_count_who_worked_at_that_frame(start: Flock, kind: FailureKind) -> None:
    names = ("velocity_variance", "mean_acceleration_norm", "diameter", "component_count", "minimum_separation")
    measures = [getattr(metrics, name) for name in (*names, "mean_leader_velocity_distance", "peak_acceleration_norm")]
    run = ef.simulate(start, ef.load("tanner"), duration=0.1, failures=FIVE[kind], record=measures)
    for measure in measures:
        values = measure(run)
        assert (values == run.series[measure.__name__][: len(values)]).all()
    assert metrics.ivv(run) == pytest.approx(0.01 * run.series["velocity_variance"][:-1].sum(axis=0))
    works = start.roles[0] >= 0
    works &= run.conditions[7, 0] == Condition.WORKING
    assert works.sum() == 25
    expected = np.square(run.velocities[7, 0, works] - run.velocities[7, 0, works].mean(axis=0)).sum(axis=1).mean()
    assert run.series["velocity_variance"][7, 0] == pytest.approx(expected)


def test_a_saved_flight_has_who_failed_and_why(start: Flock, tmp_path: Path) -> None:
    run = ef.simulate(start, ef.load("tanner"), duration=0.1, keep_every=2, failures=FIVE["stopped"])
    again = ef.Trajectory.load(run.save(tmp_path / "run.zarr"))
    assert again.conditions.dtype == np.int8
    assert again.conditions.shape == (6, 3, 30)
    assert (again.conditions == run.conditions).all()
    assert [(frame.any(axis=1)).tolist() for frame in again.conditions] == [[False] * 3] * 3 + [[True] * 3] * 3
    assert (again.flock(4).conditions == run.conditions[4]).all()
    assert (again[1].flock(4).conditions == run.conditions[4, 1:2]).all()
    assert again.config["failures"] == {"kind": "stopped", "agents": 5, "time": 0.05, "rate": 0.0, "seed": 0}
    assert again.to_xarray()["conditions"].dims == ("frame", "flock", "agent")
