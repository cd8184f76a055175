"""The summary of a run has one row for each metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock.evaluation.summary import RECORDED_METRICS, list_recorded_metrics, summarize
from equiflock.simulation.metrics import METRICS, get_metric


def record(*names: str) -> dict[str, Any]:
    """The metrics of every summary, and those of these names."""
    return {metric.__name__: metric for metric in RECORDED_METRICS} | {name: get_metric(name) for name in names}


def test_a_metric_that_a_scenario_names_in_its_measures_has_one_row() -> None:
    start = ef.random_disk(2, 15)
    usual = ef.simulate(start, ef.load("tanner"), duration=0.05, record=record())
    others = {"mean_leader_velocity_distance", "message_component_count", "mean_realised_acceleration_norm"}
    others |= {"order_parameter", "algebraic_connectivity"}  # of report cards
    names = [name for name in METRICS.parts if name not in others]
    named = ef.simulate(start, ef.load("tanner"), duration=0.05, record=record(*names))
    assert [row.name for row in summarize(named)] == [row.name for row in summarize(usual)]


@pytest.mark.usefixtures("own_registry")
def test_a_metric_of_a_user_has_a_row_with_its_title() -> None:
    ef.metric("age", label="age of the flight", over_time="largest")(lambda moment: moment.time * np.ones(2))
    run = ef.simulate(ef.random_disk(2, 15), ef.load("tanner"), duration=0.05, record=record("age"))
    last = summarize(run)[-1]
    assert (last.name, last.text) == ("age of the flight, largest", "0.05")


@pytest.mark.usefixtures("own_registry")
def test_a_share_is_that_of_the_flocks() -> None:
    ef.metric("first", is_share=True)(lambda moment: np.arange(len(moment.flock)) == 0)
    run = ef.simulate(ef.random_disk(4, 15), ef.load("tanner"), duration=0.05, record=record("first"))
    assert summarize(run)[-1].text == "25%"


@pytest.mark.parametrize("body", [ef.DoubleIntegrator(), ef.DoubleIntegrator(max_acceleration=5.0), ef.Unicycle()])
def test_realised_accelerations_have_a_row_if_the_body_is_not_ideal(body: Any) -> None:
    environment = ef.Environment(body=body)
    recorded = list_recorded_metrics(environment)
    run = ef.simulate(ef.random_disk(2, 15), ef.load("tanner"), duration=0.05, environment=environment, record=recorded)
    rows = {row.name: row.values for row in summarize(run)}
    assert ("realised acceleration norm, integral" in rows) == (not environment.has_ideal_body)
    assert environment.has_ideal_body == (body == ef.DoubleIntegrator())
    for name, values in zip(
        ("RMS acceleration", "peak acceleration", "jerk (RMS)"), ef.metrics.effort(run), strict=False
    ):
        assert (rows[f"{name}, in flight"] == values).all()
    assert (rows["residual acceleration, end"] == ef.metrics.residual_acceleration(run)).all()
