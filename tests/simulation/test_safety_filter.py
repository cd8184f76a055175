"""The limits of agents in a flight: each rule, for all agents at once, from exactly the messages in use."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock.features import Senses
from equiflock.simulation.flight_builder import change_controller
from equiflock.simulation.safety_filter import SafetyFilter, count_states, describe_states
from tests.safety import SENSES, Still, limit_one, list_received

TIME_STEP = 0.02
ALL: dict[str, Any] = {"max_acceleration": 4.0, "max_speed": 1.5, "min_separation": 0.45, "max_silence": 0.04}
EQUIVARIANT = ef.SafetyLimits(**ALL)
"""All limits but the fence."""
STATES = ef.SafetyState


def fenced(D: int) -> ef.SafetyLimits:
    return ef.SafetyLimits(**ALL, fence=((-1.25,) * D, (1.0,) * D))


def draw_flock(rng: np.random.Generator, B: int, N: int, D: int, radius: float = 1.0) -> ef.Flock:
    """Agents anywhere, on a lattice or in one place; fast, slow or at rest; with a leader and an obstacle agent."""
    places = rng.uniform(-2, 2, (B, N, D)), rng.integers(-4, 5, (B, N, D)) / 4, np.zeros((B, N, D))
    positions = radius * places[rng.integers(3)]
    velocities = radius * rng.choice([0.0, 0.3, 3.0], (B, N, 1)) * rng.normal(size=(B, N, D))
    roles = np.zeros((B, N), np.int8)
    if N > 3:
        roles[:, 1], roles[:, 2] = 1, 2 if D == 2 else 0
        velocities[roles == 2] = 0.0
    return ef.Flock(positions, velocities, roles, comm_radius=radius)


@given(st.integers(0, 10_000), st.integers(1, 2), st.sampled_from((1, 2, 6)), st.sampled_from((2, 3)), st.booleans())
def test_the_rules_are_those_of_the_slow_twin(seed: int, B: int, N: int, D: int, is_scaled: bool) -> None:
    rng = np.random.default_rng(seed)
    unit = 3.0 if is_scaled else 1.0
    limits = fenced(D)
    senses = Senses(SENSES.channels, length_scale=unit, time_scale=2.0 if is_scaled else 1.0)
    safety, silent_steps = SafetyFilter(limits, senses, TIME_STEP, ef.Radio()), np.full((B, N), -1)
    flocks = [draw_flock(rng, B, N, D, unit) for _ in range(4)]
    for flock in flocks:
        accelerations = rng.choice([0.1, 3.0, 100.0]) * rng.normal(size=flock.shape)
        safety.observe(flock)
        limited = safety.limit(flock, accelerations)
        for b, i in np.argwhere(flock.roles == ef.Role.FOLLOWER):
            received, has_neighbour = list_received(flock, int(b), int(i), unit)
            silent_steps[b, i] = 0 if has_neighbour else silent_steps[b, i] + 1
            state = flock.positions[b, i].tolist(), flock.velocities[b, i].tolist()
            silence = silent_steps[b, i] * TIME_STEP
            expected = limit_one(limits, TIME_STEP, *state, received, silence, accelerations[b, i].tolist(), unit)
            scale = 1.0 + float(np.linalg.norm(state[1])) / TIME_STEP
            np.testing.assert_allclose(limited[b, i], expected, rtol=0, atol=2e-6 * scale)
            assert has_neighbour or safety.states[b, i] != STATES.OK
            assert (safety.states[b, i] == STATES.STALE) == (silence >= ALL["max_silence"] - 1e-9)
        assert np.isfinite(limited).all()
        assert (np.linalg.norm(limited, axis=-1) <= limits.max_acceleration * (1 + 1e-12)).all()
        assert (safety.states[flock.roles != ef.Role.FOLLOWER] == STATES.OK).all()


def limit_once(flock: ef.Flock, accelerations: Any, limits: ef.SafetyLimits, steps: int = 1) -> tuple[Any, Any]:
    """Return limited accelerations and states of a flock that has been in place for so many steps."""
    safety = SafetyFilter(limits, SENSES, TIME_STEP, ef.Radio())
    for _ in range(steps):
        safety.observe(flock)
    return safety.limit(flock, np.asarray(accelerations, float)), safety.states[0].tolist()


def pair(distance: float, velocity: tuple[float, float] = (0.0, 0.0)) -> ef.Flock:
    """Two agents, the first at the origin; only the first moves."""
    return ef.Flock([[[0.0, 0.0], [distance, 0.0]]], [[velocity, (0.0, 0.0)]])


@pytest.mark.parametrize(
    ("flock", "steps", "command", "expected", "state"),
    [
        (pair(0.8), 1, (1.0, 0.5), (1.0, 0.5), STATES.OK),
        (pair(2.0), 1, (1.0, 0.5), (1.0, 0.5), STATES.ALONE),
        (pair(0.8), 1, (30.0, 40.0), (2.4, 3.2), STATES.LIMITED),
        # (0, 1.5) is the largest speed: 1.46 + 4 T.
        (pair(0.8, (0.0, 1.46)), 1, (0.0, 4.0), (0.0, 2.0), STATES.LIMITED),
        # At 0.449 of 0.45: the command towards the neighbour is removed, and the force is 0.001 / 0.08^2.
        (pair(0.449), 1, (1.0, 1.0), (-0.15625, 1.0), STATES.TOO_CLOSE),
        # Approach at 0.08: that, too, is stopped within 0.08 s.
        (pair(0.449, (0.08, 0.0)), 1, (1.0, 1.0), (-1.15625, 1.0), STATES.TOO_CLOSE),
        # Coincident: no direction, no force.
        (pair(0.0), 1, (1.0, 1.0), (1.0, 1.0), STATES.OK),
        # 0.016 from the upper wall at 1: the allowed outward speed is 0.016 / 0.32 = 0.05.
        (
            ef.Flock([[[0.984, 0.0], [0.2, 0.0]]], [[[0.2, 0.0], [0.0, 0.0]]]),
            1,
            (1.0, 1.0),
            (-1.875, 1.0),
            STATES.FENCE,
        ),
        # 0.016 beyond the lower wall at -1.25: it must come back at 0.05.
        (ef.Flock([[[0.0, -1.266], [0.0, -0.6]]], [[[0.0, 0.0]] * 2]), 1, (1.0, -1.0), (1.0, 0.625), STATES.FENCE),
        # Silent for 0.04 s, the third step: brake within 0.08 s.
        (pair(2.0, (0.16, -0.08)), 2, (1.0, 0.5), (1.0, 0.5), STATES.ALONE),
        (pair(2.0, (0.16, -0.08)), 3, (1.0, 0.5), (-2.0, 1.0), STATES.STALE),
    ],
)
def test_every_rule_does_what_it_says(
    flock: ef.Flock, steps: int, command: Any, expected: Any, state: ef.SafetyState
) -> None:
    limited, states = limit_once(flock, [[command, (0.0, 0.0)]], fenced(2), steps)
    np.testing.assert_allclose(limited[0, 0], expected, atol=1e-5)
    assert states[0] == state


def test_neighbours_on_both_sides_balance() -> None:
    flock = ef.Flock([[[0.0, 0.0], [0.3, 0.1], [-0.3, -0.1]]], np.zeros((1, 3, 2)))
    limited, states = limit_once(flock, np.ones((1, 3, 2)), EQUIVARIANT)
    np.testing.assert_allclose(limited[0, 0], (1.0, 1.0))
    assert states == [STATES.OK, STATES.TOO_CLOSE, STATES.TOO_CLOSE]


def test_obstacle_agents_push_but_do_not_end_a_silence() -> None:
    flock = ef.Flock([[[0.0, 0.0], [0.4, 0.0]]], np.zeros((1, 2, 2)), [[0, 2]])
    assert limit_once(flock, np.zeros((1, 2, 2)), EQUIVARIANT)[1] == [STATES.TOO_CLOSE, STATES.OK]
    limited, states = limit_once(flock, np.zeros((1, 2, 2)), EQUIVARIANT, steps=3)
    assert states[0] == STATES.STALE and limited[0, 0, 0] < 0.0


def start_of(D: int = 2, seed: int = 0) -> ef.Flock:
    rng = np.random.default_rng(seed)
    return ef.Flock(rng.uniform(-1, 1, (1, 12, D)), rng.normal(size=(1, 12, D)))


@pytest.mark.parametrize("D", [2, 3])
def test_all_rules_but_the_fence_are_equivariant(D: int) -> None:
    flock, rng = start_of(D), np.random.default_rng(1)
    turn = np.linalg.qr(rng.normal(size=(D, D)))[0]
    commands = 3.0 * rng.normal(size=flock.shape)
    turned = ef.Flock(flock.positions @ turn.T, flock.velocities @ turn.T)
    for limits, is_equivariant in ((EQUIVARIANT, True), (fenced(D), False)):
        one, other = limit_once(flock, commands, limits)[0], limit_once(turned, commands @ turn.T, limits)[0]
        assert np.allclose(one @ turn.T, other, atol=1e-4) == is_equivariant


def test_only_evasion_and_the_largest_acceleration_are_the_same_in_a_moving_frame() -> None:
    flock, commands = start_of(), 3.0 * np.random.default_rng(1).normal(size=(1, 12, 2))
    moving = ef.Flock(flock.positions, flock.velocities + np.array([0.5, -0.3]))
    for limits, is_invariant in ((ef.SafetyLimits(4.0, min_separation=0.45), True), (EQUIVARIANT, False)):
        one, other = limit_once(flock, commands, limits)[0], limit_once(moving, commands, limits)[0]
        assert np.allclose(one, other, atol=1e-4) == is_invariant


def test_the_order_of_agents_does_not_matter() -> None:
    flock, commands, order = start_of(), np.ones((1, 12, 2)), np.random.default_rng(2).permutation(12)
    shuffled = ef.Flock(flock.positions[:, order], flock.velocities[:, order])
    one, other = limit_once(flock, commands, fenced(2)), limit_once(shuffled, commands, fenced(2))
    np.testing.assert_allclose(other[0], one[0][:, order], atol=1e-6)
    assert other[1] == [one[1][i] for i in order]


@pytest.mark.parametrize("radio", [ef.Radio(), ef.Radio(packet_loss=0.4, delay=1, last_known=1)])
def test_no_bit_of_an_agent_depends_on_what_did_not_reach_it(radio: ef.Radio) -> None:
    controller: Any = ef.Safe("etdagnn", **ALL, fence=((-1.0, -1.0), (1.0, 1.0)))
    audit = ef.audit(controller, radio=radio, steps=8, agents=4, time_step=TIME_STEP)
    assert audit.passed, audit.verdict


def fly(controller: Any, start: ef.Flock, steps: int, **options: Any) -> tuple[Any, Any, Any]:
    """Return accelerations, states and velocities of all steps (T, B, N, ..)."""
    moments = islice(ef.flight(start, controller, time_step=TIME_STEP, **options), steps)
    rows = [(m.accelerations.copy(), m.safety_states.copy(), m.flock.velocities.copy()) for m in moments]  # type: ignore[union-attr]
    return tuple(np.array(column) for column in zip(*rows, strict=True))  # type: ignore[return-value]


def test_a_flight_keeps_the_limits() -> None:
    start = ef.random_disk(flocks=3, agents=20, seed=0)
    controller: Any = ef.Safe("starling", **ALL, fence=((-3.0, -3.0), (3.0, 3.0)))
    accelerations, states, velocities = fly(controller, start, 80)
    assert np.linalg.norm(accelerations, axis=-1).max() <= 4.0 * (1 + 1e-12)
    assert np.linalg.norm(velocities[0], axis=-1).max() > 2.0
    assert np.linalg.norm(velocities[-1], axis=-1).max() < 1.5 * (1 + 1e-9)
    assert {STATES.LIMITED, STATES.TOO_CLOSE, STATES.FENCE} <= set(states.ravel())


class Push:
    """A law that commands the same acceleration everywhere."""

    name = "push"
    senses = SENSES

    def __init__(self, *command: float) -> None:
        self.command = command

    def __call__(self, observations: Any) -> Any:
        return np.broadcast_to(self.command, (*observations.shape[:2], len(self.command)))


@pytest.mark.parametrize("command", [(0.0, 0.0), (10.0, -10.0), (3.0, 100.0), (0.5, 0.0)])
@pytest.mark.parametrize("time_step", [0.01, 0.1])
def test_an_agent_stays_inside_the_fence_whatever_its_controller_commands(command: Any, time_step: float) -> None:
    start = ef.Flock([[[0.0, 0.0]]], [[[1.2, -0.4]]])
    controller: Any = ef.Safe(Push(*command), max_acceleration=4.0, fence=((-1.0, -3.0), (2.0, 3.0)))
    run = ef.simulate(start, controller, time_step=time_step, duration=20.0)
    assert (np.abs(run.positions - (0.5, 0.0)).max(axis=(0, 1, 2)) <= (1.5, 3.0 + 0.01)).all()
    np.testing.assert_allclose(run.positions[-1, 0, 0, 0], 2.0, atol=0.05)
    assert np.abs(run.velocities[-1]).max() < 0.01


def test_agents_that_fly_at_each_other_do_not_meet() -> None:
    start = ef.Flock([[[-0.8, 0.0], [0.8, 0.01]]], [[[0.5, 0.0], [-0.5, 0.0]]], comm_radius=2.0)
    run = ef.simulate(start, ef.Safe(Still(), max_acceleration=4.0, min_separation=0.3), time_step=TIME_STEP)
    gaps = np.linalg.norm(run.positions[:, 0, 0] - run.positions[:, 0, 1], axis=-1)
    assert 0.2 < gaps.min() < 0.3
    free = ef.simulate(start, Still(), time_step=TIME_STEP)
    assert np.linalg.norm(free.positions[:, 0, 0] - free.positions[:, 0, 1], axis=-1).min() < 0.02


def test_a_flock_without_messages_brakes_to_hover() -> None:
    start = ef.random_disk(flocks=1, agents=10, seed=0)
    controller: Any = ef.Safe("etdagnn", max_acceleration=50.0, max_silence=0.1)
    radio = ef.Radio(packet_loss=1.0 - 1e-12)
    _, states, velocities = fly(controller, start, 60, radio=radio)
    assert (states[:5] == STATES.ALONE).all() and (states[5:] == STATES.STALE).all()
    assert np.linalg.norm(velocities[-1], axis=-1).max() < 1e-4


def test_agents_whose_neighbours_fall_silent_become_stale() -> None:
    start = ef.Flock(0.2 * start_of().positions, np.zeros((1, 12, 2)), [[0, 0, 1] + [0] * 9])
    failures = ef.Failures(agents=11, kind="silent", time=0.1)
    controller: Any = ef.Safe(Still(), max_acceleration=4.0, max_silence=0.06)
    _, states, _ = fly(controller, start, 12, failures=failures)
    # Only the leader still sends, and leaders have no limits.
    assert (states == STATES.OK).all()
    stopped = ef.Flock(start.positions, start.velocities)
    _, states, _ = fly(controller, stopped, 12, failures=ef.Failures(agents=12, kind="silent", time=0.1))
    np.testing.assert_array_equal(states[:5], STATES.OK)
    np.testing.assert_array_equal(states[5:7], STATES.ALONE)
    np.testing.assert_array_equal(states[7:], STATES.STALE)


def test_without_limits_a_flight_has_no_filter_and_fuses_its_steps() -> None:
    start = ef.random_disk(flocks=2, agents=20, seed=0)
    plain, safe = (ef.flight(start, each, time_step=0.01) for each in (ef.load("etdagnn"), ef.Safe("etdagnn", **ALL)))
    assert plain.safety is None and plain._fused is not None and next(plain).safety_states is None
    assert safe.safety is not None and safe._fused is None and safe._order is None


def test_limits_that_change_nothing_leave_every_bit() -> None:
    start = ef.random_disk(flocks=2, agents=20, seed=0)
    controller: Any = ef.load("starling")
    wide = ef.Safe(controller, max_acceleration=1e6, max_speed=1e6, fence=((-1e6, -1e6), (1e6, 1e6)))
    runs = [ef.simulate(start, each, duration=0.2) for each in (controller, wide)]
    np.testing.assert_array_equal(runs[0].accelerations, runs[1].accelerations)


def test_accelerations_of_the_caller_are_not_limited() -> None:
    loop = ef.flight(pair(0.8), None, senses=SENSES, time_step=TIME_STEP, safety=EQUIVARIANT)
    moment = next(loop)
    assert loop.safety is not None
    np.testing.assert_array_equal(moment.accelerations, 0.0)
    moment = loop.step(np.full((1, 2, 2), 100.0))
    np.testing.assert_allclose(moment.flock.velocities, 2.0)
    np.testing.assert_allclose(np.linalg.norm(loop.safety.limit(moment.flock, np.ones((1, 2, 2))), axis=-1), 4.0)


def test_flocks_that_restart_have_no_silence() -> None:
    lonely = ef.Flock(np.tile(pair(3.0).positions, (2, 1, 1)), np.ones((2, 2, 2)))
    loop = ef.flight(lonely, ef.Safe(Still(), max_acceleration=4.0, max_silence=0.04), time_step=TIME_STEP)
    before = [moment.safety_states.copy() for moment in islice(loop, 3)]  # type: ignore[union-attr]
    assert (before[-1] == STATES.STALE).all()
    moment = loop.restart(np.array([True, False]), lonely[:1])
    assert moment.safety_states is not None
    np.testing.assert_array_equal(moment.safety_states, [[STATES.ALONE] * 2, [STATES.STALE] * 2])
    np.testing.assert_array_equal(moment.accelerations[0], 0.0)
    following = [next(loop).safety_states.copy() for _ in range(2)]  # type: ignore[union-attr]
    assert [each[0, 0] for each in following] == [STATES.ALONE, STATES.STALE]


def test_agents_that_stay_keep_their_silence_and_new_ones_have_none() -> None:
    loop = ef.flight(pair(3.0), ef.Safe(Still(), max_acceleration=4.0, max_silence=0.04), time_step=TIME_STEP)
    for _ in islice(loop, 3):
        pass
    positions = [[[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]]]
    loop.replace(ef.Flock(positions, np.zeros((1, 3, 2))), np.array([True, False]))
    assert next(loop).safety_states.tolist() == [[STATES.STALE, STATES.ALONE, STATES.ALONE]]  # type: ignore[union-attr]


def test_a_fixed_topology_has_the_neighbours_of_the_start() -> None:
    start = ef.Flock([[[0.0, 0.0], [0.9, 0.0]]], [[[-1.0, 0.0], [0.0, 0.0]]])
    for topology, expected in (("fixed", STATES.OK), ("dynamic", STATES.ALONE)):
        senses = Senses(SENSES.channels, topology=topology)  # type: ignore[arg-type]
        loop = ef.flight(start, None, senses=senses, time_step=TIME_STEP, safety=ef.SafetyLimits(4.0))
        next(loop)
        moment = next(islice((loop.step(np.zeros((1, 2, 2))) for _ in range(10)), 9, None))
        assert loop.safety is not None
        loop.safety.limit(moment.flock, moment.accelerations)
        assert loop.safety.states[0, 0] == expected


def test_a_trajectory_names_the_limits_and_series_can_read_the_states() -> None:
    start = ef.random_disk(flocks=2, agents=10, seed=0)
    controller: Any = ef.Safe("etdagnn", max_acceleration=4.0)
    measure = {"limited": lambda moment: (moment.safety_states == STATES.LIMITED).sum(axis=1)}
    run = ef.simulate(start, controller, duration=0.1, record=measure)
    assert run.config["safety"] == "max_acceleration=4" and "safety" not in ef.simulate(start, Still()).config
    assert run.series["limited"].max() > 5


def test_states_are_counted_and_described() -> None:
    moment = next(ef.flight(pair(2.0), ef.Safe(Still(), max_acceleration=4.0), time_step=TIME_STEP))
    assert count_states(moment).tolist() == [0, 2, 0, 0, 0, 0, 0]
    assert describe_states(np.array([3, 0, 1, 0, 0, 0, 0])) == "OK 75%, LIMITED 25%"
    assert not count_states(next(ef.flight(pair(2.0), Still(), time_step=TIME_STEP))).any()  # type: ignore[arg-type]


def test_a_fence_of_other_dimensions_is_one_clear_line() -> None:
    controller: Any = ef.Safe("etdagnn", max_acceleration=4.0, fence=((-1, -1, -1), (1, 1, 1)))
    with pytest.raises(ef.InputError, match="corners of the fence must have D = 2 numbers each; got 3"):
        ef.flight(pair(0.5), controller)


def test_limits_of_a_flight_must_be_safety_limits() -> None:
    with pytest.raises(ef.InputError, match="safety must be SafetyLimits, such as"):
        ef.flight(pair(0.5), ef.load("etdagnn"), safety=4.0)


def test_a_flight_with_limits_keeps_its_controller() -> None:
    plain, safe = ef.load("etdagnn"), ef.Safe("etdagnn", max_acceleration=4.0)
    for one, other in ((plain, safe), (safe, plain), (safe, safe)):
        with pytest.raises(ef.InputError, match="a flight with limits keeps its controller"):
            change_controller(ef.flight(pair(0.5), one), other)  # type: ignore[arg-type]


def test_extreme_speeds_and_commands_give_finite_accelerations() -> None:
    flock = pair(0.4, (1e20, -1e20))
    limited, _ = limit_once(flock, np.full((1, 2, 2), 1e200), ef.SafetyLimits(4.0, 1.5, max_silence=1.0))
    assert np.isfinite(limited).all() and np.linalg.norm(limited, axis=-1).max() <= 4.0 * (1 + 1e-12)
