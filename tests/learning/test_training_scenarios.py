"""Scenarios of a training: their shares of the flights, and options that are ranges."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock._runtime.randomness import make_rng
from equiflock.cli.train import Train
from equiflock.learning.dagger import Trainer
from equiflock.learning.training import train
from equiflock.learning.training_run import TrainingRun
from equiflock.learning.training_scenarios import split_by_shares
from equiflock.learning.validation import Validator
from tests.learning.small import small
from tests.learning.test_training_run import Stop, assert_same_results, stop_after

MIXED = "0.6*flocking+0.4*leaders:leaders=1-3"
EVERYTHING: dict[str, Any] = {"scenario": MIXED, "agents": "15-25", "max_speed": "1-3", "disk_scale": "0.6-1.1"}


def names(trainer: Trainer, epochs: int) -> list[str]:
    """The scenario of each epoch's flight."""
    found = []
    for trainer.epoch in range(epochs):
        found.append(trainer.recipe.training_scenarios[trainer.scenario_index].name)
    return found


# Shares.


def test_scenarios_have_the_shares_that_they_are_given_whatever_their_sum() -> None:
    for text in (MIXED, "3*flocking + 2*leaders:leaders=1-3", " 6e-1 * flocking+.4*leaders:leaders=1-3"):
        one, two = ef.DAgger(scenario=text).training_scenarios
        assert (one.name, two.name) == ("flocking", "leaders")
        assert [one.share, two.share] == pytest.approx([0.6, 0.4])
    (alone,) = ef.DAgger(scenario="leaders:leaders=3").training_scenarios
    assert (alone.name, alone.share, alone.own_options) == ("leaders", 1.0, {"leaders": 3})
    one, two = ef.DAgger(scenario="1*flocking:disk_radius=3e+0+1*leaders").training_scenarios
    assert (one.own_options, two.name) == ({"disk_radius": 3.0}, "leaders")


def test_each_flight_draws_its_scenario_by_the_shares_from_the_seed_and_the_epoch() -> None:
    one, again, other = (names(Trainer(small(scenario=MIXED, seed=seed)), 400) for seed in (0, 0, 1))
    assert one == again != other
    assert Counter(one)["flocking"] == pytest.approx(240, abs=40)
    assert Counter(other)["flocking"] == pytest.approx(240, abs=40)


def test_a_flight_is_that_of_its_scenario_and_its_flock() -> None:
    trainer = Trainer(small(scenario="1*flocking+1*leaders:leaders=3", expert_share=1.0, least_expert_share=1.0))
    scenario_names = names(trainer, 10)
    for trainer.epoch in (scenario_names.index("flocking"), scenario_names.index("leaders")):
        starts = trainer.starts[trainer.scenario_index]
        start = starts[int(make_rng(0, "collect", trainer.epoch).integers(len(starts)))].flock
        trainer.replay.total_added = 0
        trainer.collect()
        followers = np.flatnonzero(start.roles[0] == ef.Role.FOLLOWER)
        wanted = next(ef.flight(start, trainer.expert)).accelerations[0].astype(np.float32)
        learned = trainer.replay.tuples[1][0].T
        assert len(learned) == 17  # as many as follow where three lead
        # Each of those that were learned from is one of the followers, and none is there twice.
        places = [int(np.flatnonzero((wanted == each).all(axis=1))[0]) for each in learned]
        assert len(set(places)) == 17
        assert set(places) <= set(followers.tolist())


def test_each_scenario_has_the_training_set_that_it_has_alone() -> None:
    both = Trainer(small(scenario="1*flocking+1*leaders")).starts
    for found, scenario in zip(both, ("flocking", "leaders"), strict=True):
        (alone,) = Trainer(small(scenario=scenario)).starts
        for one, two in zip(found, alone, strict=True):
            np.testing.assert_array_equal(one.flock.velocities, two.flock.velocities)
            np.testing.assert_array_equal(one.flock.roles, two.flock.roles)


def test_validation_flies_each_scenario_by_its_share() -> None:
    recipe = small(scenario="0.6*flocking+0.4*leaders", validation_flocks=5)
    validator = Validator(recipe)
    assert [len(start.flock) for start in validator.starts] == [3, 2]
    found = validator(ef.load("tanner"))
    alone = [
        Validator(small(scenario=name, validation_flocks=count))(ef.load("tanner"))
        for name, count in (("flocking", 3), ("leaders", 2))
    ]
    np.testing.assert_array_equal(found.ivv, np.concatenate([each.ivv for each in alone]))
    np.testing.assert_array_equal(found.iman, np.concatenate([each.iman for each in alone]))


def test_split_by_shares() -> None:
    assert split_by_shares(50, [0.6, 0.4]) == [30, 20]
    assert split_by_shares(3, [0.6, 0.4]) == [2, 1]
    assert split_by_shares(1, [0.2, 0.5, 0.3]) == [0, 1, 0]
    assert split_by_shares(4, [1 / 3, 1 / 3, 1 / 3]) == [2, 1, 1]


@pytest.mark.parametrize(
    ("scenario", "text"),
    [
        ("flocking+leaders", r"several with their shares such as 0.6\*flocking\+0.4\*leaders.*; got 'flocking\+lead"),
        ("0.6*flocking+leaders", "several with their shares such as"),
        ("0.6*+0.4*leaders", "several with their shares such as"),
        ("0*flocking+1*leaders", "the share of a scenario must be a finite number above 0; got 0.0"),
        ("1e999*flocking+1*leaders", "the share of a scenario must be a finite number above 0; got inf"),
        ("0.6*flokking+0.4*leaders", "scenario must be one of .* did you mean 'flocking'"),
        ("0.6*flocking:sides=3+0.4*leaders", "scenario 'flocking' has no option 'sides'"),
        ("leaders:leaders=3-1", "leaders must be a range from low to high, 1-3; got '3-1'"),
        ("leaders:leaders=1-1.5", "leaders must be a whole number, or a range of them .*; got '1-1.5'"),
        ("leaders:leaders=0-3", "leaders must be a whole number of at least 1; got 0"),
        ("leaders:leaders=many", "leaders must be a whole number of at least 1; got 'many'"),
        ("leaders:leaders=1-3:seed=5", "a scenario with ranges uses the recipe's seed: omit it from 'leaders'"),
    ],
)
def test_invalid_scenarios_are_refused_in_one_line(scenario: str, text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.DAgger(scenario=scenario)


# Ranges.


def test_every_flock_draws_its_numbers_from_the_whole_range() -> None:
    recipe = ef.DAgger(scenario="leaders:leaders=1-3", agents="20-40", max_speed="1-3", disk_scale="0.6-1")
    starts = recipe.training_scenarios[0].draw(150, 0, "train")
    disks: list[Any] = [start.scenario.disk for start in starts]  # type: ignore[attr-defined]
    assert {start.scenario.leaders for start in starts} == {1, 2, 3}  # type: ignore[attr-defined]
    assert {disk.agents for disk in disks} == set(range(20, 41))
    for name, low, high in (("max_speed", 1.0, 3.0), ("disk_scale", 0.6, 1.0)):
        found = [getattr(disk, name) for disk in disks]
        assert low <= min(found) < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < max(found) < high
    for start, disk in zip(starts, disks, strict=True):
        assert start.flock.shape == (1, disk.agents, 2)
        assert start.followers == disk.agents - start.scenario.leaders  # type: ignore[attr-defined]
        radius = disk.disk_scale * disk.agents**0.25
        assert np.linalg.norm(start.flock.positions, axis=-1).max() <= radius
        assert np.abs(start.flock.velocities).max() <= 2 * disk.max_speed


def test_flocks_with_the_same_numbers_are_still_other_flocks() -> None:
    starts = ef.DAgger(agents=20, disk_scale="0.9-0.9001").training_scenarios[0].draw(5, 0, "train")
    places = [start.flock.positions / start.flock.positions.std() for start in starts]
    assert all(np.abs(one - two).max() > 0.1 for one, two in pairwise(places))


def test_flocks_are_the_same_for_the_same_seed_however_many_there_are_and_one_range_does_not_change_another() -> None:
    def drawn(flocks: int, seed: int, **options: Any) -> list[Any]:
        starts = ef.DAgger(agents=20, **options).training_scenarios[0].draw(flocks, seed, "train")
        return [start.scenario.disk for start in starts]  # type: ignore[attr-defined]

    usual = drawn(5, 0, disk_scale="0.6-1")
    assert drawn(9, 0, disk_scale="0.6-1")[:5] == usual
    assert not {disk.disk_scale for disk in usual} & {disk.disk_scale for disk in drawn(5, 1, disk_scale="0.6-1")}
    both = drawn(5, 0, disk_scale="0.6-1", max_speed="1-2")
    assert [disk.disk_scale for disk in both] == [disk.disk_scale for disk in usual]


def test_the_options_of_a_scenario_go_before_the_recipes_and_its_numbers_may_be_ranges_too() -> None:
    recipe = ef.DAgger(scenario="1*flocking:agents=30+1*leaders:agents=10-12", agents="40-50", disk_scale=0.8)
    one, two = recipe.training_scenarios
    assert not one.ranges
    assert str(two.ranges["agents"]) == "10-12"
    assert {start.flock.shape[1] for start in one.draw(3, 0, "train")} == {30}
    assert {start.flock.shape[1] for start in two.draw(20, 0, "train")} == {10, 11, 12}


@pytest.mark.usefixtures("own_registry")
def test_a_scenario_without_a_disk_takes_what_it_has() -> None:
    @ef.scenario("pair")
    @dataclass(frozen=True)
    class Pair:
        flocks: int = 1
        seed: int = 0
        gap: float = 0.5

        def draw(self, stop: Any = None) -> ef.Flock:
            velocities = np.random.default_rng(self.seed).normal(size=(self.flocks, 2, 2))
            return ef.Flock(np.tile([[0.0, 0.0], [self.gap, 0.0]], (self.flocks, 1, 1)), velocities)

    assert not ef.DAgger(scenario="pair", agents="20-30").training_scenarios[0].ranges
    starts = ef.DAgger(scenario="pair:gap=0.2-0.8").training_scenarios[0].draw(20, 0, "train")
    gaps = {float(start.flock.positions[0, 1, 0]) for start in starts}
    assert len(gaps) == 20
    assert 0.2 <= min(gaps) < 0.4 < 0.6 < max(gaps) <= 0.8
    assert len({start.flock.velocities.tobytes() for start in starts}) == 20


def test_validation_takes_the_middle_of_each_range() -> None:
    validator = Validator(small(**EVERYTHING))
    one, two = validator.starts
    assert one.flock.shape == (2, 20, 2)
    disk: Any = one.scenario.disk  # type: ignore[attr-defined]
    assert (disk.max_speed, disk.disk_scale) == (2.0, pytest.approx(0.85))
    assert two.scenario.leaders == 2  # type: ignore[attr-defined]
    again = Validator(small(**EVERYTHING, seed=5)).starts[0].flock
    np.testing.assert_array_equal(again.positions, one.flock.positions)


def test_tuples_hold_as_many_agents_as_the_smallest_flock_has_followers() -> None:
    trainer = Trainer(small(**EVERYTHING, flocks=30))
    fewest = min(start.followers for starts in trainer.starts for start in starts)
    assert trainer.replay.agents == fewest < 17
    trainer.run_epoch()
    assert trainer.replay.tuples[1].shape == (100, 2, fewest)
    assert np.abs(trainer.replay.tuples[1][: len(trainer.replay)]).sum(axis=1).all()


def test_agents_are_drawn_anew_at_each_step_and_evenly() -> None:
    trainer = Trainer(small(agents="10-20", flocks=30))
    N, A, T = 40, trainer.replay.agents, 500
    observations = np.tile(np.arange(N, dtype=np.float32)[:, None, None, None], (T, 1, 3, 3, 2))
    targets = np.tile(np.arange(N, dtype=np.float32)[:, None], (T, 1, 2))
    known, wanted = trainer.sample_agents(observations, targets)
    np.testing.assert_array_equal(known[:, :, 0, 0], wanted)  # the answers are those of the agents that observed
    chosen = wanted[..., 0].astype(int)
    assert chosen.shape == (T, A)
    assert all(len(set(row)) == A for row in chosen.tolist())
    counts = np.bincount(chosen.ravel(), minlength=N)
    np.testing.assert_allclose(counts, T * A / N, rtol=0.4)
    trainer.epoch = 1
    assert (trainer.sample_agents(observations, targets)[1] != wanted).any()
    trainer.epoch = 0
    np.testing.assert_array_equal(trainer.sample_agents(observations, targets)[1], wanted)


@pytest.mark.usefixtures("short_searches")
@pytest.mark.slow
def test_a_density_at_which_no_flock_is_connected_raises_input_error() -> None:
    with pytest.raises(InputError, match=r"in a disk of radius 4.* attempts: lower (min_degree or )?disk_scale"):
        Trainer(small(disk_scale="2-2.1"))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"agents": "2-20"}, "agents must be more than min_degree = 2"),
        ({"agents": "20-10"}, "agents must be a range from low to high, 10-20; got '20-10'"),
        ({"agents": "10-20.5"}, "agents must be a whole number, or a range of them"),
        ({"agents": 20.0}, r"agents must be a whole number below 2\^63; got 20.0"),
        ({"disk_scale": "0-1"}, "disk_scale must be a finite number above 0; got 0.0"),
        ({"disk_scale": "wide"}, "disk_scale must be a number, or a range such as 0-0.5; got 'wide'"),
        ({"disk_scale": None}, "disk_scale must be a finite number; got None"),
        ({"max_speed": "1-1e300"}, "max_speed must be at most"),
    ],
)
def test_invalid_ranges_are_refused_in_one_line(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.DAgger(**options)


# Trainings.


def test_a_training_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    whole, two = (TrainingRun.create(tmp_path / name, small(**EVERYTHING, capacity=50)) for name in ("one", "two"))
    whole.train()
    with pytest.raises(Stop):
        two.train(stop_after(5))
    notices: list[str] = []
    TrainingRun(two.folder).train(on_notice=notices.append)
    assert not notices
    assert_same_results(two.folder, whole.folder)
    assert TrainingRun(two.folder).recipe == whole.recipe


def test_a_range_of_one_number_is_the_number_to_the_bit() -> None:
    usual, same = small(epochs=2), small(epochs=2, agents="20-20", max_speed="3", disk_scale="1.0", scenario="flocking")
    assert usual == same
    assert usual.settings == same.settings
    one, two = (train(recipe) for recipe in (usual, small(epochs=2, scenario="5*flocking")))
    assert all((a == b).all() for a, b in zip(one.parameters(), two.parameters(), strict=True))


@pytest.mark.parametrize("change", [EVERYTHING, {"agents": " 50 - 150"}, {"scenario": "1*flocking + 2*leaders"}])
def test_the_command_and_the_settings_are_understood_as_the_recipe(change: dict[str, Any]) -> None:
    recipe = ef.DAgger(**change)
    arguments = shlex.split(recipe.command)[2:]
    assert tyro.cli(ef.DAgger, args=arguments) == recipe
    assert tyro.cli(Train, args=arguments)._recipe == recipe
    assert ef.DAgger.from_settings(json.loads(json.dumps(recipe.settings)), "config.json") == recipe
