"""A user's own controller is one decorator away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock.types import InputError

pytestmark = pytest.mark.usefixtures("own_registry")


def test_a_function_becomes_a_controller_that_flies() -> None:
    @ef.register("brake", hops=2, one_hop="mean")
    def brake(messages: Any) -> Any:
        return -messages[:, :, 0, 0]

    pilot = ef.load("brake")
    assert (pilot.hops, pilot.one_hop) == (2, "mean")
    run = ef.simulate(ef.random_disk(1, 30), pilot, duration=0.5)
    variance = ef.metrics.velocity_variance(run)[:, 0]
    assert variance[-1] < 0.8 * variance[0]
    assert run.config["controller"] == "brake"


def test_a_class_becomes_a_controller_with_options() -> None:
    @ef.register("still")
    class Still:
        hops = 1
        one_hop = "sum"

        def __init__(self, push: float = 0.0) -> None:
            self.push = push

        def __call__(self, messages: Any) -> Any:
            return np.full(messages[:, :, 0, 0].shape, self.push)

    moment = next(ef.flight(ef.random_disk(1, 30), ef.load("still", push=2.0)))
    assert (moment.accelerations == 2.0).all()
    with pytest.raises(InputError, match="controller 'still' does not take these options"):
        ef.load("still", pull=1.0)


def test_unknown_names_bring_a_suggestion() -> None:
    with pytest.raises(InputError, match="got 'taner'; did you mean 'tanner'"):
        ef.load("taner")


def test_a_name_is_taken_once() -> None:
    with pytest.raises(InputError, match="'tanner' is registered already"):
        ef.register("tanner")(lambda messages: messages[:, :, 0, 0])


def test_what_a_controller_hears_is_checked_when_it_is_registered() -> None:
    with pytest.raises(InputError, match="hops must be a whole number"):
        ef.register("deaf", hops=0)
