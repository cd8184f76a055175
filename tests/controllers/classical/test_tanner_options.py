"""Tanner's laws with another clamp, another potential, or a potential that is not cut off."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import equiflock as ef
from equiflock import cli
from equiflock._runtime import threads
from equiflock._runtime.checks import InputError
from equiflock.controllers import load
from equiflock.controllers.classical.pair_law import sum_over_all_pairs
from equiflock.controllers.classical.tanner import Tanner
from equiflock.controllers.registry import is_bundled
from equiflock.flock import Flock, Role, Vectors
from equiflock.observations.aggregation import observe
from equiflock.scenarios import random_disk
from equiflock.simulation.flight_builder import flight
from tests import twins
from tests.controllers.classical.test_tanner import accelerations, in_whole_arrays
from tests.flocks import flocks

LAWS = ("tanner", "tanner-dynamic", "tanner-fixed")


@pytest.fixture
def soft(own_registry: None) -> None:
    """U(r) = exp(-4 r^2) / 4: grad U = -2 exp(-4 r^2) r pushes apart, gently."""

    @ef.feature("soft", vector="position")
    def _(square: float) -> float:
        return -2.0 * math.exp(-4.0 * square)


# The clamp by entries.


@pytest.mark.parametrize("name", LAWS)
def test_only_the_clamp_of_norms_is_equivariant(name: str) -> None:
    rng = np.random.default_rng(0)
    positions, velocities = rng.uniform(-1, 1, (2, 1, 30, 2))
    angle = 0.5
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    flock, turned = Flock(positions, velocities), Flock(positions @ turn.T, velocities @ turn.T)
    worst = {}
    for clamp_by in ("norm", "entry"):
        ours = accelerations(flock, name, clamp=5.0, clamp_by=clamp_by) @ turn.T
        worst[clamp_by] = np.abs(accelerations(turned, name, clamp=5.0, clamp_by=clamp_by) - ours).max()
    assert worst["norm"] < 1e-3
    assert worst["entry"] > 1.0


@pytest.mark.parametrize("name", LAWS)
def test_clamp_of_entries_bounds_each_entry(name: str) -> None:
    flock = random_disk(3, 50, seed=1)
    free, clamped = (accelerations(flock, name, clamp=clamp, clamp_by="entry") for clamp in (None, 3.0))
    np.testing.assert_array_equal(clamped, np.clip(free, -3.0, 3.0))
    assert np.linalg.norm(clamped, axis=-1).max() > 3.0  # up to sqrt(2) C


# A potential that is not cut off.


def gradients_beyond(flock: Flock) -> Vectors:
    """The sums of grad U over the agents of the flock that are farther than R, (B, N, D)."""
    return sum_over_all_pairs(flock, (("tanner", "sum"),), exclusion_radius=flock.comm_radius)[:, :, 0]


@given(flocks(failed=True))
def test_sums_over_distant_agents_are_double_sums(flock: Flock) -> None:
    found = gradients_beyond(flock)
    for b in range(len(flock)):
        expected = twins.gradients_beyond(flock, b)
        np.testing.assert_allclose(found[b], expected, rtol=1e-9, atol=1e-12)


@given(flocks(roles=False), st.sampled_from([0.5, None]))
def test_the_law_not_cut_off_runs_over_all_pairs(flock: Flock, clamp: float | None) -> None:
    """Whatever R is, the sums are those over the whole flock, as in the equation of section 2.2."""
    offsets = flock.positions[:, :, None] - flock.positions[:, None]
    squares = np.maximum(np.square(offsets).sum(axis=-1, keepdims=True), twins.MIN_DISTANCE**2)
    gradients = 2.0 * (offsets / squares - offsets / squares**2)
    expected = flock.velocities.sum(axis=1, keepdims=True) - flock.shape[1] * flock.velocities - gradients.sum(axis=2)
    size = 1 + np.abs(gradients).max(initial=0.0)
    if clamp is not None:
        norms = np.sqrt(np.square(expected).sum(axis=-1, keepdims=True))
        # Where the sum is nearly nothing its direction is one of rounding.
        expected, size = expected * (clamp / np.maximum(norms, clamp)), size / max(1.0, norms.min())
    for radius in (0.5, 1.0):
        found = next(flight(flock, load("tanner", clamp=clamp, cut_off=False), comm_radius=radius)).accelerations
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * size)


def test_a_far_agent_is_pulled_back_only_if_the_potential_is_not_cut_off() -> None:
    flock = Flock([[[0.0, 0.0], [0.4, 0.0], [10.0, 0.0]]], np.zeros((1, 3, 2)))
    assert (accelerations(flock, "tanner")[0, 2] == 0.0).all()
    pulled = accelerations(flock, "tanner", cut_off=False)[0, 2]
    expected = sum(2 / r - 2 / r**3 for r in (10.0, 9.6))
    np.testing.assert_allclose(pulled, [-expected, 0.0], rtol=1e-12)


def test_distant_obstacle_agent_does_not_attract() -> None:
    flock = Flock([[[0.0, 0.0], [0.5, 0.0], [3.0, 0.0]]], np.zeros((1, 3, 2)), [[Role.FOLLOWER] * 2 + [Role.OBSTACLE]])
    np.testing.assert_array_equal(accelerations(flock, "tanner", cut_off=False), accelerations(flock, "tanner"))


def test_all_pairs_are_independent_of_threads_and_need_linear_memory() -> None:
    flock, law = random_disk(3, 200, seed=2), Tanner(cut_off=False)
    observations, found = observe(flock, law.senses), set()
    for count in (1, 2, 3):
        with threads.use(count):
            found.add(law(flock, observations).tobytes())
    assert len(found) == 1
    large = Flock(*np.random.default_rng(0).uniform(-30, 30, (2, 1, 3000, 2)))
    gradients_beyond(large)
    tracemalloc.start()
    gradients_beyond(large)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1e6  # an array of all pairs would be 72 MB


def test_disconnected_halves_approach_only_without_cut_off() -> None:
    rng, sides = np.random.default_rng(0), np.repeat([-3.0, 3.0], 10)[:, None] * [1.0, 0.0]
    flock, apart = Flock(rng.uniform(-0.5, 0.5, (1, 20, 2)) + sides, np.zeros((1, 20, 2))), {}
    for cut_off in (True, False):
        run = ef.simulate(flock, load("tanner", cut_off=cut_off), duration=3.0, keep_every=300)
        left, right = run.positions[:, 0, :10, 0].mean(axis=1), run.positions[:, 0, 10:, 0].mean(axis=1)
        apart[cut_off] = (right - left).tolist()
    assert apart[True][-1] == pytest.approx(apart[True][0], abs=0.05)
    assert apart[False][-1] < apart[False][0] - 0.5


# Other potentials.


def gradient_by_the_book(flock: Flock, weight: Any) -> NDArray[Any]:
    """sum_j grad U over those within R."""
    offsets = flock.positions[:, :, None] - flock.positions[:, None]
    squares = np.square(offsets).sum(axis=-1)
    near = (squares <= flock.comm_radius**2) & ~np.eye(flock.shape[1], dtype=bool)
    return (np.where(near, weight(squares), 0.0)[..., None] * offsets).sum(axis=2)


@pytest.mark.parametrize("name", LAWS)
def test_law_follows_a_custom_potential(soft: None, name: str) -> None:
    flock, law = random_disk(2, 60, seed=4), load(name, potential="soft", clamp=None)
    assert law.senses.channels == (("velocity", "sum"), ("soft", "sum"))
    assert law.senses.topology == ("fixed" if name == "tanner-fixed" else "dynamic")
    observations = observe(flock, law.senses)
    expected = in_whole_arrays(flock, observations, name == "tanner", None)
    np.testing.assert_allclose(next(flight(flock, law)).accelerations, expected, rtol=1e-12, atol=1e-12)
    gradients = gradient_by_the_book(flock, lambda square: -2.0 * np.exp(-4.0 * square))
    np.testing.assert_allclose(observations[:, :, 0, 1], gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", LAWS)
def test_the_papers_potential_as_a_feature_is_the_papers_law(own_registry: None, name: str) -> None:
    @ef.feature("same", vector="position")
    def _(square: float) -> float:
        return 2.0 * (1.0 - 1.0 / square) / square

    flock = random_disk(2, 60, seed=4)
    ours, theirs = accelerations(flock, name, potential="same"), accelerations(flock, name)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-3)


def test_default_laws_have_the_papers_senses() -> None:
    for name in LAWS:
        assert load(name).senses.paper_aggregation == "sum"
        assert load(name) == load(name, clamp=100.0, clamp_by="norm", potential="tanner")


def test_controller_with_a_plugin_feature_is_not_bundled(soft: None) -> None:
    # Results of jobs are shared by all plugins if it does.
    assert is_bundled("tanner:potential=inverse-square:clamp=5")
    assert not is_bundled("tanner:potential=soft")
    assert is_bundled("tanner:clamp=-1")  # load raises the error


@pytest.mark.parametrize(
    "options", ["potential=soft", "clamp_by=entry:clamp=5", "cut_off=false", "attraction=0.8:aim=leaders"]
)
def test_student_learns_from_each_law(soft: None, options: str) -> None:
    few = {"epochs": 2, "agents": 20, "flocks": 3, "duration": 0.2, "updates": 3, "validation_flocks": 1}
    recipe = ef.DAgger(controller="etdagnn", expert=f"tanner:{options}", **few)
    losses: list[float] = []
    ef.train(recipe, on_epoch=lambda report: losses.append(report.loss))
    assert len(losses) == 2 and np.isfinite(losses).all()


def test_command_line_takes_the_options(own_registry: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "soft.py").write_text(
        "import equiflock as ef\n\n\n"
        "@ef.feature('soft', vector='position')\n"
        "def soft(square):\n    return -1.0 / (0.1 + square)\n"
    )
    options = "tanner:potential=soft:clamp_by=entry"
    flags = ["--flocks", "1", "--agents", "20", "--duration", "0.1"]
    cli.main(["simulate", "--plugin", str(tmp_path / "soft.py"), "--controller", options, *flags])
    assert "tanner" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clamp_by": "entrys"}, "clamp_by must be one of 'norm', 'entry'; got 'entrys'; did you mean 'entry'"),
        ({"potential": "sofd"}, "potential must be one of .*; got 'sofd'; did you mean 'soft'"),
        ({"potential": "velocity"}, "potential must be a feature .* of positions; 'velocity' uses velocities"),
        ({"potential": 3}, "potential must be one of"),
        ({"attraction": 0.0}, "attraction must be a finite number above 0; got 0.0"),
        ({"attraction": 0.8, "potential": "soft"}, "attraction needs the potential 'tanner'; got 'soft'"),
    ],
)
@pytest.mark.parametrize("name", LAWS)
def test_wrong_options_raise(soft: None, name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        load(name, **options)


def test_options_that_need_the_expert_or_its_potential_raise(soft: None) -> None:
    with pytest.raises(InputError, match="cut_off=False needs the potential 'tanner'; got 'soft'"):
        load("tanner", cut_off=False, potential="soft")
    with pytest.raises(InputError, match="aim must be one of 'flock', 'leaders'; got 'leader'; did you mean 'leaders'"):
        load("tanner", aim="leader")
    with pytest.raises(InputError, match="aim"):
        load("tanner-dynamic", aim="leaders")
    with pytest.raises(InputError, match="cut_off must be true or false; got 3"):
        load("tanner", cut_off=3)
    with pytest.raises(InputError, match="cut_off"):
        load("tanner-dynamic", cut_off=False)


@pytest.mark.parametrize("shape", [(1, 5, 1, 1, 2), (1, 5, 0, 2, 2)])
def test_too_few_channels_raise(soft: None, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"shape \(B, N, 1, 2, D\)"):
        load("tanner-dynamic", potential="soft")(np.zeros(shape, np.float32))  # type: ignore[call-arg]
