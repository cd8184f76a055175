"""The paper's four networks: their sizes, their symmetries, and their weights on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ortho_group

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.loading import make_network
from equiflock.controllers.trained import PAPER_NETWORKS as NETWORKS


@pytest.mark.parametrize(
    ("name", "count"), [("tdagnn", 1730), ("tdagnn-tf", 1730), ("tdagnn-tf-mean", 1730), ("etdagnn", 416)]
)
def test_the_networks_have_the_papers_numbers_of_weights(name: str, count: int) -> None:
    assert sum(parameter.numel() for parameter in make_network(name).parameters()) == count


def test_the_variants_differ_as_in_the_papers_table() -> None:
    networks: dict[str, Any] = {name: make_network(name) for name in NETWORKS}
    assert [n.senses for n in networks.values()] == [
        ef.paper_senses(each, 3) for each in ("sum", "sum", "mean", "mean")
    ]
    # The same weights, another function: tanh after layers 1 and 2, or after 1 alone.
    networks["tdagnn-tf"].load_state_dict(networks["tdagnn"].state_dict())
    z = 5.0 * torch.randn(1, 4, 3, 3, 2)
    hidden = torch.tanh(networks["tdagnn"].layers[0](z.flatten(-2)))
    middle, last = networks["tdagnn"].layers[1:]
    torch.testing.assert_close(networks["tdagnn"](z), last(torch.tanh(middle(hidden))).squeeze(-2))
    torch.testing.assert_close(networks["tdagnn-tf"](z), last(middle(hidden)).squeeze(-2))


@pytest.mark.parametrize("name", ["tdagnn", "tdagnn-tf", "tdagnn-tf-mean"])
def test_uniform_biases_do_not_change_initial_weights(name: str) -> None:
    zero, usual, drawn = (
        make_network(name, 4),
        make_network(name, 4, biases="zero"),
        make_network(f"{name}:biases=uniform", 4),
    )
    for one, other, third in zip(zero.named_parameters(), usual.parameters(), drawn.parameters(), strict=True):
        assert torch.equal(one[1], other)
        assert torch.equal(one[1], third) == one[0].endswith("weight")
    # Six channels of three hops, then 32 channels.
    bounds = [layer.bias.detach().abs().max() for layer in drawn.layers]  # type: ignore[union-attr]
    assert 0.0 < bounds[0] <= 18**-0.5
    assert 0.0 < min(bounds[1:]) <= max(bounds[1:]) <= 32**-0.5


def test_initial_biases_are_not_among_the_saved_options(tmp_path: Path) -> None:
    network: Any = make_network("tdagnn", 1, biases="uniform")
    assert network.options == {"hops": 3, "dimensions": 2}
    back: Any = ef.load_module(ef.save(network, tmp_path / "drawn.safetensors"))
    assert all(map(torch.equal, back.parameters(), network.parameters()))


@pytest.mark.parametrize("name", NETWORKS)
def test_hop_mean_is_saved_unless_it_is_the_default(name: str, tmp_path: Path) -> None:
    usual: Any = make_network(name, 1)
    assert "hop_mean" not in usual.options
    network: Any = make_network(f"{name}:hop_mean=sender", 1)
    assert network.senses == ef.paper_senses(usual.senses.paper_aggregation, 3, hop_mean="sender") != usual.senses
    assert all(map(torch.equal, network.parameters(), usual.parameters()))
    back: Any = ef.load(ef.save(network, tmp_path / "by-sender.safetensors"))
    assert back.senses == network.senses
    assert back.compiled_form().senses == network.senses


def test_hop_mean_works_with_custom_channels(tmp_path: Path) -> None:
    network: Any = make_network("etdagnn", channels=[["velocity", "sum"]], hop_mean="sender")
    back: Any = ef.load(ef.save(network, tmp_path / "own.safetensors"))
    assert back.senses == ef.Senses((("velocity", "sum"),), 3, hop_mean="sender")


def test_wrong_bias_options_raise() -> None:
    with pytest.raises(InputError, match="unexpected keyword argument 'biases'"):
        make_network("etdagnn", biases="uniform")
    with pytest.raises(InputError, match=r"biases[\s\S]*'unifrom'"):
        make_network("tdagnn", biases="unifrom")


@given(st.sampled_from([2, 3]), st.integers(1, 4))
def test_etdagnn_equals_its_chain_of_layers(D: int, hops: int) -> None:
    network: Any = make_network("etdagnn", hops=hops)
    z = 5.0 * torch.randn(2, 6, hops, 3, D, generator=torch.Generator().manual_seed(hops))
    slow = network.layers(z.movedim(-1, 0))[..., 0, 0].movedim(0, -1)
    torch.testing.assert_close(network(z), slow)


@given(st.sampled_from([2, 3]), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_etdagnn_commutes_with_rotations_and_reflections(D: int, hops: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    turn = torch.tensor(ortho_group.rvs(D, random_state=seed))
    z = 10.0 * torch.randn(2, 5, hops, 3, D, dtype=torch.float64, generator=generator)
    network = make_network("etdagnn", hops=hops).double()
    torch.testing.assert_close(network(z @ turn.T), network(z) @ turn.T)


@pytest.mark.parametrize("name", ["tdagnn", "tdagnn-tf", "tdagnn-tf-mean"])
def test_tdagnn_does_not_commute_with_rotations(name: str) -> None:
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    z = torch.randn(1, 5, 3, 3, 2)
    network = make_network(name)
    assert not torch.allclose(network(z @ quarter.T), network(z) @ quarter.T, atol=1e-2)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_reach_every_weight_and_agree_with_finite_differences(name: str) -> None:
    network = make_network(name, hops=2).double()
    z = torch.randn(1, 3, 2, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    z[0, 0] = 0.0  # an agent without neighbours
    (network(z) ** 2).mean().backward()
    step = 1e-6
    for parameter in network.parameters():
        assert parameter.grad is not None
        flat, slope = parameter.detach().view(-1), parameter.grad.view(-1)
        index = int(slope.abs().argmax())
        values = []
        for sign in (1, -1):
            flat[index] += sign * step
            values.append((network(z) ** 2).mean().item())
            flat[index] -= sign * step
        assert float(slope[index]) == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_network_depends_on_each_agents_own_observation_only(name: str) -> None:
    network = make_network(name)
    start = ef.random_disk(2, 40)
    moment = next(ef.flight(start, network))
    with torch.inference_mode():
        alone = [network(torch.tensor(moment.observations[:1, i : i + 1]))[0, 0].numpy() for i in range(40)]
    np.testing.assert_allclose(moment.accelerations[0], np.stack(alone), rtol=1e-4, atol=1e-4)
    run = ef.simulate(start, network, duration=0.02)
    assert run.config["controller"] == name


def test_network_is_called_without_copies_or_gradients() -> None:
    seen: list[Any] = []

    class Nosy(torch.nn.Module):
        senses = ef.paper_senses("mean", hops=1)

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            seen.append((observations.data_ptr(), torch.is_inference_mode_enabled()))
            return torch.zeros(observations.shape[0], observations.shape[1], observations.shape[-1])

    moment = next(ef.flight(ef.random_disk(1, 20), Nosy()))
    assert seen == [(moment.observations.ctypes.data, True)]


def test_etdagnn_flies_in_three_dimensions_and_tdagnn_raises() -> None:
    ball = ef.random_disk(1, 40, dimensions=3)
    assert next(ef.flight(ball, make_network("etdagnn"))).accelerations.shape == (1, 40, 3)
    with pytest.raises(InputError, match="tdagnn is built for D = 2; got observations of D = 3"):
        next(ef.flight(ball, make_network("tdagnn")))
    assert next(ef.flight(ball, make_network("tdagnn", dimensions=3))).accelerations.shape == (1, 40, 3)


def test_a_network_takes_numpy_as_laws_do_and_tensors_as_modules_do() -> None:
    start = ef.random_disk(2, 30)
    network: Any = ef.load_module("etdagnn")
    moment = next(ef.flight(start, network))  # its arrays must not be written to
    answer = network(moment.observations)
    assert isinstance(answer, np.ndarray)
    tensors = network(torch.from_numpy(moment.observations.copy()))
    assert tensors.requires_grad
    np.testing.assert_array_equal(answer, tensors.detach().numpy())
    np.testing.assert_array_equal(answer, network(moment.observations.astype(np.float64)))


@pytest.mark.usefixtures("own_registry")
def test_law_can_call_a_network() -> None:
    network: Any = ef.load("etdagnn")

    @ef.controller("cautious", senses=ef.paper_senses("mean", 3))
    def cautious(observations: Any, share: float = 0.5) -> Any:
        return share * network(observations)

    start = ef.random_disk(1, 30)
    half, whole = (next(ef.flight(start, controller)).accelerations for controller in (ef.load("cautious"), network))
    np.testing.assert_allclose(half, 0.5 * whole, rtol=1e-4, atol=1e-4)


def test_wrong_array_shapes_raise_one_line() -> None:
    for network in (cast(Any, ef.load("etdagnn")), ef.load_module("etdagnn")):
        for shape in ((1, 5, 2, 3, 2), (5, 3, 3, 2)):
            with pytest.raises(InputError, match=r"etdagnn needs observations of shape \(B, N, K = 3, C = 3, D\); got"):
                network(np.zeros(shape, np.float32))


@pytest.mark.parametrize(("name", "count"), [("etdagnn", 560), ("tdagnn", 1730 + 6 * 3 * 32)])
def test_both_aggregations_give_six_channels(name: str, count: int, tmp_path: Path) -> None:
    network: Any = make_network(f"{name}:aggregation=both")
    mean, total = (ef.paper_senses(each, 3).channels for each in ("mean", "sum"))
    assert network.senses == ef.Senses((*mean, *total), hops=3)
    assert sum(parameter.numel() for parameter in network.parameters()) == count
    back: Any = ef.load_module(ef.save(network, tmp_path / "both.safetensors"))
    assert back.senses == network.senses
    assert all(map(torch.equal, back.parameters(), network.parameters()))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("aggregation", ["mean", "sum"])
def test_aggregation_is_saved_unless_it_is_the_default(name: str, aggregation: Any, tmp_path: Path) -> None:
    network: Any = make_network(name, aggregation=aggregation)
    assert network.senses == ef.paper_senses(aggregation, 3)
    usual: Any = make_network(name)
    assert ("channels" in network.options) == (usual.senses != network.senses)
    back: Any = ef.load(ef.save(network, tmp_path / "mine.safetensors"))
    assert back.senses == network.senses


def test_groups_work_with_both_aggregations() -> None:
    network: Any = make_network("etdagnn:groups=true:aggregation=both")
    assert network.senses.width == 12
    with pytest.raises(InputError, match=r"aggregation[\s\S]*'boht'"):
        make_network("etdagnn:aggregation=boht")
