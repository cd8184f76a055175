"""An interpretation sets fields of trainings, scenarios and experiments; other experiments are unchanged."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from equiflock._runtime.checks import InputError
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.learning.recipe import DAgger
from equiflock.paper.interpretation import CHOICES, CLONING_EXPERIMENT, FLIGHT_EXPERIMENTS, Interpretation
from equiflock.paper.profile import PROFILES
from equiflock.paper.reproduction import EXPERIMENTS, build_jobs


def test_every_choice_has_a_sentence_of_the_paper_and_another_value() -> None:
    assert tuple(CHOICES) == tuple(field.name for field in fields(Interpretation))
    assert {*FLIGHT_EXPERIMENTS, CLONING_EXPERIMENT} == set(EXPERIMENTS)
    for name, choice in CHOICES.items():
        assert "“" in choice.quotation
        assert choice.alternative_values
        assert getattr(Interpretation, name) not in choice.alternative_values
        assert set(choice.affected_experiments) <= set(EXPERIMENTS)


def test_an_interpretation_is_restored_from_its_text() -> None:
    for interpretation in Interpretation().iterate_alternatives():
        assert Interpretation.from_text(str(interpretation)) == interpretation
    several = Interpretation(velocities="disc", clamp=150.0, cloning_epochs=400)
    assert str(several) == "velocities=disc:clamp=150:cloning_epochs=400"
    assert Interpretation.from_text(str(several)) == several
    assert str(Interpretation()) == "usual"
    exact = Interpretation(clamp=123.456789, clear_time=0.1)
    assert Interpretation.from_text(str(exact)) == exact
    assert exact.expert == "tanner:clamp=123.456789"
    assert Interpretation.from_text("") == Interpretation()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("velocity=disc", "an interpretation has no choice 'velocity'; choices are velocities, clamp"),
        ("clamp=-1", "clamp must be"),
        ("cloning_epochs=0", "cloning_epochs must be"),
        ("disc", "key=value"),
    ],
)
def test_a_wrong_choice_is_an_error_of_one_line(text: str, error: str) -> None:
    with pytest.raises(InputError, match=error) as raised:
        Interpretation.from_text(text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_choice_changes_the_jobs_of_the_experiments_that_it_names_and_of_no_other(experiment: str) -> None:
    # With a seed that has no bundled weights, so that all experiments have jobs.
    usual = replace(PROFILES["quick"], seeds=(7,))
    for interpretation in Interpretation().iterate_alternatives():
        other = replace(usual, interpretation=interpretation)
        (name,) = interpretation.changes
        changed = build_jobs(experiment, other) != build_jobs(experiment, usual)
        assert changed == (experiment in CHOICES[name].affected_experiments), (name, experiment)
        assert interpretation.restrict_to(experiment) == (interpretation if changed else Interpretation())


def test_an_interpretation_sets_the_fields_of_a_training() -> None:
    interpretation = Interpretation(velocities="disc", clamp=150, biases="uniform", hop_mean="sender")
    recipes = {name: interpretation.build_recipe(DAgger(epochs=3), name, 4) for name in PAPER_NETWORKS}
    assert recipes["tdagnn"] == DAgger(
        "tdagnn:biases=uniform:hop_mean=sender", "tanner:clamp=150", epochs=3, seed=4, velocities="disc"
    )
    assert recipes["etdagnn"].controller == "etdagnn:hop_mean=sender"  # it has no biases
    assert Interpretation().build_recipe(DAgger(), "tdagnn", 0) == DAgger("tdagnn")


def test_the_weights_of_the_package_are_flown_where_a_training_would_give_no_others() -> None:
    paper = PROFILES["paper"]
    assert paper.uses_bundled_weights
    assert replace(
        paper, interpretation=Interpretation(leader_velocity="first", cloning_epochs=400)
    ).uses_bundled_weights
    for other in (
        replace(paper, interpretation=Interpretation(clamp=150)),
        replace(paper, seeds=(5,)),
        replace(paper, recipe=DAgger(epochs=3)),
    ):
        assert not other.uses_bundled_weights


def test_no_network_is_trained_only_for_films() -> None:
    paper, other = PROFILES["paper"], replace(PROFILES["paper"], interpretation=Interpretation(clamp=150))
    assert paper.has_networks(["leaders"])
    assert other.has_networks(["training", "leaders"])
    assert not other.has_networks(["leaders"])
