"""A recipe is the paper's unless it is told otherwise, and can be told again from its own words."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

import pytest

import equiflock as ef
from equiflock.types import InputError


def test_the_defaults_are_the_papers_recipe() -> None:
    recipe = ef.DAgger()
    assert (recipe.epochs, recipe.capacity, recipe.updates, recipe.batch) == (400, 10_000, 200, 20)
    assert (recipe.learning_rate, recipe.time_step, recipe.duration, recipe.hops) == (5e-5, 1e-2, 2.0, 3)
    assert (recipe.validation_flocks, recipe.validate_every, recipe.checkpoint_every) == (50, 40, 10)
    assert recipe.steps == 200


def test_the_share_of_the_expert_falls_to_one_half() -> None:
    recipe = ef.DAgger()
    assert recipe.beta(0) == 0.993
    assert recipe.beta(1) == pytest.approx(0.993 * 0.993)
    assert recipe.beta(97) > 0.5
    assert recipe.beta(98) == recipe.beta(399) == 0.5


def test_the_command_names_what_is_not_the_default() -> None:
    assert ef.DAgger().command == "equiflock train --controller etdagnn --seed 0"
    words = shlex.split(ef.DAgger(controller="tdagnn", seed=3, learning_rate=1e-3).command)
    assert words[2:] == ["--controller", "tdagnn", "--seed", "3", "--learning-rate", "0.001"]


def test_a_recipe_comes_back_from_its_settings() -> None:
    recipe = ef.DAgger(controller="tdagnn", clamp=10)
    assert ef.DAgger.from_settings(asdict(recipe), "config.json") == recipe


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"hop": 3}, "the recipe in config.json has missing or unknown fields: hop"),
        ({"epochs": "many"}, r"epochs in config.json must be a whole number below 2\^63; got 'many'"),
        ({"epochs": True}, r"epochs in config.json must be a whole number below 2\^63; got True"),
        ({"batch": -1}, "batch must be a whole number of at least 1; got -1"),
    ],
)
def test_settings_that_are_no_recipe_are_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.DAgger.from_settings(asdict(ef.DAgger()) | change, "config.json")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
        ({"expert_share": 1.5}, "expert_share must be from 0 to 1; got 1.5"),
        ({"duration": 0.001}, "duration / time_step must be a whole number of at least 1; got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number above 0"),
    ],
)
def test_recipes_that_make_no_sense_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.DAgger(**options)
