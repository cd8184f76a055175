"""The bound against a hand computation, the lemmas that its proof rests on, and how it moves with each of its terms."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers import load
from equiflock.controllers.networks.models import Conv, EqConv, ScaleTanh
from equiflock.features import Channel
from equiflock.theory import MLP, Bound, as_mlp, generalization_bound, lipschitz_constant
from tests.theory.chains import Chain, chains

BOUND = Bound(samples=10_000, largest_dimension=8, data_bound=50.0, lipschitz=1.1, norms=(3.0, 2.0, 0.5))


@dataclass(frozen=True)
class Stub:
    """Data of which only the largest norms are known."""

    samples: int = 100
    largest_target: float = 2.0
    hops: int = 1

    def largest_input(self, channels: tuple[Channel, ...]) -> float:
        return {"sum": 40.0, "mean": 3.0}[channels[0][1]]


def test_a_tiny_equivariant_network_by_hand() -> None:
    chain = Chain([EqConv(3, 2, 1), ScaleTanh(), EqConv(2, 1, 1)], hops=1)
    with torch.no_grad():
        for weight, value in zip(chain.parameters(), (2.0, 0.25), strict=True):
            weight.fill_(value)
    bound = generalization_bound(chain, Stub(), failure_probability=0.01)
    # |W_1|_F = 2 sqrt(6), |W_2|_F = 0.25 sqrt(2) < 1; L = 2, D = 3, beta = 3, m = 100, M = 2, C solves x tanh x = 1.
    C = 1.1996786402577339
    S = 9 * math.log(10 * 2 * 3 * C**2 * math.sqrt(3 * 100 * 2)) + 7 * math.log(2 * math.sqrt(6))
    expected = 8 / 100 + 48 * 3 / 10 * math.sqrt(S) + 3 * math.sqrt(math.log(200) / 200)
    assert bound.value == pytest.approx(expected, rel=1e-9)
    S_printed = S - 2 * math.log(10 * 2 * 3 * C**2 * math.sqrt(3 * 100 * 2))
    printed = generalization_bound(chain, Stub(), failure_probability=0.01, variant="printed")
    assert printed.value == pytest.approx(expected + 48 * 3 / 10 * (math.sqrt(S_printed) - math.sqrt(S)), rel=1e-9)


def test_a_tiny_network_with_bias_by_hand() -> None:
    chain = Chain([Conv(6, 2, 1)], hops=1, aggregation="sum")
    with torch.no_grad():
        chain.layers[0].weight.fill_(1.0)  # type: ignore[operator]
        chain.layers[0].bias.fill_(2.0)  # type: ignore[operator]
    bound = generalization_bound(chain, Stub())
    assert bound.norms == pytest.approx((math.sqrt(6 * 2 * 1.0 + 2 * 4.0),))
    assert bound.largest_dimension == 7
    assert bound.lipschitz == 1.0
    assert bound.data_bound == pytest.approx(math.hypot(40.0, 1.0))  # the input's 1 for the bias is part of it


def test_the_data_bound_is_at_least_1_and_at_least_the_experts_largest_acceleration() -> None:
    @dataclass(frozen=True)
    class Quiet(Stub):
        def largest_input(self, channels: tuple[Channel, ...]) -> float:
            return 0.1

    etdagnn: Any = load("etdagnn")
    assert generalization_bound(etdagnn, Stub(largest_target=99.0, hops=3)).data_bound == 99.0
    assert generalization_bound(etdagnn, Quiet(largest_target=0.2, hops=3)).data_bound == 1.0
    with pytest.raises(InputError, match="data must be a data set such as"):
        generalization_bound(etdagnn, None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="the controller observes 3 hops, but the data has 1"):
        generalization_bound(etdagnn, Stub())


@given(
    st.sampled_from(
        [
            lambda b, x: replace(b, largest_dimension=b.largest_dimension + math.ceil(x)),
            lambda b, x: replace(b, data_bound=b.data_bound * (1 + x)),
            lambda b, x: replace(b, lipschitz=b.lipschitz * (1 + x)),
            lambda b, x: replace(b, loss_scale=b.loss_scale * (1 + x)),
            lambda b, x: replace(b, failure_probability=b.failure_probability / (1 + x)),
            lambda b, x: replace(b, norms=(b.norms[0] * (1 + x), *b.norms[1:])),
            lambda b, x: replace(b, norms=(*b.norms, 1.0)),
            lambda b, x: replace(b, samples=math.floor(b.samples / (1 + x))),
        ]
    ),
    st.floats(0.01, 5.0),
)
def test_it_grows_with_every_term_and_falls_with_the_number_of_samples(worsen: Any, amount: float) -> None:
    for variant in ("proven", "printed"):
        better = replace(BOUND, variant=variant)  # type: ignore[arg-type]
        assert worsen(better, amount).value > better.value


def test_matrices_of_norms_below_1_count_as_1() -> None:
    assert replace(BOUND, norms=(3.0, 2.0, 1.0)).value == BOUND.value


def test_every_term_stands_in_its_table() -> None:
    text = str(BOUND)
    for number in (BOUND.coefficient, BOUND.root, BOUND.sample_term, BOUND.confidence_term, BOUND.norm_sum):
        assert f"{number:.4g}" in text
    assert f"bound as proven                       {BOUND.value:.4g}" in text
    assert f"bound as printed                      {replace(BOUND, variant='printed').value:.4g}" in text


def test_it_works_for_a_users_own_controller_of_the_family(own_registry: None) -> None:
    @ef.controller("deep")
    class Deep(nn.Module):
        senses = ef.paper_senses("sum", hops=2)

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(Conv(6, 9, 2), nn.GELU(), Conv(9, 9, 1), nn.ReLU(), Conv(9, 2, 1))

        @property
        def chain(self) -> tuple[nn.Module, ...]:
            return tuple(self.layers)

        def forward(self, observations: Tensor) -> Tensor:
            accelerations: Tensor = self.layers(observations.flatten(-2)).squeeze(-2)
            return accelerations

    bound = generalization_bound(ef.load("deep"), ef.FastForward(train_flocks=1, test_flocks=1, steps=1, hops=2).make())  # type: ignore[arg-type]
    assert (bound.layers, bound.largest_dimension, bound.samples) == (3, 13, 2)
    assert 1.12 < bound.lipschitz < 1.13


def test_a_controller_that_differs_from_its_chain_is_refused() -> None:
    class Louder(Chain):
        def forward(self, observations: Tensor) -> Tensor:
            return 3 * super().forward(observations) + 1

    with pytest.raises(InputError, match="that its chain of layers computes"):
        generalization_bound(Louder([Conv(6, 2, 1)], hops=1), Stub())
    with pytest.raises(InputError, match="must accept observations in the plane"):
        generalization_bound(Chain([Conv(5, 2, 1)], hops=1), Stub())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"samples": 0}, "samples must be"),
        ({"data_bound": 0.5}, "data_bound must be at least 1"),
        ({"loss_scale": 0.5}, "loss_scale must be at least 1"),
        ({"failure_probability": 1.0}, "failure_probability must be between 0 and 1"),
        ({"norms": (math.nan,)}, "norms must be the matrices' Frobenius norms"),
        ({"variant": "hoped"}, "variant must be one of"),
    ],
)
def test_numbers_for_which_it_was_not_proven_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(BOUND, **change)


# The lemmas of the appendix, on random chains.


CONSTANTS: dict[str, float] = {}
"""Of the activations in chains, by how they print."""


def lipschitz(mlp: MLP) -> float:
    for sigma in mlp.activations:
        if str(sigma) not in CONSTANTS:
            CONSTANTS[str(sigma)] = lipschitz_constant(sigma, mlp.equivariant)
    return max(1.0, *(CONSTANTS[str(sigma)] for sigma in mlp.activations))


def inputs(chain: Chain, seed: int) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(1, 6, chain.senses.hops, 3, 2, dtype=torch.float64) * 10 ** torch.empty(1).uniform_(-2, 2).item()


def perturbed(mlp: MLP, amount: float) -> MLP:
    return replace(mlp, weights=tuple(w + amount * torch.randn_like(w) for w in mlp.weights))


@given(chains(), st.integers(0, 2**31))
def test_an_output_is_at_most_the_product_of_norms_times_the_input(chain: Chain, seed: int) -> None:
    mlp, observations = as_mlp(chain), inputs(chain, seed)
    product = math.prod(lipschitz(mlp) * weight.norm().item() for weight in mlp.weights)
    assert (
        mlp(observations).norm(dim=-1) <= product * mlp.build_input(observations).norm(dim=(-2, -1)) * (1 + 1e-9)
    ).all()


@given(chains(), st.integers(0, 2**31), st.sampled_from([1e-3, 0.1, 2.0]))
def test_outputs_and_scores_are_lipschitz_in_the_weights(chain: Chain, seed: int, amount: float) -> None:
    mlp, observations = as_mlp(chain), inputs(chain, seed)
    other = perturbed(mlp, amount)
    pairs = list(zip(mlp.weights, other.weights, strict=True))
    largest = math.prod(lipschitz(mlp) * max(1.0, a.norm().item(), b.norm().item()) for a, b in pairs)
    distance = sum((a - b).norm().item() for a, b in pairs)
    sizes = mlp.build_input(observations).norm(dim=(-2, -1))
    assert ((mlp(observations) - other(observations)).norm(dim=-1) <= sizes * largest * distance * (1 + 1e-9)).all()

    targets = torch.randn(1, 6, 2, dtype=torch.float64)
    data_bound = max(1.0, sizes.max().item(), targets.norm(dim=-1).max().item())
    bias, other_bias, largest_bias = 0.3, 1.2, math.sqrt(2)
    scores = [
        b**2 + (targets - net(observations)).square().sum(-1).mean().item()
        for b, net in ((bias, mlp), (other_bias, other))
    ]
    allowed = 2 * largest_bias * abs(bias - other_bias) + 2 * (1 + largest) * data_bound**2 * largest * distance
    assert abs(scores[0] - scores[1]) <= allowed * (1 + 1e-9)


@given(chains(), st.integers(0, 2**31))
def test_a_score_is_bounded_by_the_data_bound(chain: Chain, seed: int) -> None:
    mlp, observations = as_mlp(chain), inputs(chain, seed)
    product = math.prod(lipschitz(mlp) * weight.norm().item() for weight in mlp.weights)
    targets = torch.randn(1, 6, 2, dtype=torch.float64)
    data_bound = max(
        mlp.build_input(observations).norm(dim=(-2, -1)).max().item(), targets.norm(dim=-1).max().item(), 1.0
    )
    mse = (targets - mlp(observations)).square().sum(-1).mean().item()
    # (1 + P)^2, where the paper has 1 + P^2: its line lacks the product of the two norms. Nothing builds on it.
    assert mse <= (1 + product) ** 2 * data_bound**2 * (1 + 1e-9)


def test_the_papers_bound_of_a_score_lacks_a_cross_term() -> None:
    chain = Chain([EqConv(3, 1, 1)], hops=1)
    with torch.no_grad():
        chain.layers[0].weight[:] = torch.tensor([[[-1.0], [0.0], [0.0]]])  # type: ignore[operator,index]
    observations = torch.zeros(1, 1, 1, 3, 2, dtype=torch.float64)
    observations[0, 0, 0, 0, 0] = 1.0
    target = torch.tensor([[[1.0, 0.0]]])
    mse = (target - as_mlp(chain)(observations)).square().sum().item()
    assert mse == 4.0  # (1 + 1)^2, not 1 + 1^2
