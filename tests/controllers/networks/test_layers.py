"""Layers of vectors commute with every orthogonal matrix, in any dimension, and have true gradients everywhere."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ortho_group
from torch import Tensor, nn

from equiflock.controllers.networks.models import Conv, EqConv, ScaleLog, ScaleTanh, convolve

LAYERS: list[nn.Module] = [EqConv(3, 5, 2), ScaleLog(), ScaleTanh()]


def turned(x: Tensor, turn: Tensor) -> Tensor:
    return torch.einsum("ed,d...->e...", turn, x)


@given(st.sampled_from(LAYERS), st.sampled_from([2, 3, 5]), st.integers(0, 2**32 - 1))
def test_every_layer_commutes_with_rotations_and_reflections(layer: nn.Module, D: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    turn = torch.tensor(ortho_group.rvs(D, random_state=seed))
    x = torch.randn(D, 7, 4, 3, dtype=torch.float64, generator=generator)
    x[:, 0] = 0.0
    layer = layer.double()
    torch.testing.assert_close(layer(turned(x, turn)), turned(layer(x), turn))


@pytest.mark.parametrize("kernel_size", [1, 2, 4])
def test_convolution_equals_torchs(kernel_size: int) -> None:
    layer = Conv(3, 5, kernel_size)
    nn.init.normal_(layer.bias)
    x = torch.randn(10, 4, 3)
    expected = nn.functional.conv1d(x.transpose(1, 2), layer.weight, layer.bias).transpose(1, 2)
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("D", [2, 3])
def test_vector_convolution_equals_a_block_matrix(D: int) -> None:
    """Each weight times the D x D identity, put together into one matrix over all channels, hops and components."""
    F, C, out, k = 4, 3, 5, 2
    layer = EqConv(C, out, k)
    x = torch.randn(D, F, C)
    matrix = torch.zeros(F - k + 1, out, D, F, C, D)
    for f in range(F - k + 1):
        for o in range(out):
            for c in range(C):
                for h in range(k):
                    matrix[f, o, :, f + h, c, :] = layer.weight[o, c, h].detach() * torch.eye(D)
    expected = torch.einsum("fodgce,egc->dfo", matrix, x)
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("layer", [ScaleLog(), ScaleTanh()], ids=["scale-log", "scale-tanh"])
def test_gradients_agree_with_finite_differences(layer: nn.Module) -> None:
    x = torch.randn(2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(layer, x)


@pytest.mark.parametrize(("layer", "slope"), [(ScaleLog(), 1.0), (ScaleTanh(), 0.0)], ids=["scale-log", "scale-tanh"])
def test_gradients_at_the_zero_vector_are_the_limits(layer: nn.Module, slope: float) -> None:
    for size in (0.0, 1e-30, 1e-12):
        x = torch.full((2,), size)
        jacobian = torch.autograd.functional.jacobian(layer, x)
        torch.testing.assert_close(jacobian, slope * torch.eye(2))
        assert torch.isfinite(layer(x)).all()


def test_activations_are_the_papers() -> None:
    x = torch.tensor([[3.0], [4.0]])
    torch.testing.assert_close(ScaleLog()(x), x * torch.log(torch.tensor(6.0)) / 5.0)
    torch.testing.assert_close(ScaleTanh()(x), x * torch.tanh(torch.tensor(5.0)))


def test_initial_weights_are_xavier_uniform() -> None:
    layer = Conv(6, 32, 3)
    bound = (6.0 / (6 * 3 + 32 * 3)) ** 0.5
    assert layer.weight.abs().max() <= bound
    assert layer.weight.abs().max() > 0.95 * bound
    assert not layer.bias.any()
    assert convolve(torch.zeros(2, 3, 6), layer.weight).shape == (2, 1, 32)


def test_drawn_biases_are_uniform_as_in_torch() -> None:
    ours, torchs = Conv(6, 4000, 3), nn.Conv1d(6, 4000, 3)
    weight = ours.weight.clone()
    ours.draw_biases()
    assert torch.equal(ours.weight, weight)
    assert torchs.bias is not None
    for bias in (ours.bias.detach(), torchs.bias.detach()):
        assert 0.99 * 18**-0.5 < bias.abs().max() <= 18**-0.5
        assert abs(bias.mean()) < 0.02
