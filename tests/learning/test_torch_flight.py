"""Flights in torch: the compiled flight to rounding, gradients by finite differences, and what they refuse."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from numpy.testing import assert_allclose

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.learning.torch_flight import TorchFlight, aggregate, list_edges
from equiflock.observations.aggregation import DelayedAggregation
from tests.flocks import flocks


@pytest.mark.parametrize("name", ["etdagnn", "tdagnn", "tdagnn-tf-mean"])
@pytest.mark.parametrize("limit", [None, 4.0])
@pytest.mark.parametrize("scenario", ["flocking", "leaders"])
def test_twenty_steps_agree_with_the_compiled_flight(name: str, limit: float | None, scenario: str) -> None:
    start = ef.make_scenario(scenario, flocks=2, agents=50, seed=1).draw()
    environment = ef.Environment(body=ef.DoubleIntegrator(max_acceleration=limit))
    compiled = ef.flight(start, ef.load(name), environment=environment)
    flight = TorchFlight(start, ef.load_module(name), environment=environment)
    with torch.no_grad():
        for theirs, ours in zip(islice(compiled, 21), flight, strict=False):
            assert_allclose(ours.positions.numpy(), theirs.flock.positions, rtol=0, atol=1e-5)
            assert_allclose(ours.velocities.numpy(), theirs.flock.velocities, rtol=0, atol=1e-5)
    assert theirs.step == 20 and np.abs(theirs.accelerations).max() > 0.1


@given(flock=flocks(roles=False))
def test_observations_agree_with_the_kernels(flock: ef.Flock) -> None:
    # The kernels' sums are partly float32.
    senses = ef.Senses((("velocity", "mean"), ("position", "sum"), ("inverse-square", "mean")), hops=2)
    sensing = DelayedAggregation(senses)
    r, v = (torch.from_numpy(array.copy()) for array in flock.arrays[:2])
    ours = torch.zeros((*flock.shape[:2], 2, 3, flock.shape[2]), dtype=torch.float64)
    for _ in range(2):
        theirs = sensing.observe(flock)
        ours = aggregate(r, v, ours, list_edges(r, flock), senses)
    scale = max(np.abs(theirs).max(), 1.0)
    assert_allclose(ours.numpy() / scale, theirs / scale, rtol=0, atol=1e-5)


def test_gradients_of_observations_agree_with_finite_differences() -> None:
    flock = ef.random_disk(2, 8, seed=1)
    edges = list_edges(torch.from_numpy(flock.positions.copy()), flock)
    senses = ef.paper_senses(hops=2)
    inputs = [torch.from_numpy(array.copy()).requires_grad_() for array in flock.arrays[:2]]
    inputs.append(torch.randn((2, 8, 2, 3, 2), dtype=torch.float64, requires_grad=True))
    assert torch.autograd.gradcheck(lambda r, v, z: aggregate(r, v, z, edges, senses), inputs)


def compute_loss(start: ef.Flock, network: torch.nn.Module) -> torch.Tensor:
    """Return the mean squared velocity of six steps."""
    environment = ef.Environment(body=ef.DoubleIntegrator(max_acceleration=5.0))
    moments = islice(TorchFlight(start, network, time_step=0.02, environment=environment), 6)
    return torch.stack([moment.velocities.square().mean() for moment in moments]).mean()


def test_gradients_through_six_steps_agree_with_finite_differences() -> None:
    start, network = ef.random_disk(1, 10, seed=2), ef.load_module("etdagnn").double()
    compute_loss(start, network).backward()  # type: ignore[no-untyped-call]
    rng, size = np.random.default_rng(0), 1e-5
    for parameter in network.parameters():
        assert parameter.grad is not None
        direction = torch.from_numpy(rng.normal(size=parameter.shape))
        losses = []
        with torch.no_grad():
            for sign in (1.0, -2.0):
                parameter.add_(sign * size * direction)
                losses.append(float(compute_loss(start, network)))
            parameter.add_(size * direction)
        assert_allclose(
            float((parameter.grad * direction).sum()), (losses[0] - losses[1]) / (2 * size), rtol=1e-4, atol=1e-9
        )


def test_no_gradients_pass_to_the_steps_before_a_detachment() -> None:
    flight = TorchFlight(ef.random_disk(1, 10), ef.load_module("etdagnn"))
    first = next(flight)
    next(flight)
    flight.detach()
    later = next(flight)
    (gradient,) = torch.autograd.grad(later.accelerations.sum(), [first.accelerations], allow_unused=True)
    assert gradient is None


@pytest.mark.parametrize(
    ("scenario", "name", "options", "message"),
    [
        ("obstacles", "etdagnn", {}, "only through flocks without obstacle agents"),
        ("flocking", "starling", {}, "whose features are of all agents"),
        ("flocking", "etdagnn", {"radio": ef.Radio(packet_loss=0.1)}, "only through an ideal radio and a double"),
        ("flocking", "etdagnn", {"body": ef.DoubleIntegrator(lag=0.1)}, "only through an ideal radio and a double"),
        ("flocking", "etdagnn", {"failures": ef.Failures(agents=1)}, "only through an ideal radio and a double"),
    ],
)
def test_what_gradients_do_not_pass_through_is_refused(
    scenario: str, name: str, options: dict[str, Any], message: str
) -> None:
    start = ef.make_scenario(scenario, agents=10).draw()
    with pytest.raises(InputError, match=message):
        TorchFlight(start, ef.load_module(name), environment=ef.Environment(**options))
