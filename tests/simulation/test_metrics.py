"""Each metric is its equation, for flocks, moments and trajectories alike."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.flock import Condition, Flock, Role
from equiflock.simulation import metrics
from tests import twins
from tests.flocks import flocks


def members(flock: Flock, b: int) -> np.ndarray:  # type: ignore[type-arg]
    return np.asarray(flock.roles[b] != Role.OBSTACLE)


@given(flocks(failed=True))
def test_every_metric_is_its_equation_over_the_agents_that_work(flock: Flock) -> None:
    for b in range(len(flock)):
        works = members(flock, b) & (flock.conditions[b] == Condition.WORKING)
        positions, velocities = flock.positions[b][works], flock.velocities[b][works]
        mean = velocities.sum(axis=0) / max(len(velocities), 1)
        variance = sum(((v - mean) ** 2).sum() for v in velocities) / max(len(velocities), 1)
        np.testing.assert_allclose(metrics.velocity_variance(flock)[b], variance, rtol=1e-10, atol=1e-12)
        # Failed agents are still there to collide with.
        near = twins.distances(flock.positions[b][members(flock, b)])
        np.testing.assert_allclose(metrics.minimum_separation(flock)[b], min(near, default=np.inf), rtol=1e-12)
        apart, differ = twins.distances(positions), twins.distances(velocities)
        np.testing.assert_allclose(metrics.diameter(flock)[b], max(apart, default=0.0), rtol=1e-12)
        np.testing.assert_allclose(metrics.largest_velocity_difference(flock)[b], max(differ, default=0.0), rtol=1e-12)
        assert metrics.component_count(flock)[b] == twins.components(flock, b, 1.0).max() + 1


def test_moments_and_trajectories_agree_with_flocks_frame_by_frame() -> None:
    start = ef.random_disk(2, 25, seed=2)
    run = ef.simulate(start, ef.load("tanner-dynamic"), duration=0.05)
    for name in (
        "velocity_variance",
        "minimum_separation",
        "diameter",
        "largest_velocity_difference",
        "component_count",
    ):
        metric = getattr(metrics, name)
        assert metric(run).shape == (6, 2)
        for moment in ef.flight(start, ef.load("tanner-dynamic")):
            assert (metric(moment) == metric(run)[moment.step]).all()
            assert (metric(moment) == metric(run.flock(moment.step))).all()
            if moment.step == 5:
                break


def test_the_mean_acceleration_norm_is_of_steps_made() -> None:
    start = ef.random_disk(2, 25, seed=2)
    run = ef.simulate(start, ef.load("tanner"), duration=0.05)
    norms = metrics.mean_acceleration_norm(run)
    assert norms.shape == (5, 2)
    assert norms[0, 0] == pytest.approx(np.mean([np.linalg.norm(a) for a in run.accelerations[0, 0]]))
    assert (metrics.mean_acceleration_norm(next(ef.flight(start, ef.load("tanner")))) == norms[0]).all()
    with pytest.raises(InputError, match="a metric of accelerations needs a Moment or a Trajectory; got Flock"):
        metrics.mean_acceleration_norm(start)  # type: ignore[arg-type]


@given(flocks(failed=True))
def test_the_peak_acceleration_is_the_largest_norm_of_an_agent_that_is_no_obstacle(flock: Flock) -> None:
    moment = next(ef.flight(flock, ef.load("tanner-dynamic")))
    accelerations = np.random.default_rng(0).normal(size=flock.shape)  # of obstacle agents, too
    peaks = metrics.peak_acceleration_norm(replace(moment, accelerations=accelerations))
    for b in range(len(flock)):
        assert peaks[b] == pytest.approx(max(np.linalg.norm(a) for a in accelerations[b][members(flock, b)]))


@given(flocks(failed=True))
def test_the_mean_acceleration_norm_is_over_agents_that_work(flock: Flock) -> None:
    moment = next(ef.flight(flock, ef.load("tanner-dynamic")))
    accelerations = np.random.default_rng(0).normal(size=flock.shape)
    means = metrics.mean_acceleration_norm(replace(moment, accelerations=accelerations))
    for b in range(len(flock)):
        works = members(flock, b) & (flock.conditions[b] == Condition.WORKING)
        norms = [np.linalg.norm(a) for a in accelerations[b][works]]
        assert means[b] == pytest.approx(sum(norms) / max(len(norms), 1))


def test_no_metric_is_nan_without_working_agents() -> None:
    start = ef.random_disk(1, 5)
    flock = replace(start, conditions=np.full((1, 5), Condition.DRIFTING))
    moment = next(ef.flight(flock, ef.load("tanner")))
    for name in ("velocity_variance", "mean_acceleration_norm", "peak_acceleration_norm", "diameter"):
        assert getattr(metrics, name)(moment)[0] == 0.0
    assert metrics.largest_velocity_difference(flock)[0] == metrics.component_count(flock)[0] == 0.0
    assert metrics.minimum_separation(flock)[0] == metrics.minimum_separation(start)[0]


def test_the_peak_acceleration_of_a_trajectory_is_of_steps_made() -> None:
    start = ef.random_disk(2, 25, seed=2)
    run = ef.simulate(start, ef.load("etdagnn"), duration=0.05, record=[metrics.peak_acceleration_norm])
    peaks = metrics.peak_acceleration_norm(run)
    assert peaks.shape == (5, 2)
    assert (peaks == run.series["peak_acceleration_norm"][:-1]).all()
    with pytest.raises(InputError, match="a metric of accelerations needs a Moment or a Trajectory; got Flock"):
        metrics.peak_acceleration_norm(start)  # type: ignore[arg-type]


def test_integrals_are_left_riemann_sums_over_the_steps_flown() -> None:
    start = ef.random_disk(2, 25, seed=2)
    run = ef.simulate(start, ef.load("tanner"), time_step=0.1, duration=0.4)
    variance, norm = metrics.velocity_variance(run), metrics.mean_acceleration_norm(run)
    np.testing.assert_allclose(metrics.ivv(run), 0.1 * variance[:4].sum(axis=0))
    np.testing.assert_allclose(metrics.iman(run), 0.1 * norm.sum(axis=0))


def test_an_ended_flock_adds_nothing_to_its_integral() -> None:
    flock = Flock([[[0.0, 0.0], [0.9, 0.0]]], [[[-3.0, 0.0], [3.0, 0.0]]])
    controller = ef.load("tanner-dynamic")
    run = ef.simulate(flock, controller, duration=1.0, ending=ef.UntilDisconnected(1.0))
    flown = int(run.steps[0])
    assert 0 < flown < 100
    short = ef.simulate(flock, controller, duration=flown * 0.01)
    np.testing.assert_allclose(metrics.ivv(run), metrics.ivv(short))


def test_an_integral_of_too_few_frames_says_what_to_do() -> None:
    run = ef.simulate(ef.random_disk(1, 10), ef.load("tanner"), duration=0.1, keep_every=5)
    with pytest.raises(InputError, match=r"simulate with record=\[metrics.velocity_variance\]"):
        metrics.ivv(run)


def test_the_leaders_velocity_is_what_followers_are_compared_with() -> None:
    velocities = np.array([[[1.0, 0.0], [1.0, 0.0], [4.0, 4.0], [0.0, 0.0]]])
    roles = [[Role.LEADER, Role.LEADER, Role.FOLLOWER, Role.OBSTACLE]]
    flock = Flock(np.zeros((1, 4, 2)), velocities, roles)
    assert metrics.mean_leader_velocity_distance(flock).tolist() == [5.0 / 3.0]
    with pytest.raises(InputError, match="needs a leader in every flock"):
        metrics.mean_leader_velocity_distance(Flock(np.zeros((1, 4, 2)), velocities))


def test_failed_agents_and_failed_leaders_do_not_count_in_the_leader_velocity_distance() -> None:
    velocities = np.array([[[1.0, 0.0], [9.0, 9.0], [4.0, 4.0], [7.0, 0.0]]])
    roles = [[Role.LEADER, Role.LEADER, Role.FOLLOWER, Role.FOLLOWER]]
    flock = Flock(np.zeros((1, 4, 2)), velocities, roles, conditions=[[0, 3, 0, 1]])
    assert metrics.mean_leader_velocity_distance(flock).tolist() == [5.0 / 2.0]


def test_velocity_variance_starts_at_six_for_the_papers_flocks() -> None:
    """Each of two entries is uniform in [-3, 3], of variance 3."""
    assert metrics.velocity_variance(ef.random_disk(200, 100)).mean() == pytest.approx(6.0, rel=0.02)


def test_extremes_of_a_large_flock_are_found_without_comparing_all_pairs() -> None:
    flock = ef.random_disk(1, 50_000, radius_rule="constant-density")
    positions = flock.positions.copy()
    positions[0, 17], positions[0, 4711] = [-500.0, 0.0], [500.0, 1.0]
    positions[0, 99] = positions[0, 98] + [3e-4, 4e-4]
    flock = Flock(positions, flock.velocities)
    assert metrics.diameter(flock)[0] == pytest.approx(np.hypot(1000.0, 1.0))
    assert metrics.minimum_separation(flock)[0] == pytest.approx(5e-4)


def test_integrals_are_of_trajectories() -> None:
    with pytest.raises(InputError, match="a metric of a whole flight needs a Trajectory; got a Flock"):
        metrics.ivv(ef.random_disk(1, 10))


@pytest.mark.parametrize("agents", [60, 3_000])
def test_components_by_messages_are_those_of_the_messages_that_arrived(agents: int) -> None:
    start = ef.random_disk(1, agents, seed=1, radius_rule="constant-density")
    for packet_loss, last_known in ((0.0, 0), (0.5, 0), (0.9, 2), (1.0, 0)):
        radio = ef.Radio(packet_loss=packet_loss, last_known=last_known, seed=2)
        moments = ef.flight(start, ef.load("etdagnn"), radio=radio)
        for moment in itertools.islice(moments, 3):
            assert moment.compute_message_graph is not None
            receivers, senders = moment.compute_message_graph().edges(0).T
            graph = scipy.sparse.coo_array((np.ones(len(receivers)), (receivers, senders)), shape=(agents, agents))
            count, _ = scipy.sparse.csgraph.connected_components(graph, directed=False)
            assert metrics.message_component_count(moment).tolist() == [count]
            # Without loss, messages go wherever agents are near; with all of it lost, nowhere.
            if packet_loss == 0.0:
                assert count == metrics.component_count(moment)[0]
            if packet_loss == 1.0:
                assert count == agents


def test_components_by_messages_leave_out_agents_that_have_failed_and_flocks_that_have_ended() -> None:
    start = ef.random_disk(3, 20, seed=4)
    failures = ef.Failures(kind="silent", agents=19)
    run = ef.simulate(
        start,
        ef.load("etdagnn"),
        duration=0.03,
        failures=failures,
        ending=lambda times, flock, flying: (times > 0.015) & (np.arange(3) < 1),
        record=[metrics.message_component_count],
    )
    assert (run.series["message_component_count"] == 1.0).all()


def test_components_by_messages_need_a_moment() -> None:
    with pytest.raises(InputError, match="message_component_count needs a Moment of a flight"):
        metrics.message_component_count(ef.random_disk(1, 5, seed=0))
