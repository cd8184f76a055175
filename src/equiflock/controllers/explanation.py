"""The acceleration of one agent as a sum of contributions: which part of its observations moves it.

A law that has named terms, such as alignment and separation, is split into these (`ExplainedLaw`). Any other
controller is split by its observations: the contribution of channel c at hop k is gradient times input,

    sum over d of (da / dz_kcd) z_kcd  =  da(.., s z_kc, ..) / ds at s = 1,

the change of the acceleration per relative change of that vector. For a linear controller these are its terms. For a
network they need not sum to the acceleration: the difference, the remainder, is what saturation, normalization and
biases add. The derivative is a central difference of fourth order, so any function of observations can be explained;
all differences are one batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, shorten_repr
from equiflock.controllers.classical.pair_law import Vector
from equiflock.controllers.gain_schedule import compute_gain
from equiflock.controllers.safe import unwrap_safe
from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.controllers.unit_scaling import ScaledController
from equiflock.features import Senses
from equiflock.flock import Flock, Observations

Method: TypeAlias = Literal["gradient times input", "terms"]
STEP = 0.05
"""Relative change of a vector in the central difference: float32 networks round less than their curvature bends."""
OFFSETS = np.array([-2.0, -1.0, 1.0, 2.0]) * STEP
COEFFICIENTS = np.array([1.0, -8.0, 8.0, -1.0]) / (12.0 * STEP)
"""Weights of the accelerations at 1 + OFFSETS in the derivative; the error is of order STEP^4."""


@runtime_checkable
class ExplainedLaw(Protocol):
    """A controller whose acceleration is a sum of named terms."""

    def compute_terms(
        self, observation: Float[np.ndarray, "K C D"], flock: Flock | None, agent: int
    ) -> Mapping[str, Vector]:
        """Return the terms of one follower's acceleration by name, in the order to show them.

        `observation` is its own; `flock`, a batch of one, is for privileged laws, which may need it.
        """


class Contribution(NamedTuple):
    """One part of an acceleration."""

    name: str
    """Name of the law's term, or the feature of the channel."""
    vector: Vector
    hop: int | None = None
    """Hop k = 1 .. K of the observation; None for a term."""
    channel: int | None = None
    """Index c of the channel in `Senses.channels`; None for a term."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """The acceleration of one agent and the contributions to it."""

    method: Method
    acceleration: Vector
    """What the controller commands for this observation, before the limits of `Safe`."""
    contributions: tuple[Contribution, ...]
    """The terms of a law, or one contribution hop by hop and channel by channel."""

    @property
    def remainder(self) -> Vector:
        """The acceleration minus the sum of all contributions."""
        return np.asarray(self.acceleration - sum(part.vector for part in self.contributions))


def explain(
    controller: Any,
    observations: Observations,
    agent: int | tuple[int, int],
    *,
    flock: Flock | None = None,
    time_step: float | None = None,
    latency: int = 0,
) -> Explanation:
    """Return the acceleration of one agent, a follower, as a sum of contributions and a remainder.

    >>> import equiflock as ef
    >>> controller = ef.load("etdagnn")
    >>> moment = next(ef.flight(ef.random_disk(agents=50, seed=1), controller))
    >>> explanation = ef.explain(controller, moment.observations, agent=7)
    >>> [(part.name, part.hop) for part in explanation.contributions][:4]
    [('velocity', 1), ('inverse-fourth', 1), ('inverse-square', 1), ('velocity', 2)]

    Laws of the package are split into their named terms, and so is any controller with `compute_terms`
    (`ExplainedLaw`). Others are split by gradient times input, per hop and channel; a contribution is 0 where
    the vector is 0. Near a kink, such as that of a ReLU, the gradient is an average over 10% of the vector.

    Args:
        controller: any controller; a privileged one needs named terms.
        observations: (B, N, K, C, D), those of a moment.
        agent: its index in the first flock, or (flock, agent).
        flock: the flocks of the moment, for a privileged controller.
        time_step: dt of the flight, for the factor of a gain schedule; None: the factor is 1.
        latency: of the radio, in steps, also for the gain schedule.
    """
    controller = unwrap_safe(controller)
    senses = getattr(controller, "senses", None)
    if not callable(controller) or not isinstance(senses, Senses):
        raise InputError(f"controller must be callable and declare senses; got {shorten_repr(controller)}")
    b, i = _check_agent(agent, np.shape(observations), senses)
    own = np.asarray(observations)[b, i]
    gain = 1.0 if time_step is None else compute_gain(controller, time_step, latency)
    single = flock
    if flock is not None:
        single = Flock.view(*(array[b : b + 1] for array in flock.arrays), comm_radius=flock.comm_radius)
    terms = _compute_terms(controller, own, single, i)
    if terms is None and getattr(controller, "privileged", False):
        raise InputError(
            f"{getattr(controller, 'name', type(controller).__name__)} reads the whole flock and has no named terms: "
            "only its acceleration is known"
        )
    if terms is None:
        acceleration, contributions = _differentiate(controller, own, senses)
        method: Method = "gradient times input"
    else:
        contributions = [Contribution(name, np.asarray(vector, np.float64)) for name, vector in terms.items()]
        acceleration, method = np.sum([part.vector for part in contributions], axis=0), "terms"
    scaled = tuple(part._replace(vector=gain * part.vector) for part in contributions)
    return Explanation(method, gain * acceleration, scaled)


def _check_agent(agent: Any, shape: tuple[int, ...], senses: Senses) -> tuple[int, int]:
    """Return the indices of flock and agent; raise InputError if they or the observations do not fit."""
    if len(shape) != 5 or shape[2:4] != (senses.hops, senses.width):
        expected = f"(B, N, K = {senses.hops}, C = {senses.width}, D)"
        raise InputError(f"observations must have the shape {expected}; got {shape}")
    indices = agent if isinstance(agent, tuple) else (0, agent)
    if len(indices) != 2 or not all(isinstance(index, int | np.integer) for index in indices):
        raise InputError(f"agent must be an index, or (flock, agent); got {shorten_repr(agent)}")
    b, i = (int(index) for index in indices)
    if not (0 <= b < shape[0] and 0 <= i < shape[1]):
        raise InputError(f"agent must be below {shape[1]}, and the flock below {shape[0]}; got {shorten_repr(agent)}")
    return b, i


def _compute_terms(controller: Any, own: NDArray[Any], flock: Flock | None, agent: int) -> dict[str, Vector] | None:
    """Return the named terms of a law in the flock's units; None if it has none."""
    if isinstance(controller, ScaledController):
        length, time = controller.length_scale, controller.time_scale
        inner = None if flock is None else flock.in_units(length, time)
        terms = _compute_terms(controller.controller, own, inner, agent)
        return terms and {name: controller.acceleration_scale * vector for name, vector in terms.items()}
    if not isinstance(controller, ExplainedLaw):
        return None
    if flock is None and getattr(controller, "privileged", False):
        raise InputError(f"{getattr(controller, 'name', 'the controller')} reads the whole flock: give flock=")
    return dict(controller.compute_terms(own, flock, agent))


def _differentiate(controller: Any, own: NDArray[Any], senses: Senses) -> tuple[Vector, list[Contribution]]:
    """Return the acceleration for one observation (K, C, D) and gradient times input of each hop and channel."""
    K, C, D = own.shape
    # The acceleration itself, and four neighbours of it along each vector that is not zero.
    blocks = np.argwhere(own.any(axis=2))
    batch = np.repeat(own[None], 1 + len(OFFSETS) * len(blocks), axis=0)
    varied = batch[1:].reshape(len(blocks), len(OFFSETS), K, C, D)
    at = np.arange(len(blocks))
    varied[at, :, blocks[:, 0], blocks[:, 1]] *= (1.0 + OFFSETS)[None, :, None].astype(own.dtype)
    # One flock for each, as a controller may not depend on other agents.
    values = np.asarray(as_numpy_function(controller)(batch[:, None]), np.float64)
    if values.shape != (len(batch), 1, D):
        raise InputError(f"accelerations must have the shape {(len(batch), 1, D)}; got {values.shape}")
    derivatives = np.zeros((K, C, D))
    shaped = values[1:, 0].reshape(len(blocks), len(OFFSETS), D)
    derivatives[blocks[:, 0], blocks[:, 1]] = np.einsum("o,mod->md", COEFFICIENTS, shaped)
    contributions = [
        Contribution(senses.channels[c][0], derivatives[k, c], k + 1, c) for k in range(K) for c in range(C)
    ]
    return values[0, 0], contributions
