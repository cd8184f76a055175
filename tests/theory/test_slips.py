"""Lines of the paper that do not hold as printed, and what holds in their place."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from equiflock.controllers.networks.models import ScaleLog, ScaleTanh
from equiflock.theory import lipschitz_constant


def scale_log_sigma(x: Any) -> Any:
    """The factor ln(1 + x) / x, 1 at 0, by which scale-log scales a vector of length x."""
    return torch.where(x == 0, 1.0, torch.log1p(x) / torch.where(x == 0, 1.0, x))


def test_the_factor_of_scale_log_has_the_slope_minus_one_half_at_0_where_0_is_printed() -> None:
    """So the slope is continuous at 0, as the lemma on Lipschitz functions asks."""
    lengths = torch.tensor([1e-3, 1e-4], dtype=torch.float64)
    factors = ScaleLog()(lengths[None, :]).flatten() / lengths  # vectors of one dimension
    assert ((factors - 1) / lengths).tolist() == pytest.approx([-0.5, -0.5], abs=1e-3)


@pytest.mark.parametrize(("activation", "sigma"), [(ScaleLog(), scale_log_sigma), (ScaleTanh(), torch.tanh)])
def test_the_constant_is_the_supremum_of_sigma_plus_x_times_its_slope(activation: nn.Module, sigma: Any) -> None:
    """Without the prime, as the last lines of two proofs have it, sigma + x sigma is x's size and has no supremum."""
    x = torch.cat([torch.zeros(1), torch.logspace(-6, 6, 20_001)]).double().requires_grad_()
    (slope,) = torch.autograd.grad(sigma(x[1:]).sum(), x)
    with_prime = (sigma(x) + x * slope)[1:].max().item()
    assert lipschitz_constant(activation, vectors=True) == pytest.approx(with_prime, abs=1e-3)
    without = (sigma(x) + x * sigma(x)).detach()
    assert without[-1] > 10 and (without[-2000:].diff() > 0).all()


def test_the_derivative_of_scale_log_is_larger_than_the_proofs_bound_of_it_but_for_its_supremum() -> None:
    """Its factor falls, so across x, where the stretch is sigma, it is larger than sigma + x sigma'."""
    x = torch.tensor([2.0, 0.0], dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(ScaleLog(), x)
    sigma = math.log(3) / 2
    along = sigma + 2 * (1 / (2 * 3) - math.log(3) / 4)
    assert torch.linalg.svdvals(jacobian).tolist() == pytest.approx([sigma, along], abs=1e-12)
    assert along < sigma < lipschitz_constant(ScaleLog(), vectors=True)
