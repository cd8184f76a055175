"""`SafetyLimits` and `Safe`: what they accept, and what a `Safe` controller passes on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock.controllers.safety_limits import get_safety_limits
from equiflock.controllers.unit_scaling import scale_controller
from equiflock.deployment.exported_agents import STATE_NAMES

FENCE = ((-5.0, -5.0), (5.0, 6.0))


def test_limits_are_read_from_the_text_that_they_are_written_as() -> None:
    text = "max_acceleration=4:max_speed=1.5:min_separation=0.3:max_silence=1:fence=-5,-5,5,6:braking_time=0.2"
    limits = ef.SafetyLimits(4.0, 1.5, 0.3, 1.0, FENCE, 0.2)
    assert ef.SafetyLimits.parse(text) == limits
    assert str(limits) == text
    assert ef.SafetyLimits.parse("max_acceleration=4:fence=none") == ef.SafetyLimits(4.0)
    assert ef.SafetyLimits.parse("max_acceleration=4:fence=-1,-1,-1,1,1,1").fence == ((-1.0,) * 3, (1.0,) * 3)


POSITIVE = st.floats(min_value=0.0, exclude_min=True, allow_infinity=False)
CORNER = st.floats(-1e300, 1e300)


@given(
    st.builds(
        ef.SafetyLimits,
        POSITIVE,
        st.none() | POSITIVE,
        st.none() | POSITIVE,
        st.none() | st.floats(min_value=0.0, max_value=4000.0, exclude_min=True),
        st.none() | st.tuples(CORNER, CORNER).map(lambda low: (low, (1.1e300, math.nextafter(low[1], math.inf)))),
        st.none() | POSITIVE,
    )
)
def test_the_text_of_limits_has_all_their_digits(limits: ef.SafetyLimits) -> None:
    assert ef.SafetyLimits.parse(str(limits)) == limits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_speed=1", "limits must have a max_acceleration, such as max_acceleration=4"),
        ("max_acceleration=-1", "max_acceleration must be a finite number above 0; got -1"),
        ("max_acceleration=none", "max_acceleration must be a finite number above 0; got None"),
        ("max_acceleration=4:max_speed=0", "max_speed must be a finite number above 0; got 0"),
        ("max_acceleration=4:min_separation=nan", "min_separation must be a finite number above 0; got nan"),
        ("max_acceleration=4:max_silence=1e9", "max_silence must be at most 4000 s; got 1e\\+09"),
        ("max_acceleration=4:braking_time=x", "braking_time must be a finite number above 0; got 'x'"),
        ("max_acceleration=4:top_speed=1", "limits have no option 'top_speed'; they have max_acceleration, max_speed"),
        ("max_acceleration=4:fence=1,2,3", "fence must be the 2 D numbers of two corners, such as -5,-5,5,5"),
        ("max_acceleration=4:fence=1,2,3,x", "fence must be the 2 D numbers of two corners, such as -5,-5,5,5"),
        ("max_acceleration=4:fence=-1,5,1,-5", "below the second in every axis; got 5 and -5 in axis 1"),
        ("max_acceleration=4:fence=0,0,0,1", "below the second in every axis; got 0 and 0 in axis 0"),
        ("max_acceleration=4:fence=-inf,0,0,1", "fence must be two corners of D finite numbers each"),
        ("max_acceleration", "options must have the form key=value"),
    ],
)
def test_bad_limits_are_one_clear_line(text: str, message: str) -> None:
    with pytest.raises(ef.InputError, match=message) as caught:
        ef.SafetyLimits.parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fence", [5.0, "box", (), ((1, 2),), ((1, 2), (3,)), ((0, 0), (1, True)), ((0, 0), None)])
def test_a_fence_is_two_corners(fence: Any) -> None:
    with pytest.raises(ef.InputError, match="fence must be two corners of D finite numbers each"):
        ef.SafetyLimits(4.0, fence=fence)


def test_corners_may_be_arrays() -> None:
    assert ef.SafetyLimits(4.0, fence=np.array(FENCE)).fence == FENCE


@pytest.mark.parametrize(("given", "period", "expected"), [(None, 0.02, 0.08), (0.5, 0.02, 0.5), (0.01, 0.02, 0.02)])
def test_the_braking_time_is_four_periods_and_at_least_one(given: float | None, period: float, expected: float) -> None:
    assert ef.SafetyLimits(4.0, braking_time=given).compute_braking_time(period) == expected


def test_a_safe_controller_is_its_controller_with_limits() -> None:
    inner: Any = ef.load("starling", comm_radius=3.0, time_scale=8.0)
    controller = ef.Safe(inner, max_acceleration=4.0, fence=FENCE)
    for name in ("name", "senses", "privileged", "orbit", "gain_schedule", "longest_time_step"):
        assert getattr(controller, name) == getattr(inner, name)
    assert get_safety_limits(controller) == ef.SafetyLimits(4.0, fence=FENCE)
    assert get_safety_limits(inner) is None
    assert repr(controller) == "Safe(starling, max_acceleration=4:fence=-5,-5,5,6)"
    observations = ef.observe(ef.random_disk(agents=5, comm_radius=3.0), inner.senses)
    np.testing.assert_array_equal(controller(observations), inner(observations))
    np.testing.assert_array_equal(controller.compiled_form()(observations), inner(observations))


def test_a_controller_may_be_given_by_its_name() -> None:
    assert ef.Safe("reynolds", max_acceleration=1.0).controller == ef.load("reynolds")


def test_limits_are_given_once_and_after_scaling() -> None:
    controller: Any = ef.Safe("reynolds", max_acceleration=1.0)
    with pytest.raises(ef.InputError, match="has limits already: give all limits at once"):
        ef.Safe(controller, max_acceleration=2.0)
    with pytest.raises(ef.InputError, match="scale the controller first, and then add limits with Safe"):
        scale_controller(controller, 1.0, comm_radius=3.0)


def test_the_feature_of_evasion_stops_an_approach_and_pushes_away() -> None:
    senses = ef.Senses((("evasion:distance=0.5:braking_time=0.2", "sum"),))
    flock = ef.Flock([[[0.0, 0.0], [0.3, 0.4 - 1e-9], [0.2, 0.0]]], [[[1.0, 0.0], [0.0, 0.0], [3.0, 0.0]]])
    known = ef.observe(flock, senses)[0, 0, 0, 0]
    # The first neighbour is at the distance and approached at 0.6, the second at 0.2 and recedes.
    expected = np.array([-0.6, -0.8]) * 0.6 / 0.2 + np.array([-1.0, 0.0]) * 0.3 / 0.04
    np.testing.assert_allclose(known, expected, rtol=1e-5)


def test_exported_agents_have_the_same_states() -> None:
    assert tuple(state.name for state in ef.SafetyState) == STATE_NAMES
