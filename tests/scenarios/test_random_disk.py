"""RandomDisk flocks meet every condition they promise, or say which one they could not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equiflock._runtime.checks import InputError
from equiflock.flock import Flock
from equiflock.graph.radius_graph import compute_connectivity
from equiflock.scenarios import RandomDisk, random_disk
from equiflock.scenarios.random_disk import ball_radius
from equiflock.simulation.metrics import minimum_separation


def check(flock: Flock, disk: RandomDisk) -> None:
    assert flock.shape == (disk.flocks, disk.agents, disk.dimensions)
    degrees, labels = compute_connectivity(flock, disk.comm_radius)
    assert degrees.min() >= disk.min_degree
    assert (minimum_separation(flock) >= disk.min_separation).all()
    assert (np.square(flock.positions).sum(axis=-1) <= disk.radius**2).all()
    if disk.connected:
        assert labels.max() == 0
    assert np.abs(flock.velocities).max() <= 2 * disk.max_speed


@given(
    st.integers(4, 150),
    st.integers(0, 100),
    st.sampled_from([2, 3]),
    st.sampled_from(["quarter-power", "constant-density"]),
)
def test_every_flock_meets_the_conditions(agents: int, seed: int, dimensions: Any, rule: Any) -> None:
    disk = RandomDisk(2, agents, seed, dimensions=dimensions, radius_rule=rule, min_degree=1)
    check(disk.draw(), disk)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_a_large_flock_meets_the_conditions_at_constant_density(dimensions: Any) -> None:
    disk = RandomDisk(1, 100_000, dimensions=dimensions, radius_rule="constant-density")
    flock = disk.draw()
    check(flock, disk)
    if dimensions == 2:
        assert np.isclose(disk.agents / (np.pi * disk.radius**2), 100 / (np.pi * 100**0.5))


def test_the_defaults_are_the_papers() -> None:
    disk = RandomDisk()
    assert (disk.agents, disk.min_separation, disk.comm_radius, disk.min_degree, disk.max_speed) == (100, 0.1, 1, 2, 3)
    assert disk.radius == 100**0.25


def test_a_ball_has_the_disks_mean_degree() -> None:
    free = {"min_degree": 0, "connected": False, "min_separation": 0.0}
    degrees = [compute_connectivity(random_disk(400, 100, dimensions=D, **free), 1.0)[0].mean() for D in (2, 3)]
    assert abs(degrees[0] / degrees[1] - 1.0) < 0.02
    assert ball_radius(0.4, 1.0) == 0.4  # all agents are neighbours already


@pytest.mark.parametrize("options", [{}, {"dimensions": 3}, {"disk_radius": 3.0}, {"radius_rule": "constant-density"}])
def test_disk_scale_applies_to_every_radius_rule(options: dict[str, Any]) -> None:
    usual, same, small = (RandomDisk(3, 100, **options, disk_scale=scale) for scale in (1.0, 1, 0.7))
    assert small.radius == pytest.approx(0.7 * usual.radius, rel=1e-15)
    assert (same.draw().positions == usual.draw().positions).all()
    far = np.linalg.norm(small.draw().positions, axis=-1).max()
    assert 0.9 * small.radius < far <= small.radius


@pytest.mark.parametrize("options", [{}, {"dimensions": 3}, {"radius_rule": "constant-density"}])
def test_the_disk_grows_with_the_communication_radius(options: dict[str, Any]) -> None:
    usual, wide = RandomDisk(3, 50, **options), RandomDisk(3, 50, comm_radius=4.0, min_separation=0.4, **options)
    assert wide.radius == 4.0 * usual.radius
    start, scaled = usual.draw(), wide.draw()
    np.testing.assert_array_equal(scaled.positions, 4.0 * start.positions)
    np.testing.assert_array_equal(scaled.velocities, start.velocities)


def test_a_disk_of_a_given_size_does_not_grow_with_the_communication_radius() -> None:
    assert RandomDisk(comm_radius=4.0, disk_radius=3.0).radius == 3.0
    sparse = RandomDisk(comm_radius=4.0, radius_rule="constant-density", density=2.0)
    assert sparse.radius == RandomDisk(radius_rule="constant-density", density=2.0).radius


def test_velocities_are_a_uniform_box_with_one_bias_per_flock() -> None:
    flock = random_disk(400, 100, seed=3)
    bias = flock.velocities.mean(axis=1)
    assert np.isclose(bias.var(), 3.0, rtol=0.15)  # the variance of a uniform number in [-3, 3]
    assert np.isclose((flock.velocities - bias[:, None]).var(), 3.0, rtol=0.02)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_velocities_may_be_uniform_in_a_disc_or_ball_with_one_bias_per_flock(dimensions: Any) -> None:
    disk = RandomDisk(400, 100, seed=3, dimensions=dimensions, velocities="disc", max_speed=3.0)
    flock = disk.draw()
    assert (np.linalg.norm(flock.velocities, axis=-1) <= 2 * 3.0).all()
    # The mean square of a uniform vector is D / (D + 2) max_speed^2: 4.5 in the plane.
    bias = flock.velocities.mean(axis=1)
    own = flock.velocities - bias[:, None]
    expected = 9.0 * dimensions / (dimensions + 2)
    assert np.isclose(np.square(own).sum(axis=-1).mean(), expected, rtol=0.02)
    assert np.isclose(np.square(bias).sum(axis=-1).mean(), expected, rtol=0.15)
    # As many vectors as the volume within a radius, and as many in one half of the directions as in the other.
    drawn = disk.draw_velocities(np.random.default_rng(0), 100_000)
    lengths = np.linalg.norm(drawn, axis=1)
    assert lengths.max() <= 3.0 * (1 + 1e-15)
    for share in (0.2, 0.5, 0.9):
        assert np.isclose((lengths <= 3.0 * share).mean(), share**dimensions, atol=0.005)
    assert np.allclose(drawn.mean(axis=0), 0.0, atol=0.03)


@pytest.mark.parametrize("rule", ["quarter-power", "constant-density"])
def test_positions_are_the_same_bits_however_velocities_are_drawn(rule: Any) -> None:
    entries, disc = (random_disk(3, 40, seed=7, radius_rule=rule, velocities=name) for name in ("entries", "disc"))
    assert (entries.positions == disc.positions).all()
    assert (entries.velocities != disc.velocities).all()


def test_velocities_follow_the_papers_text_by_default() -> None:
    flock = random_disk(1, 3, seed=11)
    assert flock.velocities[0].tolist() == [
        [-0.7915102581842488, 3.3227069172278627],
        [4.245091460385937, 1.4330634440257901],
        [3.6572838288621714, -0.8207541315837514],
    ]
    assert (random_disk(1, 3, seed=11, velocities="entries").velocities == flock.velocities).all()


def test_flocks_depend_on_the_seed_but_not_on_their_number() -> None:
    short, long = random_disk(3, 40, seed=7), random_disk(5, 40, seed=7)
    assert (long.positions[:3] == short.positions).all()
    assert (long.velocities[:3] == short.velocities).all()


def test_other_seeds_and_splits_give_other_flocks() -> None:
    first = random_disk(1, 40, seed=7).positions
    assert (random_disk(1, 40, seed=8).positions != first).all()
    assert (random_disk(1, 40, seed=7, split="train").positions != first).all()


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"agents": 300, "min_separation": 1.0}, "no room .* min_separation = 1 .* raise disk_radius"),
        (
            {"agents": 400, "disk_radius": 20.0},
            "fewer than min_degree = 2 neighbours after .* attempts: lower min_degree",
        ),
        ({"agents": 400, "disk_radius": 20.0, "min_degree": 0}, "still has .* components .* set connected to False"),
        ({"agents": 100, "disk_scale": 3.0}, "fewer than min_degree = 2 .*: lower min_degree or disk_scale"),
        ({"disk_scale": 0.0}, "disk_scale must be a finite number above 0; got 0.0"),
        ({"agents": 0}, "agents must be a whole number of at least 1; got 0"),
        ({"agents": 2}, "agents must be more than min_degree = 2, .* got 2: lower min_degree or take more agents"),
        ({"connected": "no"}, "connected must be True or False; got 'no'"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"dimensions": 4}, "dimensions must be 2 or 3; got 4"),
        ({"comm_radius": 0.0}, "comm_radius must be a finite number above 0"),
        ({"radius_rule": "constant"}, "did you mean 'constant-density'"),
        ({"velocities": "disk"}, "velocities must be one of .*; got 'disk'; did you mean 'disc'"),
        ({"density": 1.0}, "density goes with the constant-density rule"),
        ({"density": 1.0, "radius_rule": "constant-density", "disk_radius": 3.0}, "not with disk_radius"),
        ({"agents": 10**8}, "no room .* or use the constant-density rule"),
        ({"agents": 10**10}, "flocks x agents must be at most 100,000,000"),
        ({"agents": 10**400}, "agents must be at most 9,223,372,036,854,775,807; got 1000.*000[.]{3}$"),
        ({"disk_radius": 10**400}, "disk_radius must be a finite number above 0"),
        ({"max_speed": 1e308}, "max_speed must be at most 5e"),
        ({"max_speed": float("nan")}, "max_speed must be a finite number"),
        ({"disk_radius": 1e12}, "disk_radius must be from 1e-9 to 1e9 comm_radius"),
        ({"disk_radius": 1e-200, "min_separation": 0.0}, "disk_radius must be from 1e-9 to 1e9 comm_radius"),
        ({"density": 1e308, "radius_rule": "constant-density", "dimensions": 3}, "disk_radius must be from 1e-9"),
        ({"min_separation": 1e261}, "min_separation must be at most 5e"),
        ({"comm_radius": 1e160, "disk_radius": 1.0}, "comm_radius must be from 1e-12 to 1e"),
    ],
)
def test_conditions_that_cannot_be_met_raise_errors(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        random_disk(**options)


def test_one_agent_needs_no_neighbours() -> None:
    assert random_disk(1, 1, min_degree=0).shape == (1, 1, 2)
