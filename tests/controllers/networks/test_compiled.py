"""The compiled networks are the torch ones, for any number of agents, hops and dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import equiflock as ef
from equiflock._runtime import threads
from equiflock._runtime.checks import InputError
from equiflock.controllers.loading import make_network
from equiflock.controllers.networks.compiled import AGENTS_PER_THREAD
from equiflock.controllers.networks.lane_kernels import LANES
from equiflock.controllers.networks.models import ETDAGNN, TDAGNN
from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.controllers.trained import PAPER_NETWORKS as NETWORKS


def observations(flocks: int, agents: int, hops: int, D: int, seed: int = 0) -> Any:
    """Blocks of all magnitudes that occur, some of them zero."""
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.uniform(-6, 3, (flocks, agents, hops, 3, 1))
    z = rng.standard_normal((flocks, agents, hops, 3, D)) * sizes * (rng.random((flocks, agents, hops, 1, 1)) > 0.1)
    return z.astype(np.float32)


def loaded(name: str) -> Any:
    return ef.load(name)


def network(name: str, hops: int, D: int, seed: int) -> nn.Module:
    options = {} if name == "etdagnn" else {"dimensions": D}
    made = make_network(name, seed, hops=hops, **options)
    torch.manual_seed(seed)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made


def assert_equal_to_torch(controller: Any, z: Any) -> None:
    fast = controller.compiled_form()
    assert fast is not None
    with torch.inference_mode():
        expected = controller(torch.from_numpy(z)).numpy()
    found = fast(z)
    assert found.dtype == np.float64
    # Relative to what was added up: numbers of all signs may cancel.
    scale = 1.0 + np.abs(z).max(axis=(2, 3, 4))[..., None]
    assert np.abs(found - expected).max(initial=0.0, where=np.isfinite(expected)) <= 1e-5 * scale.max()
    assert (np.abs(found - expected) <= 1e-5 * np.maximum(scale, np.abs(expected))).all()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("D", [2, 3])
@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_every_network_in_two_and_three_dimensions(name: str, D: int, hops: int) -> None:
    assert_equal_to_torch(network(name, hops, D, seed=hops), observations(3, 150, hops, D))


@given(st.sampled_from(list(NETWORKS)), st.integers(1, 3), st.integers(1, 2 * LANES + 3), st.integers(0, 2**31))
def test_any_number_of_agents_and_weights(name: str, flocks: int, agents: int, seed: int) -> None:
    assert_equal_to_torch(network(name, 3, 2, seed), observations(flocks, agents, 3, 2, seed))


@pytest.mark.parametrize("name", NETWORKS)
def test_trained_weights_give_torchs_accelerations(name: str) -> None:
    start = ef.random_disk(flocks=5, agents=100, seed=3)
    fast = loaded(name)
    z = ef.observe(start, fast.senses)
    # In float64, as torch's own float32 is off by nearly as much as is allowed here.
    with torch.inference_mode():
        expected = ef.load_module(name).double()(torch.from_numpy(z).double()).numpy()
    assert (np.abs(fast(z) - expected) <= 1e-5 * (1.0 + np.abs(expected))).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_result_does_not_depend_on_index_other_agents_or_threads(name: str) -> None:
    fast = loaded(name)
    z = observations(1, 3 * AGENTS_PER_THREAD + 7, 3, 2)
    with threads.use(1):
        alone = fast(z)
    with threads.use(3):
        assert np.array_equal(fast(z), alone)
    assert np.array_equal(fast(z[:, ::-1])[:, ::-1], alone)
    assert np.array_equal(fast(z[:, 70:75]), alone[:, 70:75])


@pytest.mark.parametrize("name", NETWORKS)
def test_large_observations_give_no_nan(name: str) -> None:
    fast = loaded(name)
    for size in (0.0, 1e-45, 1e-30, 1e15, 1e38):
        assert np.isfinite(fast(np.full((1, 5, 3, 3, 2), size, np.float32))).all()


def test_other_modules_have_no_compiled_form() -> None:
    class Louder(ETDAGNN):
        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(observations)

    assert Louder().compiled_form() is None
    assert ETDAGNN().double().compiled_form() is None
    watched = TDAGNN()
    seen: list[object] = []
    watched.register_forward_hook(lambda *call: seen.append(call))
    assert watched.compiled_form() is None
    as_numpy_function(watched)(observations(1, 4, 3, 2))
    assert len(seen) == 1
    inside = ETDAGNN()
    inside.layers[1].register_forward_hook(lambda *call: seen.append(call))
    assert inside.compiled_form() is None
    straight = ETDAGNN()
    straight.layers[2] = nn.Identity()
    assert straight.compiled_form() is None


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("hops", [1, 3])
def test_flight_keeps_the_weights_of_its_start(name: str, hops: int) -> None:
    controller: Any = make_network(name, hops=hops)
    flying = as_numpy_function(controller)
    z = observations(1, 4, hops, 2)
    before = flying(z)
    with torch.no_grad():
        for weight in controller.parameters():
            weight.add_(0.1)
    assert np.array_equal(flying(z), before)
    assert not np.allclose(as_numpy_function(controller)(z), before)


def test_wrong_observation_shapes_raise() -> None:
    flat = TDAGNN().compiled_form()
    assert flat is not None
    with pytest.raises(InputError, match="tdagnn is built for D = 2; got observations of D = 3"):
        flat(observations(1, 2, 3, 3))
    with pytest.raises(
        InputError, match=r"needs observations of shape \(B, N, K = 3, C = 3, D\); got \(1, 2, 2, 3, 2\)"
    ):
        flat(observations(1, 2, 2, 2))
