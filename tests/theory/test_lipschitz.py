"""Lipschitz constants are suprema: nothing stretches more, and something stretches as much."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from equiflock._runtime.checks import InputError
from equiflock.controllers.networks.models import ScaleLog, ScaleTanh
from equiflock.theory import lipschitz_constant


class Fold(nn.Module):
    """x sigma(|x|) with a sigma that falls, -1.5 tanh |x|: here the absolute value counts."""

    def forward(self, x: Tensor) -> Tensor:
        return -1.5 * x * torch.tanh(x.norm(dim=0))


@pytest.mark.parametrize(
    ("activation", "vectors"),
    [
        (nn.Tanh(), False),
        (nn.Identity(), False),
        (nn.GELU(), False),
        (nn.LeakyReLU(1.7), False),
        (ScaleLog(), True),
        (ScaleTanh(), True),
        (Fold(), True),
        (nn.Sequential(ScaleLog(), ScaleTanh()), True),
    ],
    ids=str,
)
def test_no_two_points_are_stretched_by_more_and_some_are_by_nearly_as_much(
    activation: nn.Module, vectors: bool
) -> None:
    torch.manual_seed(0)
    constant = lipschitz_constant(activation, vectors)
    shape = (3, 200_000) if vectors else (1, 200_000)
    a = torch.randn(shape, dtype=torch.float64) * 10 ** torch.empty(shape[1]).uniform_(-3, 2)
    b = a + torch.randn(shape, dtype=torch.float64) * 10 ** torch.empty(shape[1]).uniform_(-4, 1)
    stretch = (activation(a) - activation(b)).norm(dim=0) / (a - b).norm(dim=0)
    assert stretch.max() <= constant * (1 + 1e-6)
    assert stretch.max() >= 0.995 * constant


def test_scale_tanh_has_the_constant_that_solves_x_tanh_x_is_1() -> None:
    low, high = 1.0, 2.0
    while high - low > 1e-13:
        middle = (low + high) / 2
        low, high = (low, middle) if middle * math.tanh(middle) > 1 else (middle, high)
    # At the supremum of tanh x + x (1 - tanh^2 x) its derivative vanishes: x tanh x = 1, and then it equals x.
    assert lipschitz_constant(ScaleTanh(), vectors=True) == pytest.approx(low, abs=1e-9)


@pytest.mark.parametrize(("activation", "vectors"), [(nn.Tanh(), False), (nn.ReLU(), False), (ScaleLog(), True)])
def test_most_have_1(activation: nn.Module, vectors: bool) -> None:
    assert lipschitz_constant(activation, vectors) == pytest.approx(1.0, abs=1e-9)


class Cube(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x**3


class Plain(nn.Module):
    """A scale-tanh whose root has no gradient at 0."""

    def forward(self, x: Tensor) -> Tensor:
        return 5 * x * torch.tanh((x * x).sum(0).sqrt())


def test_a_gradient_that_is_missing_at_0_does_not_matter() -> None:
    assert lipschitz_constant(Plain(), vectors=True) == pytest.approx(5 * 1.1996786, abs=1e-6)


class Root(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sign(x) * x.abs().sqrt()


@pytest.mark.parametrize("activation", [nn.Hardshrink(0.5), nn.Threshold(0.1, 0.0), Root()], ids=str)
def test_discontinuous_or_infinitely_steep_activations_are_refused(activation: nn.Module) -> None:
    with pytest.raises(InputError, match=r"no Lipschitz constant|must have a finite derivative"):
        lipschitz_constant(activation)


def test_activations_that_the_proof_does_not_cover_are_refused() -> None:
    with pytest.raises(InputError, match="Cube has an unbounded slope: it has no Lipschitz constant"):
        lipschitz_constant(Cube())
    with pytest.raises(InputError, match=r"Sigmoid must be 0 at 0 for the bound to hold; got 0\.5"):
        lipschitz_constant(nn.Sigmoid())
    with pytest.raises(InputError, match="Softmax must act on each number separately"):
        lipschitz_constant(nn.Softmax(dim=-1))
    with pytest.raises(InputError, match="ScaleLog and Tanh must commute with rotations"):
        lipschitz_constant(nn.Sequential(ScaleLog(), nn.Tanh()), vectors=True)
