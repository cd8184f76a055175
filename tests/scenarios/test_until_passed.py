"""Hand-made courses have the expected outcomes, and the survey kernel agrees with plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.flock import Condition, Flock, Role
from equiflock.outcomes import Outcome
from equiflock.scenarios.course_survey import survey_course
from equiflock.scenarios.obstacle_shapes import add_obstacle, obstacle_disks, ring, wall
from tests import twins
from tests.flocks import flocks
from tests.simple import Push

F, L, O = Role.FOLLOWER, Role.LEADER, Role.OBSTACLE  # noqa: E741
COAST = Push(0.0)
TRIANGLE = [[0.1, 0.0], [-0.05, 0.0866], [-0.05, -0.0866]]


def outcome(agents: list[tuple[list[float], list[float], Role]], duration: float = 8.0, **options: Any) -> Outcome:
    """How a course with a triangle at the origin ends for these agents (position, velocity, role) that coast."""
    positions = [place for place, _, _ in agents] + TRIANGLE
    velocities = [velocity for _, velocity, _ in agents] + [[0.0, 0.0]] * 3
    roles = [role for _, _, role in agents] + [O] * 3
    flock = Flock([positions], [velocities], [roles])
    return ef.simulate(flock, COAST, duration=duration, ending=ef.UntilPassed(**options)).outcome[0]


RIGHT = [1.0, 0.0]


def test_a_flock_that_flies_past_has_passed() -> None:
    assert outcome([([-2.0, 0.5], RIGHT, F), ([-2.0, 0.8], RIGHT, L)]) is Outcome.PASSED


def test_a_flock_has_passed_one_second_after_the_last_agent_was_near() -> None:
    start = Flock([[[-2.0, 0.5], [-2.0, 0.8], *TRIANGLE]], [[RIGHT, RIGHT, *[[0.0, 0.0]] * 3]], [[F, L, O, O, O]])
    run = ef.simulate(start, COAST, duration=8.0, ending=ef.UntilPassed())
    distance = np.linalg.norm(run.positions[:, 0, :2, None] - run.positions[:, 0, None, 2:], axis=-1).min(axis=(1, 2))
    assert run.steps[0] == np.flatnonzero(distance <= 1.0).max() + 100


def test_a_flock_that_splits_is_disconnected() -> None:
    assert outcome([([-3.0, 0.0], [0.0, 1.0], F), ([-3.5, 0.0], [0.0, -1.0], F)]) is Outcome.DISCONNECTED


def test_two_agents_that_meet_have_collided() -> None:
    assert outcome([([-3.0, 0.0], RIGHT, F), ([-2.5, 0.0], [0.0, 0.0], F)]) is Outcome.COLLIDED


def test_an_agent_that_flies_into_the_obstacle_has_hit_it() -> None:
    assert outcome([([-2.0, 0.0], RIGHT, F), ([-2.0, 0.6], RIGHT, F)]) is Outcome.HIT_OBSTACLE


def test_a_flock_that_never_moves_flies_on_until_time_is_up() -> None:
    still = [0.0, 0.0]
    assert outcome([([-3.0, 0.0], still, F), ([-3.0, 0.5], still, L)]) is Outcome.TIME_UP
    # Within reach for ever: it never passes.
    assert outcome([([-0.9, 0.0], still, F), ([-0.9, 0.5], still, L)]) is Outcome.TIME_UP


def test_the_obstacle_joins_followers_within_r_but_not_leaders() -> None:
    still = [0.0, 0.0]
    either_side = [([-0.9, 0.0], still, F), ([0.9, 0.0], still, F)]
    assert outcome(either_side) is Outcome.TIME_UP
    assert outcome([([-0.9, 0.0], still, F), ([0.9, 0.0], still, L)]) is Outcome.DISCONNECTED
    # With every vertex a node of its own, those that a follower does not hear hang loose.
    assert outcome(either_side, obstacle_node="each") is Outcome.TIME_UP
    far = [([-1.02, 0.0], still, F), ([-1.0, 0.5], still, F)]
    assert outcome(far) is Outcome.TIME_UP
    assert outcome(far, obstacle_node="each") is Outcome.DISCONNECTED


@pytest.mark.slow
def test_leaders_count_as_aware_of_the_obstacle_under_the_flock_interpretation() -> None:
    still, far = [0.0, 0.0], [0.0, 3.0]
    # A leader beyond the obstacle is joined to the follower on the near side by it.
    led = [([-0.9, 0.0], still, F), ([0.9, 0.0], still, L)]
    assert outcome(led) is Outcome.DISCONNECTED
    assert outcome(led, awareness="flock") is Outcome.TIME_UP
    assert outcome([([-0.9, 0.0], still, L), ([0.9, 0.0], still, L)], awareness="flock") is Outcome.TIME_UP
    # Each vertex is a node: one of the three is beyond R of this leader and of all other agents.
    near = [([-1.8, 0.0], still, F), ([-1.02, 0.0], still, L)]
    assert outcome(near, awareness="flock") is Outcome.TIME_UP
    assert outcome(near, awareness="flock", obstacle_node="each") is Outcome.DISCONNECTED
    assert outcome(near, obstacle_node="each") is Outcome.TIME_UP
    # Leaders still receive nothing from the flock, and an obstacle without an agent near it is no node.
    assert outcome([(far, still, L), ([0.5, 3.0], still, L)], awareness="flock") is Outcome.DISCONNECTED
    assert outcome([(far, still, F), ([0.5, 3.0], still, L)], awareness="flock") is Outcome.TIME_UP


def course(*centres: tuple[float, float], numbers: bool = True) -> Flock:
    """Two agents that fly to the right, and a triangle around each of these centres."""
    rims = np.concatenate([np.array(TRIANGLE) + centre for centre in centres])
    positions = np.concatenate([[[-2.0, 0.0], [-2.0, 0.5]], rims])
    velocities = np.concatenate([[RIGHT, RIGHT], np.zeros_like(rims)])
    obstacles = np.repeat([-1, *range(len(centres))], [2, *[3] * len(centres)])
    return Flock([positions], [velocities], [[F, L, *[O] * len(rims)]], [obstacles] if numbers else None)


def test_a_flock_can_pass_between_two_obstacles() -> None:
    corridor = course((0.0, 5.0), (0.0, -5.0), (0.0, 1.4))
    run = ef.simulate(corridor, COAST, duration=6.0, ending=ef.UntilPassed())
    assert run.outcome == (Outcome.PASSED,)
    # As one obstacle they would fill the corridor from wall to wall.
    as_one = course((0.0, 5.0), (0.0, -5.0), (0.0, 1.4), numbers=False)
    assert ef.simulate(as_one, COAST, duration=6.0, ending=ef.UntilPassed()).outcome == (Outcome.HIT_OBSTACLE,)


def test_each_obstacle_joins_only_followers_within_r() -> None:
    still, rims = [0.0, 0.0], np.concatenate([np.add(TRIANGLE, (x, 0.0)) for x in (0.0, 6.0)])
    positions, velocities = [[-0.9, 0.0], [6.9, 0.0], *rims], [still] * 8
    apart = Flock([positions], [velocities], [[F, F, *[O] * 6]], [[-1, -1, 0, 0, 0, 1, 1, 1]])
    assert ef.UntilPassed()(np.zeros(1), apart, np.array([True])) == [Outcome.DISCONNECTED]


@pytest.mark.slow
def test_one_obstacle_after_the_other_must_be_passed_but_not_what_lies_behind_or_aside() -> None:
    def seconds(*centres: tuple[float, float]) -> float:
        run = ef.simulate(course(*centres), COAST, duration=20.0, ending=ef.UntilPassed())
        assert run.outcome == (Outcome.PASSED,)
        return int(run.steps[0]) * run.time_step

    first = seconds((0.0, 0.9))
    assert seconds((0.0, 0.9), (8.0, 0.9)) == pytest.approx(first + 8.0)
    assert seconds((0.0, 0.9), (-5.0, 0.0)) == pytest.approx(first)
    # Aside, and never near: it counts as passed once it lies behind.
    assert first < seconds((0.0, 0.9), (6.0, 50.0)) < first + 8.0


def test_the_disk_of_an_obstacle_is_the_circle_around_its_agents() -> None:
    disks = obstacle_disks(course((0.0, 5.0), (3.0, -5.0)))
    assert disks == pytest.approx(np.array([[0.0, 5.0, 0.1], [3.0, -5.0, 0.1]]), abs=1e-4)
    assert obstacle_disks(ef.random_disk()).shape == (0, 3)


def test_a_wall_has_no_inside_and_is_hit_where_its_agents_are() -> None:
    along = Flock([[[-2.0, 0.5], [-2.0, 0.8]]], [[RIGHT, RIGHT]], [[F, L]])
    beside = add_obstacle(along, wall((-1.0, 0.0), (4.0, 0.0), 0.1))
    assert ef.simulate(beside, COAST, duration=9.0, ending=ef.UntilPassed()).outcome == (Outcome.PASSED,)
    across = add_obstacle(along, wall((1.0, -3.0), (1.0, 3.0), 0.15))
    assert ef.simulate(across, COAST, duration=9.0, ending=ef.UntilPassed()).outcome == (Outcome.HIT_OBSTACLE,)
    assert obstacle_disks(add_obstacle(beside, ring((3.0, 4.0), 0.5, sides=6)))[:, 2] == pytest.approx([0.5])


def test_the_default_radius_is_that_of_the_flight() -> None:
    places, still = [[[0.0, 0.0], [1.5, 0.0]]], [[[0.0, 0.0], [0.0, 0.0]]]
    far, near = Flock(places, still), Flock(places, still, comm_radius=2.0)
    for ending in (ef.UntilPassed(), ef.UntilDisconnected()):
        assert ending(np.zeros(1), far, np.array([True])) == [Outcome.DISCONNECTED]
        assert ending(np.zeros(1), near, np.array([True])) == [Outcome.FLYING]
    for ending in (ef.UntilPassed(comm_radius=1.0), ef.UntilDisconnected(comm_radius=1.0)):
        assert ending(np.zeros(1), near, np.array([True])) == [Outcome.DISCONNECTED]


def test_flocks_of_a_batch_end_independently_and_t_0_starts_a_new_flight() -> None:
    start = Flock(
        [[[-2.0, 0.5], [-2.0, 0.8], *TRIANGLE], [[-3.0, 0.0], [-2.5, 0.0], *TRIANGLE]],
        [[RIGHT, RIGHT, *[[0.0, 0.0]] * 3], [RIGHT, [0.0, 0.0], *[[0.0, 0.0]] * 3]],
        [[F, L, O, O, O]] * 2,
    )
    ending = ef.UntilPassed()
    for _ in range(2):
        run = ef.simulate(start, COAST, duration=8.0, ending=ending)
        assert run.outcome == (Outcome.PASSED, Outcome.COLLIDED)


def seen_by_loops(flock: Flock, b: int, one_node: bool, leaders_aware: bool) -> tuple[int, int, float, float, float]:
    """Components, agents of the largest, least separation and distance of an obstacle agent within 1, rim distance."""
    positions, roles, numbers = flock.positions[b], flock.roles[b], flock.obstacles[b]
    there = roles != O
    member = there & (flock.conditions[b] == Condition.WORKING)
    heard = twins.adjacency(positions, roles, 1.0)
    if leaders_aware:  # as if they were followers, but of obstacles only
        heard[:, ~there] |= twins.adjacency(positions, np.where(there, F, O), 1.0)[:, ~there]
    # Agents that have failed join nobody.
    heard[there & ~member] = heard[:, there & ~member] = False
    joined = heard | heard.T
    nodes = member.copy()
    for number in set(numbers[~there].tolist()):
        rim = numbers == number
        if one_node:
            joined[np.ix_(rim, rim)] = True
        if heard[:, rim].any():
            nodes |= rim
    left, sizes = set(np.flatnonzero(nodes).tolist()), []
    while left:
        frontier = [left.pop()]
        sizes.append(int(member[frontier[0]]))
        while frontier:
            reached = left & set(np.flatnonzero(joined[frontier.pop()]).tolist())
            left -= reached
            frontier += list(reached)
            sizes[-1] += int(member[list(reached)].sum())
    square = np.square(positions[:, None] - positions[None]).sum(axis=-1)
    np.fill_diagonal(square, np.inf)
    square[square > 1.0] = np.inf
    separation = square[np.ix_(member, there)].min(initial=np.inf)
    obstacle_distance = square[np.ix_(member, ~there)].min(initial=np.inf)
    rim_distance = np.inf
    for number in set(numbers[~there].tolist()):
        rim = numbers == number
        offsets = positions[:, :2] - positions[rim].mean(axis=0)[:2]
        distance = np.sqrt(np.square(offsets).sum(axis=-1))
        (x, y), radius = offsets[rim][distance[rim].argmax()], distance[rim].max()
        if np.abs(x * offsets[rim, 1] - y * offsets[rim, 0]).max() <= 1e-6 * radius**2:
            continue  # a wall
        rim_distance = min(rim_distance, distance[member].min(initial=np.inf) - distance[rim].max())
    return (
        len(sizes),
        max(sizes, default=0),
        float(np.sqrt(separation)),
        float(np.sqrt(obstacle_distance)),
        rim_distance,
    )


@given(flocks(failed=True), st.booleans(), st.booleans())
def test_the_survey_kernel_agrees_with_plain_loops(flock: Flock, one_node: bool, leaders_aware: bool) -> None:
    node, awareness = "one" if one_node else "each", "flock" if leaders_aware else "followers"
    ending = ef.UntilPassed(min_separation=0.1, obstacle_node=node, awareness=awareness)
    ended = ending(np.zeros(len(flock)), flock, np.ones(len(flock), bool))
    # The ending only asks whether there is more than one piece, which most random flocks have: here they are counted.
    seen = survey_course(flock, 1.0, node, awareness)
    for b in range(len(flock)):
        component_count, largest_component, separation, obstacle_distance, rim_distance = seen_by_loops(
            flock, b, one_node, leaders_aware
        )
        assert (seen.component_count[b], seen.largest_component[b]) == (component_count, largest_component)
        if component_count > 1:
            assert ended[b] == Outcome.DISCONNECTED
        elif separation < 0.1:
            assert ended[b] == Outcome.COLLIDED
        elif obstacle_distance < 0.1 or rim_distance < -1e-9:
            assert ended[b] == Outcome.HIT_OBSTACLE
        elif rim_distance > 1e-9:
            assert ended[b] == Outcome.FLYING


def outcome_with_failed(condition: Condition, place: list[float], velocity: list[float]) -> Outcome:
    """How two agents that fly past a triangle at the origin end, beside a third one that has failed."""
    positions = [[-2.0, 0.5], [-2.0, 0.8], place, *TRIANGLE]
    velocities = [RIGHT, RIGHT, velocity, *[[0.0, 0.0]] * 3]
    conditions = [[Condition.WORKING] * 2 + [condition] + [Condition.WORKING] * 3]
    flock = Flock([positions], [velocities], [[F, L, F, O, O, O]], conditions=conditions)
    return ef.simulate(flock, COAST, duration=8.0, ending=ef.UntilPassed()).outcome[0]


def test_only_working_agents_must_pass_but_none_may_collide_with_a_failed_one() -> None:
    still, stopped, drifting = [0.0, 0.0], Condition.STOPPED, Condition.DRIFTING
    # It stays beside the obstacle for ever, flies away, or flies into the obstacle: the others have passed.
    assert outcome_with_failed(stopped, [0.0, -0.9], still) is Outcome.PASSED
    assert outcome_with_failed(drifting, [-2.0, 0.2], [-1.0, 0.0]) is Outcome.PASSED
    assert outcome_with_failed(drifting, [-2.0, 0.0], RIGHT) is Outcome.PASSED
    # As one that works it is out of reach.
    assert outcome_with_failed(Condition.WORKING, [0.0, -0.9], still) is Outcome.DISCONNECTED
    # It stands in the way.
    assert outcome_with_failed(stopped, [1.5, 0.5], still) is Outcome.COLLIDED


def test_a_flock_without_working_agents_does_not_pass() -> None:
    flock = Flock([[[-2.0, 0.5], *TRIANGLE]], [[RIGHT, *[[0.0, 0.0]] * 3]], [[F, O, O, O]])
    passing = ef.Failures("drifting", agents=1, time=2.0)
    run = ef.simulate(flock, COAST, duration=8.0, ending=ef.UntilPassed(), failures=passing)
    assert run.outcome == (Outcome.TIME_UP,)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"comm_radius": 0.0}, "comm_radius must be a finite number above 0"),
        ({"clear_time": -1.0}, "clear_time must be a finite number above 0"),
        ({"obstacle_node": "ones"}, "did you mean 'one'"),
        ({"awareness": "flocks"}, "awareness must be one of 'followers', 'flock'; got 'flocks'; did you mean 'flock'"),
    ],
)
def test_invalid_ending_options_raise_errors(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.UntilPassed(**options)


@pytest.mark.slow
def test_a_flock_passes_an_obstacle_only_with_the_orbit_technique() -> None:
    start = ef.ObstacleCourse(ef.RandomDisk(flocks=5, seed=1), sides=6).draw()
    passed = {}
    for name, orbit in (("with", ef.Orbit()), ("without", None)):
        run = ef.simulate(
            start, ef.load("etdagnn"), duration=15.0, ending=ef.UntilPassed(), orbit=orbit, keep_every=None
        )
        passed[name] = run.outcome.count(Outcome.PASSED)
    assert passed["with"] >= 4
    assert passed["without"] == 0
