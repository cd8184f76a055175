"""The compiled learner agrees with torch: gradients, Adam steps and errors, for every chain of layers."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from equiflock.controllers.loading import make_network
from equiflock.controllers.networks.compiled import CompiledNetwork
from equiflock.controllers.networks.gradients import TrainingTuples
from equiflock.controllers.networks.models import (
    ETDAGNN,
    Conv,
    EqConv,
    ScaleLog,
    ScaleTanh,
    build_module_chain,
    describe_chain,
)
from equiflock.controllers.networks.weights import collect_tensors
from equiflock.controllers.trained import PAPER_NETWORKS as NETWORKS
from equiflock.features import Senses, paper_senses
from equiflock.learning.learner import Adam, CompiledLearner, Learner, TorchLearner, make_learner

CHANNELS = (("velocity", "mean"), ("inverse-fourth", "sum"), ("inverse-square", "mean"), ("velocity", "sum"))


class Stack(nn.Module):
    """Any chain of our layers, as a network."""

    def __init__(self, *modules: nn.Module, senses: Senses) -> None:
        super().__init__()
        self.layers, self.senses = nn.ModuleList(modules), senses

    @property
    def chain(self) -> tuple[nn.Module, ...]:
        return tuple(self.layers)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        if isinstance(self.chain[-1], EqConv):
            x = observations.movedim(-1, 0)
            for module in self.chain:
                x = module(x)
            return x[..., 0, 0].movedim(0, -1)
        x = observations.flatten(-2)
        for module in self.chain:
            x = module(x)
        return x[..., 0, :]

    def compiled_form(self) -> CompiledNetwork | None:
        described = describe_chain("stack", self.senses, None, self.chain)
        return None if described is None else CompiledNetwork(described[0], collect_tensors(self))


def randomized(network: nn.Module, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.4)
    return network


def batch(network: Any, tuples: int, agents: int, D: int, seed: int = 0) -> tuple[Any, Any]:
    """Observations of all magnitudes that occur, some of them zero, and targets."""
    rng = np.random.default_rng(seed)
    shape = tuples, agents, network.senses.hops, network.senses.width
    sizes = 10.0 ** rng.uniform(-3, 1.5, (*shape, 1)) * (rng.random((*shape, 1)) > 0.1)
    observations = rng.standard_normal((*shape, D)) * sizes
    return observations.astype(np.float32), rng.standard_normal((tuples, agents, D)).astype(np.float32)


def packed(learner: Learner, observations: Any, targets: Any) -> Any:
    shapes = learner.get_tuple_shapes(targets.shape[1], targets.shape[2])
    tuples = TrainingTuples(*(np.empty((len(targets), *shape), np.float32) for shape in shapes))
    learner.pack(observations, targets, tuples)
    return tuples


def gradient_of_a_step(learner: Learner, tuples: Any, places: Any, loss_weighting: Any = None) -> Any:
    """After its first step, Adam's running mean is a tenth of the gradient."""
    learner.descend(tuples, places, loss_weighting)
    assert isinstance(learner, CompiledLearner)
    return learner.adam.mean / np.float32(0.1)


def assert_gradients_agree(network: Any, observations: Any, targets: Any) -> None:
    twin = copy.deepcopy(network)
    learner = make_learner(network, 1e-3)
    places = np.arange(len(targets))[None]
    found = gradient_of_a_step(learner, packed(learner, observations, targets), places)
    differences = twin(torch.from_numpy(observations)) - torch.from_numpy(targets)
    differences.square().sum(-1).mean().backward()
    # Torch's gradients in the chain's order.
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.copy_(parameter.grad)
    chain = build_module_chain(twin.chain, twin.senses)
    assert chain is not None
    expected = chain.weights()
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("D", [2, 3])
@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_gradients_are_torchs_for_every_network(name: str, D: int, hops: int) -> None:
    options = {} if name == "etdagnn" else {"dimensions": D}
    network = randomized(make_network(name, hops=hops, **options))
    assert_gradients_agree(network, *batch(network, 3, 150, D))


@pytest.mark.parametrize("channels", range(1, 5))
@pytest.mark.parametrize("name", ["etdagnn", "tdagnn"])
def test_gradients_are_torchs_for_any_number_of_channels(name: str, channels: int) -> None:
    network = randomized(make_network(name, channels=CHANNELS[:channels]))
    assert_gradients_agree(network, *batch(network, 4, 33, 2))


@pytest.mark.slow
@given(st.sampled_from(list(NETWORKS)), st.integers(1, 5), st.integers(1, 300), st.integers(0, 2**31))
def test_gradients_are_torchs_for_any_number_of_agents(name: str, tuples: int, agents: int, seed: int) -> None:
    network = randomized(make_network(name), seed)
    assert_gradients_agree(network, *batch(network, tuples, agents, 2, seed))


@pytest.mark.parametrize(
    "modules",
    [
        lambda: (EqConv(3, 7, 2), ScaleLog(), EqConv(7, 5, 1), ScaleTanh(), EqConv(5, 1, 1)),
        lambda: (ScaleTanh(), EqConv(3, 6, 2), EqConv(6, 3, 1), EqConv(3, 1, 1)),
        lambda: (EqConv(3, 1, 2), ScaleTanh(), EqConv(1, 1, 1)),
        lambda: (EqConv(3, 1, 2),),
        lambda: (Conv(6, 5, 2), Conv(5, 9, 1), nn.Tanh(), Conv(9, 4, 1), nn.Tanh(), Conv(4, 3, 1), Conv(3, 2, 1)),
        lambda: (nn.Tanh(), Conv(6, 2, 2), nn.Tanh()),
        lambda: (Conv(6, 1, 2), nn.Tanh(), Conv(1, 2, 1)),
    ],
)
def test_gradients_are_torchs_for_any_chain_of_our_layers(modules: Any) -> None:
    network = randomized(Stack(*modules(), senses=paper_senses("mean", 2)))
    assert isinstance(make_learner(network, 1e-3), CompiledLearner)
    assert_gradients_agree(network, *batch(network, 3, 70, 2))


@pytest.mark.parametrize("name", NETWORKS)
def test_many_steps_are_torchs(name: str) -> None:
    network = randomized(make_network(name))
    twin = copy.deepcopy(network)
    observations, targets = batch(network, 12, 40, 2)
    places = np.random.default_rng(2).integers(12, size=(120, 5))
    learners = make_learner(network, 1e-3), TorchLearner(twin, 1e-3)
    losses = [learner.descend(packed(learner, observations, targets), places) for learner in learners]
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-3)
    for ours, theirs in zip(network.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("name", ["etdagnn", "tdagnn-tf"])
def test_a_loss_weighting_weights_the_gradient_of_each_tuple(name: str) -> None:
    network = randomized(make_network(name))
    observations, targets = batch(network, 6, 30, 2)
    errors = []

    def loss_weighting(found: Any) -> Any:
        errors.append(found)
        return np.array([0.0, 1.0, 0.0, 0.5, 0.0, 0.0])

    learners = [make_learner(copy.deepcopy(network), 1e-3) for _ in range(3)]
    tuples = packed(learners[0], observations, targets)
    gated = gradient_of_a_step(learners[0], tuples, np.arange(6)[None], loss_weighting)
    one, two = (gradient_of_a_step(learners[n], tuples, np.array([[place]])) for n, place in ((1, 1), (2, 3)))
    np.testing.assert_allclose(gated, one + 0.5 * two, atol=1e-5 * np.abs(gated).max())
    theirs = TorchLearner(copy.deepcopy(network), 1e-3)
    assert theirs.descend((observations, targets), np.arange(6)[None], loss_weighting).shape == (1, 6)
    np.testing.assert_allclose(errors[0], errors[1], rtol=1e-4)
    np.testing.assert_allclose(make_learner(network, 1e-3).compute_errors(tuples), errors[0], rtol=1e-6)


def test_adam_is_torchs() -> None:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(50).astype(np.float32)
    theirs = nn.Parameter(torch.from_numpy(weights.copy()))
    adam, optimizer = Adam(50, 1e-2), torch.optim.Adam([theirs], lr=1e-2)
    for _ in range(30):
        gradient = rng.standard_normal(50).astype(np.float32)
        gradient[:5] = 0.0
        adam.step(weights, gradient)
        theirs.grad = torch.from_numpy(gradient)
        optimizer.step()
    np.testing.assert_allclose(weights, theirs.detach().numpy(), rtol=1e-5, atol=1e-7)


def test_the_same_steps_in_one_call_or_in_many_are_the_same_bits() -> None:
    networks = [randomized(make_network("etdagnn")) for _ in range(2)]
    observations, targets = batch(networks[0], 8, 25, 2)
    places = np.random.default_rng(0).integers(8, size=(230, 3))
    together, singly = (make_learner(network, 1e-3) for network in networks)
    tuples = packed(together, observations, targets)
    losses = together.descend(tuples, places)
    for row, expected in zip(places, losses, strict=True):
        # A learner that goes on from a state is the one that was never interrupted.
        again = make_learner(networks[1], 1e-3)
        again.load_state_dict(singly.state_dict())
        singly = again
        assert np.array_equal(singly.descend(tuples, row[None])[0], expected)
    for one, other in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
        assert torch.equal(one, other)


def test_other_modules_use_the_torch_learner() -> None:
    class Louder(ETDAGNN):
        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(observations)

    frozen = ETDAGNN()
    frozen.layers[1].weight.requires_grad_(False)  # type: ignore[union-attr]
    watched = ETDAGNN()
    watched.layers[3].register_forward_hook(lambda *call: None)
    for network in (Louder(), frozen, watched):
        assert isinstance(make_learner(network, 1e-3), TorchLearner)
    for modules in (
        (),
        (ScaleLog(),),
        (EqConv(3, 1, 1), Conv(1, 2, 1)),
        (EqConv(3, 4, 2), nn.Tanh(), EqConv(4, 1, 1)),
        (EqConv(3, 4, 2), ScaleLog(), ScaleTanh(), EqConv(4, 1, 1)),
        (EqConv(3, 4, 1), EqConv(4, 1, 2)),
        (EqConv(3, 4, 2), EqConv(5, 1, 1)),
        (EqConv(3, 4, 2), nn.ReLU(), EqConv(4, 1, 1)),
    ):
        assert build_module_chain(modules, paper_senses("mean", hops=2)) is None
