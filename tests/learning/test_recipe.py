"""Defaults, checks and serialization of recipes."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pytest
import tyro

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.learning.dagger import Trainer
from equiflock.scenarios import RandomDisk
from tests.learning.small import small


def test_the_defaults_are_the_papers_recipe() -> None:
    recipe = ef.DAgger()
    assert (recipe.epochs, recipe.capacity, recipe.updates, recipe.batch) == (400, 10_000, 200, 20)
    assert (recipe.learning_rate, recipe.time_step, recipe.duration, recipe.hops) == (5e-5, 1e-2, 2.0, 3)
    assert (recipe.validation_flocks, recipe.validate_every, recipe.checkpoint_every) == (50, 40, 10)


def test_the_share_of_the_expert_falls_to_one_half() -> None:
    recipe = ef.DAgger()
    assert recipe.compute_expert_share(0) == 0.993
    assert recipe.compute_expert_share(1) == pytest.approx(0.993 * 0.993)
    assert recipe.compute_expert_share(97) > 0.5
    assert recipe.compute_expert_share(98) == recipe.compute_expert_share(399) == 0.5


def test_the_command_names_what_is_not_the_default() -> None:
    assert ef.DAgger().command == "equiflock train --controller etdagnn --seed 0"
    words = shlex.split(ef.DAgger(controller="tdagnn", seed=3, learning_rate=1e-3).command)
    assert words[2:] == ["--controller", "tdagnn", "--seed", "3", "--learning-rate", "0.001"]


def test_a_recipe_comes_back_from_its_settings() -> None:
    recipe = ef.DAgger(controller="tdagnn", expert="tanner:clamp=10", scenario="leaders")
    assert ef.DAgger.from_settings(asdict(recipe), "config.json") == recipe


DISK: dict[str, Any] = {
    "agents": 30,
    "comm_radius": 1.5,
    "dimensions": 3,
    "radius_rule": "constant-density",
    "disk_radius": 2.0,
    "density": 4.0,
    "min_separation": 0.2,
    "min_degree": 1,
    "connected": False,
    "max_speed": 1.0,
    "velocities": "disc",
    "disk_scale": 0.8,
}
"""Another value than the default of every field that says where flocks begin."""


def test_every_option_of_random_disk_is_one_of_the_recipe_with_the_same_default() -> None:
    others = {"flocks", "seed", "split"}  # these the training sets itself
    defaults = {field.name: field.default for field in fields(RandomDisk) if field.name not in others}
    assert defaults.keys() == DISK.keys()
    ours = {field.name: field.default for field in fields(ef.DAgger)}
    assert {name: ours[name] for name in defaults} == defaults
    assert ours["flocks"] == 400  # the paper's training set, where RandomDisk draws one


@pytest.mark.parametrize("name", sorted(DISK))
def test_every_such_option_reaches_training_and_validation_flocks(name: str) -> None:
    more = {"radius_rule": "constant-density"} if name == "density" else {}
    change = {name: DISK[name], **more}
    trainer = Trainer(small(flocks=2, validation_flocks=2, **change))
    (starts,), (judged,) = trainer.starts, trainer.validator.starts
    for split, found in (("train", [start.flock for start in starts]), ("validation", [judged.flock])):
        expected = ef.random_disk(2, **{"agents": 20, **change}, split=split)
        for part in ("positions", "velocities"):
            np.testing.assert_array_equal(
                np.concatenate([getattr(flock, part) for flock in found]), getattr(expected, part)
            )


@pytest.mark.parametrize("controller", ["tdagnn", "etdagnn"])
def test_a_training_in_space_gives_a_network_that_flies_there(controller: str) -> None:
    student: Any = ef.train(small(controller=controller, dimensions=3, epochs=2))
    assert ef.simulate(ef.random_disk(1, 20, dimensions=3), student, duration=0.05).positions.shape[-1] == 3


@pytest.mark.parametrize(
    "change",
    [{}, DISK | {"density": None}, {"controller": "my own"}, {"density": 3.0, "radius_rule": "constant-density"}],
)
def test_the_command_is_understood_as_the_recipe(change: dict[str, Any]) -> None:
    recipe = ef.DAgger(**change)
    words = shlex.split(recipe.command)
    assert words[:2] == ["equiflock", "train"]
    assert tyro.cli(ef.DAgger, args=words[2:]) == recipe
    assert ef.DAgger.from_settings(json.loads(json.dumps(asdict(recipe))), "config.json") == recipe


def test_numbers_of_numpy_become_plain_ones() -> None:
    recipe = ef.DAgger(epochs=np.int64(3), learning_rate=np.float32(2.0))
    assert json.loads(json.dumps(asdict(recipe)))["epochs"] == 3


@pytest.mark.parametrize("value", ["a", None, [1], 1j, 10**400, float("nan"), -1, 2.5, True, {}])
def test_any_field_value_is_accepted_or_refused_in_one_line(value: Any) -> None:
    for name in (field.name for field in fields(ef.DAgger)):
        try:
            ef.DAgger(**{name: value})
        except InputError as error:
            assert "\n" not in str(error), name
            assert name in str(error).replace("time step", "time_step") or name == "max_speed", name
        except Exception as error:
            error.add_note(f"the field was {name}")
            raise


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"hop": 3}, "the recipe in config.json has unknown fields: hop"),
        ({"epochs": "many"}, r"the recipe in config.json: epochs must be a whole number below 2\^63; got 'many'"),
        ({"epochs": True}, r"the recipe in config.json: epochs must be a whole number below 2\^63; got True"),
        ({"batch": -1}, "batch must be a whole number of at least 1; got -1"),
    ],
)
def test_invalid_stored_recipes_are_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.DAgger.from_settings(asdict(ef.DAgger()) | change, "config.json")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
        ({"expert_share": 1.5}, "expert_share must be from 0 to 1; got 1.5"),
        ({"duration": 0.001}, r"duration must be at least one time step \(0.01 s\); got 0.001"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number above 0"),
        ({"expert_share": "a"}, "expert_share must be a finite number; got 'a'"),
        ({"controller": 5}, "controller must be a name; got 5"),
        ({"connected": "yes"}, "connected must be True or False; got 'yes'"),
        ({"dimensions": 2.0}, r"dimensions must be a whole number below 2\^63; got 2.0"),
        ({"seed": 10**400}, r"seed must be a whole number below 2\^63; got 1000"),
        ({"learning_rate": 10**400}, "learning_rate must be a finite number; got 1000"),
        ({"agents": 2}, "agents must be more than min_degree = 2, .*: lower min_degree or take more agents"),
        ({"velocities": "discs"}, "velocities must be one of 'entries', 'disc'; got 'discs'"),
        ({"velocities": 5}, "velocities must be the name of a rule; got 5"),
        ({"density": 3.0}, "density goes with the constant-density rule only"),
    ],
)
def test_invalid_recipes_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.DAgger(**options)


def test_each_flight_draws_its_time_step_from_a_range() -> None:
    recipe = ef.DAgger(time_step="0.002-0.05", duration=2.0)
    drawn = [recipe.draw_time_step(epoch) for epoch in range(400)]
    assert drawn == [recipe.draw_time_step(epoch) for epoch in range(400)]
    assert 0.002 <= min(drawn) < 0.003 and 0.04 < max(drawn) <= 0.05
    # Log-uniform: half of them are below the geometric mean, the time step of validations.
    assert recipe.middle_time_step == pytest.approx(0.01)
    assert 0.4 < np.mean(np.array(drawn) < 0.01) < 0.6
    assert recipe.longest_time_step == 0.05
    assert ef.DAgger(seed=1, time_step="0.002-0.05").draw_time_step(0) != drawn[0]


def test_a_recipe_with_one_time_step_flies_with_it() -> None:
    recipe = ef.DAgger(time_step=0.02)
    assert recipe.draw_time_step(3) == recipe.middle_time_step == recipe.longest_time_step == 0.02


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"time_step": 0.0}, "time_step must be"),
        ({"time_step": "0-0.05"}, "time_step must be"),
        ({"time_step": "0.05-0.002"}, "time_step must be a range from low to high, 0.002-0.05; got '0.05-0.002'"),
        ({"time_step": "0.01-3"}, r"duration must be at least one time step \(3 s\); got 2"),
        ({"time_step": "fast"}, "time_step must be a number, or a range"),
        ({"gain_margin": 0.0}, "gain_margin must be"),
    ],
)
def test_wrong_time_steps_raise_one_line(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ef.InputError, match=text):
        ef.DAgger(**settings)
