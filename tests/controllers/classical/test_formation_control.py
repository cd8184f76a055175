"""The formation law is its equation, turns with flock and pattern, and brings flocks into their pattern."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import ortho_group

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.classical.formation_control import Formation
from equiflock.controllers.classical.formation_patterns import assign_places, make_pattern_points, pattern_error
from equiflock.flock import Condition, Flock, Role
from equiflock.observations.aggregation import observe
from tests import twins
from tests.flocks import flocks

Array = NDArray[Any]


def accelerations(flock: Flock, **options: Any) -> Array:
    law = Formation(**options)
    return law(flock, observe(flock, law.senses))


def by_the_book(flock: Flock, b: int, law: Formation) -> Array:
    """Return alignment with all agents and the pull towards the pattern, pair by pair."""
    members = [i for i in range(flock.shape[1]) if flock.roles[b, i] != Role.OBSTACLE]
    sending = [i for i in members if flock.conditions[b, i] not in (Condition.SILENT, Condition.STOPPED)]
    points = make_pattern_points(law.pattern, len(members), flock.shape[2], law.spacing)
    places = dict(zip(members, points, strict=True))
    r, v, result = flock.positions[b], flock.velocities[b], np.zeros(flock.shape[1:])
    for i in members:
        if flock.roles[b, i] != Role.FOLLOWER:
            continue
        others = [j for j in sending if j != i]
        count = len(others) + (i in sending)
        pulling = others
        if law.network == "chain":
            pulling = [*[j for j in others if j < i][-1:], *[j for j in others if j > i][:1]]
        for j in others:
            distance = np.sqrt(twins.square_distance(r[i], r[j]))
            result[i] += law.strength / count * distance**-law.alpha * (v[j] - v[i])
        for j in pulling:
            way = (r[j] - places[j]) - (r[i] - places[i])
            share = law.gain / count if law.network == "all" else law.gain
            result[i] += share * (1.0 + (way**2).sum()) ** -law.beta * way
    return result


@given(flocks(max_agents=8, failed=True), st.sampled_from(["all", "chain"]), st.sampled_from(["vee", "EQ"]))
@settings(max_examples=40)
def test_it_is_its_equation(flock: Flock, network: Any, pattern: str) -> None:
    law = Formation(network=network, pattern=pattern, alpha=1.3, beta=0.7, clamp=None)
    computed = law(flock, observe(flock, law.senses))
    for b in range(len(flock)):
        expected = by_the_book(flock, b, law)
        np.testing.assert_allclose(computed[b], expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max() + 1e-9)


@given(flocks(max_agents=8, failed=True))
@settings(max_examples=20)
def test_clamp_bounds_accelerations_of_any_flock(flock: Flock) -> None:
    norms = np.linalg.norm(accelerations(flock, noise=0.5), axis=-1)
    assert (norms <= 100.0 * (1 + 1e-12)).all()


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("network", ["all", "chain"])
def test_law_is_equivariant_if_the_pattern_is_rotated_too(dimensions: int, network: str) -> None:
    flock = ef.random_disk(flocks=2, agents=20, dimensions=dimensions)
    turn = ortho_group.rvs(dimensions, random_state=1)
    turned = Flock(flock.positions @ turn.T + 3.0, flock.velocities @ turn.T)
    points = make_pattern_points("EQ", 20, dimensions)
    before = accelerations(flock, pattern="EQ", network=network)
    np.testing.assert_allclose(before, accelerations(flock, pattern=points, network=network))
    after = accelerations(turned, pattern=points @ turn.T, network=network)
    np.testing.assert_allclose(after, before @ turn.T, rtol=1e-9, atol=1e-9)


def test_obstacle_agents_change_nothing() -> None:
    flock = ef.random_disk(agents=12)
    rim = np.array([[[0.1, 0.2], [0.3, 0.2]]])
    roles = np.r_[2, np.zeros(12, int), 2][None]
    beside = Flock(
        np.concatenate([rim[:, :1], flock.positions, rim[:, 1:]], axis=1),
        np.pad(flock.velocities, ((0, 0), (1, 1), (0, 0))),
        roles,
    )
    for network in ("all", "chain"):
        alone = accelerations(flock, network=network)
        np.testing.assert_allclose(accelerations(beside, network=network)[:, 1:-1], alone, rtol=1e-12)


def flown(flock: Flock, seconds: float, **options: Any) -> tuple[Array, Array]:
    """The pattern error of each flock at the end, and the least distance that agents had in flight."""
    law: Any = ef.load("formation", **options)
    run = ef.simulate(flock, law, duration=seconds, keep_every=None, record=[ef.metrics.minimum_separation])
    end = run.flock()
    return pattern_error(end.positions, assign_places(end, law.pattern, law.spacing)), run.series["minimum_separation"]


@pytest.mark.slow
@pytest.mark.parametrize(("pattern", "agents"), [("vee", 30), ("circle", 30), ("EQ", 100)])
def test_flocks_reach_their_pattern_within_six_seconds(pattern: str, agents: int) -> None:
    error, _ = flown(ef.random_disk(flocks=3, agents=agents), 6.0, pattern=pattern)
    assert (error < 0.05).all()


def test_flocks_in_three_dimensions_reach_their_pattern() -> None:
    error, _ = flown(ef.random_disk(flocks=3, agents=30, dimensions=3), 6.0)
    assert (error < 0.05).all()


def test_flocks_with_noise_reach_their_pattern() -> None:
    error, _ = flown(ef.random_disk(flocks=5, agents=30), 6.0, noise=1.0, pattern="circle")
    assert (error < 0.05).all()


def test_chains_with_a_large_gain_reach_their_pattern() -> None:
    error, _ = flown(ef.random_disk(flocks=3, agents=10), 12.0, network="chain", gain=100.0)
    assert (error < 0.05).all()


def test_it_keeps_the_mean_velocity() -> None:
    flock = ef.random_disk(agents=30)
    answer = accelerations(flock, clamp=None, noise=2.0)
    np.testing.assert_allclose(answer.mean(axis=1), 0.0, atol=1e-12 * np.abs(answer).max())


def shakes(flock: Flock, **options: Any) -> Array:
    """The normal number of each flock, found from what noise adds: a_i + = noise (mean(v) - v_i) xi / sqrt(step)."""
    added = accelerations(flock, clamp=None, **options) - accelerations(flock, clamp=None)
    towards = flock.velocities.mean(axis=1, keepdims=True) - flock.velocities
    numbers = added / towards
    np.testing.assert_allclose(numbers, np.broadcast_to(numbers[:, :1, :1], numbers.shape), rtol=1e-6)
    return np.asarray(numbers[:, 0, 0])


def test_noise_is_one_normal_number_for_each_flock_scaled_by_the_time_step() -> None:
    flock = ef.random_disk(flocks=400, agents=3)
    numbers = shakes(flock, noise=2.0, noise_step=0.04) * np.sqrt(0.04) / 2.0
    assert abs(numbers.mean()) < 0.15
    assert numbers.std() == pytest.approx(1.0, abs=0.1)
    assert len(np.unique(numbers.round(9))) == 400


def test_noise_is_the_same_for_the_same_seed_and_state_and_another_for_another() -> None:
    flock = ef.random_disk(flocks=3, agents=5)
    one = accelerations(flock, noise=1.0)
    assert (one == accelerations(flock, noise=1.0)).all()
    assert (one[2] == accelerations(flock[2], noise=1.0)[0]).all()
    assert (one != accelerations(flock, noise=1.0, seed=1)).any()


LEADERS = [[ef.Role.LEADER] * 2 + [ef.Role.FOLLOWER] * 8]
HALF_FAILED = [[Condition.SILENT, Condition.DRIFTING, Condition.SILENT] + [Condition.WORKING] * 7]


@pytest.mark.parametrize("dimensions", [2, 3])
def test_it_flies_any_flock(dimensions: int) -> None:
    rng = np.random.default_rng(0)
    positions, velocities = rng.normal(size=(2, 1, 10, dimensions))
    starts = [
        Flock(positions[:, :1], velocities[:, :1]),
        Flock(np.zeros_like(positions), velocities),
        Flock(positions, velocities, LEADERS),
        Flock(positions, velocities, conditions=HALF_FAILED),
    ]
    for start in starts:
        run = ef.simulate(start, ef.load("formation"), duration=0.5)
        assert np.isfinite(run.positions).all()


def test_command_line_options() -> None:
    law: Any = ef.load("formation:pattern=EQ:spacing=0.3:network=chain:noise=0.1:seed=3")
    assert law == Formation(pattern="EQ", spacing=0.3, network="chain", noise=0.1, seed=3)
    assert Formation(pattern=np.eye(2)) == Formation(pattern=[[1, 0], [0, 1]])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"pattern": "eq"}, "did you mean 'EQ'"),
        ({"pattern": [[0.0, np.inf]]}, "finite points"),
        ({"network": "ring"}, "network must be one of 'all', 'chain'; got 'ring'"),
        ({"beta": 1.5}, "beta must be at most 1; got 1.5"),
        ({"spacing": 0.0}, "spacing must be a finite number above 0"),
        ({"noise": -1.0}, "noise must be a finite number of at least 0"),
        ({"noise_step": 0.0}, "noise_step must be a finite number above 0"),
        ({"seed": 0.5}, "seed must be a whole number"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_invalid_options_raise(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.load("formation", **options)


def test_wrong_number_of_points_raises() -> None:
    with pytest.raises(InputError, match=r"must have shape \(N, D\) = \(5, 2\); got \(3, 2\)"):
        accelerations(ef.random_disk(agents=5), pattern=np.zeros((3, 2)))
