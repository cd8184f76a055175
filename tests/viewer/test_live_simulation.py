"""Live flights match other flights bit for bit until the user changes them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.plotting.player import frames
from equiflock.scenarios.obstacle_shapes import add_obstacle, ring, wall
from equiflock.viewer import setting
from equiflock.viewer.live_simulation import LiveSimulation
from equiflock.viewer.setting import MAX_DISKS, DiskObstacle
from tests.viewer.live_simulations import fly, live_simulation

DISK = DiskObstacle(x=2.0, y=1.0, radius=0.4)


def roles(live: LiveSimulation, panel: int = 0) -> np.ndarray:
    return live.flights[panel].flock.roles[0]


@pytest.mark.parametrize("scenario", ["flocking", "leaders", "obstacles"])
@pytest.mark.parametrize("controller", ["tanner", "etdagnn"])
def test_an_unchanged_live_simulation_matches_flight(scenario: str, controller: str) -> None:
    live = live_simulation(scenario=scenario, controller=controller, seed=4)
    fly(live, 20)
    flight = ef.flight(live.setting.draw(), ef.load(controller), orbit=ef.Orbit())
    moment = next(islice(flight, 20, None))
    assert live.step == moment.step == 20
    assert live.time == moment.time
    assert np.array_equal(live.flights[0].flock.positions, moment.flock.positions)
    assert np.array_equal(live.flights[0].accelerations, moment.accelerations)


def test_two_flights_start_alike_and_stay_in_lockstep() -> None:
    live = live_simulation(compare="tanner-dynamic")
    first, second = live.flights
    assert np.array_equal(first.flock.positions, second.flock.positions)
    fly(live, 7)
    assert first.step == second.step == 7
    assert not np.array_equal(first.flock.positions, second.flock.positions)


def test_steering_changes_only_the_leaders_velocities() -> None:
    live = live_simulation(scenario="leaders")
    before = live.flights[0].flock.velocities[0].copy()
    live.steer((1.5, -0.5))
    leads = roles(live) == ef.Role.LEADER
    assert leads.sum() == 2
    assert np.array_equal(live.flights[0].flock.velocities[0, leads], [[1.5, -0.5]] * 2)
    assert np.array_equal(live.flights[0].flock.velocities[0, ~leads], before[~leads])
    fly(live, 5)
    assert np.array_equal(live.flights[0].flock.velocities[0, leads], [[1.5, -0.5]] * 2)


def test_an_agent_is_toggled_by_its_index_but_obstacle_agents_are_not() -> None:
    live = live_simulation(scenario="obstacles", options={"leaders": 1}, compare="tanner-dynamic")
    (leader,) = np.flatnonzero(roles(live) == ef.Role.LEADER)
    chosen = 3 if leader != 3 else 4
    fly(live, 10)
    live.toggle_leader(chosen)
    for panel in (0, 1):
        assert set(np.flatnonzero(roles(live, panel) == ef.Role.LEADER).tolist()) == {int(leader), chosen}
        assert np.array_equal(live.flights[panel].accelerations[0, chosen], [0.0, 0.0])
    live.toggle_leader(chosen)
    assert np.flatnonzero(roles(live) == ef.Role.LEADER).tolist() == [leader]
    for agent in (30, 41, 42, 10**9):  # obstacle agents, and beyond all of them
        with pytest.raises(InputError, match=f"agent {agent} does not exist"):
            live.toggle_leader(agent)


def test_agents_are_removed_from_both_flights_and_the_others_keep_their_state() -> None:
    live = live_simulation(controller="etdagnn", compare="tdagnn")
    fly(live, 5)
    place = live.flights[0].flock.positions[0, 3]
    distances = np.hypot(*(live.flights[0].flock.positions[0] - place).T)
    stay = distances > 0.5
    kept = [other.flock.positions[0, stay].copy() for other in live.flights]
    live.remove_agents([(place[0], place[1])], 0.5, panel=0)
    for other, positions in zip(live.flights, kept, strict=True):
        assert np.array_equal(other.flock.positions[0], positions)
    fly(live, 5)
    assert live.flights[0].flock.shape[1] == stay.sum()


def test_the_last_agents_cannot_be_removed() -> None:
    live = live_simulation()
    with pytest.raises(InputError, match="at least one must remain"):
        live.remove_agents([(0.0, 0.0)], 1e5, panel=0)
    assert live.flights[0].flock.shape[1] == 30


def test_obstacles_are_added_moved_and_removed() -> None:
    live = live_simulation(scenario="obstacles")
    more = DiskObstacle(x=9.0, y=9.0, radius=0.2)
    live.add_disk(DISK)
    live.add_disk(more)
    fly(live, 3)
    live.move_disk(1, (4.0, 4.0))
    points = live.flights[0].flock.positions[0, 42:][: len(DISK.make_rim(0.1))]
    assert np.allclose(points, DISK.make_rim(0.1) + np.array([2.0, 3.0]))
    live.remove_disk(0)
    assert live.disks == pytest.approx(np.array([[4.0, 4.0, 0.4], [9.0, 9.0, 0.2]]))
    assert (roles(live) == ef.Role.OBSTACLE).sum() == len(DISK.make_rim(0.1)) + len(more.make_rim(0.1))
    assert np.allclose(live.flights[0].flock.positions[0, 30:][: len(points)], points)
    fly(live, 3)
    with pytest.raises(InputError, match="obstacle index must be below 2; got 2"):
        live.move_disk(2, (0.0, 0.0))


def test_the_number_of_obstacles_is_limited() -> None:
    live = live_simulation(disks=(DISK,) * MAX_DISKS)
    with pytest.raises(InputError, match="at most 20 obstacles"):
        live.add_disk(DISK)


def test_the_orbit_technique_can_be_switched_in_flight() -> None:
    course = {"scenario": "obstacles", "controller": "etdagnn"}
    with_technique, without, switched = (
        live_simulation(**course),
        live_simulation(**course, orbit=False),
        live_simulation(**course),
    )
    switched.set_orbit(False)
    for live in (with_technique, without, switched):
        fly(live, 150)
    assert np.array_equal(switched.flights[0].flock.positions, without.flights[0].flock.positions)
    assert not np.array_equal(with_technique.flights[0].flock.positions, without.flights[0].flock.positions)


def test_scattering_is_reproducible_and_the_same_in_both_flights() -> None:
    first, second = live_simulation(compare="tanner-dynamic", scenario="leaders"), live_simulation(scenario="leaders")
    for live in (first, second):
        fly(live, 10)
        led = live.flights[0].flock.velocities[0, roles(live) == ef.Role.LEADER].copy()
        live.scatter()
        assert np.array_equal(live.flights[0].flock.velocities[0, roles(live) == ef.Role.LEADER], led)
    follows = roles(first) == ef.Role.FOLLOWER
    velocities = first.flights[0].flock.velocities[0, follows]
    for other in (first.flights[1], second.flights[0]):
        assert np.array_equal(other.flock.velocities[0, follows], velocities)
    assert np.abs(velocities).max() <= 3.0
    assert ef.metrics.velocity_variance(first.flights[0].flock)[0] > 3.0


def test_a_panel_out_of_range_is_refused() -> None:
    with pytest.raises(InputError, match="panel must be below 1"):
        live_simulation().remove_agents([(0.0, 0.0)], 0.1, panel=1)


def test_a_large_flock_can_be_changed() -> None:
    live = live_simulation(agents=3500, controller="etdagnn")
    fly(live, 3)
    place = live.flights[0].flock.positions[0, 100]
    live.remove_agents([(place[0], place[1])], 0.3, panel=0)
    live.add_disk(DISK)
    live.toggle_leader(7)
    fly(live, 3)
    assert live.flights[0].flock.shape[1] < 3500 + len(DISK.make_rim(0.1))
    assert np.isfinite(live.flights[0].flock.positions).all()


def test_a_law_with_fixed_topology_is_shown_with_its_initial_graph() -> None:
    live = live_simulation(controller="tanner-fixed", compare="tanner-dynamic")
    live.edges = True
    before = [picture.links.edges for picture in live.make_pictures()]
    assert np.array_equal(before[0], before[1])
    fly(live, 60)
    fixed, dynamic = (picture.links.edges for picture in live.make_pictures())
    assert np.array_equal(fixed, before[0])
    assert not np.array_equal(dynamic, before[1])


@dataclass(frozen=True)
class Pair:
    """Two groups with two rings and a wall ahead; followers observe all obstacle agents within R."""

    orbit: ClassVar[ef.Orbit | None] = None
    obstacles: ClassVar[str] = "all"

    def draw(self, stop: object = None) -> ef.Flock:
        half = ef.random_disk(agents=10)
        positions = np.concatenate([half.positions, half.positions + np.array([4.0, 0.0])], axis=1)
        flock = ef.Flock(positions, np.zeros_like(positions), groups=np.repeat([[0, 1]], 10, axis=1))
        for points in (
            ring((0.0, 5.0), 0.3, sides=8),
            wall((-3.0, -4.0), (3.0, -4.0), 0.2),
            ring((6.0, 5.0), 0.5, sides=9),
        ):
            flock = add_obstacle(flock, points)
        return flock


@pytest.fixture
def pair(own_registry: None) -> None:
    ef.scenario("pair")(Pair)


def test_a_scenario_may_have_several_obstacles_and_groups(pair: None) -> None:
    live = live_simulation(scenario="pair", disks=(DISK,))
    assert live.to_dict()["scenario_obstacle_count"] == live.scenario_obstacle_count == len(live.disks) - 1
    assert np.array_equal(live.make_pictures()[0].flock.groups[0, :20], np.repeat([0, 1], 10))
    live.remove_agents([tuple(live.flights[0].flock.positions[0, 3])], 1e-6, panel=0)
    fly(live, 3)
    assert np.array_equal(live.flights[0].flock.groups[0, :19], np.repeat([0, 1], [9, 10]))


def test_obstacles_are_indexed_as_on_the_page(pair: None) -> None:
    live = live_simulation(scenario="pair")
    for number in range(len(live.disks)):
        before = live.disks
        live.move_disk(number, (20.0, float(number)))
        before[number, :2] = 20.0, number
        assert live.disks == pytest.approx(before)
    live.remove_disk(1)
    assert live.disks == pytest.approx(np.delete(before, 1, axis=0))
    live.add_disk(DISK)
    assert live.disks[-1] == pytest.approx([DISK.x, DISK.y, DISK.radius])


def test_the_obstacle_rule_is_the_scenarios(pair: None) -> None:
    live = live_simulation(scenario="pair")
    expected = ef.flight(live.setting.draw(), ef.load("tanner"), obstacles="all")
    fly(live, 20)
    moment = next(islice(expected, 20, None))
    assert np.array_equal(live.flights[0].flock.positions, moment.flock.positions)


def test_the_scenario_decides_whether_followers_orbit_its_obstacles_unless_the_page_does(pair: None) -> None:
    assert not live_simulation(scenario="pair").orbit_enabled
    assert live_simulation(scenario="pair", orbit=True).orbit_enabled
    assert live_simulation(scenario="obstacles").orbit_enabled
    assert not live_simulation(scenario="obstacles", options={"orbit": None}).orbit_enabled
    assert live_simulation(scenario="flocking").orbit_enabled  # what a person puts into the way is avoided


def test_the_orbit_technique_has_the_scenarios_parameters(own_registry: None) -> None:
    slow = ef.Orbit(slow=3.0)
    ef.scenario("pair")(type("Slow", (Pair,), {"orbit": slow}))
    live = live_simulation(scenario="pair")
    assert live.flights[0].sensing.orbit == slow
    live.set_orbit(False)
    assert live.flights[0].sensing.orbit is None
    live.set_orbit(True)
    assert live.flights[0].sensing.orbit == slow


def test_each_flight_has_the_orbit_technique_of_its_controller(tmp_path: Path) -> None:
    network: Any = ef.load_module("etdagnn")
    network.orbit = ef.Orbit(near=0.25)
    tuned = str(ef.save(network, tmp_path / "tuned.safetensors"))
    live = live_simulation(scenario="obstacles", controller=tuned, compare="etdagnn")
    assert [each.sensing.orbit for each in live.flights] == [ef.Orbit(near=0.25), ef.Orbit()]
    live.set_orbit(False)
    assert [each.sensing.orbit for each in live.flights] == [None, None]
    live.set_orbit(True)
    assert [each.sensing.orbit for each in live.flights] == [ef.Orbit(near=0.25), ef.Orbit()]
    assert [run.config["orbit"]["near"] for run in live.to_trajectories()] == [0.25, 1.0]
    # What is dropped into a scenario without obstacles is avoided in the same way.
    assert live_simulation(controller=tuned).flights[0].sensing.orbit == ef.Orbit(near=0.25)


def test_messages_of_a_dense_flock_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    live = live_simulation(environment={"packet_loss": 0.5})
    live.edges = True
    fly(live, 2)
    assert len(live.make_pictures()[0].links.edges) > 0
    monkeypatch.setattr(frames, "MAX_EDGES", 10)

    def fail(*_: object) -> None:
        raise AssertionError("messages were listed")

    monkeypatch.setattr(live.flights[0].sensing, "compute_message_graph", fail)
    assert len(live.make_pictures()[0].links.edges) == 0


def test_a_disk_with_too_many_agents_is_not_added() -> None:
    live = live_simulation(compare="etdagnn", options={"min_separation": 1e-3})
    before = [flight.flock for flight in live.flights]
    with pytest.raises(InputError, match="at most 20,000 agents are allowed, including obstacle agents; got 31,446"):
        live.add_disk(DiskObstacle(x=50.0, y=50.0, radius=5.0))
    assert [flight.flock for flight in live.flights] == before


def test_controllers_have_at_most_ten_hops() -> None:
    with pytest.raises(InputError, match="live flights have at most 10 hops; the controller has 100,000"):
        live_simulation(scenario="goal", controller="gu-leader", controller_options={"hops": 100_000})
    live = live_simulation(scenario="goal", controller="gu-leader", controller_options={"hops": 10})
    with pytest.raises(InputError, match="live flights have at most 10 hops; the controller has 11"):
        live.change_law(0, {"hops": 11})
    assert live.setting.controller_options == {"hops": 10}


def test_fixed_graphs_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    live_simulation(controller="tanner-fixed")
    monkeypatch.setattr(setting, "MAX_FIXED_EDGES", 10)
    with pytest.raises(InputError, match=r"fixed topology takes at most 10 edges; the flock has .*: choose fewer"):
        live_simulation(controller="tanner-fixed")
    live_simulation(controller="tanner-dynamic")
