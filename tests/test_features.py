"""Features, channels and senses are declared once and checked when they are."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock import features
from equiflock._runtime.checks import InputError
from equiflock._runtime.specs import format_spec
from equiflock.features import PAPER_FEATURES, Feature, find_feature


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
    with pytest.raises(InputError, match="a feature named 'attraction' is already registered"):
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
        ({"name": ""}, "the name of a feature must be a non-empty string without a colon"),
        ({"name": "velocity"}, "a feature named 'velocity' is already registered"),
        ({"name": "own:strength=2"}, "without a colon; got 'own:strength=2'"),
        ({"name": 3}, "must be a non-empty string without a colon; got 3"),
        ({"vector": "spin"}, "vector must be one of 'position', 'velocity'"),
        ({"among": "friends"}, "among must be one of 'all', 'same', 'others'"),
    ],
)
def test_wrong_features_are_refused_in_one_line(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ef.feature(**{"name": "own", "vector": "position", **options})


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: 1.0,
        lambda a, b, c: a,
        lambda a, b, c, d=0.5: a,
        lambda a=0.5: a,
        lambda *a: 1.0,
        lambda a, **b: a,
        lambda a, *, b: a,
        lambda a, *, b=0.5: a,
        lambda a, among=0.5: a,
        lambda a, b="far": a,
        lambda a, b=None: a,
        lambda a, b=True: a,
        lambda a, b=math.nan: a,
        lambda a, b=math.inf: a,
        functools.partial(lambda a, b: a, b=0.5),
        math.exp,
        3.0,
    ],
)
def test_a_weight_takes_one_or_two_numbers_and_options_with_numbers_as_defaults(own_registry: None, wrong: Any) -> None:
    declare: Any = ef.feature("own", vector="position")
    with pytest.raises(InputError, match=r"must be a function of \|r\|\^2, or of .*, and otherwise only of options"):
        declare(wrong)
    assert "own" not in ef.feature_names()


@pytest.fixture
def pull(own_registry: None) -> None:
    """Features with options: two of |r|^2 alone, one that is also of <r, v>."""

    @ef.feature("pull", vector="position")
    def pull(square: float, strength: float = 1.5, reach: float = 2) -> float:
        return strength * math.exp(-square / reach)

    @ef.feature("brake-of-kin", vector="velocity", among="same")
    def brake_of_kin(square: float, inner: float, /, strength: float = 0.5) -> float:
        return strength * inner


def test_arguments_with_numbers_as_defaults_are_options(pull: None) -> None:
    assert find_feature("pull").options == (1.5, 2.0)
    assert find_feature("pull").option_names == ("strength", "reach")
    assert not find_feature("pull").uses_velocity
    assert find_feature("brake-of-kin").option_names == ("strength",)
    assert find_feature("brake-of-kin").uses_velocity
    assert find_feature("velocity").option_names == () and find_feature("velocity").options == ()


@pytest.mark.parametrize(
    ("name", "options", "among"),
    [
        ("pull:strength=3", (3.0, 2.0), "all"),
        ("pull:reach=1e-3:strength=-4", (-4.0, 1e-3), "all"),
        ("pull:among=others:reach=5", (1.5, 5.0), "others"),
        ("brake-of-kin:among=all", (0.5,), "all"),
        ("brake-of-kin:strength=2", (2.0,), "same"),
        ("velocity:among=same", (), "same"),
    ],
)
def test_a_channel_sets_options_after_the_name(
    pull: None, name: str, options: tuple[float, ...], among: features.Among
) -> None:
    found, declared = find_feature(name), find_feature(name.partition(":")[0])
    assert found == Feature(name, declared.vector, among, declared.weight, options)
    assert found.option_names == declared.option_names and found.uses_velocity == declared.uses_velocity
    # What was declared stays as it was.
    assert find_feature(declared.name) is declared
    senses = ef.Senses(((name, "sum"), (declared.name, "mean")))
    assert senses.channels[0] == (name, "sum") and senses.features == (found, declared)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pull:force=2", "feature 'pull' has no option 'force'; it has strength, reach, among"),
        ("velocity:strength=2", "feature 'velocity' has no option 'strength'; it has among"),
        ("pull:square=2", "feature 'pull' has no option 'square'; it has strength, reach, among"),
        ("pull:strength=far", "strength of the feature 'pull' must be a finite number; got 'far'"),
        ("pull:strength=nan", "strength of the feature 'pull' must be a finite number; got nan"),
        ("pull:reach=-inf", "reach of the feature 'pull' must be a finite number; got -inf"),
        ("pull:strength=none", "strength of the feature 'pull' must be a finite number; got None"),
        ("pull:strength=true", "strength of the feature 'pull' must be a finite number; got True"),
        ("pull:among=friends", "among must be one of 'all', 'same', 'others', 'obstacles'; got 'friends'"),
        ("pull:among=2", "among must be one of 'all', 'same', 'others', 'obstacles'; got 2"),
        ("pull:strength", "options must have the form key=value:key=value, each key once; got 'strength'"),
        ("pull:", "options must have the form key=value:key=value"),
        ("pull:strength=1:strength=2", "each key once; got 'strength=1:strength=2'"),
        ("pul:strength=2", "feature must be one of 'velocity', .*; got 'pul'; did you mean 'pull'"),
        (":strength=2", "feature must be one of"),
    ],
)
def test_wrong_options_are_refused_in_one_line(pull: None, name: str, text: str) -> None:
    with pytest.raises(InputError, match=text) as caught:
        ef.Senses(((name, "sum"),))
    assert "\n" not in str(caught.value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_name_with_options_says_every_number_exactly(value: float) -> None:
    name = format_spec("separation", distance=value, among="same")
    assert name == f"separation:distance={value}:among=same"
    assert (find_feature(name).options, find_feature(name).among) == ((value,), "same")


def test_a_name_without_options_is_the_feature_s_own() -> None:
    assert format_spec("velocity") == "velocity"
    assert find_feature(format_spec("separation", distance=np.float64(0.1))).options == (0.1,)


@pytest.mark.parametrize("wrong", ["separate", 3, None, ["separation"]])
def test_what_is_no_feature_is_refused_by_what_it_should_be(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"potential must be one of 'velocity', .*; got"):
        find_feature(wrong, "potential")
