"""How much an activation can stretch a difference: its Lipschitz constant, computed from the activation itself.

For a function of numbers it is sup |f'|. A function of vectors that commutes with rotations and reflections is
f(x) = x sigma(|x|), whose derivative at x has two eigenvalues: sigma + |x| sigma' along x and sigma across it. So its
constant is the supremum of max(|sigma|, |sigma + |x| sigma'|); the paper's lemma has the second alone, which comes to
the same where sigma increases.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from equiflock.types import InputError

ZOOMS = 4


def lipschitz_constant(activation: nn.Module, vectors: bool = False) -> float:
    """The largest stretch of an activation with f(0) = 0.

    Args:
        activation: of numbers, element by element, or of vectors, whose components are its input's first axis.
        vectors: which of the two.

    The supremum is looked for on a grid that is finest around 0, and then on ever finer ones around its best point: it
    is meant for activations that bend a few times, not for ones that wiggle.
    """
    side = torch.logspace(-6, 6, 4001, dtype=torch.float64)
    zero = torch.zeros(1, dtype=torch.float64)
    # By symmetry, one side is enough for vectors.
    grid = torch.cat([zero, side]) if vectors else torch.cat([-side.flip(0), zero, side])
    _check(activation, grid, vectors)
    best = 0.0
    for _ in range(ZOOMS):
        stretch = _stretch(activation, grid, vectors)
        top = int(stretch.argmax())
        best = max(best, stretch[top].item())
        low, high = grid[max(top - 1, 0)], grid[min(top + 1, len(grid) - 1)]
        grid = torch.linspace(low.item(), high.item(), 1001, dtype=torch.float64)
    return best


def _stretch(activation: nn.Module, grid: Tensor, vectors: bool) -> Tensor:
    """The largest |eigenvalue| of the derivative at every point of the grid; for vectors, at (x, 0)."""
    if not vectors:
        x = grid.clone().requires_grad_()
        (slope,) = torch.autograd.grad(activation(x).sum(), x)
        return slope.abs()
    x = torch.stack([grid, torch.zeros_like(grid)]).requires_grad_()
    along, across = activation(x)
    (radial,) = torch.autograd.grad(along.sum(), x, retain_graph=True)
    (tangential,) = torch.autograd.grad(across.sum(), x)
    return torch.maximum(radial[0].abs(), tangential[1].abs())


def _check(activation: nn.Module, grid: Tensor, vectors: bool) -> None:
    """A clear error unless it acts on every number, or vector, by itself, and is 0 at 0."""
    x = torch.stack([grid, 0.5 * grid.flip(0)]) if vectors else grid
    with torch.no_grad():
        every, second, origin = activation(x), activation(x[..., ::2]), activation(torch.zeros_like(x[..., :1]))
    name = type(activation).__name__
    if every.shape != x.shape or not torch.allclose(every[..., ::2], second, rtol=1e-6, atol=0.0):
        raise InputError(f"{name} must act on every {'vector' if vectors else 'number'} by itself")
    if origin.abs().max() > 1e-12:
        raise InputError(f"{name} must be 0 at 0 for the bound to hold; it is {origin.flatten()[0].item():g}")
