"""The Lipschitz constant of an activation, sup |f(x) - f(y)| / |x - y|.

For a function of numbers it is sup |f'|. A function of vectors that commutes with rotations and reflections has the
form f(x) = x sigma(|x|), whose derivative at x has two eigenvalues: sigma + |x| sigma' along x and sigma perpendicular
to x. The second is the mean of the first from 0 to |x|, so the constant is the supremum of |sigma + |x| sigma'|. The
paper's lemma has no absolute value, which makes no difference if sigma is positive and increasing.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from equiflock.runtime.checks import InputError

REFINEMENTS = 4
"""Number of grids: the first and its refinements around the best point."""
MAX_SLOPE = 1e6
"""A steeper slope counts as infinite."""
TAIL_POINTS = 400
"""Distance, in grid points, over which the slope is compared at the ends of the grid, to detect growth."""


def lipschitz_constant(activation: nn.Module, vectors: bool = False) -> float:
    """Return the Lipschitz constant of an activation with f(0) = 0.

    Args:
        activation: function of numbers, elementwise, or of vectors, whose components are the first axis of its input.
        vectors: whether the activation acts on vectors.

    The search for the supremum uses a grid that is finest around 0, and then finer ones around the best point, so it is
    meant for smooth activations, not for those with many narrow peaks.

    Raises:
        InputError: if the slope is unbounded or above 1e6, or the activation jumps, is not 0 at 0, mixes elements, or,
            for vectors, does not commute with rotations.
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
    """Raise InputError if the activation mixes elements, is not 0 at 0 or, for vectors, does not commute with rotation.

    Elements are numbers, or vectors, whose components are the first axis.
    """
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
