"""Properties of all pair laws: they fly any flock, are equivariant, and depend on neighbours only if local."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.classical.pair_law import LocalLaw, PairLaw
from equiflock.controllers.gain_schedule import compute_gain
from equiflock.controllers.registry import find_factory, is_bundled
from equiflock.flock import Flock, Role
from tests import twins
from tests.cli.commands import failure, run
from tests.controllers.classical.pairwise import accelerations
from tests.controllers.test_unit_scaling import EXACT, ROUNDED, both, start_of
from tests.flocks import flocks

CENTRALIZED = ("cucker-smale", "cucker-smale-singular", "cucker-dong", "bonding", "segregation")
LOCAL = ("reynolds", "cucker-smale-local", "cucker-smale-singular-local", "bonding-local", "segregation-local")
LAWS = CENTRALIZED + LOCAL
EVERY = tuple(
    name
    for name in ef.controller_names()
    if getattr(find_factory(name), "__module__", "").startswith("equiflock.controllers.classical.")
)
"""All names of the folder of classical laws, these among them."""


def with_groups(flock: Flock, seed: int = 0) -> Flock:
    """The flock in three groups."""
    return dataclasses.replace(flock, groups=np.random.default_rng(seed).integers(0, 3, flock.shape[:2]))


def crowd(agents: int, dimensions: int, seed: int = 0, size: float = 1.5) -> Flock:
    """Agents of three groups at random places and velocities, two of them leaders."""
    rng, roles = np.random.default_rng(seed), np.zeros((1, agents), np.int8)
    roles[0, :2] = Role.LEADER
    flock = Flock(rng.uniform(-size, size, (1, agents, dimensions)), rng.normal(size=(1, agents, dimensions)), roles)
    return with_groups(flock, seed)


def test_all_laws_are_registered() -> None:
    assert set(LAWS) <= set(EVERY)
    assert all(isinstance(ef.load(name), PairLaw) for name in LAWS)
    assert [name for name in LAWS if getattr(ef.load(name), "privileged", False)] == list(CENTRALIZED)
    assert all(is_bundled(name) for name in LAWS)


# Any flock.


def assert_flies(flock: Flock, name: str) -> None:
    law: Any = ef.load(name)
    most = math.inf if (clamp := getattr(law, "clamp", None)) is None else clamp
    most *= compute_gain(law, 0.01)
    for moment in ef.flight(flock, law, time_step=0.01):
        assert np.isfinite(moment.accelerations).all()
        assert np.sqrt(np.square(moment.accelerations).sum(axis=-1)).max() <= most * (1 + 1e-12)
        if moment.step == 3:
            break


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=15)
@given(flock=flocks(failed=True), seed=st.integers(0, 99))
def test_every_law_flies_any_flock_within_its_clamp(name: str, flock: Flock, seed: int) -> None:
    assert_flies(with_groups(flock, seed), name)


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("name", EVERY)
def test_every_law_flies_degenerate_flocks(name: str, dimensions: int) -> None:
    rng = np.random.default_rng(0)
    assert_flies(Flock(np.zeros((1, 1, dimensions)), np.ones((1, 1, dimensions))), name)
    assert_flies(Flock(np.ones((2, 9, dimensions)), rng.normal(size=(2, 9, dimensions))), name)
    leaders = np.full((1, 9), Role.LEADER, np.int8)
    assert_flies(Flock(rng.normal(size=(1, 9, dimensions)), rng.normal(size=(1, 9, dimensions)), leaders), name)
    full = rng.uniform(0.1, 0.6, (1, 300, dimensions)), rng.normal(size=(1, 300, dimensions))
    assert_flies(with_groups(Flock(*full)), name)


@pytest.mark.parametrize("name", LAWS)
def test_isolated_agent_does_not_accelerate(name: str) -> None:
    assert not accelerations(Flock([[[3.0, 4.0]]], [[[1.0, 2.0]]]), name).any()


@pytest.mark.parametrize("name", LAWS)
def test_clamp_keeps_the_direction(name: str) -> None:
    flock = crowd(30, 2)
    free, short = accelerations(flock, name), accelerations(flock, name, clamp=0.01)
    lengths = np.linalg.norm(free, axis=-1, keepdims=True)
    assert (lengths > 0.01).sum() > 20
    np.testing.assert_allclose(short, free * (0.01 / np.maximum(lengths, 0.01)), rtol=1e-12)


# Symmetries.


def assert_close(found: Any, expected: Any, name: str) -> None:
    accuracy = 1e-9 if name in CENTRALIZED else 1e-4  # observations are float32
    np.testing.assert_allclose(found, expected, rtol=accuracy, atol=accuracy * np.abs(expected).max())


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("name", LAWS)
def test_the_laws_commute_with_rotations_and_reflections(name: str, dimensions: int) -> None:
    signs = set()
    for seed in range(6):
        flock = crowd(40, dimensions, seed)
        turn = ortho_group.rvs(dimensions, random_state=seed)
        signs.add(round(np.linalg.det(turn)))
        turned = dataclasses.replace(flock, positions=flock.positions @ turn.T, velocities=flock.velocities @ turn.T)
        for clamp in (None, 0.5):
            expected = accelerations(flock, name, clamp=clamp) @ turn.T
            assert_close(accelerations(turned, name, clamp=clamp), expected, name)
    assert signs == {-1, 1}


@pytest.mark.parametrize("name", LAWS)
def test_laws_are_invariant_to_translation_and_common_velocity(name: str) -> None:
    flock = crowd(40, 3)
    positions, velocities = (np.round(array * 2**20) / 2**20 for array in (flock.positions, flock.velocities))
    flock = dataclasses.replace(flock, positions=positions, velocities=velocities)
    moved = dataclasses.replace(flock, positions=positions + np.array([5.0, 7.0, -3.0]), velocities=velocities - 9.0)
    assert_close(accelerations(moved, name), accelerations(flock, name), name)


@pytest.mark.parametrize("name", LAWS)
def test_laws_are_permutation_equivariant(name: str) -> None:
    flock, order = crowd(40, 2), np.random.default_rng(1).permutation(40)
    shuffled = Flock(*(array[:, order] for array in flock.arrays))
    assert_close(accelerations(shuffled, name), accelerations(flock, name)[:, order], name)


@pytest.mark.parametrize("name", LAWS)
def test_renumbering_groups_changes_nothing(name: str) -> None:
    flock = crowd(40, 2)
    other = dataclasses.replace(flock, groups=np.array([7, 0, 3])[flock.groups])
    assert accelerations(flock, name).tobytes() == accelerations(other, name).tobytes()


# The two forms of a law.


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("name", [name for name in CENTRALIZED if f"{name}-local" in LOCAL])
def test_local_and_centralized_form_agree_on_a_complete_graph(name: str, dimensions: int) -> None:
    flock = Flock(*crowd(25, dimensions).arrays, comm_radius=10.0)
    # A mean over N - 1 neighbours is larger than one over all N agents, which includes the agent.
    means = {aggregation for _, aggregation in ef.load(f"{name}-local").senses.channels} == {"mean"}
    expected = accelerations(flock, name) * (25 / 24 if means else 1.0)
    assert means == (name != "segregation")
    assert_close(accelerations(flock, f"{name}-local"), expected, f"{name}-local")


@pytest.mark.parametrize("dimensions", [2, 3])
def test_local_law_depends_on_neighbours_only(dimensions: int) -> None:
    """All agents but the neighbours of agent 5 move elsewhere: no bit of its acceleration changes."""
    flock = crowd(80, dimensions, size=1.8)
    neighbours = twins.adjacency(flock.positions[0], flock.roles[0], 1.0)[5] | (np.arange(80) == 5)
    assert 2 < neighbours.sum() < 40
    elsewhere = np.where(neighbours[:, None], flock.positions, 50.0 + 9.0 * flock.positions)
    otherwise = np.where(neighbours[:, None], flock.velocities, -4.0 * flock.velocities)
    groups = np.where(neighbours, flock.groups, 5)
    other = dataclasses.replace(flock, positions=elsewhere, velocities=otherwise, groups=groups)
    for name in LAWS:
        one, two = (accelerations(each, name)[0, 5] for each in (flock, other))
        assert one.any()
        assert (one.tobytes() == two.tobytes()) == (name in LOCAL)


@pytest.mark.parametrize("shape", [(1, 5, 1, 9, 2), (1, 5, 0, 3, 2), (1, 5, 3, 2)])
@pytest.mark.parametrize("name", LOCAL)
def test_wrong_observation_shapes_raise(name: str, shape: tuple[int, ...]) -> None:
    law: Any = ef.load(name)
    with pytest.raises(InputError, match=rf"shape \(B, N, 1, {law.senses.width}, D\); got"):
        law(np.zeros(shape, np.float32))


# Options.


OPTIONS = [(name, each.name) for name in LAWS for each in dataclasses.fields(find_factory(name))]  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_wrong_options_raise_one_line(name: str, option: str) -> None:
    least = "above 0" if option == "clamp" else "of at least 0"
    wrong: list[Any] = [-1.0, math.nan, math.inf, "fast", True, [1.0]]
    for value in [*wrong, 0.0 if option == "clamp" else None]:
        with pytest.raises(InputError, match=rf"^{option} must be a finite number {least}; got ") as caught:
            ef.load(name, **{option: value})
        assert "\n" not in str(caught.value)
    for word in ("-1", "nan", "fast", "true"):
        with pytest.raises(InputError, match=rf"^{option} must be a finite number {least}; got "):
            ef.load(f"{name}:{option}={word}")


@pytest.mark.parametrize("name", LAWS)
def test_unknown_options_raise(name: str) -> None:
    with pytest.raises(InputError, match=f"controller '{name}' has no option 'speed'; its options are "):
        ef.load(name, speed=1.0)


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_every_option_changes_the_law_and_can_be_part_of_the_name(name: str, option: str) -> None:
    flock, law = crowd(30, 2, size=0.6), ef.load(name)
    value = 0.5 if option == "clamp" else getattr(law, option) * 1.5
    changed: Any = ef.load(f"{name}:{option}={value}")
    assert changed == ef.load(name, **{option: value}) != law
    usual, other = (next(ef.flight(flock, each)).accelerations for each in (law, changed))
    assert not np.allclose(usual, other, rtol=1e-3)


@pytest.mark.parametrize("name", ["cucker-smale:beta=-1", "bonding-local:spring=stiff", "cucker-dong:core=nan"])
def test_command_line_rejects_wrong_options_with_exit_code_two(capsys: pytest.CaptureFixture[str], name: str) -> None:
    errors = failure(capsys, "simulate", "--controller", name, "--agents", "5", "--flocks", "1", "--duration", "0.1")
    option = name.partition(":")[2].partition("=")[0]
    assert errors.startswith(f"equiflock: {option} must be a finite number of at least 0; got ")
    assert errors.count("\n") == 1


def test_command_line_simulates_every_law(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("segregation:between=1.5:clamp=none", "reynolds:distance=0.2"):
        run("simulate", "--controller", name, "--agents", "10", "--flocks", "1", "--duration", "0.05")
        assert name.partition(":")[0] in capsys.readouterr().out


# Units, and pupils.


@pytest.mark.parametrize("name", LAWS)
def test_laws_can_be_scaled_to_other_units(name: str) -> None:
    for expected, found in zip(*both(name, start_of(2, 60), EXACT, steps=5), strict=True):
        assert np.array_equal(expected, found)
    for expected, found in zip(*both(name, start_of(3, 60), ROUNDED, steps=5), strict=True):
        assert np.abs(expected - found).max() < 1e-3 * np.abs(expected).max()


@pytest.mark.parametrize("name", LAWS)
def test_student_learns_from_each_law(name: str) -> None:
    recipe = ef.DAgger(
        controller="etdagnn", expert=name, epochs=1, agents=10, flocks=2, updates=2, duration=0.1, validation_flocks=1
    )
    losses: list[float] = []
    ef.train(recipe, on_epoch=lambda report: losses.append(report.loss))
    assert len(losses) == 1 and np.isfinite(losses).all()


def test_custom_law_needs_channels_and_an_acceleration() -> None:
    @dataclasses.dataclass(frozen=True)
    class Follow(LocalLaw):
        rate: float = 2.0

        @property
        def channels(self) -> Any:
            return (("velocity", "mean"),)

        def compute_acceleration(self, sums: Any) -> Any:
            return -self.rate * sums[:, :, 0]

    flock = Flock([[[0.0, 0.0], [0.5, 0.0]]], [[[1.0, 0.0], [0.0, 0.0]]])
    assert next(ef.flight(flock, Follow())).accelerations.tolist() == [[[-2.0, 0.0], [2.0, 0.0]]]
    with pytest.raises(InputError, match="rate must be a finite number of at least 0; got -1"):
        Follow(rate=-1)
