"""Hand-made courses end as they must, and the kernel sees what plain loops see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import equiflock as ef
from equiflock.types import Flock, InputError, Outcome, Role
from tests import twins
from tests.flocks import flocks

F, L, O = Role.FOLLOWER, Role.LEADER, Role.OBSTACLE  # noqa: E741
TRIANGLE = [[0.1, 0.0], [-0.05, 0.0866], [-0.05, -0.0866]]


class Coast:
    """Everybody flies straight on."""

    hops, one_hop = 1, "mean"

    def __call__(self, messages: NDArray[Any]) -> NDArray[Any]:
        return np.zeros_like(messages[:, :, 0, 0])


def outcome(agents: list[tuple[list[float], list[float], Role]], duration: float = 8.0, **options: Any) -> Outcome:
    """How a course with a triangle at the origin ends for these agents (position, velocity, role) that coast."""
    positions = [place for place, _, _ in agents] + TRIANGLE
    velocities = [velocity for _, velocity, _ in agents] + [[0.0, 0.0]] * 3
    roles = [role for _, _, role in agents] + [O] * 3
    flock = Flock([positions], [velocities], [roles])
    return ef.simulate(flock, Coast(), duration=duration, ending=ef.UntilPassed(**options)).outcome[0]


RIGHT = [1.0, 0.0]


def test_a_flock_that_flies_past_has_passed() -> None:
    assert outcome([([-2.0, 0.5], RIGHT, F), ([-2.0, 0.8], RIGHT, L)]) is Outcome.PASSED


def test_it_has_passed_a_second_after_the_last_was_near() -> None:
    start = Flock([[[-2.0, 0.5], [-2.0, 0.8], *TRIANGLE]], [[RIGHT, RIGHT, *[[0.0, 0.0]] * 3]], [[F, L, O, O, O]])
    run = ef.simulate(start, Coast(), duration=8.0, ending=ef.UntilPassed())
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


def test_the_obstacle_joins_the_followers_that_hear_it_but_not_leaders() -> None:
    still = [0.0, 0.0]
    either_side = [([-0.9, 0.0], still, F), ([0.9, 0.0], still, F)]
    assert outcome(either_side) is Outcome.TIME_UP
    assert outcome([([-0.9, 0.0], still, F), ([0.9, 0.0], still, L)]) is Outcome.DISCONNECTED
    # With every vertex a node of its own, those that a follower does not hear hang loose.
    assert outcome(either_side, obstacle_node="each") is Outcome.TIME_UP
    far = [([-1.02, 0.0], still, F), ([-1.0, 0.5], still, F)]
    assert outcome(far) is Outcome.TIME_UP
    assert outcome(far, obstacle_node="each") is Outcome.DISCONNECTED


def test_flocks_of_a_batch_end_each_in_its_own_way_and_t_0_begins_anew() -> None:
    start = Flock(
        [[[-2.0, 0.5], [-2.0, 0.8], *TRIANGLE], [[-3.0, 0.0], [-2.5, 0.0], *TRIANGLE]],
        [[RIGHT, RIGHT, *[[0.0, 0.0]] * 3], [RIGHT, [0.0, 0.0], *[[0.0, 0.0]] * 3]],
        [[F, L, O, O, O]] * 2,
    )
    ending = ef.UntilPassed()
    for _ in range(2):
        run = ef.simulate(start, Coast(), duration=8.0, ending=ending)
        assert run.outcome == (Outcome.PASSED, Outcome.COLLIDED)


def seen_by_loops(flock: Flock, b: int, one_node: bool) -> tuple[int, float, float, float]:
    """Pieces, least separation within 1, least gap to an obstacle agent within 1, and distance from the rim."""
    positions, roles = flock.positions[b], flock.roles[b]
    member = roles != O
    heard = twins.adjacency(positions, roles, 1.0)
    touched = heard[:, ~member].any()
    joined = heard | heard.T
    if one_node:
        joined[np.ix_(~member, ~member)] = True
    nodes = np.ones(len(roles), bool) if touched else member
    left, pieces = set(np.flatnonzero(nodes).tolist()), 0
    while left:
        frontier, pieces = [left.pop()], pieces + 1
        while frontier:
            reached = left & set(np.flatnonzero(joined[frontier.pop()]).tolist())
            left -= reached
            frontier += list(reached)
    square = np.square(positions[:, None] - positions[None]).sum(axis=-1)
    np.fill_diagonal(square, np.inf)
    square[square > 1.0] = np.inf
    separation = square[np.ix_(member, member)].min(initial=np.inf)
    gap = square[np.ix_(member, ~member)].min(initial=np.inf)
    depth = np.inf
    if not member.all():
        distance = np.sqrt(np.square(positions[:, :2] - positions[~member].mean(axis=0)[:2]).sum(axis=-1))
        depth = distance[member].min() - distance[~member].max()
    return pieces, float(np.sqrt(separation)), float(np.sqrt(gap)), depth


@given(flocks(), st.booleans())
def test_the_kernel_sees_what_plain_loops_see(flock: Flock, one_node: bool) -> None:
    ending = ef.UntilPassed(min_separation=0.1, obstacle_node="one" if one_node else "each")
    ended = ending(0.0, flock, np.ones(len(flock), bool))
    for b in range(len(flock)):
        pieces, separation, gap, depth = seen_by_loops(flock, b, one_node)
        if pieces > 1:
            assert ended[b] == Outcome.DISCONNECTED
        elif separation < 0.1:
            assert ended[b] == Outcome.COLLIDED
        elif gap < 0.1 or depth < -1e-9:
            assert ended[b] == Outcome.HIT_OBSTACLE
        elif depth > 1e-9:
            assert ended[b] == Outcome.FLYING


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"radius": 0.0}, "radius must be a finite number above 0"),
        ({"clear_time": -1.0}, "clear_time must be a finite number above 0"),
        ({"obstacle_node": "ones"}, "did you mean 'one'"),
    ],
)
def test_endings_that_make_no_sense_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.UntilPassed(**options)


def test_the_technique_brings_a_flock_past_what_it_cannot_pass_without() -> None:
    start = ef.ObstacleCourse(ef.RandomDisk(flocks=5, seed=1), sides=6).draw()
    passed = {}
    for name, orbit in (("with", ef.Orbit()), ("without", None)):
        run = ef.simulate(
            start, ef.load("etdagnn"), duration=15.0, ending=ef.UntilPassed(), orbit=orbit, keep_every=None
        )
        passed[name] = run.outcome.count(Outcome.PASSED)
    assert passed["with"] >= 4
    assert passed["without"] == 0
