"""A gain schedule multiplies accelerations by min(largest, period / dt), in every kind of flight."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock._runtime.checks import TimeStepWarning
from equiflock.controllers.gain_schedule import describe_long_time_step
from equiflock.controllers.loading import make_network
from equiflock.controllers.networks.compiled import CompiledNetwork
from equiflock.learning.mixture import Mixture
from tests.flocks import flocks

STARLING = make_network("starling", 3, gain_period=0.02, largest_gain=4.0, near=True).eval()


def first_accelerations(controller: Any, start: ef.Flock, time_step: float, **rules: Any) -> Any:
    return next(iter(ef.flight(start, controller, time_step=time_step, **rules))).accelerations.copy()


@given(st.floats(1e-6, 1e3), st.floats(1e-3, 1.0), st.floats(0.1, 100.0))
def test_the_gain_falls_in_proportion_to_the_time_step_and_is_bounded(dt: float, period: float, largest: float) -> None:
    gain = ef.GainSchedule(period, largest)(dt)
    assert gain == min(largest, period / dt)
    assert gain * dt <= period * (1.0 + 1e-12)


@pytest.mark.parametrize("time_step, gain", [(0.001, 4.0), (0.005, 4.0), (0.01, 2.0), (0.02, 1.0), (0.05, 0.4)])
@pytest.mark.parametrize("agents", [1, 30, 3000])
def test_a_flight_multiplies_the_networks_accelerations_by_the_gain(time_step: float, gain: float, agents: int) -> None:
    start = ef.random_disk(1, agents, seed=1, min_degree=0, connected=False)
    plain = first_accelerations(make_network("starling", 3, gain_period=None, near=True).eval(), start, time_step)
    np.testing.assert_allclose(first_accelerations(STARLING, start, time_step), gain * plain, rtol=2e-5, atol=1e-6)


@given(flocks())
def test_gains_keep_a_network_equivariant_and_finite(start: ef.Flock) -> None:
    accelerations = first_accelerations(STARLING, start, 0.05)
    assert np.isfinite(accelerations).all()
    quarter_turn = np.eye(start.shape[2])
    quarter_turn[:2, :2] = [[0.0, -1.0], [1.0, 0.0]]
    turned = ef.Flock(
        start.positions @ quarter_turn.T, start.velocities @ quarter_turn.T, start.roles, comm_radius=start.comm_radius
    )
    other = first_accelerations(STARLING, turned, 0.05)
    scale = max(float(np.abs(accelerations).max()), 1.0)
    np.testing.assert_allclose(other, accelerations @ quarter_turn.T, atol=1e-4 * scale)


def test_steps_of_a_fused_flight_with_a_gain_have_the_bits_of_its_parts() -> None:
    start = ef.random_disk(2, 40, seed=2)
    fused = ef.simulate(start, STARLING, time_step=0.03, duration=0.6)
    apart = ef.simulate(start, STARLING, time_step=0.03, duration=0.6, on_step=lambda moment: None)
    assert fused.positions.tobytes() == apart.positions.tobytes()


def test_near_weights_have_the_same_gain() -> None:
    course = ef.ObstacleCourse(ef.RandomDisk(2, 30, seed=0), sides=12)
    start = course.draw()
    plain = make_network("starling", 3, gain_period=None, near=True).eval()
    first, second = (first_accelerations(each, start, 0.05, orbit=ef.Orbit()) for each in (STARLING, plain))
    np.testing.assert_allclose(first, 0.4 * second, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("time_scale", [1.0, 4.0])
def test_a_scaled_controller_has_the_gain_of_its_own_time_step(tmp_path: Path, time_scale: float) -> None:
    path = ef.save(STARLING, tmp_path / "mine.safetensors")
    scaled, own = ef.load(path, comm_radius=5.0, time_scale=time_scale), ef.load(path)
    start = ef.random_disk(1, 30, seed=4)
    far = start.in_units(1.0 / 5.0, 1.0 / time_scale)
    expected = first_accelerations(own, start, 0.05) * 5.0 / time_scale**2
    np.testing.assert_allclose(first_accelerations(scaled, far, 0.05 * time_scale), expected, rtol=1e-4, atol=1e-4)


def test_the_schedule_is_stored_with_the_weights(tmp_path: Path) -> None:
    loaded: Any = ef.load(ef.save(STARLING, tmp_path / "mine.safetensors"))
    assert loaded.gain_schedule == ef.GainSchedule(0.02, 4.0)
    assert ef.load_module(tmp_path / "mine.safetensors").gain_schedule == loaded.gain_schedule
    # With a gain of its own, the network has no schedule left that a flight could apply again.
    constant: Any = ef.load(ef.save(loaded.scale_output(0.4), tmp_path / "constant.safetensors"))
    assert constant.gain_schedule is None
    start = ef.random_disk(1, 30, seed=4)
    assert np.array_equal(first_accelerations(constant, start, 0.01), first_accelerations(loaded, start, 0.05))


def test_a_function_may_declare_a_schedule(own_registry: None) -> None:
    senses = ef.Senses(channels=(("velocity", "mean"),), hops=1)

    @ef.controller("slow-align", senses=senses, gain_schedule=ef.GainSchedule(0.02))
    def align(observations: Any, gain: float = 10.0) -> Any:
        return -gain * observations[:, :, 0, 0]

    start = ef.random_disk(1, 20, seed=0)
    fast, slow = (first_accelerations(ef.load("slow-align"), start, dt) for dt in (0.02, 0.05))
    np.testing.assert_allclose(slow, 0.4 * fast)
    with pytest.raises(ef.InputError, match="must declare senses, privileged and gain_schedule in its body"):
        ef.controller("x", gain_schedule=ef.GainSchedule(0.02))(type("X", (), {}))


@pytest.mark.parametrize("period, largest", [(0.0, 1.0), (-1.0, 1.0), (float("nan"), 1.0), (0.02, 0.0)])
def test_a_schedule_needs_positive_numbers(period: float, largest: float) -> None:
    with pytest.raises(ef.InputError, match="gain"):
        ef.GainSchedule(period, largest)


def test_a_wrong_schedule_raises_one_line() -> None:
    class Wrong:
        senses = ef.paper_senses()
        gain_schedule = 0.02

        def __call__(self, observations: Any) -> Any:
            return observations[:, :, 0, 0]

    with pytest.raises(ef.InputError, match=r"gain_schedule must be an equiflock.GainSchedule; got 0.02"):
        ef.flight(ef.random_disk(1, 5), Wrong())


@pytest.mark.parametrize("time_step", [0.0, -0.01, float("nan")])
def test_a_time_step_must_be_positive(time_step: float) -> None:
    with pytest.raises(ef.InputError, match="time_step must be"):
        ef.flight(ef.random_disk(1, 5), STARLING, time_step=time_step)


def test_a_time_step_longer_than_in_training_gives_a_warning() -> None:
    network: Any = ef.load("etdagnn")
    with pytest.warns(TimeStepWarning, match=r"etdagnn was trained with time steps of up to 0.01 s .* at 0.02 s"):
        ef.flight(ef.random_disk(1, 5), network, time_step=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ef.flight(ef.random_disk(1, 5), network, time_step=0.01)
        ef.flight(ef.random_disk(1, 5), ef.load("etdagnn", time_scale=2.0), time_step=0.02)
    assert describe_long_time_step(ef.load("tanner"), 1.0) is None


def test_the_bounded_expert_lowers_its_gain() -> None:
    start, law = ef.random_disk(1, 30, seed=1), ef.load("tanner-bounded")
    slow, fast = (first_accelerations(law, start, dt) for dt in (0.05, 0.01))
    np.testing.assert_allclose(slow, 0.2 * fast, rtol=1e-9)
    assert np.linalg.norm(slow, axis=-1).max() <= 75.0 * 0.4 * (1.0 + 1e-9)


def test_the_bounded_expert_is_calm_at_every_rate_and_size() -> None:
    for time_step, agents in ((0.005, 400), (0.02, 100), (0.05, 12)):
        start = ef.random_disk(2, agents, seed=3)
        run = ef.simulate(start, ef.load("tanner-bounded"), time_step=time_step, duration=4.0, keep_every=None)
        assert ef.metrics.velocity_variance(run.flock()).max() < 0.01
    # The paper's gain is N: a flock of 100 diverges at 0.05 s.
    run = ef.simulate(ef.random_disk(2, 100, seed=3), ef.load("tanner"), time_step=0.05, duration=4.0, keep_every=None)
    assert ef.metrics.velocity_variance(run.flock()).min() > 1.0


def test_only_laws_of_bounded_gain_can_be_scaled() -> None:
    with pytest.raises(ef.InputError, match="velocity_gain"):
        ef.load("tanner").scale_output(2.0)  # type: ignore[union-attr]


@pytest.mark.parametrize("margin", [1.0, 1.3])
def test_in_training_the_student_flies_with_its_gain_times_the_margin(margin: float) -> None:
    start, rng = ef.random_disk(1, 20, seed=1), np.random.default_rng(0)
    mixture = Mixture(ef.load("tanner-bounded"), STARLING, 0.0, rng, 0.05, gain_margin=margin)
    flown = first_accelerations(mixture, start, 0.05)
    expected = margin * first_accelerations(STARLING, start, 0.05)
    np.testing.assert_allclose(flown, expected, rtol=1e-5, atol=1e-6)
    assert mixture.student_gain == pytest.approx(0.4)
    np.testing.assert_allclose(mixture.target, first_accelerations(ef.load("tanner-bounded"), start, 0.05))


def test_a_compiled_network_without_a_schedule_keeps_its_bits() -> None:
    plain: Any = ef.load("etdagnn")
    assert isinstance(plain, CompiledNetwork) and plain.gain_schedule is None
    start = ef.random_disk(1, 20, seed=1)
    moment = next(iter(ef.flight(start, plain, time_step=0.001)))
    assert np.array_equal(moment.accelerations, plain(moment.observations))
