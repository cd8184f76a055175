"""The bound on the generalization gap (section 4.4 of the paper, "Bounding the generalization gap").

With probability at least 1 - delta over the choice of m independent training tuples, the expected loss of a controller
exceeds its mean loss on them by at most

    8 / m + (48 D / sqrt(m)) sqrt(S) + 3 sqrt(ln(2 / delta) / (2 m)),

    S = 3 (L + 1) ln(10 L beta C^L sqrt(D m M)) + (2 L + 3) sum_l ln max(1, |W_l|_F),

for the L matrices W_l of its MLP form, D their largest dimension, beta >= 1 the data bound, C >= 1 the activations'
Lipschitz constant, and the loss min(1, (b^2 + MSE) / M). The paper prints 3 L + 1 instead of 3 (L + 1), which
its proof derives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, cast, runtime_checkable

import torch

from equiflock.controllers.networks.models import as_module
from equiflock.features import Channel
from equiflock.protocols import LocalController
from equiflock.runtime.checks import InputError, check_choice, check_count, check_positive
from equiflock.theory.lipschitz import lipschitz_constant
from equiflock.theory.mlp import MLP, as_mlp

Variant = Literal["proven", "printed"]


@runtime_checkable
class BoundData(Protocol):
    """Properties of a data set that the bound depends on, such as `FastForwardData`."""

    @property
    def hops(self) -> int:
        """K, the number of hops of the observations."""
        ...

    @property
    def samples(self) -> int:
        """m, the number of training tuples."""
        ...

    @property
    def largest_target(self) -> float:
        """Largest norm of the expert's acceleration."""
        ...

    def largest_input(self, channels: tuple[Channel, ...]) -> float:
        """Return the largest |Z_i|_F of any agent, for observations with these channels."""
        ...


@dataclass(frozen=True)
class Bound:
    """The bound and all of its terms; `str` formats them as a table."""

    samples: int
    """m, the number of training tuples."""
    largest_dimension: int
    """D, the largest number of rows or columns of a matrix."""
    data_bound: float
    """beta, a bound on the norms of all inputs and of the expert's accelerations."""
    lipschitz: float
    """C >= 1, the Lipschitz constant of the activations."""
    norms: tuple[float, ...]
    """|W_l|_F of each matrix."""
    loss_scale: float = 2.0
    """M, the scale of the loss min(1, (b^2 + MSE) / M)."""
    failure_probability: float = 1e-3
    """delta, the probability that the bound does not hold."""
    variant: Variant = "proven"
    """The factor before the logarithm: 3 (L + 1) as proven, or 3 L + 1 as printed."""

    def __post_init__(self) -> None:
        for name in ("samples", "largest_dimension"):
            check_count(name, getattr(self, name))
        check_choice("variant", self.variant, ("proven", "printed"))
        # The proof requires each of these to be at least 1; b is at most sqrt(M), so M bounds a norm too.
        for name in ("data_bound", "lipschitz", "loss_scale"):
            if check_positive(name, getattr(self, name)) < 1.0:
                raise InputError(f"{name} must be at least 1; got {getattr(self, name)!r}")
        if not 0.0 < self.failure_probability < 1.0:
            raise InputError(f"failure_probability must be between 0 and 1; got {self.failure_probability!r}")
        if not self.norms or not all(math.isfinite(norm) and norm >= 0.0 for norm in self.norms):
            raise InputError(f"norms must be the matrices' Frobenius norms, finite and at least 0; got {self.norms!r}")

    @property
    def layers(self) -> int:
        """L, the number of matrices."""
        return len(self.norms)

    @property
    def sample_term(self) -> float:
        """8 / m."""
        return 8 / self.samples

    @property
    def coefficient(self) -> float:
        """48 D / sqrt(m)."""
        return 48 * self.largest_dimension / math.sqrt(self.samples)

    @property
    def log_factor(self) -> int:
        """The factor before the logarithm: 3 (L + 1), or 3 L + 1."""
        return 3 * (self.layers + 1) if self.variant == "proven" else 3 * self.layers + 1

    @property
    def logarithm(self) -> float:
        """ln(10 L beta C^L sqrt(D m M))."""
        return (
            # Term by term, because the product could overflow.
            math.log(10 * self.layers * self.data_bound)
            + self.layers * math.log(self.lipschitz)
            + math.log(self.largest_dimension * self.samples * self.loss_scale) / 2
        )

    @property
    def norm_sum(self) -> float:
        """Sum over matrices of ln max(1, |W_l|_F)."""
        return sum(math.log(max(1.0, norm)) for norm in self.norms)

    @property
    def root(self) -> float:
        """sqrt(S)."""
        return math.sqrt(self.log_factor * self.logarithm + (2 * self.layers + 3) * self.norm_sum)

    @property
    def rademacher_term(self) -> float:
        """4 / m + (24 D / sqrt(m)) sqrt(S), the bound on the empirical Rademacher complexity of the losses."""
        return (self.sample_term + self.coefficient * self.root) / 2

    @property
    def confidence_term(self) -> float:
        """3 sqrt(ln(2 / delta) / (2 m))."""
        return 3 * math.sqrt(math.log(2 / self.failure_probability) / (2 * self.samples))

    @property
    def value(self) -> float:
        """Value of the bound. The loss is at most 1, so a bound above 1 is vacuous."""
        return self.sample_term + self.coefficient * self.root + self.confidence_term

    def __str__(self) -> str:
        # Show both variants.
        other: Variant = "printed" if self.variant == "proven" else "proven"
        rows = [
            ("training tuples, m", f"{self.samples:,}"),
            ("matrices, L", f"{self.layers}"),
            ("largest dimension, D", f"{self.largest_dimension}"),
            ("data bound, beta", f"{self.data_bound:,.0f}"),
            ("Lipschitz constant of activations, C", f"{self.lipschitz:.5g}"),
            ("Frobenius norms, |W_l|", ", ".join(f"{norm:.4g}" for norm in self.norms)),
            ("scale of the loss, M", f"{self.loss_scale:g}"),
            ("probability of failure, delta", f"{self.failure_probability:g}"),
            ("ln(10 L beta C^L sqrt(D m M))", f"{self.logarithm:.4g}, times {self.log_factor}"),
            ("sum of ln max(1, |W_l|)", f"{self.norm_sum:.4g}, times {2 * self.layers + 3}"),
            ("sqrt(S)", f"{self.root:.4g}"),
            ("8 / m", f"{self.sample_term:.4g}"),
            ("48 D / sqrt(m)", f"{self.coefficient:.4g}"),
            ("3 sqrt(ln(2 / delta) / (2 m))", f"{self.confidence_term:.4g}"),
            (f"bound as {self.variant}", f"{self.value:.4g}"),
            (f"bound as {other}", f"{replace(self, variant=other).value:.4g}"),
        ]
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:<{width}}  {value}" for label, value in rows)


def generalization_bound(
    controller: LocalController,
    data: BoundData,
    *,
    loss_scale: float = 2.0,
    failure_probability: float = 1e-3,
    variant: Variant = "proven",
) -> Bound:
    """Return the bound for a controller with its current weights, trained on this data.

    beta is the largest norm of an input (with its columns of ones) or of a target, and at least 1. Raise InputError if
    the controller does not compute what its `chain` does, or has other hops than the data.

    Args:
        controller: a network of the paper's family: a torch module with `senses` and a `chain` of layers.
        data: the training data, such as `FastForwardData`.
        loss_scale: M, the scale of the loss min(1, (b^2 + MSE) / M).
        failure_probability: delta.
        variant: the factor as "proven", 3 (L + 1), or as "printed", 3 L + 1.
    """
    if not isinstance(data, BoundData):
        raise InputError(f"data must be a data set such as FastForward(...).make() returns; got {type(data).__name__}")
    controller = as_module(controller)
    mlp = as_mlp(controller)
    _check_same_function(controller, mlp)
    if controller.senses.hops != data.hops:
        raise InputError(f"the controller observes {controller.senses.hops} hops, but the data has {data.hops}")
    # The L activations sigma_0 .. sigma_(L-1) give the factor C^L of the bound.
    lipschitz = max(1.0, *(lipschitz_constant(sigma, vectors=mlp.equivariant) for sigma in mlp.activations))
    # The columns of ones that carry the biases are part of the input.
    largest_input = math.hypot(data.largest_input(controller.senses.channels), math.sqrt(mlp.ones[0]))
    return Bound(
        samples=data.samples,
        largest_dimension=mlp.largest_dimension,
        data_bound=max(1.0, largest_input, data.largest_target),
        lipschitz=lipschitz,
        norms=tuple(weight.norm().item() for weight in mlp.weights),
        loss_scale=loss_scale,
        failure_probability=failure_probability,
        variant=variant,
    )


def _check_same_function(controller: LocalController, mlp: MLP) -> None:
    """Raise InputError if controller and MLP differ (rtol 1e-3) on fixed observations of five agents, D = 2."""
    # Five agents with evenly spaced numbers are enough to distinguish two functions.
    shape = 1, 5, controller.senses.hops, controller.senses.width, 2
    observations = torch.linspace(-2.0, 2.0, math.prod(shape), dtype=mlp.weights[0].dtype).view(shape)
    try:
        with torch.no_grad():
            expected, actual = mlp(observations), cast(Callable[[Any], Any], controller)(observations)
        same = expected.shape == actual.shape == (1, 5, 2) and torch.allclose(expected, actual, rtol=1e-3, atol=1e-4)
    except RuntimeError as error:
        raise InputError(f"the controller must accept observations in the plane (D = 2): {error}") from None
    if not same:
        raise InputError("the controller must return the accelerations (B, N, 2) that its chain of layers computes")
