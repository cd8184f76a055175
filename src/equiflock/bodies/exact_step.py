"""Exact steps under a command that is held: what first-order actuators and drag make of it.

With a held command u, a held gust g, actuators that follow at the rate l = 1 / lag, and drag at the rate k,

    a'(t) = l (u - a(t)),    v'(t) = a(t) + g - k v(t),    r'(t) = v(t),

so that after a time t, by the integrals below,

    a(t) = u + (a(0) - u) e^(-l t)
    v(t) = v(0) e^(-k t) + (u + g) gain(k) + (a(0) - u) cascade(k, l)
    r(t) = r(0) + v(0) gain(k) + (u + g) travel(k, 0) + (a(0) - u) travel(k, l)
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

QUADRATURE_LIMIT = 0.5
"""Below this rate times time, differences of integrals lose digits, and quadrature with 8 nodes loses none."""
QUADRATURE_NODES, QUADRATURE_WEIGHTS = (values.tolist() for values in np.polynomial.legendre.leggauss(8))


class StepFactors(NamedTuple):
    """The factors of a step, in the equations above."""

    time_step: float
    velocity_decay: float
    velocity_gain: float
    position_gain: float
    actuator_decay: float
    velocity_lag_gain: float
    position_lag_gain: float


@lru_cache(maxsize=256)
def compute_step_factors(drag: float, lag: float, time_step: float) -> StepFactors:
    """The factors of a step of that length. Without lag, a(0) is taken to be u, and the factors of a(0) - u are 0."""
    lagged = 0.0, 0.0, 0.0
    if lag > 0.0:
        rate = 1.0 / lag
        lagged = (
            math.exp(-rate * time_step),
            integrate_cascade(drag, rate, time_step),
            integrate_travel(drag, rate, time_step),
        )
    pushed = math.exp(-drag * time_step), integrate_decay(drag, time_step), integrate_travel(drag, 0.0, time_step)
    return StepFactors(time_step, *pushed, *lagged)


def integrate_decay(rate: float, time: float) -> float:
    """The integral of e^(-rate s) over s from 0 to time."""
    return time if rate * time < 1e-17 else -math.expm1(-rate * time) / rate


def integrate_cascade(one: float, other: float, time: float) -> float:
    """The integral of e^(-one (time - s)) e^(-other s) over s from 0 to time; the same if the rates change places."""
    # The slower of them comes out of the integral, so that nothing overflows.
    return math.exp(-min(one, other) * time) * integrate_decay(abs(one - other), time)


def integrate_travel(one: float, other: float, time: float) -> float:
    """The integral of cascade(one, other, s) over s from 0 to time."""
    slow, fast = sorted((one, other))
    if fast == 0.0:
        return 0.5 * time * time
    if fast * time > QUADRATURE_LIMIT:
        return (integrate_decay(slow, time) - integrate_cascade(one, other, time)) / fast
    half = 0.5 * time
    return half * sum(
        w * integrate_cascade(one, other, half * (1.0 + x))
        for x, w in zip(QUADRATURE_NODES, QUADRATURE_WEIGHTS, strict=True)
    )
