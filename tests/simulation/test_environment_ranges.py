"""Radio and body of training flights: drawn per epoch, and the same if a flight is repeated."""

from __future__ import annotations

import json
import shlex
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock._runtime.randomness import make_rng
from equiflock.cli.train import Train
from equiflock.learning import dagger, validation
from equiflock.learning.dagger import Trainer
from equiflock.learning.training import train
from equiflock.learning.training_run import TrainingRun
from equiflock.learning.validation import Validator
from equiflock.simulation.environment import RADIO_OPTIONS, Environment, map_body_options
from equiflock.simulation.environment_ranges import RANGE_DISTRIBUTIONS
from tests.learning.small import small
from tests.learning.test_training_run import Stop, assert_same_results, stop_after

HARD: dict[str, Any] = {
    "packet_loss": "0-0.5",
    "delay": "0-2",
    "noise": 0.01,
    "max_acceleration": "3-100",
    "lag": "0-0.1",
}
ALL: dict[str, Any] = {
    "packet_loss": "0.1-0.5",
    "burst": "2-20",
    "delay": "1-3",
    "jitter": "1-2",
    "noise": "0.01-0.05",
    "quantization": "12-20",
    "send_interval": "2-3",
    "last_known": "1-4",
    "max_acceleration": "3-100",
    "top_speed": "2-20",
    "drag": "0.1-0.5",
    "lag": "0.01-0.1",
    "gust": "0.5-3",
}
"""A range for every setting, without its ideal value."""


def test_every_number_of_radio_and_body_is_a_setting_of_the_recipe_with_the_same_default() -> None:
    radio = {field.name: field.default for field in fields(ef.Radio)}
    body = {field.name: field.default for field in fields(ef.DoubleIntegrator)}
    body["top_speed"] = body.pop("max_speed")  # max_speed is that of the start's velocities
    expected = {name: default for name, default in (radio | body).items() if name != "seed"}
    assert RANGE_DISTRIBUTIONS.keys() == expected.keys() == ALL.keys()
    ours = {field.name: field.default for field in fields(ef.DAgger)}
    assert {name: ours[name] for name in expected} == expected


def test_distributions_of_the_settings() -> None:
    spreads = {
        distribution: {name for name in RANGE_DISTRIBUTIONS if RANGE_DISTRIBUTIONS[name] == distribution}
        for distribution in ("uniform_integer", "log_uniform")
    }
    assert spreads["uniform_integer"] == {"delay", "jitter", "quantization", "send_interval", "last_known"}
    assert spreads["log_uniform"] == {"burst", "max_acceleration", "top_speed"}


def environments(recipe: ef.DAgger, count: int) -> list[Environment]:
    return [recipe.environment_ranges.draw(recipe.seed, epoch) for epoch in range(count)]


@pytest.mark.parametrize("name", sorted(ALL))
def test_each_flight_draws_every_setting_from_its_whole_range(name: str) -> None:
    recipe = ef.DAgger(**({"packet_loss": 0.1} if name == "burst" else {}), **{name: ALL[name]})
    drawn = environments(recipe, 300)
    if name in RADIO_OPTIONS:
        found = [getattr(environment.radio, name) for environment in drawn]
    else:
        found = [getattr(environment.body, map_body_options(ef.DoubleIntegrator)[name]) for environment in drawn]
    low, high = map(float, ALL[name].split("-"))
    near = 0.0 if RANGE_DISTRIBUTIONS[name] == "uniform_integer" else 0.05 * (high - low)
    assert low <= min(found) <= low + near
    assert high - near <= max(found) <= high


def test_a_number_is_the_same_in_all_flights_but_their_seeds_are_not() -> None:
    found = environments(ef.DAgger(packet_loss=0.2, delay=1, max_acceleration=5.0, gust=1.0), 50)
    radios = [environment.radio for environment in found]
    bodies: list[Any] = [environment.body for environment in found]
    assert {(radio.packet_loss, radio.delay, radio.noise) for radio in radios} == {(0.2, 1, 0.0)}
    assert {(body.max_acceleration, body.gust, body.lag) for body in bodies} == {(5.0, 1.0, 0.0)}
    assert len({part.seed for part in (*radios, *bodies)}) == 100


def test_trainings_with_other_seeds_draw_other_environments_and_the_same_seed_the_same() -> None:
    one, again, other = (environments(ef.DAgger(seed=seed, **HARD), 20) for seed in (0, 0, 1))
    assert one == again
    assert not set(map(repr, one)) & set(map(repr, other))


def test_one_setting_does_not_change_the_draws_of_another() -> None:
    one, other = (
        environments(ef.DAgger(packet_loss="0-0.5"), 20),
        environments(ef.DAgger(packet_loss="0-0.5", delay="1-2", lag="0-1"), 20),
    )
    assert [each.radio.packet_loss for each in one] == [each.radio.packet_loss for each in other]


def test_an_ideal_radio_or_body_draws_no_seed() -> None:
    assert set(environments(ef.DAgger(), 3)) == {Environment()}
    assert ef.DAgger().environment_ranges.make_middle() == Environment()
    assert ef.DAgger(burst=5.0).environment_ranges.make_middle().radio.is_ideal  # bursts of no losses
    assert ef.DAgger(lag=0.1).environment_ranges.make_middle().radio == ef.Radio()
    assert ef.DAgger(packet_loss=0.1).environment_ranges.make_middle().body == ef.DoubleIntegrator()


class EnvironmentRecorder:
    """Records the environments of flights, and runs them in the default one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        self.environments: list[Environment] = []
        self._fly = getattr(module, name)
        monkeypatch.setattr(module, name, self)

    def __call__(self, *args: Any, environment: Environment, **options: Any) -> Any:
        self.environments.append(environment)
        return self._fly(*args, **options)


def test_each_epoch_flies_its_environment_and_one_that_is_interrupted_flies_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(epochs=6, **HARD)
    recorder = EnvironmentRecorder(monkeypatch, dagger, "flight")
    TrainingRun.create(tmp_path / "whole", recipe).train()
    assert recorder.environments == environments(recipe, 6)
    recorder.environments.clear()
    with pytest.raises(Stop):
        TrainingRun.create(tmp_path / "two", recipe).train(stop_after(5))
    assert recorder.environments == environments(recipe, 5)
    # From the checkpoint of epoch 4: the replay holds the flights of all four, which are flown again.
    recorder.environments.clear()
    TrainingRun(tmp_path / "two").train()
    assert recorder.environments == environments(recipe, 6)


def test_a_training_with_ranges_that_is_interrupted_or_prolonged_ends_with_the_same_bits(tmp_path: Path) -> None:
    recipe = small(epochs=6, **HARD, gust=0.5)
    whole = TrainingRun.create(tmp_path / "whole", recipe)
    whole.train()
    two = TrainingRun.create(tmp_path / "two", small(epochs=4, **HARD, gust=0.5))
    with pytest.raises(Stop):
        two.train(stop_after(3))
    TrainingRun(two.folder).train()
    two = TrainingRun(two.folder)
    two.extend_epochs(6)
    two.train()
    assert_same_results(two.folder, whole.folder)
    assert TrainingRun(whole.folder).recipe == recipe
    assert TrainingRun(whole.folder).is_finished


def test_the_expert_has_an_ideal_radio_in_training_and_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(epochs=1, packet_loss=1.0, max_acceleration=5.0)
    trainer = Trainer(recipe)
    # Some steps into the flight too: the targets are those of an expert with an ideal radio.
    (starts,) = trainer.starts
    start = starts[int(make_rng(0, "collect", 0).integers(len(starts)))].flock
    loop = ef.flight(start, trainer.expert, body=trainer.environment.body)  # beta is 0.993, so the expert flies these
    expected = [moment.accelerations[0].T.astype(np.float32) for moment in islice(loop, 5)]
    trainer.run_epoch()
    np.testing.assert_array_equal(trainer.replay.tuples[1][:5], expected)
    recorder = EnvironmentRecorder(monkeypatch, validation, "simulate")
    TrainingRun.create(tmp_path / "run", recipe).train()
    expert, student = recorder.environments
    assert (expert.radio, expert.body) == (ef.Radio(), student.body)
    assert student.radio.packet_loss == 1.0


def test_validation_takes_numbers_as_they_are_and_the_middle_of_ranges_with_one_seed_for_all() -> None:
    one, other = (Validator(small(seed=seed, **HARD)).environment for seed in (0, 7))
    assert one == other
    assert (one.radio.packet_loss, one.radio.delay, one.radio.noise) == (0.25, 1, 0.01)
    assert isinstance(one.body, ef.DoubleIntegrator)
    assert one.body.max_acceleration == pytest.approx(300**0.5)
    assert one.body.lag == pytest.approx(0.05)
    assert Validator(small(delay="0-3")).environment.radio == ef.Radio(delay=1, seed=one.radio.seed)


def test_explicit_defaults_change_no_bit_of_a_training_and_no_word_of_its_recipe() -> None:
    defaults = {field.name: field.default for field in fields(ef.DAgger)}
    perfect = {name: defaults[name] for name in RANGE_DISTRIBUTIONS}
    usual, explicit = small(epochs=2), small(epochs=2, **{**perfect, "packet_loss": "0", "delay": "0-0"})
    assert usual == explicit
    assert repr(usual) == repr(explicit)
    assert usual.command == explicit.command
    one, two = (train(recipe) for recipe in (usual, explicit))
    assert all((a == b).all() for a, b in zip(one.parameters(), two.parameters(), strict=True))


@pytest.mark.parametrize(
    "change",
    [
        {"packet_loss": "0-0.5"},
        {"packet_loss": 0.2, "delay": 1},
        {"noise": "1e-5-1e-3"},
        {"burst": 3.5, "packet_loss": 0.1},
        HARD,
        ALL,
    ],
)
def test_the_command_and_the_settings_of_a_recipe_are_understood_as_the_recipe(change: dict[str, Any]) -> None:
    recipe = ef.DAgger(**change)
    arguments = shlex.split(recipe.command)[2:]
    assert tyro.cli(ef.DAgger, args=arguments) == recipe
    assert tyro.cli(Train, args=arguments)._recipe == recipe
    assert ef.DAgger.from_settings(json.loads(json.dumps(recipe.settings)), "config.json") == recipe
    assert repr(recipe).startswith("DAgger(controller='etdagnn', ")
    assert all(f"{name}={getattr(recipe, name)!r}" in repr(recipe) for name in change)


def test_a_range_is_kept_as_it_is_written_shortest_and_numbers_as_numbers() -> None:
    recipe = ef.DAgger(packet_loss=" 0.0 - 0.50", delay="2", noise="1e-2", lag=np.float32(0.5), jitter=np.int64(1))
    assert (recipe.packet_loss, recipe.delay, recipe.noise, recipe.lag, recipe.jitter) == ("0-0.5", 2, 0.01, 0.5, 1)
    assert "--packet-loss 0-0.5 --delay 2" in recipe.command


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"packet_loss": "0-1.5"}, r"packet_loss must be a share from 0 to 1; got 1.5 in the range 0-1.5"),
        ({"packet_loss": 2}, "packet_loss must be a share from 0 to 1; got 2$"),
        ({"packet_loss": "5-3"}, "packet_loss must be a range from low to high, 3-5; got '5-3'"),
        ({"packet_loss": "much"}, "packet_loss must be a number, or a range such as 0-0.5; got 'much'"),
        ({"delay": "0-0.5"}, "delay must be a whole number, or a range of them such as 0-2; got '0-0.5'"),
        ({"delay": 0.5}, "delay must be a whole number of at least 0; got 0.5"),
        ({"send_interval": "0-2"}, "send_interval must be a whole number of at least 1; got 0 in the range 0-2"),
        ({"max_acceleration": "0-10"}, "max_acceleration must be a finite number above 0; got 0.0 in the range 0-10"),
        ({"top_speed": 0}, "^top_speed must be a finite number above 0; got 0"),
        ({"lag": "0-1e999"}, "lag must be a finite number of at least 0; got inf"),
        ({"packet_loss": [0, 0.5]}, r"packet_loss must be a share from 0 to 1; got \[0, 0.5\]"),
        # What makes no sense together, at the worst corner of the ranges.
        (
            {"packet_loss": "0-0.9", "burst": "2-20"},
            "burst must be from 9 to 1,000 steps with packet_loss = 0.9; got 2",
        ),
        ({"packet_loss": "0-1", "burst": 5.0}, "burst must be from .* steps with packet_loss = 1; got 5"),
        (
            {"delay": "0-900", "jitter": "0-200"},
            r"delay \+ jitter \+ .* at most 1,000 steps; got 1,100",
        ),
    ],
)
def test_invalid_settings_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.DAgger(**options)
