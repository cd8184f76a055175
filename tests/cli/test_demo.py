"""The demonstration shows flocks that a decentralized law disconnects and the trained network keeps connected."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from equiflock.cli.demo import CONTROLLERS, RECIPE, Demonstration, demonstrate
from equiflock.evaluation.summary import MetricSummary, summarize
from equiflock.scenarios import RandomDisk


def test_the_demonstration_trains_and_flies_all_controllers_from_the_same_start() -> None:
    recipe = replace(RECIPE, epochs=4, validate_every=2, flocks=10, validation_flocks=4)
    found = demonstrate(RandomDisk(flocks=4, seed=1), recipe)
    assert [report.epoch for report in found.epochs] == [1, 2, 3, 4]
    assert tuple(found.runs) == CONTROLLERS
    for run in found.runs.values():
        assert (run.positions[0] == found.runs["tanner"].positions[0]).all()
    assert found.find_disconnected("tanner-dynamic").all()
    assert not found.find_disconnected("tdagnn").any()


def test_contrasting_flocks_are_always_connected_under_the_student_and_end_disconnected_under_the_law() -> None:
    def run(*counts: list[int]) -> Any:
        return SimpleNamespace(series={"component_count": np.array(counts)})

    runs = {"etdagnn": run([1, 1, 1], [1, 2, 1], [1, 1, 1]), "tanner-dynamic": run([1, 1, 1], [2, 3, 2], [5, 7, 1])}
    found = object.__new__(Demonstration)
    object.__setattr__(found, "runs", runs)
    assert found.contrasting_flocks == [0]  # 1 is disconnected in between, and 2 is connected at the end under the law


def test_a_summary_gives_medians_and_quartiles() -> None:
    row = MetricSummary("x", np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert row.quartiles == (2.0, 3.0, 4.0)
    assert row.text == "3 (2, 4)"
    assert MetricSummary("x", np.array([np.inf, np.inf])).text == "inf"


def test_a_run_with_leaders_reports_their_distance() -> None:
    import equiflock as ef
    from equiflock.evaluation.summary import RECORDED_METRICS

    plain = ef.random_disk(1, 20)
    roles = plain.roles.copy()
    roles[:, :2] = ef.Role.LEADER
    led = ef.Flock(plain.positions, plain.velocities, roles)
    names = [row.name for row in summarize(ef.simulate(led, ef.load("tanner"), duration=0.1, record=RECORDED_METRICS))]
    assert any("MLVD" in name for name in names)
