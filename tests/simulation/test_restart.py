"""Flocks of a batch that begin anew: the others keep every bit, and a restarted flock has no past."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.flock import Condition, Flock
from equiflock.protocols import Moment
from equiflock.scenarios.obstacle_shapes import ring
from tests.simple import EndAt, Push

MASK = np.array([False, True, False, True])
FIRST, REST = 5, 7
"""Steps before the restart and after it."""

PAPER = ef.load("etdagnn")
LAGGING = ef.DoubleIntegrator(max_acceleration=5.0, lag=0.1)
# Without random numbers: a restarted flock then flies like a new one.
EXACT: dict[str, dict[str, Any]] = {
    "network": {"controller": PAPER},
    "separate parts": {"controller": ef.load("tanner")},
    "delay": {"controller": PAPER, "radio": ef.Radio(delay=3)},
    "last known": {"controller": PAPER, "radio": ef.Radio(delay=1, last_known=2)},
    "quantization": {"controller": PAPER, "radio": ef.Radio(quantization=16)},
    "last known and quantization": {"controller": PAPER, "radio": ef.Radio(last_known=2, quantization=16)},
    "lag": {"controller": PAPER, "body": LAGGING},
    "unicycle": {"controller": PAPER, "body": ef.make_body("unicycle")},
    "caller's accelerations": {"controller": None, "senses": ef.paper_senses("mean", hops=3)},
    "fixed topology": {"controller": None, "senses": ef.paper_senses("mean", hops=3, topology="fixed")},
    "mean of the sender": {"controller": None, "senses": ef.paper_senses("mean", hops=3, hop_mean="sender")},
}
RANDOM: dict[str, dict[str, Any]] = {
    "packet loss": {"controller": PAPER, "radio": ef.Radio(packet_loss=0.3)},
    "bursts": {"controller": PAPER, "radio": ef.Radio(packet_loss=0.3, burst=4.0, send_interval=2)},
    "jitter": {"controller": PAPER, "radio": ef.Radio(delay=1, jitter=2, last_known=3, noise=0.01)},
    "gusts": {"controller": PAPER, "body": ef.DoubleIntegrator(gust=2.0)},
    "failures": {"controller": PAPER, "failures": ef.Failures("silent", agents=3, time=0.03)},
    "failures and delay": {"controller": PAPER, "failures": ef.Failures(rate=5.0), "radio": ef.Radio(delay=2)},
}


def copy_bits(moment: Moment) -> list[np.ndarray]:
    """Copies of all arrays (B, ..) of a moment."""
    arrays = *moment.flock.arrays, moment.observations, moment.accelerations, moment.outcomes
    return [np.array(array) for array in (*arrays, *moment.body_state.values())]


def assert_same(one: list[np.ndarray], other: list[np.ndarray], which: Any, others: Any = None) -> None:
    for a, b in zip(one, other, strict=True):
        assert a[which].tobytes() == b[which if others is None else others].tobytes()


def advance(loop: ef.Flight, steps: int) -> list[list[np.ndarray]]:
    """Make steps until all have ended, with accelerations from observations alone if there is no controller."""
    result: list[list[np.ndarray]] = []
    moment: Moment | None
    for _ in range(steps):
        if loop._decide is None and loop._step >= 0:
            moment = loop.step(-loop.sensing.observations[:, :, :, 0].sum(axis=2).astype(float))  # type: ignore[attr-defined]
        else:
            moment = next(loop, None)
        if moment is None:
            break
        result.append(copy_bits(moment))
    return result


@pytest.fixture(scope="module")
def start() -> Flock:
    return ef.random_disk(4, 20, seed=1)


@pytest.fixture(scope="module")
def fresh() -> Flock:
    return ef.random_disk(2, 20, seed=2)


@pytest.mark.parametrize("name", [*EXACT, *RANDOM])
def test_no_bit_of_the_other_flocks_changes(name: str, start: Flock, fresh: Flock) -> None:
    options = {**EXACT, **RANDOM}[name]
    loop, undisturbed = ef.flight(start, **options), ef.flight(start, **options)
    advance(loop, FIRST)
    expected = advance(undisturbed, FIRST + REST)
    assert_same(copy_bits(loop.restart(MASK, fresh)), expected[FIRST - 1], ~MASK)
    for one, other in zip(advance(loop, REST), expected[FIRST:], strict=True):
        assert_same(one, other, ~MASK)


@pytest.mark.parametrize("name", EXACT)
def test_a_restarted_flock_flies_like_a_new_one(name: str, start: Flock, fresh: Flock) -> None:
    loop = ef.flight(start, **EXACT[name])
    advance(loop, FIRST)
    restarted = [copy_bits(loop.restart(MASK, fresh)), *advance(loop, REST)]
    for one, other in zip(restarted, advance(ef.flight(fresh, **EXACT[name]), REST + 1), strict=True):
        assert_same(one, other, MASK, slice(None))


@given(
    mask=st.lists(st.booleans(), min_size=4, max_size=4).filter(any), steps=st.integers(1, 6), seed=st.integers(0, 99)
)
def test_any_flocks_may_restart_at_any_step(mask: list[bool], steps: int, seed: int) -> None:
    start, chosen = ef.random_disk(4, 9, seed=seed), np.array(mask)
    loop = ef.flight(start, PAPER, radio=ef.Radio(delay=1))
    first = advance(loop, steps)
    restarted = [copy_bits(loop.restart(chosen, start[chosen])), *advance(loop, steps - 1)]
    for one, other in zip(restarted, first, strict=True):
        assert_same(one, other, chosen)


def test_the_last_moment_can_still_be_read(start: Flock, fresh: Flock) -> None:
    loop = ef.flight(start, PAPER, body=LAGGING)
    last = next(loop)
    before = copy_bits(last)
    loop.restart(MASK, fresh)
    assert_same(copy_bits(last), before, slice(None))


def test_every_flock_has_a_clock_of_its_own(start: Flock, fresh: Flock) -> None:
    loop = ef.flight(start, PAPER, time_step=0.1)
    advance(loop, 3)
    moment = loop.restart(MASK, fresh)
    assert (moment.step, moment.flock_steps.tolist()) == (2, [2, 0, 2, 0])
    moment = next(loop)
    assert moment.step == 3
    assert moment.time == pytest.approx(0.3)
    assert moment.flock_steps.tolist() == [3, 1, 3, 1]
    np.testing.assert_allclose(moment.flock_times, [0.3, 0.1, 0.3, 0.1])


def test_flocks_that_have_ended_fly_again_until_their_own_time(start: Flock, fresh: Flock) -> None:
    loop = ef.flight(start, Push(), time_step=0.1, ending=EndAt((2, 2, 3, 2)))
    ends = [moment.flying.tolist() for moment in loop]
    assert ends[-1] == [False] * 4
    with pytest.raises(StopIteration, match=r"restart\(mask, flock\)"):
        next(loop)
    moment = loop.restart(MASK, fresh)
    assert moment.flying.tolist() == MASK.tolist()
    assert moment.outcomes.tolist() == [ef.Outcome.DISCONNECTED, ef.Outcome.FLYING] * 2
    assert [moment.flying[1] for moment in loop] == [True, False]


def test_a_flock_that_ends_at_once_has_no_observations(start: Flock, fresh: Flock) -> None:
    loop = ef.flight(start, PAPER, ending=lambda times, flock, flying: (times == 0.0) & (flock.positions[:, 0, 0] > 50))
    next(loop)
    far = ef.Flock(fresh.positions + 100.0, fresh.velocities)
    moment = loop.restart(MASK, far)
    assert moment.flying.tolist() == (~MASK).tolist()
    assert not moment.observations[MASK].any()
    assert not moment.accelerations[MASK].any()
    assert moment.accelerations[~MASK].any(axis=(1, 2)).all()


@pytest.mark.parametrize("name", ["obstacles", "segregation"])
def test_endings_with_memory_begin_anew_with_the_flock(name: str) -> None:
    scenario = ef.make_scenario(name, flocks=3, agents=20)
    start, options = scenario.draw(), {"ending": scenario.ending(), "time_step": 0.05}
    options |= {"orbit": getattr(scenario, "orbit", None)}
    loop, mask = ef.flight(start, ef.load("tanner"), **options), np.array([True, False, True])
    advance(loop, 30)
    restarted = [copy_bits(loop.restart(mask, start[mask])), *advance(loop, 200)]
    assert len(restarted) > 10
    other = ef.flight(start, ef.load("tanner"), **{**options, "ending": scenario.ending()})
    expected = advance(other, 231)
    for one, new, old in zip(restarted, expected, expected[29:], strict=False):
        assert_same(one, new, mask)
        assert_same(one, old, ~mask)


def test_random_numbers_of_a_second_life_are_new(start: Flock) -> None:
    for name in ("packet loss", "jitter", "gusts", "failures"):
        loop = ef.flight(start, **RANDOM[name])
        first = advance(loop, 8)
        loop.restart(MASK, start[MASK])
        again = advance(loop, 7)[-1]
        assert any(a[MASK].tobytes() != b[MASK].tobytes() for a, b in zip(again, first[-1], strict=True)), name


def test_restarted_flocks_have_failures_at_their_own_time(start: Flock, fresh: Flock) -> None:
    loop = ef.flight(start, PAPER, time_step=0.01, failures=ef.Failures("stopped", agents=3, time=0.03))
    advance(loop, FIRST)
    moment = loop.restart(MASK, fresh)
    count = lambda moment: (moment.flock.conditions == Condition.STOPPED).sum(axis=1).tolist()  # noqa: E731
    failed = [count(moment), *(count(next(loop)) for _ in range(4))]
    assert failed == [[3, 0, 3, 0]] * 3 + [[3, 3, 3, 3]] * 2


def test_a_new_start_may_have_failed_agents(start: Flock, fresh: Flock) -> None:
    loop, undisturbed = ef.flight(start, PAPER), ef.flight(start, PAPER)
    advance(loop, FIRST)
    expected = advance(undisturbed, FIRST + REST)
    conditions = np.zeros(fresh.shape[:2], np.int8)
    conditions[:, 0] = Condition.SILENT
    broken = ef.Flock(fresh.positions, fresh.velocities, conditions=conditions)
    restarted = [copy_bits(loop.restart(MASK, broken)), *advance(loop, REST)]
    for one, new in zip(restarted, advance(ef.flight(broken, PAPER), REST + 1), strict=True):
        assert_same(one, new, MASK, slice(None))
    for one, old in zip(restarted, expected[FIRST - 1 :], strict=True):
        assert_same(one, old, ~MASK)


def test_a_large_flock_in_cell_order_may_restart() -> None:
    one, other = ef.random_disk(1, 3000, seed=3), ef.random_disk(1, 3000, seed=4)
    loop = ef.flight(one, PAPER)
    advance(loop, 3)
    restarted = [copy_bits(loop.restart(np.array([True]), other)), *advance(loop, 3)]
    for mine, new in zip(restarted, advance(ef.flight(other, PAPER), 4), strict=True):
        assert_same(mine, new, slice(None))


def test_a_new_radio_and_a_restart_at_the_same_moment(start: Flock, fresh: Flock) -> None:
    loops = [ef.flight(start, PAPER) for _ in range(2)]
    for loop in loops:
        advance(loop, FIRST)
        loop.sensing.radio = ef.Radio(delay=2)  # type: ignore[attr-defined]
    restarted = [copy_bits(loops[0].restart(MASK, fresh)), *advance(loops[0], REST)]
    for one, new in zip(restarted, advance(ef.flight(fresh, PAPER, radio=ef.Radio(delay=2)), REST + 1), strict=True):
        assert_same(one, new, MASK, slice(None))
    for one, old in zip(restarted[1:], advance(loops[1], REST), strict=True):
        assert_same(one, old, ~MASK)


def test_a_restart_that_does_not_fit_is_refused_and_changes_nothing(start: Flock, fresh: Flock) -> None:
    loop, undisturbed = ef.flight(start, PAPER), ef.flight(start, PAPER)
    with pytest.raises(InputError, match="the flight has not started"):
        loop.restart(MASK, fresh)
    next(loop)
    for mask, flock, message in (
        (
            [True] * 3,
            fresh,
            r"mask must be booleans of shape \(4,\), at least one of them True; got bool of shape \(3,\)",
        ),
        ([1, 0, 1, 0], fresh, "got int64"),
        ([False] * 4, fresh, "at least one of them True"),
        (MASK, start, "the new start must be 2 flocks of 20 agents, D = 2"),
        (MASK, ef.random_disk(2, 21), "of 20 agents"),
        (MASK, ef.random_disk(2, 20, dimensions=3), "D = 2"),
        (MASK, Flock(fresh.positions, fresh.velocities, comm_radius=2.0), "comm_radius = 1, that of the flight; got 2"),
        (MASK, "fresh", "Flock"),
        (MASK, Flock(fresh.positions + 1e15, fresh.velocities), "within 2e.09 radii of the origin"),
    ):
        with pytest.raises(InputError, match=message):
            loop.restart(mask, flock)
    assert_same(advance(loop, 2)[-1], advance(undisturbed, 3)[-1], slice(None))


def test_a_body_that_refuses_the_new_start_changes_nothing(start: Flock, fresh: Flock) -> None:
    class Choosy(ef.DoubleIntegrator):
        def init_state(self, flock: Flock) -> dict[str, Any]:
            if np.abs(flock.positions).max() > 50.0:
                raise InputError("too far from the base")
            return super().init_state(flock)

    options: dict[str, Any] = {"body": Choosy(lag=0.1), "failures": ef.Failures(rate=5.0)}
    loop, undisturbed = ef.flight(start, PAPER, **options), ef.flight(start, PAPER, **options)
    next(loop)
    with pytest.raises(InputError, match="too far from the base"):
        loop.restart(MASK, Flock(fresh.positions + 100.0, fresh.velocities))
    assert_same(advance(loop, REST)[-1], advance(undisturbed, REST + 1)[-1], slice(None))


def test_a_new_start_with_more_obstacles_keeps_the_memory_of_the_others() -> None:
    def course(*xs: float) -> Flock:
        """A leader that flies to the right, past obstacles at these places, of six agents together."""
        count = 6 // len(xs)
        rims = [ring((x, 0.9), 0.2, sides=count) for x in xs]
        positions = np.concatenate([[[-2.0, 0.0]], *rims])
        velocities, roles = np.zeros_like(positions), np.full(len(positions), ef.Role.OBSTACLE)
        velocities[0], roles[0] = (2.0, 0.0), ef.Role.LEADER
        return Flock(positions[None], velocities[None], roles[None], [[-1, *np.repeat(np.arange(len(xs)), count)]])

    start = ef.Flock(*(np.concatenate([array, array]) for array in course(0.0).arrays))
    mask, outcomes = np.array([False, True]), []
    for restarts in (False, True):
        loop = ef.flight(start, Push(), time_step=0.1, ending=ef.UntilPassed(clear_time=0.5))
        advance(loop, 15)
        if restarts:
            loop.restart(mask, course(0.0, 4.0))
        outcomes.append([int(moment.outcomes[0]) for moment in islice(loop, 20)])
    assert outcomes[0] == outcomes[1][: len(outcomes[0])]
    assert outcomes[0][-1] == ef.Outcome.PASSED


def test_ended_flocks_cannot_be_replaced(start: Flock) -> None:
    loop = ef.flight(start, Push(), time_step=0.1, ending=EndAt((1, 9, 9, 9)))
    advance(loop, 2)
    with pytest.raises(InputError, match=r"replace\(\) needs flocks that fly; 1 of 4 have ended: restart"):
        loop.replace(start)
