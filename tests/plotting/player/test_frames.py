"""A frame holds the flocks in float32 precision, however far they have flown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock.plotting.player import frames
from equiflock.plotting.player.frames import NO_LINKS, FlockPicture, Links, build_links, pack_frame
from equiflock.plotting.player.overlay import MarkArrays, OverlayState
from tests.plotting.player.frame_reader import read_frame


@given(agents=st.integers(1, 40), seed=st.integers(0, 1000), far=st.sampled_from([0.0, 1e5]), panels=st.integers(1, 2))
def test_a_frame_is_read_as_it_was_packed(agents: int, seed: int, far: float, panels: int) -> None:
    rng = np.random.default_rng(seed)
    positions, velocities = rng.normal(size=(2, 1, agents, 2))
    conditions = rng.integers(0, 4, (1, agents))
    velocities[conditions == ef.Condition.STOPPED] = 0.0
    flock = ef.Flock(positions + far, velocities, rng.integers(0, 2, (1, agents)), conditions=conditions)
    accelerations = rng.normal(size=flock.shape)
    disks = np.array([[far + 1.0, far - 2.0, 0.5]])
    edges = build_links(flock).edges
    is_lost = rng.random(len(edges)) < 0.4
    numbers = np.array([[far, far, 2.0, 0.0], [far - 1.0, far, 0.0, 0.0], [far, far, far + 1.0, far]])
    codes = np.array([[0, 0, 0, 0], [1, 1, 1, 0], [3, 2, 0, 0]], np.uint8)
    overlay = OverlayState(MarkArrays(numbers, codes), 0.75, 5, 1.25)
    links = Links(edges[~is_lost], edges[is_lost])
    picture = FlockPicture(flock, accelerations, disks, links, overlay=overlay)
    frame = read_frame(pack_frame(7, 0.07, [picture] * panels))
    assert (frame.step, frame.time, len(frame.panels)) == (7, 0.07, panels)
    for shown in frame.panels:
        assert np.allclose(shown.positions, flock.positions[0], atol=1e-5)
        assert np.allclose(shown.velocities, flock.velocities[0], atol=1e-5)
        assert np.allclose(shown.accelerations, accelerations[0], atol=1e-5)
        assert np.allclose(shown.disks, disks, atol=1e-5)
        assert np.array_equal(shown.roles, flock.roles[0])
        assert shown.edges.tolist() == sorted(edges[~is_lost].tolist())
        assert shown.lost_edges.tolist() == sorted(edges[is_lost].tolist())
        assert np.array_equal(shown.conditions, conditions[0])
        assert np.allclose(shown.overlay.marks.numbers, numbers, atol=1e-5)
        assert np.array_equal(shown.overlay.marks.codes, codes)
        assert shown.overlay[1:] == overlay[1:]


@pytest.mark.parametrize(("agents", "index_bytes"), [(65_535, 2), (65_536, 4)])
def test_indices_take_two_bytes_as_long_as_they_fit(agents: int, index_bytes: int) -> None:
    positions = np.zeros((1, agents, 2))
    positions[0, :, 0] = np.arange(agents)
    flock = ef.Flock(positions, np.zeros_like(positions))
    links = build_links(flock)
    plain, drawn = (
        pack_frame(0, 0.0, [FlockPicture(flock, None, np.empty((0, 3)), part)]) for part in (NO_LINKS, links)
    )
    # One index pair for the two edges between neighbours in the row, padded to 8 bytes.
    assert len(drawn) - len(plain) == -(-2 * index_bytes * (agents - 1) // 8) * 8
    assert read_frame(drawn).panels[0].edges[-1].tolist() == [agents - 1, agents - 2]


@pytest.mark.parametrize("failed", [0, 7, 50])
def test_metric_values_match_the_metrics_module(failed: int) -> None:
    start = ef.ObstacleCourse(ef.RandomDisk(agents=50, seed=2)).draw()
    conditions = np.where(np.arange(start.shape[1]) < failed, ef.Condition.SILENT, ef.Condition.WORKING)[None]
    moment = next(ef.flight(replace(start, conditions=conditions), ef.load("tanner")))
    metric_values = FlockPicture(moment.flock, moment.accelerations, np.empty((0, 3))).metric_values
    measured = ef.metrics.velocity_variance, ef.metrics.component_count, ef.metrics.minimum_separation
    assert metric_values[:3] == tuple(measure(moment)[0] for measure in measured)
    of_commands = ef.metrics.mean_acceleration_norm, ef.metrics.rms_acceleration, ef.metrics.peak_acceleration_norm
    assert np.allclose(metric_values[3:], [measure(moment)[0] for measure in of_commands])


def test_edges_are_the_radius_graph_and_none_is_lost_by_default() -> None:
    start = ef.LeaderFollowing(ef.RandomDisk(agents=40), leaders=5).draw()
    edges, lost_edges, _ = build_links(start)
    assert edges.tolist() == ef.radius_graph(start).edges(0).tolist()
    assert len(lost_edges) == 0


@pytest.mark.parametrize("topology", ["dynamic", "fixed"])
def test_a_message_is_used_or_lost_unless_its_sender_or_receiver_failed(topology: str) -> None:
    start = ef.random_disk(agents=40)
    conditions = np.zeros((1, 40), int)
    conditions[0, :3] = ef.Condition.SILENT, ef.Condition.STOPPED, ef.Condition.DRIFTING
    velocities = np.where((conditions == ef.Condition.STOPPED)[..., None], 0.0, start.velocities)
    flock = ef.Flock(start.positions, velocities, conditions=conditions)
    fixed = ef.radius_graph(start) if topology == "fixed" else None
    all_edges = {tuple(edge) for edge in ef.radius_graph(flock).edges(0).tolist()}
    sensing = ef.DelayedAggregation(ef.paper_senses("mean", hops=1), radio=ef.Radio(packet_loss=0.4))
    sensing.observe(flock)
    edges, lost_edges = (
        {tuple(edge) for edge in part.tolist()} for part in build_links(flock, sensing.compute_message_graph, fixed)[:2]
    )
    assert edges | lost_edges == all_edges
    assert not edges & lost_edges
    assert 0.3 < len(lost_edges) / len(all_edges) < 0.5
    assert not {sender for _, sender in all_edges} & {0, 1}
    assert not {receiver for receiver, _ in all_edges} & {1, 2}


def test_a_follower_observes_the_nearest_agent_of_an_obstacle() -> None:
    start = ef.ObstacleCourse(ef.RandomDisk(agents=40), sides=24).draw()
    flock = ef.Flock(start.positions * [0.5, 0.5], start.velocities, start.roles)
    edges = build_links(flock).edges
    rim = np.arange(40, 64)
    joined = {int(receiver): int(sender) for receiver, sender in edges if sender in rim}
    assert len(joined) == np.isin(edges[:, 1], rim).sum() > 3
    for follower in np.flatnonzero(flock.roles[0] == ef.Role.FOLLOWER).tolist():
        distances = np.hypot(*(flock.positions[0, rim] - flock.positions[0, follower]).T)
        assert (follower in joined) == (distances.min() <= 1.0)
        if follower in joined:
            assert joined[follower] == rim[np.argmin(distances)]


def test_too_many_edges_are_left_out_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    flock = ef.random_disk(agents=30)
    count = len(build_links(flock).edges)
    monkeypatch.setattr(frames, "MAX_EDGES", count)
    assert len(build_links(flock).edges) == count
    monkeypatch.setattr(frames, "MAX_EDGES", count - 1)
    hidden = build_links(flock)
    assert len(hidden.edges) == 0
    for links in (hidden, NO_LINKS):
        (shown,) = read_frame(pack_frame(0, 0.0, [FlockPicture(flock, None, np.empty((0, 3)), links)])).panels
        assert shown.hides_edges == (links is hidden)
    assert len(build_links(flock, fixed_graph=ef.radius_graph(flock)).edges) == 0


def test_the_obstacle_rule_all_shows_all_edges() -> None:
    start = ef.ObstacleCourse(ef.RandomDisk(agents=40), sides=24).draw()
    flock = ef.Flock(start.positions * [0.5, 0.5], start.velocities, start.roles)
    shown = build_links(flock, obstacles="all").edges
    assert shown.tolist() == ef.radius_graph(flock).edges(0).tolist()
    assert len(shown) > len(build_links(flock).edges)


def test_a_frame_has_the_group_of_each_agent_and_none_for_obstacle_agents() -> None:
    positions = np.arange(12.0).reshape(1, 6, 2)
    groups, roles = np.array([[0, 1, 2, 254, 10**6, 0]]), np.array([[0, 0, 1, 0, 0, 2]])
    flock = ef.Flock(positions, np.zeros_like(positions), roles, groups=groups)
    (shown,) = read_frame(pack_frame(0, 0.0, [FlockPicture(flock, None, np.empty((0, 3)))])).panels
    assert shown.groups.tolist() == [0, 1, 2, 254, 254, 255]
