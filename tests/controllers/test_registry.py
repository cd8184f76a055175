"""A user's own controller is one decorator away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.controllers.registry import is_bundled

pytestmark = pytest.mark.usefixtures("own_registry")


def test_a_function_becomes_a_controller_that_flies() -> None:
    @ef.controller("brake", senses=ef.paper_senses("mean", 2))
    def brake(observations: Any) -> Any:
        return -observations[:, :, 0, 0]

    controller = ef.load("brake")
    assert controller.senses == ef.paper_senses("mean", hops=2)
    run = ef.simulate(ef.random_disk(1, 30), controller, duration=0.5)
    variance = ef.metrics.velocity_variance(run)[:, 0]
    assert variance[-1] < 0.8 * variance[0]
    assert run.config["controller"] == "brake"


def test_a_class_becomes_a_controller_with_options() -> None:
    @ef.controller("still")
    class Still:
        senses = ef.paper_senses("sum", hops=1)

        def __init__(self, push: float = 0.0) -> None:
            self.push = push

        def __call__(self, observations: Any) -> Any:
            return np.full(observations[:, :, 0, 0].shape, self.push)

    moment = next(ef.flight(ef.random_disk(1, 30), ef.load("still", push=2.0)))
    assert (moment.accelerations == 2.0).all()
    with pytest.raises(InputError, match="controller 'still' has no option 'pull'; its options are push, comm_radius"):
        ef.load("still", pull=1.0)


def test_unknown_names_give_a_suggestion() -> None:
    with pytest.raises(InputError, match="got 'taner'; did you mean 'tanner'"):
        ef.load("taner")


def test_a_name_cannot_be_registered_twice() -> None:
    with pytest.raises(InputError, match="'tanner' is already registered"):
        ef.controller("tanner")(lambda observations: observations[:, :, 0, 0])


def test_senses_are_checked_at_registration() -> None:
    with pytest.raises(InputError, match="senses must be Senses"):
        ef.controller("incomplete", senses=3)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="the class Incomplete must declare senses, privileged and gain_schedule"):
        ef.controller("incomplete", senses=ef.paper_senses())(type("Incomplete", (), {}))


def test_bare_decorator_uses_the_functions_name() -> None:
    @ef.controller
    def coast(observations: Any) -> Any:
        return 0.0 * observations[:, :, 0, 0]

    assert callable(coast)
    assert ef.load("coast").senses == ef.paper_senses("mean", hops=1)


@pytest.mark.parametrize("name", ["", "a:b", "mine.safetensors", 3, None])
def test_names_that_load_could_not_parse_raise(name: Any) -> None:
    with pytest.raises(InputError, match="the name of a controller must "):
        ef.controller(name)


def test_options_of_a_function_are_its_arguments() -> None:
    @ef.controller("push")
    def push(observations: Any, gain: float = 1.0, away: bool = False) -> Any:
        return np.full(observations[:, :, 0, 0].shape, -gain if away else gain)

    start = ef.random_disk(1, 30)
    for controller in (ef.load("push", gain=4.0, away=True), ef.load("push:gain=4:away=true")):
        assert (next(ef.flight(start, controller)).accelerations == -4.0).all()
    with pytest.raises(InputError, match="controller 'push' has no option 'gian'; its options are gain, away, "):
        ef.load("push:gian=4")


def test_options_may_be_part_of_a_name() -> None:
    assert ef.load("tanner:clamp=5.0") == ef.load("tanner", clamp=5.0)
    assert ef.load("tanner:clamp=none") == ef.load("tanner", clamp=None)
    with pytest.raises(InputError, match=r"clamp must be a finite number above 0; got -1\.5"):
        ef.load("tanner:clamp=-1.5")
    for wrong in ("tanner:clamp", "tanner:clamp=", "tanner:=5", "tanner:clamp=5:clamp=6", "tanner:"):
        with pytest.raises(InputError, match="must have the form key=value:key=value"):
            ef.load(wrong)


@pytest.mark.parametrize("name", [None, 3, ["tanner"]])
def test_load_raises_for_non_names(name: Any) -> None:
    with pytest.raises(InputError, match="a controller must be a name or the path of a weights file; got"):
        ef.load(name)


def test_option_can_have_the_name_of_a_declaration() -> None:
    @ef.controller("odd")
    def odd(observations: Any, hops: int = 1) -> Any:
        return np.full(observations[:, :, 0, 0].shape, float(hops))

    assert (next(ef.flight(ef.random_disk(1, 10), ef.load("odd:hops=4"))).accelerations == 4.0).all()


def test_is_bundled_distinguishes_controllers_of_the_package() -> None:
    ef.controller("mine")(lambda observations: observations[:, :, 0, 0])
    assert all(map(is_bundled, ("tanner", "tanner:clamp=5", "etdagnn", "etdagnn:3")))
    assert not any(map(is_bundled, ("mine", "mine.safetensors", "nobody")))
