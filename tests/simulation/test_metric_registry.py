"""A metric is registered by name: a function of a moment that returns a number per flock, and how a flight sums up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.simulation.flight_jobs import resolve_measures
from equiflock.simulation.metrics import Metric, get_metric, list_user_metrics

pytestmark = pytest.mark.usefixtures("own_registry")


def spread(moment: ef.Moment) -> Any:
    """Largest distance from the middle, in the flock's unit.

    More text.
    """
    positions = moment.flock.positions
    return np.linalg.norm(positions - positions.mean(axis=1, keepdims=True), axis=-1).max(axis=1)


def test_a_registered_metric_is_found_by_its_name_and_has_a_title() -> None:
    assert ef.metric("spread")(spread) is spread
    found = get_metric("spread")
    assert (found.function, found.label) == (spread, "Largest distance from the middle, in the flock's unit")
    assert list_user_metrics() == (found,)
    assert ef.metric_names()[-1] == "spread"
    ef.metric("other", label="how wide")(spread)
    ef.metric("of_no_text")(lambda moment: moment.time * np.ones(len(moment.flock)))
    assert [metric.label for metric in list_user_metrics()[1:]] == ["how wide", "of no text"]


def test_metrics_of_the_package_have_names_too() -> None:
    assert {"velocity_variance", "minimum_separation", "component_count"} <= set(ef.metric_names())
    assert get_metric("velocity_variance").function is ef.metrics.velocity_variance
    assert get_metric("minimum_separation").larger_is_better
    assert list_user_metrics() == ()


def test_an_unknown_metric_is_refused_with_a_close_name() -> None:
    with pytest.raises(InputError, match=r"^metric must be one of 'velocity_variance', .*did you mean 'diameter'"):
        get_metric("diametre")


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("velocity_variance", {}, "a metric named 'velocity_variance' is already registered"),
        ("a:b", {}, "non-empty string without a colon"),
        ("a/b", {}, "made of letters, digits, _ and -; got 'a/b'"),
        (
            "mine",
            {"is_share": True, "over_time": "integral"},
            "over_time of a share must not be 'integral'.*use 'mean'",
        ),
        ("mine", {"over_time": "median"}, "over_time must be one of 'end', 'mean', 'integral', 'smallest', 'largest'"),
    ],
)
def test_bad_registrations_are_refused(name: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.metric(name, **options)


def test_a_metric_must_be_a_function() -> None:
    with pytest.raises(InputError, match="the metric 'mine' must be a function of a Moment; got 3"):
        ef.metric("mine")(3)  # type: ignore[type-var]


@pytest.mark.parametrize(
    "returned", [1.0, np.ones((3, 2)), np.ones(2), [1.0, np.nan, 2.0], ["a", "b", "c"], None, np.ones(3) * 1j]
)
def test_a_metric_must_return_a_number_per_flock(returned: Any) -> None:
    ef.metric("mine")(lambda moment: returned)
    with pytest.raises(
        InputError, match="the metric 'mine' must return an array of 3 numbers, one per flock, none of them NaN; got "
    ):
        get_metric("mine")(next(ef.flight(ef.random_disk(3, 10), ef.load("tanner"))))


def test_a_share_must_be_from_0_to_1() -> None:
    ef.metric("mine", is_share=True)(lambda moment: np.array([0.0, 1.0, 2.0]))
    with pytest.raises(InputError, match="the metric 'mine' is a share: it must be from 0 to 1; got array"):
        get_metric("mine")(next(ef.flight(ef.random_disk(3, 10), ef.load("tanner"))))


def test_integers_and_booleans_are_numbers() -> None:
    ef.metric("mine")(lambda moment: moment.flock.working.sum(axis=1) > 5)
    values = get_metric("mine")(next(ef.flight(ef.random_disk(3, 10), ef.load("tanner"))))
    assert values.tolist() == [1.0, 1.0, 1.0]


def test_the_values_of_a_flight_become_one_number_until_its_end() -> None:
    class AfterTwoSteps:
        """Ends the first flock after two of five steps."""

        def __call__(self, times: Any, flock: ef.Flock, flying: Any) -> Any:
            ends = (times > 0.015) & (np.arange(len(flock)) == 0)
            return np.where(ends, ef.Outcome.ENDED, ef.Outcome.FLYING)

    def step(moment: ef.Moment) -> Any:
        return np.full(len(moment.flock), moment.step + 1.0)

    start, controller = ef.random_disk(2, 10), ef.load("tanner")
    run = ef.simulate(start, controller, duration=0.05, ending=AfterTwoSteps(), record={"step": step})
    assert run.steps.tolist() == [2, 5]
    for over_time, expected in {
        "end": [3.0, 6.0],
        "mean": [2.0, 3.5],
        "integral": [0.01 * (1 + 2), 0.01 * (1 + 2 + 3 + 4 + 5)],
        "smallest": [1.0, 1.0],
        "largest": [3.0, 6.0],
        "rms": [np.sqrt((1 + 4 + 9) / 3), np.sqrt((1 + 4 + 9 + 16 + 25 + 36) / 6)],
    }.items():
        found = Metric("step", step, "step", over_time).summarize(run)  # type: ignore[arg-type]
        np.testing.assert_allclose(found, expected, err_msg=over_time)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        # From the first moment, or the second if a value needs the step before, to the last that a step follows.
        ({"of_commands": True}, {"mean": 3.0, "smallest": 1.0, "largest": 5.0, "integral": 0.15}),
        ({"uses_last_step": True}, {"mean": 4.0, "smallest": 2.0, "largest": 6.0, "integral": 0.2}),
        (
            {"of_commands": True, "uses_last_step": True},
            {"mean": 3.5, "smallest": 2.0, "largest": 5.0, "integral": 0.14},
        ),
    ],
)
def test_moments_without_a_value_do_not_count(flags: dict[str, bool], expected: dict[str, float]) -> None:
    def step(moment: ef.Moment) -> Any:
        return np.full(len(moment.flock), moment.step + 1.0)

    run = ef.simulate(ef.random_disk(1, 10), ef.load("tanner"), duration=0.05, record={"step": step})
    for over_time, value in expected.items():
        found = Metric("step", step, "step", over_time, **flags).summarize(run)  # type: ignore[arg-type]
        assert found == pytest.approx([value]), over_time


def test_a_scenario_may_name_a_metric_of_a_user_in_its_measures() -> None:
    ef.metric("spread")(spread)
    scenario = ef.make_scenario("flocking")
    object.__setattr__(scenario, "measures", ("velocity_variance", "spread"))
    assert resolve_measures(scenario) == {name: get_metric(name) for name in ("velocity_variance", "spread")}
    object.__setattr__(scenario, "measures", ("spreat",))
    with pytest.raises(InputError, match=r"a measure of scenario 'flocking' must be one of .*did you mean 'spread'"):
        resolve_measures(scenario)
