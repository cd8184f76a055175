"""Body state stays with its agents through reordering and changes of the flock, and is saved with a flight."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime import threads
from equiflock.flock import Flock
from equiflock.simulation import memory_order
from tests.simple import EndAt, Push

WORN = ef.DoubleIntegrator(max_acceleration=8.0, max_speed=3.0, drag=0.2, lag=0.05, gust=0.5, seed=3)


@dataclass(frozen=True)
class Odometer:
    """A body whose state is a step count and the agent's number."""

    begun: Any = None

    def init_state(self, flock: Flock) -> Any:
        numbers = np.broadcast_to(np.arange(flock.shape[1]), flock.shape[:2])
        return {"number": numbers, "steps": np.zeros(flock.shape[:2], np.int64)} if self.begun is None else self.begun

    def advance(self, step: ef.BodyStep) -> None:
        assert (step.state["steps"][step.active] == step.number).all() or step.agent_ids is None
        step.state["steps"][step.active] += 1


def test_moments_show_what_bodies_remember_and_nothing_for_those_that_do_not() -> None:
    start = ef.random_disk(2, 20)
    loop = ef.flight(start, Push(2.0), body=ef.DoubleIntegrator(lag=0.1), time_step=0.1)
    first = next(loop)
    assert list(first.body_state) == ["actuators"]
    assert not first.body_state["actuators"].any()
    second = next(loop)
    np.testing.assert_allclose(second.body_state["actuators"], 2.0 * (1 - np.exp(-1.0)))
    with pytest.raises(ValueError, match="read-only"):
        second.body_state["actuators"][0] = 0.0
    with pytest.raises(TypeError, match="read-only"):
        second.body_state["more"] = 0.0  # type: ignore[index]
    assert dict(next(ef.flight(start, Push())).body_state) == {}
    assert dict(loop.body_state) == dict(second.body_state)


@pytest.mark.parametrize("body", [WORN, ef.Unicycle(max_turn_rate=2.0, max_acceleration=5.0, max_speed=3.0)])
def test_a_large_flock_in_cell_order_flies_as_one_in_the_callers_order(
    body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_order, "CACHE_DISTANCE", 20)
    drawn = ef.random_disk(1, 3_500, seed=2, radius_rule="constant-density")
    order = np.random.default_rng(0).permutation(3_500)
    start = Flock(drawn.positions[:, order], drawn.velocities[:, order])
    runs = []
    for most, count in ((0.2, 2), (2.0, 1)):
        monkeypatch.setattr(memory_order, "MAX_STRAY_SHARE", most)  # 2.0 is more than there are
        with threads.use(count):
            loop = ef.flight(start, ef.load("etdagnn"), body=body)
            runs.append([(m.flock.positions, m.flock.velocities, *m.body_state.values()) for m in _copied(loop, 5)])
            assert np.array_equal(loop._state.positions, runs[-1][-1][0]) == (most == 2.0)
            assert all(map(np.array_equal, loop.body_state.values(), runs[-1][-1][2:]))
    for one, other in zip(*runs, strict=True):
        assert all(map(np.array_equal, one, other))


def _copied(loop: Any, steps: int) -> Any:
    """Moments that stay what they were."""
    for moment in itertools.islice(loop, steps):
        flock = Flock(*moment.flock.arrays)
        state = {name: array.copy() for name, array in moment.body_state.items()}
        yield replace(moment, flock=flock, body_state=state)


def test_kept_agents_keep_their_body_state_and_new_ones_get_an_initial_one() -> None:
    start = ef.random_disk(3, 10)
    loop = ef.flight(start, Push(), body=Odometer())
    for _ in range(3):
        moment = next(loop)
    keep = np.arange(10) % 2 == 1
    more = np.zeros((3, 2, 2))
    positions = np.concatenate([moment.flock.positions[:, keep], more], axis=1)
    loop.replace(Flock(positions, np.zeros_like(positions)), keep)
    assert loop.body_state["number"].tolist() == [[1, 3, 5, 7, 9, 5, 6]] * 3
    assert loop.body_state["steps"].tolist() == [[2, 2, 2, 2, 2, 0, 0]] * 3


def test_another_body_of_the_same_kind_goes_on_with_what_is_remembered() -> None:
    loop = ef.flight(ef.random_disk(1, 10), Push(), body=ef.DoubleIntegrator(lag=0.1))
    next(loop)
    pushed = next(loop).body_state["actuators"].copy()
    loop.body = ef.DoubleIntegrator(lag=0.2)
    assert np.array_equal(loop.body_state["actuators"], pushed)
    loop.body = ef.Unicycle()
    assert list(loop.body_state) == ["heading"]
    loop.body = ef.DoubleIntegrator(lag=0.2)
    assert not loop.body_state["actuators"].any()


@pytest.mark.parametrize("body", [WORN, ef.Unicycle(max_turn_rate=3.0), ef.DoubleIntegrator()])
def test_held_accelerations_lead_where_the_next_step_leads_and_move_nobody(body: Any) -> None:
    loop = ef.flight(ef.random_disk(2, 20), ef.load("tanner"), body=body)
    for _ in range(3):
        moment = next(loop)
        r, v = moment.flock.positions.copy(), moment.flock.velocities.copy()
        held = loop.compute_held_accelerations()
        assert np.array_equal(moment.flock.positions, r)
        if body == ef.DoubleIntegrator():
            np.testing.assert_allclose(held, moment.accelerations, atol=1e-9)
        np.testing.assert_allclose(next(loop).flock.positions, r + v * 0.01 + held * 0.01**2 / 2, rtol=1e-13)


def test_only_the_ideal_body_is_fused() -> None:
    start, etdagnn = ef.random_disk(1, 30), ef.load("etdagnn")
    assert ef.flight(start, etdagnn)._fused is not None
    limited = ef.flight(start, etdagnn, body=ef.DoubleIntegrator(max_acceleration=2.0))
    assert limited._fused is None
    limited.skip(5)
    assert np.abs(next(limited).flock.velocities - start.velocities).max() <= 0.1 + 1e-12


def test_a_trajectory_keeps_saves_and_selects_what_bodies_remembered(tmp_path: Path) -> None:
    start = ef.random_disk(2, 12)
    moments: list[Any] = []
    run = ef.simulate(
        start,
        Push(),
        body=WORN,
        time_step=0.1,
        duration=1.0,
        keep_every=2,
        ending=EndAt((4, 100)),
        record={"first": lambda m: m.body_state["actuators"][:, 0, 0]},
        on_step=lambda m: moments.append(m.body_state["actuators"].copy()),
    )
    assert run.body_state["actuators"].shape == (6, 2, 12, 2)
    assert np.array_equal(run.body_state["actuators"], np.stack(moments[::2]))
    assert run.series["first"][:, 1].tolist() == [values[1, 0, 0] for values in moments]
    # A flock that has ended keeps its last state.
    assert np.array_equal(run.body_state["actuators"][2, 0], run.body_state["actuators"][5, 0])
    back = ef.Trajectory.load(run.save(tmp_path / "run.zarr"))
    assert back.body_state.keys() == run.body_state.keys()
    assert np.array_equal(back.body_state["actuators"], run.body_state["actuators"])
    assert np.array_equal(back[1].body_state["actuators"], run.body_state["actuators"][:, 1:])
    assert np.array_equal(back.body_state_at(3)["actuators"], run.body_state["actuators"][3])
    assert not back.body_state["actuators"].flags.writeable


def test_a_flight_continues_from_the_body_state_of_a_saved_one() -> None:
    start, body = ef.random_disk(1, 12), ef.DoubleIntegrator(lag=0.3)
    whole = ef.simulate(start, Push(), body=body, duration=0.2)
    half = ef.simulate(start, Push(), body=body, duration=0.1)
    rest = ef.simulate(half.flock(), Push(), body=body, body_state=half.body_state_at(-1), duration=0.1)
    np.testing.assert_allclose(rest.positions[-1], whole.positions[-1], rtol=1e-12)


def test_a_state_that_does_not_fit_the_body_is_refused_in_one_line() -> None:
    start = ef.random_disk(1, 12)
    run = ef.simulate(start, Push(), body=ef.DoubleIntegrator(lag=0.1), duration=0.05)
    state = run.body_state_at(-1)
    for body, given, text in [
        (
            ef.Unicycle(),
            state,
            r"fit Unicycle.*, whose state is 'heading' of shape \(1, 12\); got 'actuators' of shape .*2\)",
        ),
        (None, state, r"does not fit DoubleIntegrator\(.*, whose state is empty; got 'actuators' of shape"),
        (ef.DoubleIntegrator(lag=0.1), {}, r"whose state is 'actuators' of shape \(1, 12, 2\); got empty"),
        (ef.DoubleIntegrator(lag=0.1), {"actuators": np.zeros((1, 11, 2))}, r"got 'actuators' of shape \(1, 11, 2\)"),
        (
            ef.DoubleIntegrator(lag=0.1),
            {"actuators": np.full((1, 12, 2), np.nan)},
            "body_state must have finite numbers",
        ),
        (ef.DoubleIntegrator(lag=0.1), 3, "body_state must be a mapping, such as .* got 3"),
    ]:
        with pytest.raises(ef.InputError, match=text) as caught:
            ef.simulate(start, Push(), body=body, body_state=given, duration=0.05)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "begun", [3, {"fuel": 3.0}, {"fuel": np.zeros((1, 11))}, {3: np.zeros((1, 12))}, {"fuel": np.full((1, 12), "full")}]
)
def test_a_body_that_begins_with_something_else_is_refused_in_one_line(begun: Any) -> None:
    with pytest.raises(
        ef.InputError, match=r"^init_state\(\) of Odometer must return arrays of numbers .* 1, 12; got [^\n]*$"
    ):
        ef.flight(ef.random_disk(1, 12), Push(), body=Odometer(begun))


def test_a_body_with_another_signature_is_refused_in_one_line() -> None:
    class Old:
        def advance(self, positions: Any, velocities: Any) -> None: ...

    text = r"^advance\(\) of Old must take one argument, an equiflock.BodyStep; got advance\(positions[^\n]*$"
    with pytest.raises(ef.InputError, match=text):
        ef.flight(ef.random_disk(1, 12), Push(), body=Old())
