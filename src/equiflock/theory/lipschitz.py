"""How much an activation can stretch a difference: its Lipschitz constant, computed from the activation itself.

For a function of numbers it is sup |f'|. A function of vectors that commutes with rotations and reflections is
f(x) = x sigma(|x|), whose derivative at x has two eigenvalues: sigma + |x| sigma' along x and sigma across it. The
second is the mean of the first from 0 to |x|, so the constant is the supremum of |sigma + |x| sigma'|; the paper's
lemma lacks the absolute value, which comes to the same where sigma is positive and increases.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from equiflock.runtime.checks import InputError

ZOOMS = 4
STEEPEST = 1e6
"""Beyond this a slope counts as infinite."""
OUTER = 400
"""Points of the grid from its end in which a stretch that grows is seen to."""


def lipschitz_constant(activation: nn.Module, vectors: bool = False) -> float:
    """The largest stretch of an activation with f(0) = 0.

    Args:
        activation: of numbers, element by element, or of vectors, whose components are its input's first axis.
        vectors: which of the two.

    The supremum is looked for on a grid that is finest around 0, and then on ever finer ones around its best point: it
    is meant for activations that bend a few times, not for ones that wiggle. An activation that stretches ever more has
    none, and is refused.
    """
    side = torch.logspace(-6, 6, 4001, dtype=torch.float64)
    zero = torch.zeros(1, dtype=torch.float64)
    # By symmetry, one side is enough for vectors.
    grid = torch.cat([zero, side]) if vectors else torch.cat([-side.flip(0), zero, side])
    _check(activation, grid, vectors)
    points, best = grid, 0.0
    for zoom in range(ZOOMS):
        stretch = _stretch(activation, grid, vectors)
        stretch = torch.where((grid == 0) & stretch.isnan(), 0.0, stretch)  # such as of a root that is 0
        if not stretch.isfinite().all():
            raise InputError(f"{_name(activation)} has a derivative that is not a number")
        top = int(stretch.argmax())
        nearer = {0: OUTER, len(grid) - 1: len(grid) - 1 - OUTER}.get(top)
        if zoom == 0 and nearer is not None and grid[top] != 0 and stretch[top] > 1.01 * stretch[nearer]:
            raise InputError(f"{_name(activation)} stretches ever more: it has no Lipschitz constant")
        best = max(best, stretch[top].item())
        low, high = grid[max(top - 1, 0)], grid[min(top + 1, len(grid) - 1)]
        grid = torch.linspace(low.item(), high.item(), 1001, dtype=torch.float64)
    # A jump has no slope: it shows in the values only.
    x = torch.stack([points, torch.zeros_like(points)]) if vectors else points
    with torch.no_grad():
        values = activation(x)[0] if vectors else activation(x)
    if ((values.diff() / points.diff()).abs() > 1.001 * best + 1e-9).any() or best > STEEPEST:
        raise InputError(f"{_name(activation)} jumps, or is too steep: it has no Lipschitz constant")
    return best


def _stretch(activation: nn.Module, grid: Tensor, vectors: bool) -> Tensor:
    """How much the activation stretches at every point of the grid; vectors at (x, 0), along themselves."""
    x = (torch.stack([grid, torch.zeros_like(grid)]) if vectors else grid[None].clone()).requires_grad_()
    y = activation(x) if vectors else activation(x[0])[None]
    (slope,) = torch.autograd.grad(y[0].sum(), x)
    return slope[0].abs()


def _check(activation: nn.Module, grid: Tensor, vectors: bool) -> None:
    """A clear error unless it acts on every number, or vector, by itself, vectors from all sides alike, and 0 on 0."""
    name = _name(activation)
    x = torch.stack([grid, 0.5 * grid.flip(0)]) if vectors else grid
    with torch.no_grad():
        half = x[..., : x.shape[-1] // 2]
        every, alone, origin = activation(x), activation(half), activation(torch.zeros_like(half[..., :1]))
        if every.shape != x.shape or not torch.allclose(every[..., : half.shape[-1]], alone, rtol=1e-6, atol=0.0):
            raise InputError(f"{name} must act on every {'vector' if vectors else 'number'} by itself")
        turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=x.dtype)
        if vectors and not torch.allclose(activation(turn @ x), turn @ every, rtol=1e-6, atol=1e-9):
            raise InputError(f"{name} must commute with rotations, to go with equivariant layers")
    if not origin.abs().max() <= 1e-12:
        raise InputError(f"{name} must be 0 at 0 for the bound to hold; it is {origin.flatten()[0].item():g}")


def _name(activation: nn.Module) -> str:
    parts = activation if isinstance(activation, nn.Sequential) else [activation]
    return " and ".join(type(part).__name__ for part in parts)
