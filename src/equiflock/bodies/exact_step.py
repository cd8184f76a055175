"""Exact steps of a double integrator with first-order actuators and drag, under a constant command.

With a constant command u, a constant gust g, actuators of the rate l = 1 / lag, and drag of the rate k,

    a'(t) = l (u - a(t)),    v'(t) = a(t) + g - k v(t),    r'(t) = v(t),

so after a time t

    a(t) = u + (a(0) - u) e^(-l t)
    v(t) = v(0) e^(-k t) + (u + g) decay(k) + (a(0) - u) cascade(k, l)
    r(t) = r(0) + v(0) decay(k) + (u + g) travel(k, 0) + (a(0) - u) travel(k, l)

with the integrals `integrate_decay`, `integrate_cascade` and `integrate_travel` below.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

QUADRATURE_LIMIT = 0.5
"""Rate times time below which a difference of integrals loses digits, and quadrature with 8 nodes loses none."""
QUADRATURE_NODES, QUADRATURE_WEIGHTS = (values.tolist() for values in np.polynomial.legendre.leggauss(8))


class StepFactors(NamedTuple):
    """Factors of the equations above for one step."""

    time_step: float
    velocity_decay: float
    """e^(-k t)."""
    velocity_gain: float
    """decay(k)."""
    position_gain: float
    """travel(k, 0)."""
    actuator_decay: float
    """e^(-l t)."""
    velocity_lag_gain: float
    """cascade(k, l)."""
    position_lag_gain: float
    """travel(k, l)."""


@lru_cache(maxsize=256)
def compute_step_factors(drag: float, lag: float, time_step: float) -> StepFactors:
    """Return the factors of a step, cached. Without lag a(0) = u, and the factors of a(0) - u are 0."""
    lag_factors = 0.0, 0.0, 0.0
    if lag > 0.0:
        rate = 1.0 / lag
        lag_factors = (
            math.exp(-rate * time_step),
            integrate_cascade(drag, rate, time_step),
            integrate_travel(drag, rate, time_step),
        )
    factors = math.exp(-drag * time_step), integrate_decay(drag, time_step), integrate_travel(drag, 0.0, time_step)
    return StepFactors(time_step, *factors, *lag_factors)


def integrate_decay(rate: float, time: float) -> float:
    """Return the integral of e^(-rate s) over s from 0 to time."""
    return time if rate * time < 1e-17 else -math.expm1(-rate * time) / rate


def integrate_cascade(drag: float, lag_rate: float, time: float) -> float:
    """Return the integral of e^(-drag (time - s)) e^(-lag_rate s) over s from 0 to time; the rates may be swapped."""
    # The slower exponential is taken out of the integral, which prevents overflow.
    return math.exp(-min(drag, lag_rate) * time) * integrate_decay(abs(drag - lag_rate), time)


def integrate_travel(drag: float, lag_rate: float, time: float) -> float:
    """Return the integral of cascade(drag, lag_rate, s) over s from 0 to time."""
    slow, fast = sorted((drag, lag_rate))
    if fast == 0.0:
        return 0.5 * time * time
    if fast * time > QUADRATURE_LIMIT:
        return (integrate_decay(slow, time) - integrate_cascade(drag, lag_rate, time)) / fast
    half = 0.5 * time
    return half * sum(
        w * integrate_cascade(drag, lag_rate, half * (1.0 + x))
        for x, w in zip(QUADRATURE_NODES, QUADRATURE_WEIGHTS, strict=True)
    )
