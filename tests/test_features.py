"""Features, channels and senses are declared once and checked when they are."""

from __future__ import annotations

import math
from typing import Any

import pytest

import equiflock as ef
from equiflock.features import PAPER_FEATURES, find_feature
from equiflock.runtime.checks import InputError


def test_the_paper_s_three_features_are_there_and_keep_their_order() -> None:
    assert ef.feature_names()[:3] == PAPER_FEATURES == ("velocity", "inverse-fourth", "inverse-square")
    assert ef.paper_senses("sum", hops=2) == ef.Senses(tuple((name, "sum") for name in PAPER_FEATURES), hops=2)
    assert ef.paper_senses().paper_aggregation == "mean"


def test_senses_say_how_wide_observations_are() -> None:
    senses = ef.Senses((("velocity", "mean"), ("velocity", "sum")), hops=4)
    assert (senses.hops, senses.width, senses.topology, senses.paper_aggregation) == (4, 2, "dynamic", None)
    assert ef.Senses([["velocity", "mean"]]) == ef.Senses((("velocity", "mean"),))  # type: ignore[arg-type, list-item]


def test_a_feature_of_one_s_own_is_one_decorated_function(own_registry: None) -> None:
    @ef.feature("attraction", vector="position")
    def attraction(square: float) -> float:
        return square

    assert ef.feature_names()[-1] == "attraction"
    assert not find_feature("attraction").uses_velocity
    with pytest.raises(InputError, match="declared already"):
        ef.feature("attraction", vector="velocity")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"channels": ()}, "channels must be pairs .* got none"),
        ({"channels": "velocity"}, "channels must be pairs"),
        ({"channels": (("velocity",),)}, "channels must be pairs"),
        ({"channels": ((["velocity"], "mean"),)}, "channels must be pairs"),
        ({"channels": (("speed", "mean"),)}, "feature must be one of 'velocity', .* got 'speed'"),
        ({"channels": (("velocity", "max"),)}, "aggregation must be one of 'sum', 'mean'; got 'max'"),
        ({"channels": (("velocity", "mean"),), "hops": 0}, "hops must be a whole number of at least 1; got 0"),
        ({"channels": (("velocity", "mean"),), "topology": "frozen"}, "topology must be one of 'dynamic', 'fixed'"),
        ({"channels": (("velocity", "mean"),), "hop_mean": "both"}, "hop_mean must be one of 'receiver', 'sender'"),
    ],
)
def test_wrong_senses_are_refused_in_one_line(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.Senses(**options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": ""}, "a feature's name must be a word of its own"),
        ({"name": "velocity"}, "declared already"),
        ({"vector": "spin"}, "vector must be one of 'position', 'velocity'"),
        ({"among": "friends"}, "among must be one of 'all', 'same', 'others'"),
    ],
)
def test_wrong_features_are_refused_in_one_line(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.feature(**{"name": "own", "vector": "position", **options})


def test_a_weight_takes_one_or_two_numbers(own_registry: None) -> None:
    declare: Any = ef.feature("own", vector="position")
    for wrong in (lambda: 1.0, lambda a, b, c: a, lambda a, b=0.5: a, lambda *a: 1.0, math.exp, 3.0):
        with pytest.raises(InputError, match=r"must be a function of \|r\|\^2, or of \|r\|\^2 and <r, v>"):
            declare(wrong)
