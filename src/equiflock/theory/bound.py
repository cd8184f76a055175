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
from torch import Tensor, nn

from equiflock._runtime.checks import InputError, check_choice, check_count, check_positive
from equiflock.controllers.networks.models import as_module
from equiflock.features import Channel
from equiflock.protocols import LocalController
from equiflock.theory.mlp import MLP, as_mlp

Variant = Literal["proven", "printed"]
REFINEMENTS = 4
"""Number of grids: the first and its refinements around the best point."""
MAX_SLOPE = 1e6
"""A steeper slope counts as infinite."""
TAIL_POINTS = 400
"""Distance, in grid points, over which the slope is compared at the ends of the grid, to detect growth."""


def lipschitz_constant(activation: nn.Module, vectors: bool = False) -> float:
    """Return sup |f(x) - f(y)| / |x - y| of an activation with f(0) = 0, elementwise or, with `vectors`, of vectors.

    For a function of numbers it is sup |f'|. A function of vectors, whose components are the first axis of its input,
    that commutes with rotations and reflections has the form f(x) = x sigma(|x|), whose derivative at x has two
    eigenvalues: sigma + |x| sigma' along x and sigma perpendicular to x. The second is the mean of the first from 0 to
    |x|, so the constant is the supremum of |sigma + |x| sigma'|. The paper's lemma has no absolute value, which makes
    no difference if sigma is positive and increasing.

    The search uses a grid that is finest around 0, and then finer ones around the best point, so it is meant for smooth
    activations, not for those with many narrow peaks. Raise InputError if the slope is unbounded or above 1e6, or the
    activation jumps, is not 0 at 0, mixes elements, or, for vectors, does not commute with rotations.
    """
    side = torch.logspace(-6, 6, 4001, dtype=torch.float64)
    zero = torch.zeros(1, dtype=torch.float64)
    # By symmetry, nonnegative numbers are enough for vectors.
    grid = torch.cat([zero, side]) if vectors else torch.cat([-side.flip(0), zero, side])
    _check_activation(activation, grid, vectors)
    points, best = grid, 0.0
    for refinement in range(REFINEMENTS):
        stretch = _compute_stretch(activation, grid, vectors)
        stretch = torch.where((grid == 0) & stretch.isnan(), 0.0, stretch)  # a square root has no slope at 0
        if not stretch.isfinite().all():
            raise InputError(f"{_format_name(activation)} must have a finite derivative")
        # If the slope is largest at an end of the first grid and still grows there, it is unbounded.
        top = int(stretch.argmax())
        inner = {0: TAIL_POINTS, len(grid) - 1: len(grid) - 1 - TAIL_POINTS}.get(top)
        if refinement == 0 and inner is not None and grid[top] != 0 and stretch[top] > 1.01 * stretch[inner]:
            raise InputError(f"{_format_name(activation)} has an unbounded slope: it has no Lipschitz constant")
        best = max(best, stretch[top].item())
        # The next grid spans the two intervals at the best point.
        low, high = grid[max(top - 1, 0)], grid[min(top + 1, len(grid) - 1)]
        grid = torch.linspace(low.item(), high.item(), 1001, dtype=torch.float64)
    # A jump is not visible in the slope, only in the differences of values.
    x = torch.stack([points, torch.zeros_like(points)]) if vectors else points
    with torch.no_grad():
        values = activation(x)[0] if vectors else activation(x)
    if ((values.diff() / points.diff()).abs() > 1.001 * best + 1e-9).any() or best > MAX_SLOPE:
        raise InputError(f"{_format_name(activation)} is discontinuous or too steep: it has no Lipschitz constant")
    return best


def _compute_stretch(activation: nn.Module, grid: Tensor, vectors: bool) -> Tensor:
    """Return |f'| at each grid point x; for vectors, that along the vector (x, 0)."""
    x = (torch.stack([grid, torch.zeros_like(grid)]) if vectors else grid[None].clone()).requires_grad_()
    y = activation(x) if vectors else activation(x[0])[None]
    # The slope along x; the perpendicular one is never larger.
    (slope,) = torch.autograd.grad(y[0].sum(), x)
    return slope[0].abs()


def _check_activation(activation: nn.Module, grid: Tensor, vectors: bool) -> None:
    """Raise InputError if the activation mixes elements, is not 0 at 0 or, of vectors, not rotation-equivariant."""
    name = _format_name(activation)
    x = torch.stack([grid, 0.5 * grid.flip(0)]) if vectors else grid
    with torch.no_grad():
        # The result of the first half alone must equal the first half of the result.
        half = x[..., : x.shape[-1] // 2]
        y, y_half, y_zero = activation(x), activation(half), activation(torch.zeros_like(half[..., :1]))
        if y.shape != x.shape or not torch.allclose(y[..., : half.shape[-1]], y_half, rtol=1e-6, atol=0.0):
            raise InputError(f"{name} must act on each {'vector' if vectors else 'number'} separately")
        # A rotation by the angle of the 3-4-5 triangle.
        rotation = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=x.dtype)
        if vectors and not torch.allclose(activation(rotation @ x), rotation @ y, rtol=1e-6, atol=1e-9):
            raise InputError(f"{name} must commute with rotations, because the layers are equivariant")
    if not y_zero.abs().max() <= 1e-12:
        raise InputError(f"{name} must be 0 at 0 for the bound to hold; got {y_zero.flatten()[0].item():g}")


def _format_name(activation: nn.Module) -> str:
    """Return the class name of an activation; those of an `nn.Sequential` are joined by "and"."""
    parts = activation if isinstance(activation, nn.Sequential) else [activation]
    return " and ".join(type(part).__name__ for part in parts)


@runtime_checkable
class BoundData(Protocol):
    """Properties of a data set that the bound depends on, such as `FastForwardData`."""

    @property
    def hops(self) -> int:
        """K, the number of hops of the observations."""

    @property
    def samples(self) -> int:
        """m, the number of training tuples."""

    @property
    def largest_target(self) -> float:
        """Largest norm of the expert's acceleration."""

    def largest_input(self, channels: tuple[Channel, ...]) -> float:
        """Return the largest |Z_i|_F of any agent, for observations with these channels."""


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

    The controller is a network of the paper's family, with `senses` and a `chain` of layers. beta is the largest norm
    of an input (with its columns of ones) or of a target, and at least 1. The other arguments are as for `Bound`. Raise
    InputError if the controller does not compute what its `chain` does, or has other hops than the data.
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
