"""The search keeps what lets more statements hold, and asks no test flock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from equiflock.controllers.trained import SEEDS
from equiflock.experiments.paper import pupils, reading, search
from equiflock.experiments.paper.ledger import Check, Statement
from equiflock.experiments.paper.profiles import EXPERIMENTS, PROFILES, Profile, jobs_of
from equiflock.experiments.paper.pupils import PupilFlight
from equiflock.experiments.paper.reading import CHOICES, CLONING, FLOWN, Reading
from equiflock.experiments.paper.search import SEARCH, Judged, Search
from equiflock.experiments.paper.training import read_validation
from equiflock.experiments.runner.jobs import Job, compute, is_done, keep
from equiflock.learning.fast_forward import FastForward
from equiflock.learning.recipe import DAgger
from equiflock.report.readings import one_by_one_tables, readings_frame, write_readings


def statement(name: str, *held: bool) -> Statement:
    return Statement(name, "", "", tuple(Check(f"check {n}", "", each, (each,)) for n, each in enumerate(held)))


class Pretended(Search):
    """A search whose statements follow from the reading at once."""

    def _fly(self, stage: str, readings: Iterable[Reading]) -> None:
        for each in readings:
            disc, clamp, eight = each.velocities == "disc", each.clamp == 150.0, each.flocking_duration == 8.0
            # The disc gains alone, the clamp with the disc only, and a long test gains a check but no statement.
            found = (
                statement("T1", disc),
                statement("T2", disc and clamp, not clamp or disc),
                statement("F1", False, eight),
                statement("O1", each.obstacles != "all"),
            )
            self.by_flights[each] = Judged(each, found)

    def _clone_under(self, reading: Reading) -> None:
        for each in self._numbers_of_epochs(reading):
            self.by_cloning[each.of(CLONING)] = Judged(each, (statement("G6", each.cloning_epochs == 400),))


@pytest.fixture
def pretended(tmp_path: Path) -> Pretended:
    found = Pretended(tmp_path / "search", workers=1)
    found.run()
    return found


def test_the_best_reading_has_what_gains_alone_and_what_gains_together(pretended: Pretended) -> None:
    best = Reading(velocities="disc", clamp=150.0, flocking_duration=8.0, cloning_epochs=400)
    assert pretended.best == best
    assert pretended.by_flights[best.of(*FLOWN)].held == 3


def test_every_choice_is_tried_by_itself(pretended: Pretended) -> None:
    for each in Reading().alternatives():
        assert each.of(*FLOWN) in pretended.by_flights
    for usual_or_best in (Reading(), pretended.best):
        assert usual_or_best.of(CLONING) in pretended.by_cloning


def test_a_score_counts_statements_first_and_then_checks() -> None:
    first = Judged(Reading(), (statement("A", True), statement("B", False, False)))
    second = Judged(Reading(), (statement("A", True, False), statement("B", True, False)))
    third = Judged(Reading(), (statement("A", True), statement("B", True, False)))
    assert second.score < first.score < third.score
    assert (first.held, first.checks) == (1, (1, 3))
    assert first.gained(Judged(Reading(), (statement("A", False),))) == {"A"}
    assert not third.gained(first)


def test_it_asks_no_test_flock_and_no_seed_of_a_report() -> None:
    assert not set(SEARCH.seeds) & {*SEEDS, *PROFILES["paper"].seeds}
    assert not set(SEARCH.cloning_seeds) & set(PROFILES["paper"].cloning_seeds)
    for experiment in EXPERIMENTS:
        for job in jobs_of(experiment, replace(SEARCH, sizes=(50,), sides=(3,), flocks=1)):
            if isinstance(job, PupilFlight):
                assert job.scenario.disk.split == "validation"  # type: ignore[attr-defined]


def test_tables_show_a_statement_under_every_choice_that_can_change_it(pretended: Pretended, tmp_path: Path) -> None:
    table = readings_frame(pretended)
    text = one_by_one_tables(table)
    assert "| T1 | 0 of 1 | **holds** |" in text
    assert "`obstacles=all`" in text
    # A choice about obstacles says nothing about trainings.
    (obstacles,) = (part for part in text.split("\n\n") if "obstacles=all" in part)
    assert "T1" not in obstacles
    assert "| O1 | **holds** | 0 of 1 | **holds** | **holds** |" in obstacles
    paths = write_readings(pretended, tmp_path)
    assert all(path.exists() for path in paths)
    assert one_by_one_tables(pd.read_csv(paths[0])) == text
    assert "velocities=disc:clamp=150" in paths[1].read_text()


def run_here(jobs: Sequence[Job], folder: Path, *_: object, **__: object) -> None:
    folder.mkdir(exist_ok=True)
    for job in jobs:
        if not is_done(job, folder):
            keep(compute(job), job, folder)


def read_stretched(path: Path, seed: int) -> pd.DataFrame:
    """The statements are about epochs 40, 80 .. 400: the ten epochs of a small training stand for them."""
    table = read_validation(path, seed)
    return table.assign(epoch=table.epoch * 40)


@pytest.mark.slow
def test_a_small_search_runs_goes_on_and_ends_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {
        "clamp": replace(CHOICES["clamp"], others=(50.0,)),
        "cloning_epochs": replace(CHOICES["cloning_epochs"], others=(2,)),
    }
    for module in (reading, search):
        monkeypatch.setattr(module, "CHOICES", few)
    monkeypatch.setattr(search, "run_jobs", run_here)  # pools of processes have tests of their own
    monkeypatch.setattr(pupils, "read_validation", read_stretched)
    small = DAgger(agents=12, flocks=2, duration=0.05, updates=1, batch=2, capacity=50, validation_flocks=2)
    recipe = replace(small, epochs=10, validate_every=1)
    data = FastForward(train_flocks=1, test_flocks=1, steps=3, agents=12)
    profile = Profile("search", (5,), 2, (50,), (3,), data, (5,), recipe, "validation")
    first = Search(tmp_path / "search", 2, profile)
    best, folder = first.run(), tmp_path / "search" / "jobs"
    assert set(readings_frame(first).statement) >= {"A1", "T1", "F1", "L1", "O1", "G2"}
    assert not list((tmp_path / "search" / "fast-forward").iterdir())
    # A second search finds every job done and ends with the same numbers.
    written = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    second = Search(tmp_path / "search", 2, profile)
    assert second.run() == best
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == written
    pd.testing.assert_frame_equal(readings_frame(second), readings_frame(first))
