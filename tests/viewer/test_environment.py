"""Radio, bodies and failures of live flights change between two steps."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock._runtime.threads import MAX_SMALL_FLOCK
from equiflock.plotting.player.playback import Playback
from equiflock.simulation.trajectory import load_trajectories
from equiflock.viewer.flight_archive import save_flights
from equiflock.viewer.live_simulation import LiveSimulation
from equiflock.viewer.setting import EnvironmentSetting
from tests.viewer.live_simulations import fly, live_simulation

KINDS = ["silent", "stopped", "drifting"]


def conditions(live: LiveSimulation, panel: int = 0) -> np.ndarray:
    return live.flights[panel].flock.conditions[0]


def test_a_live_flight_in_an_environment_matches_the_simulation_in_that_environment() -> None:
    environment = {"packet_loss": 0.3, "delay": 2, "noise": 0.05, "max_acceleration": 20.0, "lag": 0.05}
    live = live_simulation(controller="etdagnn", environment=environment)
    fly(live, 20)
    radio = ef.Radio(packet_loss=0.3, delay=2, noise=0.05)
    body = ef.DoubleIntegrator(max_acceleration=20.0, lag=0.05)
    flight = ef.flight(live.setting.draw(), ef.load("etdagnn"), orbit=ef.Orbit(), radio=radio, body=body)
    moment = next(islice(flight, 20, None))
    assert np.array_equal(live.flights[0].flock.positions, moment.flock.positions)


@pytest.mark.parametrize(
    "environment",
    [
        {"packet_loss": 0.5},
        {"delay": 3},
        {"noise": 0.1},
        {"max_acceleration": 2.0},
        {"lag": 0.2},
        {"body": "unicycle", "max_turn_rate": 1.0},
    ],
)
def test_each_parameter_changes_both_flights_from_the_next_step_on(environment: dict[str, Any]) -> None:
    live, other = (live_simulation(controller="etdagnn", compare="tanner-dynamic") for _ in range(2))
    for each in (live, other):
        fly(each, 10)
    live.change_environment(EnvironmentSetting(**environment))
    for changed, same in zip(live.flights, other.flights, strict=True):
        assert np.array_equal(changed.flock.positions, same.flock.positions)
        assert (changed.sensing.radio, changed.flight.body) == (
            EnvironmentSetting(**environment).make().radio,
            EnvironmentSetting(**environment).make().body,
        )
    for each in (live, other):
        fly(each, 10)
    assert live.step == other.step == 20
    for changed, same in zip(live.flights, other.flights, strict=True):
        assert not np.array_equal(changed.flock.positions, same.flock.positions)


def test_changing_the_environment_back_restores_the_papers() -> None:
    # With observations of one hop, earlier messages have no influence after the change.
    live = live_simulation(controller="tanner-dynamic")
    live.change_environment(EnvironmentSetting(packet_loss=0.5, delay=1, lag=0.1))
    fly(live, 10)
    live.change_environment(EnvironmentSetting())
    fly(live, 1)
    flight = ef.flight(live.flights[0].flock, ef.load("tanner-dynamic"), orbit=ef.Orbit())
    fly(live, 10)
    moment = next(islice(flight, 10, None))
    assert np.array_equal(live.flights[0].flock.positions, moment.flock.positions)
    assert not live.flights[0].flight.body_state


def test_an_unchanged_environment_keeps_delayed_messages() -> None:
    environment = EnvironmentSetting(packet_loss=0.2, delay=3, lag=0.1)
    live, other = (live_simulation(controller="etdagnn", environment=environment) for _ in range(2))
    fly(live, 10)
    live.change_environment(environment)
    fly(live, 10)
    fly(other, 20)
    assert np.array_equal(live.flights[0].flock.positions, other.flights[0].flock.positions)


@pytest.mark.parametrize("agents", [60, MAX_SMALL_FLOCK + 1])
def test_pictures_show_used_and_lost_messages(agents: int) -> None:
    live = live_simulation(controller="etdagnn", agents=agents)
    live.edges = True
    live.change_environment(EnvironmentSetting(packet_loss=0.3))
    assert len(live.make_pictures()[0].links.lost_edges) == 0  # no message was sent over this radio yet
    fly(live, 1)
    first = live.make_pictures()[0].links
    assert len(first.lost_edges) / (len(first.lost_edges) + len(first.edges)) == pytest.approx(0.3, abs=0.1)
    fly(live, 1)
    assert set(map(tuple, live.make_pictures()[0].links.lost_edges.tolist())) != set(
        map(tuple, first.lost_edges.tolist())
    )
    live.change_environment(EnvironmentSetting(packet_loss=1.0))
    fly(live, 1)
    assert len(live.make_pictures()[0].links.edges) == 0
    live.change_environment(EnvironmentSetting())
    fly(live, 1)
    assert len(live.make_pictures()[0].links.lost_edges) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_followers_fail_in_both_flights(kind: str) -> None:
    live = live_simulation(scenario="leaders", compare="tanner-dynamic")
    fly(live, 5)
    live.fail_agents(kind, 4)  # type: ignore[arg-type]
    assert np.array_equal(conditions(live, 0), conditions(live, 1))
    failed = np.flatnonzero(conditions(live))
    assert len(failed) == 4
    assert (conditions(live)[failed] == ef.Condition[kind.upper()]).all()
    assert (live.flights[0].flock.roles[0, failed] == ef.Role.FOLLOWER).all()
    before = live.flights[0].flock.velocities[0, failed].copy()
    fly(live, 5)
    after = live.flights[0].flock.velocities[0, failed]
    assert np.array_equal(before, after) == (kind != "silent")
    assert (kind == "stopped") == (not after.any())
    assert not live.flights[0].accelerations[0, failed].any() or kind == "silent"


def test_failures_are_random_and_reproducible() -> None:
    first, second = live_simulation(), live_simulation()
    for live in (first, second):
        live.fail_agents("stopped", 2)
        live.fail_agents("silent", 3)
    assert np.array_equal(conditions(first), conditions(second))
    assert np.bincount(conditions(first), minlength=4).tolist() == [25, 3, 2, 0]


def test_all_followers_may_fail() -> None:
    live = live_simulation(scenario="leaders")
    live.edges = True
    live.fail_agents("drifting", 1000)
    fly(live, 3)
    assert np.count_nonzero(conditions(live)) == 28  # two lead
    assert all(np.isfinite(live.make_pictures()[0].metric_values))
    with pytest.raises(InputError, match="all followers have failed"):
        live.fail_agents("stopped", 1)


@pytest.mark.parametrize("environment", [{}, {"packet_loss": 0.2}, {"delay": 3}])
def test_repaired_agents_send_and_receive_again(environment: dict[str, Any]) -> None:
    live = live_simulation(controller="etdagnn", environment=environment)
    live.edges = True
    for kind in KINDS:
        live.fail_agents(kind, 3)  # type: ignore[arg-type]
    fly(live, 5)
    failed = set(np.flatnonzero(conditions(live)).tolist())
    live.repair_agents()
    assert not conditions(live).any()
    # Every agent with a neighbour soon receives a message and has one received.
    reach = {agent for edge in ef.radius_graph(live.flights[0].flock).edges(0).tolist() for agent in edge}
    senders_seen: set[int] = set()
    receivers_seen: set[int] = set()
    for _ in range(10):
        fly(live, 1)
        receivers, senders = live.make_pictures()[0].links.edges.T.tolist()
        receivers_seen, senders_seen = receivers_seen | set(receivers), senders_seen | set(senders)
    assert len(failed & reach) > 5
    assert failed & reach <= receivers_seen & senders_seen


def test_messages_of_silent_agents_are_not_delivered_later() -> None:
    live = live_simulation(controller="etdagnn", environment={"delay": 5})
    live.edges = True
    fly(live, 8)
    live.fail_agents("silent", 30)
    fly(live, 8)
    assert len(live.make_pictures()[0].links.edges) == 0
    live.repair_agents()
    for _ in range(5):
        fly(live, 1)
        assert len(live.make_pictures()[0].links.edges) == 0
    fly(live, 1)
    edges, lost_edges, _ = live.make_pictures()[0].links
    assert len(edges) > 10 * len(lost_edges)  # but for those who came within reach since


def test_failed_agents_neither_lead_nor_are_scattered() -> None:
    live = live_simulation()
    live.fail_agents("stopped", 5)
    live.fail_agents("drifting", 5)
    failed = conditions(live) > 0
    before = live.flights[0].flock.velocities[0].copy()
    live.scatter()
    after = live.flights[0].flock.velocities[0]
    assert np.array_equal(before[failed], after[failed])
    assert (before[~failed] != after[~failed]).any(axis=1).all()
    with pytest.raises(InputError, match="a failed agent cannot lead"):
        live.toggle_leader(int(np.flatnonzero(failed)[0]))


def test_a_large_flock_fails_and_is_repaired_under_a_radio() -> None:
    radio = {"packet_loss": 0.2, "delay": 1}
    live = live_simulation(agents=MAX_SMALL_FLOCK + 200, controller="etdagnn", environment=radio)
    live.edges = True
    fly(live, 2)
    for kind in KINDS:
        live.fail_agents(kind, 50)  # type: ignore[arg-type]
    fly(live, 2)
    muted = np.flatnonzero(live.flights[0].flock.muted[0])
    assert not np.isin(live.make_pictures()[0].links.edges[:, 1], muted).any()
    live.repair_agents()
    fly(live, 3)
    assert np.isin(live.make_pictures()[0].links.edges[:, 1], muted).any()


def test_a_controller_that_requires_an_ideal_radio_refuses_packet_loss_and_failures(own_registry: None) -> None:
    senses = replace(ef.paper_senses("mean", hops=2), hop_mean="sender")

    @ef.controller("counting", senses=senses)
    def counting(observations: np.ndarray) -> np.ndarray:
        return -observations[:, :, 0, 0]

    live = live_simulation(controller="tanner", compare="counting")
    lossy = EnvironmentSetting(packet_loss=0.1)
    for change in (lambda: live.change_environment(lossy), lambda: live.fail_agents("silent", 1)):
        with pytest.raises(InputError, match="counting requires an ideal radio"):
            change()
    assert all(each.sensing.radio.is_ideal for each in live.flights)
    live.change_environment(EnvironmentSetting(lag=0.1))
    fly(live, 3)


def test_a_saved_flight_has_its_environment_and_failures(tmp_path: Path) -> None:
    live = live_simulation(environment={"packet_loss": 0.1})
    fly(live, 4)
    live.fail_agents("stopped", 3)
    fly(live, 4)
    (run,) = live.to_trajectories()
    assert len(run.times) == 9  # failures begin no new recording
    assert run.config["radio"]["packet_loss"] == 0.1
    folder = save_flights([run], tmp_path, 0.5, lambda *_: None)
    again = Playback(load_trajectories(folder))
    counts = []
    for frame in range(9):
        again.seek(frame)
        counts.append(np.count_nonzero(again.make_pictures()[0].flock.conditions))
    assert counts == [0] * 4 + [3] * 5


@pytest.mark.slow
def test_a_new_recording_starts_when_the_body_state_changes() -> None:
    live = live_simulation()
    fly(live, 4)
    live.change_environment(EnvironmentSetting(max_acceleration=5.0))
    fly(live, 4)
    assert len(live.to_trajectories()[0].times) == 9
    live.change_environment(EnvironmentSetting(lag=0.1))
    fly(live, 2)
    (run,) = live.to_trajectories()
    assert (len(run.times), set(run.body_state)) == (3, {"actuators"})
    assert run.config["body"]["lag"] == 0.1
