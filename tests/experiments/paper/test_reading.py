"""A reading sets fields of trainings, scenarios and experiments; what it does not change keeps its results."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from equiflock.controllers.trained import TRAINED
from equiflock.experiments.paper.profiles import EXPERIMENTS, PROFILES, jobs_of
from equiflock.experiments.paper.reading import CHOICES, CLONING, FLOWN, Reading
from equiflock.learning.recipe import DAgger
from equiflock.runtime.checks import InputError


def test_every_choice_has_a_sentence_of_the_paper_and_another_value() -> None:
    assert tuple(CHOICES) == tuple(field.name for field in fields(Reading))
    assert {*FLOWN, CLONING} == set(EXPERIMENTS)
    for name, choice in CHOICES.items():
        assert "“" in choice.sentence
        assert choice.others
        assert getattr(Reading, name) not in choice.others
        assert set(choice.changes) <= set(EXPERIMENTS)


def test_a_reading_is_a_text_and_back() -> None:
    for reading in Reading().alternatives():
        assert Reading.from_text(str(reading)) == reading
    several = Reading(velocities="disc", clamp=150.0, cloning_epochs=400)
    assert str(several) == "velocities=disc:clamp=150:cloning_epochs=400"
    assert Reading.from_text(str(several)) == several
    assert str(Reading()) == "usual"
    exact = Reading(clamp=123.456789, clear_time=0.1)
    assert Reading.from_text(str(exact)) == exact
    assert exact.expert == "tanner:clamp=123.456789"
    assert Reading.from_text("") == Reading()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("velocity=disc", "a reading has no choice 'velocity'; it has velocities, clamp"),
        ("clamp=-1", "clamp must be"),
        ("cloning_epochs=0", "cloning_epochs must be"),
        ("disc", "key=value"),
    ],
)
def test_a_wrong_choice_is_an_error_of_one_line(text: str, error: str) -> None:
    with pytest.raises(InputError, match=error) as raised:
        Reading.from_text(text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_choice_changes_the_jobs_of_the_experiments_that_it_names_and_of_no_other(experiment: str) -> None:
    # With a seed that has no bundled weights, so that all experiments have jobs.
    usual = replace(PROFILES["quick"], seeds=(7,))
    for reading in Reading().alternatives():
        other = replace(usual, reading=reading)
        (name,) = reading.changes
        changed = jobs_of(experiment, other) != jobs_of(experiment, usual)
        assert changed == (experiment in CHOICES[name].changes), (name, experiment)
        assert reading.of(experiment) == (reading if changed else Reading())


def test_it_sets_the_fields_of_a_training() -> None:
    reading = Reading(velocities="disc", clamp=150, biases="uniform", hop_mean="sender")
    recipes = {name: reading.recipe(DAgger(epochs=3), name, 4) for name in TRAINED}
    assert recipes["tdagnn"] == DAgger(
        "tdagnn:biases=uniform:hop_mean=sender", "tanner:clamp=150", epochs=3, seed=4, velocities="disc"
    )
    assert recipes["etdagnn"].controller == "etdagnn:hop_mean=sender"  # it has no biases
    assert Reading().recipe(DAgger(), "tdagnn", 0) == DAgger("tdagnn")


def test_the_weights_of_the_package_are_flown_where_a_training_would_give_no_others() -> None:
    paper = PROFILES["paper"]
    assert paper.bundled
    assert replace(paper, reading=Reading(leader_velocity="first", cloning_epochs=400)).bundled
    for other in (
        replace(paper, reading=Reading(clamp=150)),
        replace(paper, seeds=(5,)),
        replace(paper, recipe=DAgger(epochs=3)),
    ):
        assert not other.bundled


def test_no_network_is_trained_just_to_be_shown() -> None:
    paper, other = PROFILES["paper"], replace(PROFILES["paper"], reading=Reading(clamp=150))
    assert paper.has_networks(["leaders"])
    assert other.has_networks(["training", "leaders"])
    assert not other.has_networks(["leaders"])
