"""The Lipschitz constant of an activation, which bounds how much it can stretch a difference.

For a function of numbers it is sup |f'|. A function of vectors that commutes with rotations and reflections is
f(x) = x sigma(|x|), whose derivative at x has two eigenvalues: sigma + |x| sigma' along x and sigma across it. The
second is the mean of the first from 0 to |x|, so the constant is the supremum of |sigma + |x| sigma'|; the paper's
lemma has no absolute value, which makes no difference where sigma is positive and increases.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from equiflock.runtime.checks import InputError

REFINEMENTS = 4
"""How often the grid is refined around its best point."""
MAX_SLOPE = 1e6
"""A steeper slope counts as infinite."""
TAIL_POINTS = 400
"""How many points from the end of the grid the stretch is compared with that at the end, to see whether it grows."""


def lipschitz_constant(activation: nn.Module, vectors: bool = False) -> float:
    """The largest stretch of an activation with f(0) = 0.

    Args:
        activation: of numbers, element by element, or of vectors, whose components are its input's first axis.
        vectors: whether it acts on vectors.

    The supremum is searched on a grid that is finest around 0, and then on finer ones around the best point, so it is
    meant for smooth activations, not for ones with many narrow peaks. One whose stretch grows without bound has no
    Lipschitz constant, and is refused.
    """
    side = torch.logspace(-6, 6, 4001, dtype=torch.float64)
    zero = torch.zeros(1, dtype=torch.float64)
    # By symmetry, one side is enough for vectors.
    grid = torch.cat([zero, side]) if vectors else torch.cat([-side.flip(0), zero, side])
    _check_activation(activation, grid, vectors)
    points, best = grid, 0.0
    for zoom in range(REFINEMENTS):
        stretch = _compute_stretch(activation, grid, vectors)
        stretch = torch.where((grid == 0) & stretch.isnan(), 0.0, stretch)  # a square root has no slope at 0
        if not stretch.isfinite().all():
            raise InputError(f"{_format_name(activation)} has a derivative that is not a number")
        # If the largest stretch is at an end of the first grid and still grows there, there is no largest one.
        top = int(stretch.argmax())
        nearer = {0: TAIL_POINTS, len(grid) - 1: len(grid) - 1 - TAIL_POINTS}.get(top)
        if zoom == 0 and nearer is not None and grid[top] != 0 and stretch[top] > 1.01 * stretch[nearer]:
            raise InputError(f"{_format_name(activation)} stretches ever more: it has no Lipschitz constant")
        best = max(best, stretch[top].item())
        # The next grid lies between the neighbours of the best point.
        low, high = grid[max(top - 1, 0)], grid[min(top + 1, len(grid) - 1)]
        grid = torch.linspace(low.item(), high.item(), 1001, dtype=torch.float64)
    # A jump does not show in the slope, only in the differences of values.
    x = torch.stack([points, torch.zeros_like(points)]) if vectors else points
    with torch.no_grad():
        values = activation(x)[0] if vectors else activation(x)
    if ((values.diff() / points.diff()).abs() > 1.001 * best + 1e-9).any() or best > MAX_SLOPE:
        raise InputError(f"{_format_name(activation)} jumps, or is too steep: it has no Lipschitz constant")
    return best


def _compute_stretch(activation: nn.Module, grid: Tensor, vectors: bool) -> Tensor:
    """How much the activation stretches at every point of the grid; vectors at (x, 0), along themselves."""
    x = (torch.stack([grid, torch.zeros_like(grid)]) if vectors else grid[None].clone()).requires_grad_()
    y = activation(x) if vectors else activation(x[0])[None]
    # The slope along x; across it the stretch is never larger.
    (slope,) = torch.autograd.grad(y[0].sum(), x)
    return slope[0].abs()


def _check_activation(activation: nn.Module, grid: Tensor, vectors: bool) -> None:
    """A clear error unless it acts on each number or vector by itself, commutes with rotations, and maps 0 to 0."""
    name = _format_name(activation)
    x = torch.stack([grid, 0.5 * grid.flip(0)]) if vectors else grid
    with torch.no_grad():
        # The first half alone must give the same as the first half of all.
        half = x[..., : x.shape[-1] // 2]
        every, alone, origin = activation(x), activation(half), activation(torch.zeros_like(half[..., :1]))
        if every.shape != x.shape or not torch.allclose(every[..., : half.shape[-1]], alone, rtol=1e-6, atol=0.0):
            raise InputError(f"{name} must act on every {'vector' if vectors else 'number'} by itself")
        # A rotation by the angle of the 3-4-5 triangle.
        turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=x.dtype)
        if vectors and not torch.allclose(activation(turn @ x), turn @ every, rtol=1e-6, atol=1e-9):
            raise InputError(f"{name} must commute with rotations, to go with equivariant layers")
    if not origin.abs().max() <= 1e-12:
        raise InputError(f"{name} must be 0 at 0 for the bound to hold; it is {origin.flatten()[0].item():g}")


def _format_name(activation: nn.Module) -> str:
    parts = activation if isinstance(activation, nn.Sequential) else [activation]
    return " and ".join(type(part).__name__ for part in parts)
