"""Metrics of effort are their equations over the steps that each flock flew, whatever is recorded or kept."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.flock import Condition, Flock, Role
from equiflock.protocols import LastStep
from equiflock.simulation import memory_order, metrics
from equiflock.simulation.last_step import LastStepRecorder
from tests import twins
from tests.flocks import flocks

LIMITED = ef.DoubleIntegrator(max_acceleration=5.0, lag=0.05, drag=0.2)
BODIES = {"limited": LIMITED, "unicycle": ef.make_body("unicycle"), "gusts": ef.DoubleIntegrator(gust=2.0)}
EVERYTHING = [*metrics.EFFORT_METRICS, metrics.mean_realised_acceleration_norm]


def end_after(*steps: int, time_step: float = 0.01) -> Any:
    """End flock b after steps[b] steps."""
    return lambda times, flock, flying: times > (np.array(steps) - 0.5) * time_step


def find_working(flock: Flock, b: int) -> Any:
    return (flock.roles[b] != Role.OBSTACLE) & (flock.conditions[b] == Condition.WORKING)


@given(flocks(failed=True))
def test_rms_jerk_and_realised_accelerations_are_over_agents_that_work(flock: Flock) -> None:
    rng = np.random.default_rng(0)
    accelerations, *before = (rng.normal(size=flock.shape) for _ in range(3))
    moment = next(ef.flight(flock, ef.load("tanner-dynamic"), time_step=0.02))
    moment = replace(moment, accelerations=accelerations, last_step=LastStep(*before))
    for b in range(len(flock)):
        works = find_working(flock, b)
        change = (accelerations[b] - before[1][b]) / 0.02
        done = [float(np.linalg.norm(dv)) / 0.02 for dv in (flock.velocities[b] - before[0][b])[works]]
        assert metrics.rms_acceleration(moment)[b] == pytest.approx(twins.rms_norm(accelerations[b][works]))
        assert metrics.jerk(moment)[b] == pytest.approx(twins.rms_norm(change[works]))
        assert metrics.mean_realised_acceleration_norm(moment)[b] == pytest.approx(sum(done) / max(len(done), 1))


@pytest.mark.parametrize("body", [ef.DoubleIntegrator(), *BODIES.values()], ids=["ideal", *BODIES])
@pytest.mark.parametrize("failures", [None, ef.Failures("stopped", rate=20.0)], ids=["all work", "some fail"])
def test_recorded_and_kept_flights_have_the_same_effort(body: Any, failures: Any) -> None:
    start = ef.random_disk(3, 20, seed=1)
    options: dict[str, Any] = {
        "controller": ef.load("etdagnn"),
        "duration": 0.1,
        "body": body,
        "failures": failures,
        "ending": end_after(0, 5, 100),
    }
    kept = ef.simulate(start, **options)
    recorded = ef.simulate(start, **options, keep_every=None, record=EVERYTHING)
    assert kept.steps.tolist() == [0, 5, 10]
    for one, other in zip(metrics.effort(kept), metrics.effort(recorded), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    np.testing.assert_allclose(metrics.iman_realised(kept), metrics.iman_realised(recorded), rtol=1e-12)


@given(st.integers(1, 12), st.integers(1, 12), st.sampled_from([0.05, 0.1, 0.25, 2.0]))
def test_effort_is_that_of_the_steps_a_flock_flew(first: int, second: int, time_step: float) -> None:
    start = ef.random_disk(2, 6, seed=3)
    ending = end_after(first, second, time_step=time_step)
    run = ef.simulate(start, ef.load("tanner"), time_step=time_step, duration=12 * time_step, ending=ending)
    assert run.steps.tolist() == [first, second]
    effort = metrics.effort(run)
    for b, steps in enumerate(run.steps.tolist()):
        commands = run.accelerations[:steps, b]
        norms = np.linalg.norm(commands, axis=-1)
        last = min(max(round(0.5 / time_step), 1), -(-steps // 2))
        assert effort.rms_acceleration[b] == pytest.approx(twins.rms_norm(commands.reshape(-1, 2)))
        assert effort.peak_acceleration[b] == pytest.approx(norms.max())
        assert effort.jerk[b] == pytest.approx(twins.rms_norm(np.diff(commands, axis=0).reshape(-1, 2)) / time_step)
        assert effort.residual_acceleration[b] == pytest.approx(norms[-last:].mean())


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_realised_accelerations_are_changes_of_velocity(body: Any) -> None:
    start = ef.random_disk(2, 20, seed=1)
    run = ef.simulate(start, ef.load("etdagnn"), duration=0.1, body=body)
    expected = np.linalg.norm(np.diff(run.velocities, axis=0), axis=-1).mean(axis=2).sum(axis=0)
    np.testing.assert_allclose(metrics.iman_realised(run), expected)


def test_an_ideal_body_does_what_is_commanded_and_a_limited_one_less() -> None:
    start = ef.random_disk(3, 30, seed=1)
    ideal = ef.simulate(start, ef.load("etdagnn"), duration=0.2)
    np.testing.assert_allclose(metrics.iman_realised(ideal), metrics.iman(ideal), rtol=1e-10)
    limited = ef.simulate(start, ef.load("etdagnn"), duration=0.2, body=LIMITED)
    assert (metrics.iman_realised(limited) < 0.5 * metrics.iman(limited)).all()


def test_a_flight_of_one_step_has_no_jerk() -> None:
    run = ef.simulate(ef.random_disk(2, 10), ef.load("tanner"), duration=0.01, record=EVERYTHING)
    for flown in (run, replace(run, series={})):
        effort = metrics.effort(flown)
        assert effort.jerk.tolist() == [0.0, 0.0]
        assert (effort.peak_acceleration == metrics.peak_acceleration_norm(flown)[0]).all()
        assert (effort.residual_acceleration == metrics.mean_acceleration_norm(flown)[0]).all()
    assert metrics.jerk(run).shape == (0, 2)


def test_one_agent_and_flocks_without_followers_make_no_effort() -> None:
    alone = Flock([[[0.0, 0.0]]], [[[1.0, 0.0]]])
    led = replace(ef.random_disk(1, 5), roles=np.full((1, 5), Role.LEADER))
    for start in (alone, led):
        run = ef.simulate(start, ef.load("etdagnn"), duration=0.05, record=EVERYTHING)
        assert all(values.tolist() == [0.0] for values in metrics.effort(run))
        assert metrics.iman_realised(run).tolist() == [0.0]


def test_effort_is_0_without_working_agents() -> None:
    start = replace(ef.random_disk(1, 5), conditions=np.full((1, 5), Condition.DRIFTING))
    run = ef.simulate(start, ef.load("tanner"), duration=0.03, record=EVERYTHING)
    assert all(values.tolist() == [0.0] for values in metrics.effort(run))


def test_a_settled_flock_has_no_residual_acceleration_and_an_oscillating_one_has() -> None:
    run = ef.simulate(ef.random_disk(1, 10), ef.load("tanner"), duration=2.0)
    times = run.times[:-1, None, None, None]
    calm = replace(run, accelerations=np.where(times < 1.4, 1.0, 0.0) * np.ones_like(run.accelerations))
    assert metrics.residual_acceleration(calm).tolist() == [0.0]
    signs = np.where(np.arange(200) % 2 == 0, 1.0, -1.0)[:, None, None, None]
    shaking = replace(run, accelerations=signs * [3.0, 4.0] * np.ones_like(run.accelerations))
    assert metrics.residual_acceleration(shaking)[0] == pytest.approx(5.0)
    assert metrics.effort(shaking).jerk[0] == pytest.approx(10.0 / 0.01)


def test_the_order_of_agents_in_memory_does_not_change_the_jerk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_order, "CACHE_DISTANCE", 20)
    drawn, order = ef.random_disk(1, 3_500, radius_rule="constant-density"), np.random.default_rng(0).permutation(3_500)
    start = Flock(drawn.positions[:, order], drawn.velocities[:, order])
    kinds = set()
    run = ef.simulate(
        start, ef.load("etdagnn"), duration=0.04, record=EVERYTHING, on_step=lambda moment: kinds.add(type(moment))
    )
    assert memory_order._ReorderedMoment in kinds
    np.testing.assert_allclose(run.series["jerk"][1:-1], metrics.jerk(run), rtol=1e-12)
    realised = run.series["mean_realised_acceleration_norm"]
    np.testing.assert_allclose(realised[1:], metrics.mean_realised_acceleration_norm(run), rtol=1e-12)


def test_a_restarted_flock_has_no_jerk_at_its_start_and_the_others_keep_theirs() -> None:
    start, fresh = ef.random_disk(2, 10, seed=1), ef.random_disk(1, 10, seed=2)
    loop, recorder = ef.flight(start, ef.load("tanner")), LastStepRecorder()
    for moment in islice(loop, 3):
        measured = recorder.attach(moment)
    before = metrics.jerk(measured)
    assert (before > 0.0).all()
    again = recorder.attach(loop.restart(np.array([False, True]), fresh))
    # The other flock is at the same moment, so that nothing has changed since the last one that was attached.
    assert metrics.jerk(again).tolist() == metrics.mean_realised_acceleration_norm(again).tolist() == [0.0, 0.0]
    after = metrics.jerk(recorder.attach(next(loop)))
    assert after[0] > 0.0
    new = ef.simulate(fresh, ef.load("tanner"), duration=0.02, record=[metrics.jerk])
    assert after[1] == new.series["jerk"][1, 0]


def test_agents_that_join_or_leave_begin_without_jerk() -> None:
    loop, recorder = ef.flight(ef.random_disk(1, 10, seed=1), ef.load("tanner")), LastStepRecorder()
    for moment in islice(loop, 2):
        recorder.attach(moment)
    loop.replace(ef.random_disk(1, 12, seed=2))
    assert metrics.jerk(recorder.attach(next(loop))).tolist() == [0.0]


def test_a_moment_without_the_step_before_is_refused() -> None:
    moment = next(ef.flight(ef.random_disk(1, 10), ef.load("tanner")))
    with pytest.raises(InputError, match=r"jerk needs the step before the moment: use simulate\(record=\['jerk'\]\)"):
        metrics.jerk(moment)
    with pytest.raises(InputError, match="jerk needs a Moment or a Trajectory; got Flock"):
        metrics.jerk(ef.random_disk(1, 10))  # type: ignore[arg-type]


def test_too_few_frames_say_what_to_do() -> None:
    run = ef.simulate(ef.random_disk(1, 10), ef.load("tanner"), duration=0.1, keep_every=5)
    with pytest.raises(InputError, match=r"jerk needs a frame for every step: simulate with record=\['jerk'\]"):
        metrics.jerk(run)
    with pytest.raises(InputError, match=r"too few frames .* record=\[metrics.rms_acceleration\]"):
        metrics.effort(run)


def test_a_saved_flight_keeps_its_effort(tmp_path: Path) -> None:
    options: dict[str, Any] = {"duration": 0.1, "keep_every": None, "record": EVERYTHING, "body": LIMITED}
    run = ef.simulate(ef.random_disk(2, 10), ef.load("tanner"), **options)
    loaded = ef.Trajectory.load(run.save(tmp_path / "flight.zarr"))
    assert np.array_equal(metrics.effort(loaded), metrics.effort(run))
    assert np.array_equal(metrics.iman_realised(loaded), metrics.iman_realised(run))


@pytest.mark.usefixtures("own_registry")
def test_a_metric_of_a_user_may_compare_a_moment_with_the_step_before() -> None:
    @ef.metric("slowing", over_time="largest", uses_last_step=True)
    def slowing(moment: ef.Moment) -> Any:
        assert moment.last_step is not None
        before, now = (
            np.linalg.norm(v, axis=-1).max(axis=1) for v in (moment.last_step.velocities, moment.flock.velocities)
        )
        return before - now

    start = ef.random_disk(2, 10)
    for record in (["slowing"], [slowing]):
        run = ef.simulate(start, ef.load("tanner"), duration=0.05, record=record)
        speeds = np.linalg.norm(run.velocities, axis=-1).max(axis=2)
        assert np.allclose(run.series["slowing"][1:], -np.diff(speeds, axis=0))
        found = metrics.get_metric("slowing").summarize(run)
        assert np.allclose(found, -np.diff(speeds, axis=0).min(axis=0))
