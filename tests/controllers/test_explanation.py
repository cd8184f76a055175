"""The acceleration of an agent is the sum of the terms of its law, or is split by gradient times input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.registry import find_definition
from equiflock.flock import Condition, Flock
from tests.controllers.classical.test_pair_law import EVERY, crowd

TERMS: dict[str, dict[str, list[str]]] = {
    "reynolds": {"": ["alignment", "cohesion", "separation"]},
    "segregation": {"": ["alignment", "own group", "other groups"]},
    "formation": {"": ["alignment", "pull"], "noise=1:network=chain": ["alignment", "pull", "noise"]},
    "tanner": {
        "": ["alignment", "repulsion", "attraction"],
        "cut_off=false:hold=3": ["alignment", "repulsion", "attraction", "hold", "potential beyond R"],
        "potential=inverse-square": ["alignment", "potential"],
        "clamp_by=entry:clamp=2": ["alignment", "repulsion", "attraction"],
    },
    "gu-leader": {"": ["alignment", "cohesion", "separation", "steering"]},
}
"""Names of terms, for some options of some laws; agent 5 is informed."""


def fly(name: str, flock: Flock, steps: int = 2, **rules: Any) -> ef.Moment:
    """Return a moment of a flight after some steps."""
    flight = ef.flight(flock, ef.load(name), **rules)
    flight.skip(steps)
    return next(flight)


@pytest.mark.parametrize("name", EVERY)
def test_terms_of_a_law_sum_to_its_acceleration(name: str) -> None:
    for options, expected in TERMS.get(name, {"": None}).items():
        spec = f"{name}:{options}" if options else name
        for dimensions, units in ((2, ""), (3, ":comm_radius=1.5:time_scale=4")):
            start = crowd(30, dimensions)
            conditions = np.zeros((1, 30), np.int8)
            conditions[0, 20:23] = Condition.SILENT, Condition.STOPPED, Condition.DRIFTING
            groups = np.where(np.arange(30) == 5, 1, start.groups % 2 * 2)
            velocities = np.where((conditions == Condition.STOPPED)[..., None], 0.0, start.velocities)
            flock = Flock(start.positions, velocities, start.roles, None, groups, conditions)
            moment = fly(spec + units, flock)
            controller = ef.load(spec + units)
            for agent in (5, 9, 20):
                found = ef.explain(
                    controller, moment.observations, agent, flock=moment.flock, time_step=moment.time_step
                )
                assert found.method == "terms"
                np.testing.assert_allclose(found.acceleration, moment.accelerations[0, agent], rtol=1e-12, atol=1e-9)
                np.testing.assert_allclose(found.remainder, 0.0, atol=1e-9)
                if expected is not None and agent == 5:
                    assert [part.name for part in found.contributions] == expected


def differentiate_slowly(controller: Any, observations: Any, agent: int) -> Any:
    """Return gradient times input (K, C, D), with one difference quotient for each number."""
    own = np.array(observations[0, agent], np.float64)
    result = np.zeros_like(own)
    for k, c, d in np.ndindex(own.shape):
        values = []
        for sign in (1, -1):
            changed = np.array(observations, np.float64)
            changed[0, agent, k, c, d] += sign * 1e-6
            values.append(controller(changed)[0, agent])
        result[k, c] += (values[0] - values[1]) / 2e-6 * own[k, c, d]
    return result


def vectors(explanation: ef.Explanation, shape: tuple[int, ...]) -> Any:
    """Return contributions by hop and channel as an array (K, C, D)."""
    result = np.full(shape, np.nan)
    for part in explanation.contributions:
        assert part.hop is not None
        result[part.hop - 1, part.channel] = part.vector
    return result


def test_any_controller_is_split_by_gradient_times_input(own_registry: None) -> None:
    senses = ef.Senses((("velocity", "mean"), ("inverse-square", "sum")), hops=2)

    @ef.controller("curved", senses=senses, gain_schedule=ef.GainSchedule(0.02))
    def curved(observations: Any) -> Any:
        now, before = observations[:, :, 0], observations[:, :, 1]
        return np.tanh(now[:, :, 0]) * 3.0 - now[:, :, 1] ** 2 + before[:, :, 1] * now[:, :, 0] + 0.5

    controller, flock = ef.load("curved"), ef.random_disk(agents=20, seed=3)
    moment = fly("curved", flock)
    found = ef.explain(controller, moment.observations, 4, time_step=0.01)
    factor = 2.0  # 0.02 / 0.01
    expected = factor * differentiate_slowly(controller, moment.observations, 4)
    np.testing.assert_allclose(vectors(found, (2, 2, 2)), expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.acceleration, moment.accelerations[0, 4], rtol=1e-5)
    assert np.linalg.norm(found.remainder) > 0.1
    assert {part.name for part in found.contributions} == {"velocity", "inverse-square"}


@pytest.mark.parametrize("name", ["etdagnn", "starling", "tdagnn"])
def test_gradients_of_networks_are_those_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    moment = fly(name, ef.random_disk(agents=30, seed=5), 6)
    module = ef.load_module(name).double()
    for agent in (0, 11):
        x = torch.tensor(moment.observations[:, agent : agent + 1].astype(np.float64), requires_grad=True)
        accelerations = type(module).forward(module, x)[0, 0]
        expected = []
        for component in accelerations:
            (gradient,) = torch.autograd.grad(component, x, retain_graph=True)
            expected.append((gradient * x).sum(dim=4)[0, 0].detach().numpy())
        found = ef.explain(ef.load(name), moment.observations, agent)
        size = float(np.linalg.norm(accelerations.detach().numpy()))
        np.testing.assert_allclose(
            vectors(found, moment.observations.shape[2:]), np.stack(expected, axis=-1), atol=2e-4 * size
        )


def test_a_batch_and_an_agent_without_neighbours_are_explained() -> None:
    lonely = Flock(np.array([[[0.0, 0.0], [9.0, 0.0]], [[0.0, 0.0], [0.5, 0.0]]]), np.zeros((2, 2, 2)))
    for name in ("etdagnn", "reynolds"):
        controller = ef.load(name)
        observations = ef.observe(lonely, controller.senses)
        alone = ef.explain(controller, observations, 1)
        assert not alone.acceleration.any()
        assert not any(part.vector.any() for part in alone.contributions)
        assert ef.explain(controller, observations, (1, 1)).acceleration[0] > 0.0


def test_what_cannot_be_explained_is_refused(own_registry: None) -> None:
    flock = ef.random_disk(agents=5, seed=0)
    observations = ef.observe(flock, ef.paper_senses("mean", hops=1))

    @ef.controller("seer", privileged=True)
    def seer(flock: Flock, observations: Any) -> Any:
        return -flock.velocities

    for controller, values, agent, message in (
        (ef.load("seer"), observations, 0, "no named terms"),
        (ef.load("tanner"), ef.observe(flock, ef.load("tanner").senses), 0, "give flock="),
        (ef.load("reynolds"), observations, 5, "below 5"),
        (ef.load("reynolds"), observations, -1, "below 5"),
        (ef.load("reynolds"), observations, 1.0, "must be an index"),
        (ef.load("reynolds"), observations[0], 1, "must have the shape"),
        ("reynolds", observations, 1, "must be callable"),
    ):
        with pytest.raises(InputError, match=message):
            ef.explain(controller, values, agent, flock=None)


def test_all_laws_of_the_package_have_terms() -> None:
    assert all(hasattr(find_definition(name), "compute_terms") for name in EVERY)
