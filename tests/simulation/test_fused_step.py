"""One call makes what the parts of a flight make one after the other, to the bit; where it cannot, the parts do."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.bodies import DoubleIntegrator
from equiflock.controllers.loading import make_network
from equiflock.flock import Flock, Role
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.protocols import FusedStep, Moment
from equiflock.simulation import fused_step
from equiflock.simulation.flight import Flight
from equiflock.simulation.flight_builder import make_decision_function
from tests.flocks import flocks
from tests.simple import EndAt

ETDAGNN = ef.load("etdagnn")


def apart(start: Flock, controller: Any, *, ending: Any = None, time_step: float = 0.01, **rules: Any) -> Flight:
    """The slow twin: the same parts, one after the other."""
    sensing, (decide, _) = DelayedAggregation(controller.senses, **rules), make_decision_function(controller, time_step)
    return Flight(start, sensing, decide, DoubleIntegrator(), time_step=time_step, ending=ending)


def bits(moment: Moment) -> tuple[Any, ...]:
    """Everything that a moment says."""
    arrays = *moment.flock.arrays, moment.observations, moment.accelerations, moment.flying, moment.outcomes
    return moment.step, moment.time, moment.comm_radius, *(array.tobytes() for array in arrays)


def flown(loop: Flight, steps: int) -> list[tuple[Any, ...]]:
    """The bits of so many moments."""
    return [bits(moment) for moment in itertools.islice(loop, steps)]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many steps were asked of the kernel, call by call."""
    asked: list[int] = []
    kernel = fused_step.step_flocks

    def step_flocks(*known: Any) -> Any:
        asked.append(known[-1])
        return kernel(*known)

    monkeypatch.setattr(fused_step, "step_flocks", step_flocks)
    return asked


def network(name: str, dimensions: int, **options: Any) -> Any:
    """A network with random weights."""
    sizes = {} if name == "etdagnn" else {"dimensions": dimensions}
    return make_network(name, 3, **sizes, **options).eval()


@pytest.mark.slow
@given(flocks(), st.sampled_from(["etdagnn", "tdagnn", "tdagnn-tf"]), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_whole_flights_are_the_same_to_the_bit(start: Flock, name: str, hops: int, threads: int) -> None:
    controller = network(name, start.shape[2], hops=hops)
    rules: dict[str, Any] = {"orbit": ef.Orbit(), "obstacles": "nearest"}
    ending = EndAt(tuple(range(1, len(start) + 1)))
    with ef.threads.use(threads):
        for more in ({}, rules, {"obstacles": "all"}, {"ending": ending, "time_step": 0.1}):
            found = flown(ef.flight(start, controller, **more), 5)
            assert found == flown(apart(start, controller, **more), 5)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("scenario", [ef.LeaderFollowing(), ef.ObstacleCourse(sides=6)])
def test_scenarios_fly_the_same_on_any_number_of_threads(scenario: Any, threads: int, calls: list[int]) -> None:
    start = scenario.draw()
    rules: dict[str, Any] = {"orbit": scenario.orbit, "obstacles": scenario.obstacles}
    expected = flown(apart(start, ETDAGNN, ending=scenario.ending(), **rules), 20)
    with ef.threads.use(threads):
        assert flown(ef.flight(start, ETDAGNN, ending=scenario.ending(), **rules), 20) == expected
    assert len(calls) >= 20


def test_batches_are_shared_out_to_threads_and_flocks_that_ended_stay(calls: list[int]) -> None:
    start, ending = ef.random_disk(40, 100, seed=5), EndAt(tuple(range(40)))
    with ef.threads.use(2):
        found = flown(ef.flight(start, ETDAGNN, ending=ending, time_step=0.1), 60)
    assert found == flown(apart(start, ETDAGNN, ending=ending, time_step=0.1), 60)
    assert len(calls) > len(found) == 40


def test_channels_of_one_s_own_are_heard_as_well() -> None:
    controller = network("etdagnn", 2, channels=[["velocity", "mean"], ["velocity", "sum"]])
    start = ef.random_disk(2, 40, seed=1)
    assert flown(ef.flight(start, controller), 8) == flown(apart(start, controller), 8)


def test_steps_from_outside_fly_the_same(calls: list[int]) -> None:
    start, rng = ef.random_disk(2, 50, seed=3), np.random.default_rng(0)
    loops = ef.flight(start, ETDAGNN), apart(start, ETDAGNN)
    for _ in range(4):
        assert bits(next(loops[0])) == bits(next(loops[1]))
        push = rng.normal(size=start.shape)
        assert bits(loops[0].step(push)) == bits(loops[1].step(push))
    assert len(calls) == 8


def test_agents_may_come_and_go_and_the_rules_change(calls: list[int]) -> None:
    course = ef.ObstacleCourse(ef.RandomDisk(2, 40, min_degree=1, seed=2), sides=6)
    start = course.draw()
    loops = ef.flight(start, ETDAGNN), apart(start, ETDAGNN)
    keep = np.arange(start.shape[1]) % 3 > 0
    for change in (lambda loop: None, _orbit, lambda loop: loop.replace(_kept(loop, keep), keep), _stand):
        for loop in loops:
            change(loop)
        assert flown(loops[0], 3) == flown(loops[1], 3)
        for loop in loops:
            loop.skip(3)
    assert calls == [1, 1, 1, 3, 1, 1, 1, 3, 1, 1, 1, 1, 3, 1, 1, 1, 3]


def _kept(loop: Flight, keep: Any) -> Flock:
    flock = next(loop).flock
    return Flock(flock.positions[:, keep], flock.velocities[:, keep], flock.roles[:, keep])


def _orbit(loop: Any) -> None:
    loop.sensing.orbit = ef.Orbit(gravity_break=0.2)


def _stand(loop: Any) -> None:
    loop.sensing.orbit = None


class Still:
    """A body that does not move."""

    def advance(self, *_: Any) -> None: ...


def test_another_body_or_other_senses_take_their_place_from_the_next_step_on(calls: list[int]) -> None:
    start = ef.random_disk(1, 50, seed=3)
    loops = ef.flight(start, ETDAGNN), apart(start, ETDAGNN)
    changes: list[Callable[[Any], None]] = [
        lambda loop: setattr(loop, "body", Still()),
        lambda loop: setattr(loop, "sensing", DelayedAggregation(ETDAGNN.senses)),  # type: ignore[attr-defined]
    ]
    for change in changes:
        assert flown(loops[0], 2) == flown(loops[1], 2)
        for loop in loops:
            change(loop)
    assert flown(loops[0], 2) == flown(loops[1], 2)
    assert calls == [1, 1]


class Watched(Flight):
    """A flight of somebody's own, that counts its moments."""

    seen = 0

    def __next__(self) -> Moment:
        self.seen += 1
        return super().__next__()


def test_a_flight_of_one_s_own_sees_every_moment(calls: list[int]) -> None:
    start = ef.random_disk(1, 50, seed=3)
    sensing, (decide, compiled), body = (
        DelayedAggregation(ETDAGNN.senses),
        make_decision_function(ETDAGNN, 0.01),
        DoubleIntegrator(),
    )
    step = fused_step.make_fused_step(sensing, compiled, body)
    assert isinstance(step, FusedStep)
    loop, twin = Watched(start, sensing, decide, body, time_step=0.01, fused=step), apart(start, ETDAGNN)
    loop.skip(5)
    twin.skip(5)
    assert bits(next(loop)) == bits(next(twin))
    assert (loop.seen, calls) == (6, [1] * 6)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dimensions", [2, 3])
def test_steps_that_nobody_looks_at_fly_the_same(dimensions: int, threads: int, calls: list[int]) -> None:
    start = ef.random_disk(30, 100, seed=6, dimensions=dimensions)
    loop, twin = ef.flight(start, ETDAGNN), apart(start, ETDAGNN)
    with ef.threads.use(threads):
        # From the start as from any moment, an odd number or an even one.
        for steps in (3, 0, 4, 1, 7):
            loop.skip(steps)
            for _ in range(steps):
                next(twin)
            assert bits(next(loop)) == bits(next(twin))
    assert {3, 4, 7} <= set(calls)


def test_an_ending_is_asked_at_every_step_that_is_skipped() -> None:
    start = ef.random_disk(3, 30, seed=4)
    loop = ef.flight(start, ETDAGNN, time_step=0.1, ending=EndAt((2, 4, 6)))
    loop.skip(5)
    assert next(loop).flying.tolist() == [False, False, True]
    loop.skip(50)
    with pytest.raises(StopIteration):
        next(loop)
    with pytest.raises(InputError, match="steps must be a whole number of at least 0; got -1"):
        loop.skip(-1)


def test_interrupts_come_through_during_a_long_skip(monkeypatch: pytest.MonkeyPatch, calls: list[int]) -> None:
    monkeypatch.setattr("equiflock.simulation.flight.AGENT_STEPS_PER_CALL", 1_000)
    start = ef.random_disk(1, 100, seed=6)
    loop, twin = ef.flight(start, ETDAGNN), apart(start, ETDAGNN)
    loop.skip(25)
    twin.skip(25)
    assert bits(next(loop)) == bits(next(twin))
    assert calls == [10, 10, 5, 1]


def test_leaders_and_obstacle_agents_do_not_obey_the_network() -> None:
    roles = np.zeros((1, 30), np.int8)
    roles[0, 0], roles[0, 1] = Role.LEADER, Role.OBSTACLE
    drawn = ef.random_disk(1, 30)
    velocities = np.where((roles == Role.OBSTACLE)[..., None], 0.0, drawn.velocities)
    moment = next(ef.flight(Flock(drawn.positions, velocities, roles), network("tdagnn", 2)))
    assert not moment.accelerations[0, :2].any()
    assert moment.accelerations[0, 2:].all()


@pytest.mark.parametrize(
    "options",
    [
        {"senses": dataclasses.replace(ETDAGNN.senses, topology="fixed")},  # type: ignore[attr-defined]
        {"senses": dataclasses.replace(ETDAGNN.senses, hop_mean="sender")},  # type: ignore[attr-defined]
        {"body": Still()},
    ],
)
def test_other_parts_fly_by_themselves(options: dict[str, Any], calls: list[int]) -> None:
    loop = ef.flight(ef.random_disk(1, 30), ETDAGNN, **options)
    loop.skip(3)
    assert next(loop).step == 3
    assert not calls


@pytest.mark.parametrize(
    "radio",
    [
        ef.Radio(packet_loss=0.3),
        ef.Radio(packet_loss=0.3, burst=3.0, noise=0.02, seed=4),
        ef.Radio(quantization=14, send_interval=2),
    ],
    ids=str,
)
def test_a_fused_flight_by_a_radio_that_remembers_nothing_is_that_of_its_parts(radio: ef.Radio) -> None:
    start, network = ef.random_disk(5, 30, seed=1), ef.load("etdagnn")
    fused, parts = (ef.flight(start, network, radio=radio) for _ in range(2))
    assert fused._fused is not None
    parts._fused = None
    for steps in (0, 0, 7, 0, 4):
        for loop in (fused, parts):
            loop.skip(steps)
        one, other = next(fused), next(parts)
        assert one.step == other.step
        for name in ("observations", "accelerations"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
        assert np.array_equal(one.compute_message_graph().senders, other.compute_message_graph().senders)  # type: ignore[misc]


@pytest.mark.parametrize("radio", [ef.Radio(delay=1), ef.Radio(last_known=1)], ids=str)
def test_radios_that_remember_are_not_fused(radio: ef.Radio) -> None:
    assert ef.flight(ef.random_disk(1, 20), ef.load("etdagnn"), radio=radio)._fused is None
