"""A controller and its chain of matrices are the same function."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from equiflock._runtime.checks import InputError
from equiflock.controllers import load
from equiflock.controllers.loading import make_network
from equiflock.controllers.networks.models import Conv, EqConv
from equiflock.controllers.trained import PAPER_NETWORKS as NETWORKS
from equiflock.theory import as_mlp
from tests.theory.chains import Chain, chains


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("hops", [1, 2, 3, 5])
@pytest.mark.parametrize("D", [2, 3])
def test_the_chain_of_matrices_is_the_network(name: str, hops: int, D: int) -> None:
    options = {} if name == "etdagnn" else {"dimensions": D}
    network = make_network(name, seed=hops, hops=hops, **options).double()
    for parameter in network.parameters():
        nn.init.normal_(parameter)
    observations = 3 * torch.randn(4, 7, hops, 3, D, dtype=torch.float64)
    torch.testing.assert_close(as_mlp(network)(observations), network(observations))


@given(chains(), st.integers(1, 3))
def test_chains_of_any_depth_width_and_kernel_sizes(chain: Chain, flocks: int) -> None:
    observations = 3 * torch.randn(flocks, 4, chain.senses.hops, 3, 2, dtype=torch.float64)
    torch.testing.assert_close(as_mlp(chain)(observations), chain(observations))


@pytest.mark.parametrize("name", NETWORKS)
def test_the_matrices_have_the_papers_dimensions(name: str) -> None:
    shapes = [tuple(weight.shape) for weight in as_mlp(load(name)).weights]
    assert shapes == ([(9, 16), (16, 16), (16, 1)] if name == "etdagnn" else [(19, 33), (33, 33), (33, 2)])


def test_a_convolution_of_several_places_is_a_toeplitz_matrix_with_its_bias_below_and_its_ones_beside() -> None:
    chain = Chain([Conv(1, 1, 2), Conv(1, 1, 2)], hops=3)
    with torch.no_grad():
        for layer, (first, second, bias) in zip(chain.chain, ((2.0, 3.0, 5.0), (7.0, 11.0, 13.0)), strict=True):
            layer.weight[:] = torch.tensor([[[first, second]]])  # type: ignore[operator,index]
            layer.bias[:] = bias  # type: ignore[operator,index]
    mlp = as_mlp(chain)
    assert mlp.ones == (2, 1)
    assert mlp.weights[0].tolist() == [[2, 0, 0], [3, 2, 0], [0, 3, 0], [5, 0, 1], [0, 5, 0]]
    assert mlp.weights[1].tolist() == [[7], [11], [13]]


def test_controllers_of_another_kind_are_refused() -> None:
    with pytest.raises(InputError, match=r"of the paper's family.* got Tanner"):
        as_mlp(load("tanner"))
    wrong: dict[str, tuple[list[nn.Module], int]] = {
        "Conv layers only or EqConv layers only": ([Conv(6, 3, 1), EqConv(3, 1, 1)], 1),
        "at least one": ([nn.Tanh()], 1),
        "layers with matching channels; got 8 channels out, 9 in": ([Conv(6, 8, 1), Conv(9, 2, 1)], 1),
        "weights only in Conv or EqConv layers; got PReLU": ([Conv(6, 3, 1), nn.PReLU(), Conv(3, 2, 1)], 1),
        "must end with a convolution": ([Conv(6, 2, 1), nn.Tanh()], 1),
        "must leave one of 3 hops; its kernels leave 2": ([Conv(6, 2, 2)], 3),
    }
    for words, (modules, hops) in wrong.items():
        with pytest.raises(InputError, match=words):
            as_mlp(Chain(modules, hops))
