"""The factors of a step under a held command are the integrals that they claim to be, at all rates."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from equiflock.bodies.double_integrator import (
    QUADRATURE_LIMIT,
    compute_step_factors,
    integrate_cascade,
    integrate_decay,
    integrate_travel,
)

RATES = st.one_of(st.just(0.0), st.floats(1e-9, 1e3))


@given(RATES, RATES, st.floats(1e-4, 1.0))
def test_closed_forms_equal_numerical_integrals(one: float, other: float, time: float) -> None:
    # Intervals as short as the fastest change, which quadrature must resolve.
    bounds = np.unique(np.clip(np.append(np.arange(0, 40) / (max(one, other) + 1e-9), time), 0, time))

    def integral(function: object) -> float:
        return sum(quad(function, *ends, epsabs=0, epsrel=1e-12)[0] for ends in pairwise(bounds))

    assert integrate_decay(one, time) == pytest.approx(integral(lambda s: math.exp(-one * s)), rel=1e-10)
    both = integral(lambda s: math.exp(-one * (time - s)) * math.exp(-other * s))
    assert integrate_cascade(one, other, time) == pytest.approx(both, rel=1e-8, abs=1e-280)
    assert integrate_travel(one, other, time) == pytest.approx(
        integral(lambda s: integrate_cascade(one, other, s)), rel=1e-9
    )


@pytest.mark.parametrize("rate", [0.0, 1e-300, 1e-12, 1e-6, 1e-3])
def test_slow_rates_approach_the_double_integrator(rate: float) -> None:
    held = compute_step_factors(rate, 0.0, 0.01)
    assert held.velocity_gain == pytest.approx(0.01 * (1 - 0.005 * rate), rel=1e-9)
    assert held.position_gain == pytest.approx(0.01**2 / 2 * (1 - 0.01 * rate / 3), rel=1e-9)


def test_closed_form_and_quadrature_agree_at_their_boundary() -> None:
    below, above = (
        integrate_travel(3.0, QUADRATURE_LIMIT * (1 - 1e-14), 1.0),
        integrate_travel(3.0, QUADRATURE_LIMIT * (1 + 1e-14), 1.0),
    )
    assert below == pytest.approx(above, rel=1e-13)
    below, above = (
        integrate_travel(QUADRATURE_LIMIT * (1 - 1e-14), 0.2, 1.0),
        integrate_travel(QUADRATURE_LIMIT * (1 + 1e-14), 0.2, 1.0),
    )
    assert below == pytest.approx(above, rel=1e-13)


@pytest.mark.parametrize("lag", [5e-324, 1e-300, 1e-12])
def test_zero_lag_is_the_limit_of_small_lags(lag: float) -> None:
    held = compute_step_factors(0.5, lag, 0.01)
    assert held.actuator_decay == 0.0
    assert max(held.velocity_lag_gain, held.position_lag_gain) < 1e-11
