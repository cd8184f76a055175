"""What goes wrong in one call for all parts of a flight is told as the parts tell it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import equiflock as ef
from equiflock._runtime.checks import InputError, NumericRangeError
from equiflock.flock import Flock
from tests.simulation.test_fused_step import ETDAGNN, apart, network


def spoiled(value: float) -> Any:
    """A network that returns nonsense as soon as an agent has a neighbour."""
    controller = network("etdagnn", 2)
    with torch.no_grad():
        controller.layers[-1].weight[:] = value
    return controller


@pytest.mark.parametrize("skip", [0, 40])
@pytest.mark.parametrize(
    ("controller", "time_step"), [(spoiled(float("nan")), 0.01), (spoiled(3e38), 0.01), (spoiled(1e9), 1.0)]
)
def test_what_goes_wrong_is_told_as_the_parts_tell_it(controller: Any, time_step: float, skip: int) -> None:
    # The second flock is alone in the world at first, so that it goes wrong later.
    drawn = ef.random_disk(2, 20, seed=1)
    start = Flock(drawn.positions * [[[1.0]], [[0.5]]], drawn.velocities)
    errors, states = [], []
    for loop in (ef.flight(start, controller, time_step=time_step), apart(start, controller, time_step=time_step)):
        with pytest.raises(NumericRangeError) as caught:
            loop.skip(skip)
            for _ in itertools.islice(loop, 40):
                pass
        errors.append(str(caught.value))
        states.append([array.tobytes() for array in loop._state])
    assert errors[0] == errors[1]
    assert states[0] == states[1]


def test_features_off_the_scale_are_told_as_the_parts_tell_it(own_registry: None) -> None:
    @ef.feature("steep", vector="position")
    def steep(square: float) -> float:
        return 1e24 / square

    controller = network("etdagnn", 2, channels=[["steep", "sum"]])
    start = Flock(np.array([[[0.0, 0.0], [1e-8, 0.0]]]), np.zeros((1, 2, 2)))
    errors = []
    for loop in (ef.flight(start, controller), apart(start, controller)):
        with pytest.raises(NumericRangeError, match="one of steep is off the scale") as caught:
            next(loop)
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_a_network_of_another_dimension_is_refused_as_before() -> None:
    with pytest.raises(InputError, match="built for D = 2; got observations of D = 3"):
        next(ef.flight(ef.random_disk(1, 80, dimensions=3), ef.load("tdagnn")))


def test_a_step_that_fails_is_counted_once_by_the_radio() -> None:
    """The fused step fails first, and then its parts, which say why."""
    start = ef.random_disk(2, 20, seed=1)
    loop = ef.flight(start, ETDAGNN, radio=ef.Radio(packet_loss=0.5))
    next(loop)
    message_buffer: Any = loop.sensing.message_buffer  # type: ignore[attr-defined]
    assert loop._fused is not None and message_buffer.step == 0
    loop.replace(ef.Flock(start.positions, start.velocities * 1e18))
    with pytest.raises(NumericRangeError):
        next(loop)
    assert message_buffer.step == 1
