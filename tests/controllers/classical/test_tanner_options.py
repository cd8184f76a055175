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
from equiflock.controllers import load
from equiflock.controllers.classical.tanner import Tanner
from equiflock.controllers.registry import is_bundled
from equiflock.flock import Condition, Flock, Role, Vectors
from equiflock.pairs.everyone import sums_over_everyone
from equiflock.runtime import threads
from equiflock.runtime.checks import InputError
from equiflock.scenarios import random_disk
from equiflock.senses.aggregation import observe
from equiflock.simulation.assembly import flight
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
def test_the_clamp_by_entries_does_not_turn_with_the_flock_and_that_by_norms_does(name: str) -> None:
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
def test_the_clamp_by_entries_bounds_the_largest_entry_and_leaves_the_rest(name: str) -> None:
    flock = random_disk(3, 50, seed=1)
    free, clamped = (accelerations(flock, name, clamp=clamp, clamp_by="entry") for clamp in (None, 3.0))
    np.testing.assert_array_equal(clamped, np.clip(free, -3.0, 3.0))
    assert np.linalg.norm(clamped, axis=-1).max() > 3.0  # up to sqrt(2) C


# A potential that is not cut off.


def gradients_beyond(flock: Flock) -> Vectors:
    """The sums of grad U over the agents of the flock that are farther than R, (B, N, D)."""
    return sums_over_everyone(flock, (("tanner", "sum"),), beyond=flock.comm_radius)[:, :, 0]


@given(flocks(failed=True))
def test_the_sums_over_everybody_beyond_are_double_sums(flock: Flock) -> None:
    found = gradients_beyond(flock)
    for b in range(len(flock)):
        expected = twins.gradients_beyond(flock, b)
        np.testing.assert_allclose(found[b], expected, rtol=1e-9, atol=1e-12)


@given(flocks(roles=False), st.sampled_from([0.5, None]))
def test_the_law_not_cut_off_runs_over_all_pairs(flock: Flock, clamp: float | None) -> None:
    """Whatever R is, the sums are those over the whole flock, as in the equation of section 2.2."""
    offsets = flock.positions[:, :, None] - flock.positions[:, None]
    squares = np.maximum(np.square(offsets).sum(axis=-1, keepdims=True), twins.SHORTEST**2)
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


def test_an_obstacle_agent_out_of_reach_does_not_attract() -> None:
    flock = Flock([[[0.0, 0.0], [0.5, 0.0], [3.0, 0.0]]], np.zeros((1, 3, 2)), [[Role.FOLLOWER] * 2 + [Role.OBSTACLE]])
    np.testing.assert_array_equal(accelerations(flock, "tanner", cut_off=False), accelerations(flock, "tanner"))


def test_all_pairs_are_the_same_on_any_number_of_threads_and_take_memory_as_agents_do() -> None:
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


def test_two_halves_of_a_flock_that_do_not_hear_each_other_come_nearer_only_if_it_is_not_cut_off() -> None:
    rng, sides = np.random.default_rng(0), np.repeat([-3.0, 3.0], 10)[:, None] * [1.0, 0.0]
    flock, apart = Flock(rng.uniform(-0.5, 0.5, (1, 20, 2)) + sides, np.zeros((1, 20, 2))), {}
    for cut_off in (True, False):
        run = ef.simulate(flock, load("tanner", cut_off=cut_off), duration=3.0, keep_every=300)
        left, right = run.positions[:, 0, :10, 0].mean(axis=1), run.positions[:, 0, 10:, 0].mean(axis=1)
        apart[cut_off] = (right - left).tolist()
    assert apart[True][-1] == pytest.approx(apart[True][0], abs=0.05)
    assert apart[False][-1] < apart[False][0] - 0.5


# Attraction, and leaders to aim at.


def by_the_book(flock: Flock, b: int, everyone: bool, attraction: float, aim: str) -> NDArray[Any]:
    """a_i = - sum_j (v_i - v_j) - sum_j grad U(|r_ij|), agent by agent, for U(r) = d^2 / r^2 + ln r^2; no clamp.

    Whose aim are the leaders flies as if every v_j were their mean.
    """
    positions, velocities, roles = flock.positions[b], flock.velocities[b], flock.roles[b]
    heard, sends = twins.hears(flock, b, 1.0), (roles != Role.OBSTACLE) & ~flock.muted[b]
    leaders = np.flatnonzero((roles == Role.LEADER) & sends)
    seen = velocities.copy()
    if aim == "leaders" and len(leaders):
        seen[:] = velocities[leaders].mean(axis=0)
    result = np.zeros_like(positions)
    for i in np.flatnonzero((roles == Role.FOLLOWER) & (flock.conditions[b] <= Condition.SILENT)):
        for j in range(len(positions)):
            if heard[i, j]:
                offset, square = positions[i] - positions[j], twins.square_distance(positions[i], positions[j])
                result[i] -= 2.0 * offset * (1.0 - attraction**2 / square) / square
            if sends[j] if everyone else heard[i, j]:
                result[i] -= velocities[i] - seen[j]
    return result


@given(
    flocks(max_agents=12, failed=True),
    st.sampled_from(LAWS),
    st.sampled_from([0.5, 0.8, 1.3]),
    st.sampled_from(["flock", "leaders"]),
)
def test_a_law_with_another_attraction_or_aim_is_its_double_sum(
    flock: Flock, name: str, attraction: float, aim: str
) -> None:
    aims = {"aim": aim} if name == "tanner" else {}
    found = accelerations(flock, name, clamp=None, attraction=attraction, **aims)
    for b in range(len(flock)):
        expected = by_the_book(flock, b, name == "tanner", attraction, aims.get("aim", "flock"))
        # Sums of float32 that almost cancel are as exact as the largest of their terms.
        size = 1.0 + np.abs(expected).max(initial=0.0)
        np.testing.assert_allclose(found[b], expected, rtol=1e-4, atol=1e-4 * size)


def test_agents_attract_each_other_from_the_distance_on_that_is_said() -> None:
    flock = Flock([[[0.0, 0.0], [0.9, 0.0]]], np.zeros((1, 2, 2)))
    for attraction, pulled in ((0.8, True), (0.9, None), (1.0, False)):
        (first, second), _ = accelerations(flock, "tanner", attraction=attraction)[0].T
        assert first == pytest.approx(-second)
        assert first == pytest.approx(0.0, abs=1e-5) if pulled is None else (first > 0.1) == pulled


def test_a_pair_that_parts_slowly_is_kept_by_attraction_and_lost_without() -> None:
    flock, apart = Flock([[[0.0, 0.0], [0.9, 0.0]]], [[[-0.1, 0.0], [0.1, 0.0]]]), {}
    for attraction in (0.8, 1.0):
        run = ef.simulate(flock, load("tanner-dynamic", attraction=attraction), duration=5.0, keep_every=500)
        apart[attraction] = float(np.ptp(run.positions[-1, 0, :, 0]))
    assert apart[0.8] == pytest.approx(0.8, abs=0.05)
    assert apart[1.0] > 1.0


@given(flocks(roles=False, failed=True))
def test_without_leaders_the_aim_is_the_flock_to_the_bit(flock: Flock) -> None:
    np.testing.assert_array_equal(accelerations(flock, "tanner", aim="leaders"), accelerations(flock, "tanner"))


def test_a_flock_whose_aim_are_its_leaders_comes_to_fly_as_they_do() -> None:
    rng = np.random.default_rng(0)
    roles = [[Role.LEADER] * 2 + [Role.FOLLOWER] * 18]
    velocities = rng.normal(size=(1, 20, 2))
    velocities[0, :2] = [3.0, 0.0]
    flock, apart = Flock(rng.uniform(-0.8, 0.8, (1, 20, 2)), velocities, roles), {}
    for aim in ("flock", "leaders"):
        run = ef.simulate(flock, load("tanner", aim=aim), duration=0.3)
        apart[aim] = float(np.linalg.norm(run.velocities[-1, 0, 2:].mean(axis=0) - [3.0, 0.0]))
    assert apart["leaders"] < 0.1 < apart["flock"]


@given(flocks(), st.sampled_from(["tanner", "tanner-dynamic"]))
def test_at_the_defaults_not_a_bit_is_other_than_without_these_options(flock: Flock, name: str) -> None:
    observations = observe(flock, load(name).senses)
    known = (flock, observations) if name == "tanner" else (observations,)
    free: Any = load(name, clamp=None, attraction=1.0)
    # The law in whole arrays, whose sums run in the same order.
    expected = in_whole_arrays(flock, observations, name == "tanner", None)
    if name == "tanner":
        total = np.zeros_like(flock.velocities[:, 0])
        for i in range(flock.shape[1]):
            total = total + np.where(flock.roles[:, i, None] != Role.OBSTACLE, flock.velocities[:, i], 0.0)
        count = (flock.roles != Role.OBSTACLE).sum(axis=1)[:, None, None]
        sums = observations[:, :, 0].astype(np.float64)
        expected = total[:, None] - count * flock.velocities - 2.0 * (sums[:, :, 2] - sums[:, :, 1])
    np.testing.assert_array_equal(free(*known), expected)


# Other potentials.


def gradient_by_the_book(flock: Flock, weight: Any) -> NDArray[Any]:
    """sum_j grad U over those within R."""
    offsets = flock.positions[:, :, None] - flock.positions[:, None]
    squares = np.square(offsets).sum(axis=-1)
    near = (squares <= flock.comm_radius**2) & ~np.eye(flock.shape[1], dtype=bool)
    return (np.where(near, weight(squares), 0.0)[..., None] * offsets).sum(axis=2)


@pytest.mark.parametrize("name", LAWS)
def test_a_law_follows_another_potential(soft: None, name: str) -> None:
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


def test_the_usual_laws_have_the_papers_senses() -> None:
    for name in LAWS:
        assert load(name).senses.paper_aggregation == "sum"
        assert load(name) == load(name, clamp=100.0, clamp_by="norm", potential="tanner")


def test_a_controller_that_hears_a_plugins_feature_does_not_come_with_the_package_alone(soft: None) -> None:
    # Results of jobs are shared by all plugins if it does.
    assert is_bundled("tanner:potential=inverse-square:clamp=5")
    assert not is_bundled("tanner:potential=soft")
    assert is_bundled("tanner:clamp=-1")  # whoever loads it is told


@pytest.mark.parametrize(
    "options", ["potential=soft", "clamp_by=entry:clamp=5", "cut_off=false", "attraction=0.8:aim=leaders"]
)
def test_a_pupil_learns_from_each(soft: None, options: str) -> None:
    recipe = ef.DAgger(
        controller="etdagnn", expert=f"tanner:{options}", epochs=2, agents=20, flocks=3, updates=3, validation_flocks=1
    )
    told: list[float] = []
    ef.train(recipe, on_epoch=lambda report: told.append(report.loss))
    assert len(told) == 2 and np.isfinite(told).all()


def test_the_command_line_takes_them(own_registry: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "soft.py").write_text(
        "import equiflock as ef\n\n\n"
        "@ef.feature('soft', vector='position')\n"
        "def soft(square):\n    return -1.0 / (0.1 + square)\n"
    )
    options = "tanner:potential=soft:clamp_by=entry"
    told = ["--flocks", "1", "--agents", "20", "--duration", "0.1"]
    cli.main(["simulate", "--plugin", str(tmp_path / "soft.py"), "--controller", options, *told])
    assert "tanner" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clamp_by": "entries"}, "clamp_by must be one of 'norm', 'entry'; got 'entries'; did you mean 'entry'"),
        ({"potential": "sofd"}, "potential must be one of 'tanner', .*; got 'sofd'; did you mean 'soft'"),
        ({"potential": "velocity"}, "potential must be a feature .* of positions; 'velocity' is of velocities"),
        ({"potential": 3}, "potential must be one of"),
        ({"attraction": 0.0}, "attraction must be a finite number above 0; got 0.0"),
        ({"attraction": 0.8, "potential": "soft"}, "attraction goes with the potential 'tanner' only; got 'soft'"),
    ],
)
@pytest.mark.parametrize("name", LAWS)
def test_wrong_options_are_refused(soft: None, name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        load(name, **options)


def test_what_only_the_expert_with_its_own_potential_can_do_is_refused_of_others(soft: None) -> None:
    with pytest.raises(InputError, match="cut_off=False goes with the potential 'tanner' only; got 'soft'"):
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
def test_too_few_channels_are_refused(soft: None, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"shape \(B, N, 1, 2, D\)"):
        load("tanner-dynamic", potential="soft")(np.zeros(shape, np.float32))  # type: ignore[call-arg]
