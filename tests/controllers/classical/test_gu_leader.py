"""Gu and Wang's law: a few informed agents bring a flock to a goal, held by a centre that all estimate over hops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray
from scipy.stats import ortho_group

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.classical.gu_leader import GuLeader
from equiflock.flock import Condition, Flock, Role
from equiflock.observations.aggregation import DelayedAggregation, observe
from tests import twins
from tests.flocks import flocks

Array = NDArray[Any]


def after_hops(flock: Flock, law: GuLeader) -> Any:
    """What agents of a flock that stands know once messages have made all hops."""
    memory = DelayedAggregation(law.senses)
    for _ in range(law.hops - 1):
        memory.observe(flock)
    return memory.observe(flock)


def limited(vector: Array, most: float) -> Array:
    norm = float(np.linalg.norm(vector))
    return vector * (most / norm) if norm > most else vector


def by_the_book(flock: Flock, b: int, law: GuLeader, goal: Array) -> Array:
    """The law agent by agent, with the flock's centre as the mean over neighbours, taken K times, of positions."""
    neighbours = twins.find_neighbours(flock, b, 1.0)
    # An agent without neighbours is its own centre.
    means = np.array([row / row.sum() if row.any() else np.eye(len(neighbours))[i] for i, row in enumerate(neighbours)])
    centres = np.linalg.matrix_power(means, law.hops) @ flock.positions[b]
    result = np.zeros(flock.shape[1:])
    for i in np.flatnonzero(flock.roles[b] == Role.FOLLOWER):
        r, v, mates = flock.positions[b, i], flock.velocities[b, i], np.flatnonzero(neighbours[i])
        result[i] -= law.cohesion * (r - centres[i])
        for j in mates:
            offset, square = r - flock.positions[b, j], twins.square_distance(r, flock.positions[b, j])
            result[i] -= law.alignment * (v - flock.velocities[b, j]) / len(mates)
            result[i] += law.separation * max(1.0 / square - 1.0 / law.distance**2, 0.0) * offset / len(mates)
        if flock.groups[b, i] == 1:
            wanted = -limited(law.goal_gain * (r - goal), law.cruise_speed)
            result[i] += limited(law.damping * (wanted - v), law.push)
        result[i] = limited(result[i], law.clamp or np.inf)
    return result


def mixed(dimensions: int, agents: int = 25) -> Flock:
    """Two flocks with leaders and informed agents, one of whom is far from all others."""
    start = ef.random_disk(flocks=2, agents=agents, dimensions=dimensions)
    positions = start.positions.copy()
    positions[:, 5] += 50.0
    roles, groups = np.zeros((2, agents), int), np.zeros((2, agents), int)
    roles[:, 3:5], groups[:, 4:9] = Role.LEADER, 1
    return Flock(positions, start.velocities, roles, groups=groups)


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("hops", [1, 3])
def test_it_is_its_equation(dimensions: int, hops: int) -> None:
    flock = mixed(dimensions)
    law = GuLeader(hops=hops, goal=(1.0, 2.0), goal_gain=0.3, cruise_speed=0.7, distance=0.8, push=6.0)
    answer = law(flock, after_hops(flock, law))
    goal = np.r_[1.0, 2.0, np.zeros(dimensions - 2)]
    follows = flock.roles == Role.FOLLOWER
    for b in range(2):
        expected = by_the_book(flock, b, law, goal)
        np.testing.assert_allclose(answer[b, follows[b]], expected[follows[b]], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_law_is_equivariant_if_the_goal_is_rotated_too(dimensions: int) -> None:
    flock, goal = mixed(dimensions), np.r_[2.0, -1.0, np.zeros(dimensions - 2)]
    turn = ortho_group.rvs(dimensions, random_state=3)
    turned = Flock(flock.positions @ turn.T, flock.velocities @ turn.T, flock.roles, groups=flock.groups)
    before, after = GuLeader(goal=tuple(goal)), GuLeader(goal=tuple(turn @ goal))
    answers = before(flock, after_hops(flock, before)), after(turned, after_hops(turned, after))
    np.testing.assert_allclose(answers[1], answers[0] @ turn.T, rtol=1e-4, atol=1e-3)


@given(flocks(max_agents=12, failed=True))
@settings(max_examples=20)
def test_clamp_bounds_accelerations_of_any_flock(flock: Flock) -> None:
    law = GuLeader()
    norms = np.linalg.norm(law(flock, observe(flock, law.senses)), axis=-1)
    assert (norms <= 100.0 * (1 + 1e-12)).all()


def test_only_informed_agents_depend_on_the_goal() -> None:
    flock = mixed(2)
    law, other = GuLeader(goal=(5.0, 0.0)), GuLeader(goal=(-5.0, 3.0))
    known = after_hops(flock, law)
    differs = (law(flock, known) != other(flock, known)).any(axis=-1)
    assert (differs == ((flock.groups == 1) & (flock.roles == Role.FOLLOWER))).all()


def test_the_first_tenth_is_informed_if_no_follower_is_in_group_1() -> None:
    groups = np.zeros((3, 25), int)
    groups[1, 7] = groups[2, 0] = 1
    roles = np.zeros((3, 25), int)
    roles[:, :2] = Role.LEADER
    flock = Flock(np.zeros((3, 25, 2)), np.zeros((3, 25, 2)), roles, groups=groups)
    assert [np.flatnonzero(row).tolist() for row in GuLeader.find_informed(flock)] == [[2, 3], [7], [2, 3]]
    few = Flock(np.zeros((1, 4, 2)), np.zeros((1, 4, 2)))
    assert GuLeader.find_informed(few).tolist() == [[True, False, False, False]]


def test_single_informed_agent_reaches_the_goal_and_stops() -> None:
    start = Flock([[[-3.0, 4.0]]], [[[2.0, 1.0]]])
    run = ef.simulate(start, ef.load("gu-leader", goal=(6.0, 4.0), cruise_speed=1.5), duration=15.0)
    speeds = np.linalg.norm(run.velocities[:, 0, 0], axis=-1)
    assert speeds[200:400] == pytest.approx(1.5, rel=1e-3)
    np.testing.assert_allclose(run.positions[-1, 0, 0], [6.0, 4.0], atol=0.01)
    assert speeds[-1] < 0.01


@pytest.mark.parametrize("dimensions", [2, 3])
def test_an_informed_tenth_brings_the_flock_to_the_goal(dimensions: int) -> None:
    start = ef.random_disk(flocks=5, agents=50, dimensions=dimensions)
    run = ef.simulate(start, ef.load("gu-leader"), duration=20.0, keep_every=None)
    end = run.flock()
    goal = np.r_[5.0, np.zeros(dimensions - 1)]
    assert (ef.components(end) == 0).all()
    assert (np.linalg.norm(end.positions.mean(axis=1) - goal, axis=-1) < 1.0).all()
    assert np.linalg.norm(end.velocities, axis=-1).max() < 0.3


@pytest.mark.slow
def test_three_hops_keep_flocks_connected_that_one_hop_does_not() -> None:
    start = ef.random_disk(flocks=10, agents=100, seed=5)
    components = {}
    for hops in (1, 3):
        end = ef.simulate(start, ef.load("gu-leader", hops=hops), duration=6.0, keep_every=None).flock()
        components[hops] = ef.components(end).max(axis=1) + 1
    assert (components[3] == 1).all()
    assert (components[1] > 1).sum() >= 2


@pytest.mark.parametrize(
    ("word", "expected"), [("5,0", (5.0, 0.0)), ("-1.5,2,3", (-1.5, 2.0, 3.0)), ("4", (4.0, 0.0, 0.0)), ("none", None)]
)
def test_goal_can_be_text_with_commas(word: str, expected: tuple[float, ...] | None) -> None:
    law: Any = ef.load(f"gu-leader:goal={word}")
    wide = ef.random_disk(agents=3, dimensions=3, comm_radius=2.0, disk_radius=2.0)
    # By default it is 5 R to the right.
    goal = (10.0, 0.0, 0.0) if expected is None else (*expected, 0.0, 0.0)[:3]
    assert law.resolve_goal(wide).tolist() == list(goal)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_it_flies_any_flock(dimensions: int) -> None:
    rng = np.random.default_rng(0)
    positions, velocities = rng.normal(size=(2, 1, 10, dimensions))
    failed = [Condition.SILENT, Condition.DRIFTING, Condition.SILENT, *[Condition.WORKING] * 7]
    starts = [
        Flock(positions[:, :1], velocities[:, :1]),
        Flock(np.zeros_like(positions), velocities),
        Flock(positions, velocities, [[Role.LEADER] * 10]),
        Flock(positions, velocities, conditions=[failed]),
    ]
    if dimensions == 2:
        starts.append(ef.make_scenario("obstacles", agents=10).draw())
    for start in starts:
        run = ef.simulate(start, ef.load("gu-leader"), duration=0.5)
        assert np.isfinite(run.positions).all()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"goal": "there"}, "goal must be a point of finite numbers, such as 5,0"),
        ({"goal": "1,2,3,4"}, "goal must be a point"),
        ({"goal": (1.0, np.nan)}, "goal must be a point"),
        ({"goal": ()}, "goal must be a point"),
        ({"hops": 0}, "hops must be a whole number of at least 1"),
        ({"push": 0.0}, "push must be a finite number above 0"),
        ({"cohesion": -1.0}, "cohesion must be a finite number of at least 0"),
    ],
)
def test_invalid_options_raise(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.load("gu-leader", **options)


def test_wrong_goal_dimension_and_wrong_observations_raise() -> None:
    flock, law = ef.random_disk(agents=5), GuLeader(goal=(1.0, 2.0, 3.0))
    with pytest.raises(InputError, match="goal must have at most 2 numbers for flocks in 2 dimensions"):
        law(flock, observe(flock, law.senses))
    with pytest.raises(InputError, match="observations must have the shape"):
        law(flock, observe(ef.random_disk(agents=6), law.senses))
