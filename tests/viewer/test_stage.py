"""Live flights are flights: the same bits as anywhere else, until somebody touches them."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

import equiflock as ef
from equiflock.runtime.checks import InputError
from equiflock.viewer.setting import MOST_DISKS, Disk
from equiflock.viewer.stage import Stage
from tests.viewer.stages import fly, stage

DISK = Disk(x=2.0, y=1.0, radius=0.4)


def roles(live: Stage, panel: int = 0) -> np.ndarray:
    return live.flights[panel].flock.roles[0]


@pytest.mark.parametrize("scenario", ["flocking", "leaders", "obstacles"])
@pytest.mark.parametrize("controller", ["tanner", "etdagnn"])
def test_an_untouched_stage_shows_the_flight_that_experiments_use(scenario: str, controller: str) -> None:
    live = stage(scenario=scenario, controller=controller, seed=4)
    fly(live, 20)
    flight = ef.flight(live.setting.draw()[0], ef.load(controller), orbit=ef.Orbit())
    moment = next(islice(flight, 20, None))
    assert live.step == moment.step == 20
    assert live.time == moment.time
    assert np.array_equal(live.flights[0].flock.positions, moment.flock.positions)
    assert np.array_equal(live.flights[0].accelerations, moment.accelerations)


def test_two_flights_start_alike_and_stay_in_lockstep() -> None:
    live = stage(compare="tanner-dynamic")
    first, second = live.flights
    assert np.array_equal(first.flock.positions, second.flock.positions)
    fly(live, 7)
    assert first.step == second.step == 7
    assert not np.array_equal(first.flock.positions, second.flock.positions)


def test_steering_changes_the_leaders_velocity_and_nobody_elses() -> None:
    live = stage(scenario="leaders")
    before = live.flights[0].flock.velocities[0].copy()
    live.steer((1.5, -0.5))
    leads = roles(live) == ef.Role.LEADER
    assert leads.sum() == 2
    assert np.array_equal(live.flights[0].flock.velocities[0, leads], [[1.5, -0.5]] * 2)
    assert np.array_equal(live.flights[0].flock.velocities[0, ~leads], before[~leads])
    fly(live, 5)
    assert np.array_equal(live.flights[0].flock.velocities[0, leads], [[1.5, -0.5]] * 2)


def test_the_agent_nearest_to_a_place_leads_and_follows_again_in_both_flights() -> None:
    live = stage(compare="tanner-dynamic")
    fly(live, 10)
    place = live.flights[1].flock.positions[0, 17] + 1e-6
    live.lead((place[0], place[1]), 0.1, panel=1)
    assert [np.flatnonzero(roles(live, panel)).tolist() for panel in (0, 1)] == [[17], [17]]
    assert np.array_equal(live.flights[0].accelerations[0, 17], [0.0, 0.0])
    live.lead((place[0], place[1]), 0.1, panel=1)
    assert not roles(live).any()
    with pytest.raises(InputError, match="no agent is there"):
        live.lead((place[0] + 50.0, place[1]), 0.1, panel=1)


def test_an_agent_is_appointed_by_its_number_wherever_it_is_but_obstacle_agents_are_not() -> None:
    live = stage(scenario="obstacles", leaders=1, sides=12, compare="tanner-dynamic")
    (leader,) = np.flatnonzero(roles(live) == ef.Role.LEADER)
    chosen = 3 if leader != 3 else 4
    fly(live, 10)
    live.appoint(chosen)
    for panel in (0, 1):
        assert set(np.flatnonzero(roles(live, panel) == ef.Role.LEADER).tolist()) == {int(leader), chosen}
    live.appoint(chosen)
    assert np.flatnonzero(roles(live) == ef.Role.LEADER).tolist() == [leader]
    for nobody in (30, 41, 42, 10**9):  # obstacle agents, and beyond all of them
        with pytest.raises(InputError, match=f"no agent number {nobody}"):
            live.appoint(nobody)


def test_removed_agents_are_gone_from_both_flights_and_the_others_keep_their_memory() -> None:
    live = stage(controller="etdagnn", compare="tdagnn")
    fly(live, 5)
    place = live.flights[0].flock.positions[0, 3]
    distances = np.hypot(*(live.flights[0].flock.positions[0] - place).T)
    stay = distances > 0.5
    kept = [other.flock.positions[0, stay].copy() for other in live.flights]
    live.remove([(place[0], place[1])], 0.5, panel=0)
    for other, positions in zip(live.flights, kept, strict=True):
        assert np.array_equal(other.flock.positions[0], positions)
    fly(live, 5)
    assert live.flights[0].flock.shape[1] == stay.sum()


def test_the_last_agents_cannot_be_removed() -> None:
    live = stage()
    with pytest.raises(InputError, match="somebody must fly"):
        live.remove([(0.0, 0.0)], 1e5, panel=0)
    assert live.flights[0].flock.shape[1] == 30


def test_obstacles_are_dropped_moved_and_lifted() -> None:
    live = stage(scenario="obstacles", sides=12)
    course, more = live.disks[0], Disk(x=9.0, y=9.0, radius=0.2)
    live.drop(DISK)
    live.drop(more)
    fly(live, 3)
    live.move(1, (4.0, 4.0))
    points = live.flights[0].flock.positions[0, 42:][: len(DISK.rim(0.1))]
    assert np.allclose(points, DISK.rim(0.1) + np.array([2.0, 3.0]))
    live.lift(0)
    assert live.disks == [Disk(x=4.0, y=4.0, radius=0.4), more]
    assert course not in live.disks
    assert (roles(live) == ef.Role.OBSTACLE).sum() == len(DISK.rim(0.1)) + len(more.rim(0.1))
    assert np.allclose(live.flights[0].flock.positions[0, 30:][: len(points)], points)
    fly(live, 3)
    with pytest.raises(InputError, match="no obstacle number 2"):
        live.move(2, (0.0, 0.0))


def test_there_is_a_limit_to_obstacles() -> None:
    live = stage(disks=(DISK,) * MOST_DISKS)
    with pytest.raises(InputError, match="20 obstacles"):
        live.drop(DISK)


def test_the_orbit_technique_can_be_switched_while_flying() -> None:
    course = {"scenario": "obstacles", "controller": "etdagnn"}
    with_technique, without, switched = stage(**course), stage(**course, orbit=False), stage(**course)
    switched.orbit(False)
    for live in (with_technique, without, switched):
        fly(live, 150)
    assert np.array_equal(switched.flights[0].flock.positions, without.flights[0].flock.positions)
    assert not np.array_equal(with_technique.flights[0].flock.positions, without.flights[0].flock.positions)


def test_scattering_is_the_same_in_both_flights_and_at_every_try() -> None:
    first, second = stage(compare="tanner-dynamic", scenario="leaders"), stage(scenario="leaders")
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


def test_a_panel_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="panel must be below 1"):
        stage().remove([(0.0, 0.0)], 0.1, panel=1)


def test_a_large_flock_can_be_touched_too() -> None:
    live = stage(agents=3500, controller="etdagnn")
    fly(live, 3)
    place = live.flights[0].flock.positions[0, 100]
    live.remove([(place[0], place[1])], 0.3, panel=0)
    live.drop(DISK)
    live.lead((place[0], place[1]), 9.0, panel=0)
    fly(live, 3)
    assert live.flights[0].flock.shape[1] < 3500 + len(DISK.rim(0.1))
    assert np.isfinite(live.flights[0].flock.positions).all()


def test_a_law_of_fixed_topology_is_shown_with_those_it_heard_at_the_start() -> None:
    live = stage(controller="tanner-fixed", compare="tanner-dynamic")
    live.edges = True
    before = [panel.edges for panel in live.panels()]
    assert np.array_equal(before[0], before[1])
    fly(live, 60)
    fixed, dynamic = (panel.edges for panel in live.panels())
    assert np.array_equal(fixed, before[0])
    assert not np.array_equal(dynamic, before[1])
