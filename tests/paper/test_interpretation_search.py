"""The search keeps choices under which more statements hold, and uses no test flock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from equiflock._runtime.jobs import Job, compute_result, is_done, write_result
from equiflock.controllers.trained import PAPER_SEEDS
from equiflock.learning.fast_forward import FastForward
from equiflock.learning.recipe import DAgger
from equiflock.paper import interpretation, interpretation_search, training_experiment
from equiflock.paper.interpretation import CHOICES, CLONING_EXPERIMENT, FLIGHT_EXPERIMENTS, Interpretation
from equiflock.paper.interpretation_search import (
    SEARCH_PROFILE,
    JudgedInterpretation,
    Search,
    build_interpretations_table,
    format_choices_table,
    format_ledger_comparison,
    format_single_choice_tables,
    write_interpretations,
)
from equiflock.paper.ledger import Check, Statement
from equiflock.paper.policies import PolicyFlightJob
from equiflock.paper.profile import PROFILES
from equiflock.paper.reproduction import EXPERIMENTS, build_jobs
from equiflock.paper.training_experiment import read_validation
from tests.paper.coarse import CoarseProfile


def statement(name: str, *held_count: bool) -> Statement:
    return Statement(
        name, f"words of {name}", "", tuple(Check(f"check {n}", "", each, (each,)) for n, each in enumerate(held_count))
    )


class Pretended(Search):
    """A search whose statements follow directly from the interpretation."""

    def _judge_by_flights(self, stage: str, interpretations: Iterable[Interpretation]) -> None:
        for each in interpretations:
            disc, clamp, eight = each.velocities == "disc", each.clamp == 150.0, each.flocking_duration == 8.0
            # The disc gains alone, the clamp with the disc only, and a long test gains a check but no statement.
            found = (
                statement("T1", disc),
                statement("T2", disc and clamp, not clamp or disc),
                statement("F1", False, eight),
                statement("O1", each.obstacles != "all"),
            )
            self.flight_results[each] = JudgedInterpretation(each, found)

    def _judge_by_cloning(self, interpretation: Interpretation) -> None:
        for each in self._vary_cloning_epochs(interpretation):
            self.cloning_results[each.restrict_to(CLONING_EXPERIMENT)] = JudgedInterpretation(
                each, (statement("G6", each.cloning_epochs == 400),)
            )


@pytest.fixture
def pretended(tmp_path: Path) -> Pretended:
    found = Pretended(tmp_path / "search", workers=1)
    found.run()
    return found


def test_the_best_interpretation_has_choices_that_gain_alone_and_together(pretended: Pretended) -> None:
    best = Interpretation(velocities="disc", clamp=150.0, flocking_duration=8.0, cloning_epochs=400)
    assert pretended.best == best
    assert pretended.flight_results[best.restrict_to(*FLIGHT_EXPERIMENTS)].held_count == 3


def test_every_single_change_is_tried(pretended: Pretended) -> None:
    for each in Interpretation().iterate_alternatives():
        assert each.restrict_to(*FLIGHT_EXPERIMENTS) in pretended.flight_results
    for usual_or_best in (Interpretation(), pretended.best):
        assert usual_or_best.restrict_to(CLONING_EXPERIMENT) in pretended.cloning_results


def test_a_score_counts_statements_first_and_then_checks() -> None:
    first = JudgedInterpretation(Interpretation(), (statement("A", True), statement("B", False, False)))
    second = JudgedInterpretation(Interpretation(), (statement("A", True, False), statement("B", True, False)))
    third = JudgedInterpretation(Interpretation(), (statement("A", True), statement("B", True, False)))
    assert second.score < first.score < third.score
    assert first.held_count == 1
    assert first.find_gains_over(JudgedInterpretation(Interpretation(), (statement("A", False),))) == {"A"}
    assert not third.find_gains_over(first)


def test_the_search_uses_no_test_flock_and_no_seed_of_a_report() -> None:
    assert not set(SEARCH_PROFILE.seeds) & {*PAPER_SEEDS, *PROFILES["paper"].seeds}
    assert not set(SEARCH_PROFILE.cloning_seeds) & set(PROFILES["paper"].cloning_seeds)
    for experiment in EXPERIMENTS:
        for job in build_jobs(experiment, replace(SEARCH_PROFILE, sizes=(50,), sides=(3,), flocks=1)):
            if isinstance(job, PolicyFlightJob):
                assert job.scenario.disk.split == "validation"  # type: ignore[attr-defined]


def test_tables_show_a_statement_under_every_choice_that_can_change_it(pretended: Pretended, tmp_path: Path) -> None:
    table = build_interpretations_table(pretended)
    text = format_single_choice_tables(table)
    assert "| T1 | 0 of 1 | **holds** |" in text
    assert "`obstacles=all`" in text
    # A choice about obstacles says nothing about trainings.
    (obstacles,) = (part for part in text.split("\n\n") if "obstacles=all" in part)
    assert "T1" not in obstacles
    assert "| O1 | **holds** | 0 of 1 | **holds** | **holds** |" in obstacles
    paths = write_interpretations(pretended, tmp_path)
    assert all(path.exists() for path in paths)
    assert format_single_choice_tables(pd.read_csv(paths[0])) == text
    assert "velocities=disc:clamp=150" in paths[1].read_text()


def test_the_ledger_comparison_has_verdicts_and_totals() -> None:
    usual = [statement("A1", True), statement("T1", True, False)]
    table = format_ledger_comparison(
        usual, [statement("A1", True), statement("T1", True, True)], Interpretation(clamp=150)
    )
    assert "`clamp=150`" in table
    assert "| A1 | words of A1 | **holds** | **holds** |" in table
    assert "| T1 | words of T1 | partly, 1 of 2 | **holds** |" in table
    assert "statements that hold | 1 of 2 | 2 of 2 |" in table


def test_every_choice_is_listed_with_its_values_and_sentence() -> None:
    lines = format_choices_table().splitlines()[2:]
    assert len(lines) == len(CHOICES)
    assert lines[1].startswith("| `clamp` | `100` | `25`, `50`, `75`, `125`, `150`, `200` |")
    assert all(choice.quotation in line for choice, line in zip(CHOICES.values(), lines, strict=True))


def run_here(jobs: Sequence[Job], folder: Path, *_: object, **__: object) -> None:
    folder.mkdir(exist_ok=True)
    for job in jobs:
        if not is_done(job, folder):
            write_result(compute_result(job), job, folder)


def read_stretched(path: Path, seed: int) -> pd.DataFrame:
    """The statements are about epochs 40, 80 .. 400: the ten epochs of a small training stand for them."""
    table = read_validation(path, seed)
    return table.assign(epoch=table.epoch * 40)


@pytest.mark.slow
def test_a_small_search_runs_goes_on_and_ends_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {
        "clamp": replace(CHOICES["clamp"], alternative_values=(50.0,)),
        "cloning_epochs": replace(CHOICES["cloning_epochs"], alternative_values=(2,)),
    }
    for module in (interpretation, interpretation_search):
        monkeypatch.setattr(module, "CHOICES", few)
    monkeypatch.setattr(interpretation_search, "run_jobs", run_here)  # other tests cover process pools
    monkeypatch.setattr(training_experiment, "read_validation", read_stretched)
    small = DAgger(agents=12, flocks=2, duration=0.05, updates=1, batch=2, capacity=50, validation_flocks=2)
    recipe = replace(small, epochs=10, validate_every=1)
    data = FastForward(train_flocks=1, test_flocks=1, steps=3, agents=12)
    profile = CoarseProfile("search", (5,), 2, (50,), (3,), data, (5,), recipe, "validation")
    first = Search(tmp_path / "search", 2, profile)
    best, folder = first.run(), tmp_path / "search" / "jobs"
    assert set(build_interpretations_table(first).statement) >= {"A1", "T1", "F1", "L1", "O1", "G2"}
    assert not list((tmp_path / "search" / "fast-forward").iterdir())
    # A second search finds every job done and ends with the same numbers.
    written = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    second = Search(tmp_path / "search", 2, profile)
    assert second.run() == best
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == written
    pd.testing.assert_frame_equal(build_interpretations_table(second), build_interpretations_table(first))
