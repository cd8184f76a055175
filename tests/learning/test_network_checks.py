"""Invalid networks, experts and recipes raise InputError before a training starts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.learning.training import train
from tests.learning.small import small


class Flat(torch.nn.Module):
    """Built for the plane only."""

    senses = ef.paper_senses("mean", hops=1)

    def __init__(self) -> None:
        super().__init__()
        self.mix = torch.nn.Linear(6, 2)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.mix(observations[:, :, 0].flatten(2))


class Silent(Flat):
    """Returns no vectors."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return super().forward(observations)[..., 0]


@pytest.mark.parametrize(
    ("recipe", "network", "text"),
    [
        ("etdagnn", None, "recipe must be an equiflock.DAgger; got 'etdagnn'"),
        (small(), "etdagnn", "network must be a torch module with weights to train"),
        (small(), torch.nn.Tanh(), "network must be a torch module with weights to train"),
        (small(), torch.nn.Linear(2, 2), "Linear must declare senses, such as"),
        (small(dimensions=3), Flat(), "the network does not take observations .* = .1, 20, 1, 3, 3.: mat1 and mat2"),
        (small(), Silent(), r"the network must return accelerations \(B, N, D\) = \(1, 20, 2\); got \(1, 20\)"),
    ],
)
def test_invalid_networks_and_recipes_are_refused(recipe: Any, network: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        train(recipe, network)


def test_only_torch_modules_can_be_trained() -> None:
    with pytest.raises(InputError, match="tanner has no weights to train: choose a network"):
        train(small(controller="tanner"))


@pytest.mark.parametrize("options", [{"capacity": 10**9}, {"batch": 10**12}, {"hops": 10**9}])
def test_insufficient_memory_is_reported_before_allocation(options: dict[str, int]) -> None:
    with pytest.raises(InputError, match=r"tuples of 100 agents and .* GiB, more than this machine has: lower"):
        train(ef.DAgger(**options))


def test_a_network_of_ones_own_that_needs_options_is_refused_in_one_line(own_registry: None) -> None:
    @ef.controller("needy")
    class Needy(torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()

    message = r"network 'needy' cannot be made with the options \{\}: .*missing 1 required .*'width'"
    with pytest.raises(InputError, match=message):
        train(small(controller="needy"))
