"""A controller scaled to the units of a robot flies as it always does, L times as large and tau times as slow."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.loading import find_weights_file, has_open_seed, make_network
from equiflock.controllers.networks.weights import write_weights
from equiflock.controllers.registry import is_bundled
from equiflock.controllers.trained import bundled_weights_path
from equiflock.controllers.unit_scaling import ScaledController
from equiflock.flock import Flock, Role
from equiflock.simulation.fused_step import can_fuse

pytestmark = pytest.mark.usefixtures("own_registry")

EXACT = {"comm_radius": 4.0, "time_scale": 16.0}
ROUNDED = {"comm_radius": 5.0, "time_scale": 15.0}


def declare_own() -> None:
    """A custom law and expert with features that are no powers of |r|, one of them of <r, v>."""

    @ef.feature("spring", vector="position")
    def spring(square: float, inner: float) -> float:
        return 1.0 / (0.3 + square) - 0.5 * math.exp(-square) + 0.1 * inner / (1.0 + square)

    senses = ef.Senses((("velocity", "mean"), ("spring", "sum")), hops=2)

    @ef.controller("own", senses=senses)
    def own(observations: Any) -> Any:
        now, before = observations[:, :, 0], observations[:, :, 1]
        return -5.0 * now[:, :, 0] + 3.0 * now[:, :, 1] - before[:, :, 0]

    @ef.controller("seer", senses=senses, privileged=True)
    def seer(flock: Flock, observations: Any) -> Any:
        pull = flock.positions.mean(axis=1, keepdims=True) - flock.positions
        return pull / (flock.comm_radius + np.abs(pull)) - np.tanh(flock.velocities) + observations[:, :, 0, 1]


def scaled_up(start: Flock, units: dict[str, float]) -> Flock:
    """Positions times L, velocities times L / tau, and R times L."""
    L, tau = units["comm_radius"], units["time_scale"]
    return Flock(start.positions * L, start.velocities * L / tau, *start.arrays[2:], comm_radius=start.comm_radius * L)


def both(name: str, start: Flock, units: dict[str, float], steps: int = 20, **rules: Any) -> tuple[Any, Any]:
    """The flight of a start, measured in the robots' units, and that of the robots, under the scaled controller."""
    L, tau = units["comm_radius"], units["time_scale"]
    one = ef.simulate(start, ef.load(name), time_step=0.01, duration=steps * 0.01, **rules)
    times = {"time_step": 0.01 * tau, "duration": steps * 0.01 * tau}
    other = ef.simulate(scaled_up(start, units), ef.load(name, **units), **times, **rules)
    expected = one.positions * L, one.velocities * (L / tau), one.accelerations * (L / tau**2), one.times * tau
    return expected, (other.positions, other.velocities, other.accelerations, other.times)


def start_of(dimensions: int, agents: int) -> Flock:
    rule: Any = "quarter-power" if agents < 1_000 else "constant-density"
    drawn = ef.random_disk(1, agents, seed=4, dimensions=dimensions, radius_rule=rule)
    roles = np.zeros((1, agents), np.int8)
    roles[0, :2] = Role.LEADER
    return Flock(drawn.positions, drawn.velocities, roles)


LAWS = ("etdagnn", "etdagnn:3", "tdagnn", "tanner", "tanner-dynamic", "tanner-fixed", "tanner:clamp=20", "own", "seer")
IN_SPACE = tuple(name for name in LAWS if name != "tdagnn")  # whose weights are for the plane


@pytest.mark.parametrize(("name", "dimensions"), [*((name, 2) for name in LAWS), *((name, 3) for name in IN_SPACE)])
def test_scaled_flight_is_bit_identical_for_powers_of_two(name: str, dimensions: int) -> None:
    declare_own()
    for expected, found in zip(*both(name, start_of(dimensions, 60), EXACT), strict=True):
        assert np.array_equal(expected, found)


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("name", IN_SPACE)
def test_scaled_flight_is_equal_up_to_rounding_in_any_units(name: str, dimensions: int) -> None:
    declare_own()
    for expected, found in zip(*both(name, start_of(dimensions, 60), ROUNDED), strict=True):
        assert np.abs(expected - found).max() < 1e-3 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["etdagnn", "tdagnn", "tanner", "tanner-fixed", "own"])
def test_scaled_flight_of_a_large_flock_is_equal_up_to_rounding(name: str) -> None:
    declare_own()
    for expected, found in zip(*both(name, start_of(2, 3_500), EXACT, steps=4), strict=True):
        assert np.array_equal(expected, found)


@pytest.mark.parametrize("name", ["etdagnn", "tdagnn", "tanner-dynamic", "own"])
def test_followers_orbit_obstacles_in_the_controllers_own_units(name: str) -> None:
    declare_own()
    course = ef.ObstacleCourse(ef.RandomDisk(flocks=3, agents=40, seed=3), sides=24).draw()
    expected, found = both(name, course, EXACT, steps=60, orbit=ef.Orbit(), ending=ef.UntilPassed())
    for one, other in zip(expected, found, strict=True):
        assert np.array_equal(one, other)
    plain, _ = both(name, course, EXACT, steps=60)
    assert not np.array_equal(plain[0], expected[0])  # somebody met the obstacle


def test_observations_are_those_of_the_flock_in_its_own_units() -> None:
    start = start_of(2, 60)
    senses = ef.load("etdagnn", **EXACT).senses
    large = scaled_up(start, EXACT)
    expected = ef.observe(start, ef.paper_senses())
    assert np.array_equal(ef.observe(large, senses), expected)
    other = Flock(*large.arrays, comm_radius=1.0)
    assert np.array_equal(ef.observe(other, senses, comm_radius=4.0), expected)
    by_sender: dict[str, Any] = {"aggregation": "sum", "hop_mean": "sender"}
    twice = []
    for flock, scales in ((start, {}), (large, {"length_scale": 4.0, "time_scale": 16.0})):
        own = ef.paper_senses(**by_sender)
        memory = ef.DelayedAggregation(ef.Senses(own.channels, own.hops, own.topology, own.hop_mean, **scales))
        memory.observe(flock)
        twice.append(memory.observe(flock))
    assert np.array_equal(*twice)


def test_flock_can_have_another_comm_radius_than_the_controller() -> None:
    start = start_of(2, 60)
    one = ef.simulate(start, ef.load("etdagnn"), comm_radius=0.8, duration=0.1)
    large = scaled_up(start, EXACT)
    other = ef.simulate(large, ef.load("etdagnn", **EXACT), comm_radius=3.2, time_step=0.16, duration=1.6)
    assert np.array_equal(one.positions * 4.0, other.positions)


def test_unit_of_length_is_that_of_the_recipe(tmp_path: Path) -> None:
    network = make_network("etdagnn")
    cases: list[tuple[dict[str, Any], float]] = [
        ({}, 1.0),
        ({"recipe": {"comm_radius": 2.5}}, 2.5),
        ({"recipe": {"comm_radius": 1.0, "scenario": "flocking:comm_radius=4"}}, 4.0),
        ({"recipe": {"scenario": "leaders:share=0.1"}}, 1.0),
    ]
    for number, (extra, own) in enumerate(cases):
        path = str(write_weights(network, tmp_path / f"{number}:2.safetensors", extra))
        for controller in (ef.load(path, comm_radius=5.0), ef.load(f"{path}:comm_radius=5")):
            assert (controller.senses.length_scale, controller.senses.time_scale) == (5.0 / own, 1.0)
        assert find_weights_file(f"{path}:comm_radius=5:time_scale=2") == Path(path)
        assert not isinstance(ef.load(path, comm_radius=own), ScaledController)  # these are its own units
    wrong = write_weights(network, tmp_path / "wrong.safetensors", {"recipe": {"comm_radius": -1}})
    with pytest.raises(InputError, match=r"comm_radius in the recipe of .* must be a finite number above 0; got -1"):
        ef.load(wrong, comm_radius=2.0)
    with pytest.raises(InputError, match=r"cannot be made with the options \{'seed': 3\}"):
        ef.load(f"{tmp_path / '0:2.safetensors'}:3")


def test_units_combine_with_other_options_in_a_name() -> None:
    controller: Any = ef.load("etdagnn:seed=3:comm_radius=5:time_scale=15")
    assert (controller.name, controller.senses.length_scale, controller.senses.time_scale) == ("etdagnn", 5.0, 15.0)
    third: Any = ef.load(bundled_weights_path("etdagnn", 3))
    z = np.random.default_rng(0).standard_normal((1, 4, 3, 3, 2)).astype(np.float32)
    assert np.array_equal(controller(z), third(z) * (5.0 / 15.0**2))
    law: Any = ef.load("tanner:comm_radius=5:clamp=7")
    assert law.privileged
    assert law.controller == ef.load("tanner", clamp=7)
    assert (
        find_weights_file("etdagnn:seed=3:comm_radius=5")
        == find_weights_file("etdagnn:3")
        == bundled_weights_path("etdagnn", 3)
    )
    assert find_weights_file("tanner:comm_radius=5") is None
    assert [has_open_seed(name) for name in ("etdagnn", "etdagnn:comm_radius=5", "etdagnn:seed=3:comm_radius=5")] == [
        True,
        True,
        False,
    ]
    assert is_bundled("tanner:comm_radius=5")
    ef.feature("mine", vector="position")(lambda square: square)
    assert not is_bundled("tanner:potential=mine:comm_radius=5")


@pytest.mark.parametrize("name", ["etdagnn", "tanner", "tanner-fixed"])
@pytest.mark.parametrize(
    ("units", "text"),
    [
        ({"time_scale": 0}, "time_scale must be a finite number above 0; got 0"),
        ({"time_scale": -1.5}, r"time_scale must be a finite number above 0; got -1\.5"),
        ({"time_scale": math.nan}, "time_scale must be a finite number above 0; got nan"),
        ({"time_scale": "slow"}, "time_scale must be a finite number above 0; got 'slow'"),
        ({"time_scale": None}, "time_scale must be a finite number above 0; got None"),
        ({"time_scale": 1e200}, r"time_scale must be from 1e-12 to 1e\+12; got 1e\+200"),
        ({"comm_radius": 0.0}, r"comm_radius must be a finite number above 0; got 0\.0"),
        ({"comm_radius": math.inf}, "comm_radius must be a finite number above 0; got inf"),
        ({"comm_radius": 1e-300}, r"comm_radius must be from 1e-12 to 1e\+12; got 1e-300"),
    ],
)
def test_wrong_units_raise_one_line(name: str, units: dict[str, Any], text: str) -> None:
    for use in (
        lambda: ef.load(name, **units),
        lambda: ef.load(":".join([name, *(f"{key}={value}" for key, value in units.items())])),
    ):
        with pytest.raises(InputError, match=text) as caught:
            use()
        assert "\n" not in str(caught.value)


def test_senses_with_wrong_units_raise() -> None:
    for wrong in (0.0, -1.0, math.nan, 1e13, True, "5"):
        with pytest.raises(InputError, match=r"length_scale must be from 1e-12 to 1e\+12; got"):
            ef.Senses((("velocity", "mean"),), length_scale=wrong)  # type: ignore[arg-type]
    controller, start = ef.load("etdagnn", **EXACT), start_of(2, 60)
    with pytest.raises(InputError, match="needs the channels, hops and units of"):
        ef.flight(start, controller, senses=ef.paper_senses("mean", 3, "fixed"))
    with pytest.raises(InputError, match="within 2e\\+09 radii of the origin"):
        next(ef.flight(Flock([[[1e20, 0.0]]], [[[0.0, 0.0]]]), ef.load("tanner", comm_radius=1e-9)))


def test_scaled_controller_cannot_be_trained_or_saved(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="save does not store comm_radius and time_scale"):
        ef.save(ef.load("etdagnn", comm_radius=5.0), tmp_path / "mine.safetensors")
    with pytest.raises(InputError, match=r"must be a torch module .* got Scaled\(etdagnn, length_scale=5, "):
        ef.train(ef.DAgger(epochs=1), ef.load("etdagnn", comm_radius=5.0))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="omit comm_radius and time_scale"):
        ef.train(ef.DAgger(controller="etdagnn:comm_radius=5:time_scale=15", epochs=1))


def test_scaled_expert_can_train_a_student() -> None:
    small: dict[str, Any] = {"epochs": 1, "agents": 10, "flocks": 2, "updates": 2, "validation_flocks": 1}
    slow = {"time_step": 0.16, "duration": 0.8, "comm_radius": 4.0, "disk_radius": 7.0, "min_separation": 0.4}
    reports: list[Any] = []
    ef.train(ef.DAgger(expert="tanner:comm_radius=4:time_scale=16", **small, **slow), on_epoch=reports.append)
    assert math.isfinite(reports[0].loss)


def test_controllers_cannot_have_options_named_as_units() -> None:
    with pytest.raises(InputError, match="time_scale is an option of every controller: rename the argument of 'mine'"):
        ef.controller("mine")(lambda observations, time_scale=1.0: observations[:, :, 0, 0])
    with pytest.raises(InputError, match="comm_radius is an option of every controller"):
        ef.controller("mine")(type("Mine", (), {"__init__": lambda self, comm_radius=1.0: None}))


@pytest.mark.parametrize("answer", [None, "left", [[1.0], [2.0, 3.0]], 1j])
def test_wrong_accelerations_raise_the_usual_error(answer: Any) -> None:
    ef.controller("odd")(lambda observations: answer)
    texts = []
    for units in ({}, EXACT):
        with pytest.raises(InputError) as caught:
            next(ef.flight(start_of(2, 60), ef.load("odd", **units)))
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    ef.controller("senseless")(type("Senseless", (), {}))
    with pytest.raises(InputError, match="Senseless must declare senses to be scaled"):
        ef.load("senseless", comm_radius=2.0)


def test_law_cannot_modify_observations() -> None:
    @ef.controller("rude")
    def rude(observations: Any) -> Any:
        observations[:] = 0.0

    with pytest.raises(ValueError, match="read-only"):
        next(ef.flight(start_of(2, 60), ef.load("rude", time_scale=2.0)))


def test_a_scaled_network_flies_compiled_and_in_memory_order_but_is_not_fused() -> None:
    controller: Any = ef.load("etdagnn", **EXACT)
    assert controller.compiled_form().order_independent
    assert not ef.load("tanner-fixed", **EXACT).compiled_form().order_independent  # type: ignore[union-attr]
    large = ef.flight(scaled_up(start_of(2, 3_500), EXACT), controller)
    assert large._order is not None
    small = ef.flight(scaled_up(start_of(2, 60), EXACT), controller)
    assert small._fused is None
    network = controller.controller.compiled_form()
    own, scaled = (ef.DelayedAggregation(senses) for senses in (network.senses, controller.senses))
    assert can_fuse(own, network, ef.DoubleIntegrator())
    assert not can_fuse(scaled, network, ef.DoubleIntegrator())


def test_scales_of_senses_and_controller_multiply() -> None:
    declare_own()
    senses = ef.Senses((("spring", "sum"),), length_scale=2.0, time_scale=8.0)
    ef.controller("far", senses=senses)(lambda observations: observations[:, :, 0, 0])
    start = start_of(2, 60)
    for expected, found in zip(*both("far", start, EXACT), strict=True):
        assert np.array_equal(expected, found)
    assert ef.load("far", **EXACT).senses.length_scale == 8.0


def test_saved_flight_stores_its_units(tmp_path: Path) -> None:
    run = ef.simulate(scaled_up(start_of(2, 60), ROUNDED), ef.load("etdagnn", **ROUNDED), time_step=0.15, duration=0.3)
    run.save(tmp_path / "flight.zarr")
    senses = ef.Trajectory.load(tmp_path / "flight.zarr").config["senses"]
    assert (senses["length_scale"], senses["time_scale"]) == (5.0, 15.0)
