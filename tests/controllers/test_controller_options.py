"""What a controller takes is read from its definition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock._runtime.specs import SAFE_PATTERN
from equiflock.controllers.registry import UNIT_OPTIONS, ControllerOption, controller_options, split_law_options

pytestmark = pytest.mark.usefixtures("own_registry")


def named(name: str) -> dict[str, ControllerOption]:
    return {option.name: option for option in controller_options(name)}


def test_options_of_a_dataclass_are_its_own_and_inherited_fields() -> None:
    @dataclass(frozen=True)
    class Base:
        gain: float = 2.0
        """How strong
        it is."""

    @ef.controller("swirl")
    @dataclass(frozen=True)
    class Swirl(Base):
        senses = ef.paper_senses("mean", hops=1)

        side: Literal["left", "right"] = "left"
        start: Literal["near", "far"] | str | list[float] = field(default="near", metadata={SAFE_PATTERN: "[a-c]+"})
        limit: float | None = None
        turns: list[int] = field(default_factory=list)
        seen: int = field(default=0, init=False)

        def __call__(self, observations: Any) -> Any:
            return 0.0 * observations[:, :, 0, 0]

    found = named("swirl")
    assert list(found) == ["gain", "side", "start", "limit"]
    assert (found["gain"].default, found["gain"].help) == (2.0, "How strong it is.")
    assert found["side"].choices == ("left", "right")
    assert [found[name].may_be_none for name in found] == [False, False, False, True]
    # Of a union, the words that it names are choices; others are safe only if the field says so.
    assert found["start"].choices == ("near", "far")
    assert [word for word in ("far", "abc", "abd", "", "left") if found["start"].is_safe(word)] == ["far", "abc"]
    assert [word for word in ("far", "abc", "abd", "", "left") if found["side"].is_safe(word)] == ["left"]
    assert not found["gain"].choices
    assert not found["limit"].is_safe("")


def test_options_of_a_function_or_of_another_class_are_its_arguments_with_defaults() -> None:
    @ef.controller("push", privileged=True)
    def push(flock: Any, observations: Any, needed: float, gain: float = 1.0, away=False) -> Any:  # type: ignore[no-untyped-def]
        return gain * flock.velocities

    @ef.controller("still")
    class Still:
        senses = ef.paper_senses("sum", hops=1)

        def __init__(self, push: float = 0.5, until: float | None = 2.0) -> None: ...

        def __call__(self, observations: Any) -> Any: ...

    assert [(option.name, option.default) for option in controller_options("push")] == [("gain", 1.0), ("away", False)]
    assert {name: (option.default, option.may_be_none) for name, option in named("still").items()} == {
        "push": (0.5, False),
        "until": (2.0, True),
    }


def test_unresolvable_annotations_are_ignored() -> None:
    @ef.controller("odd")
    def odd(observations: Elsewhere, gain: Elsewhere = 1.0) -> Any:  # type: ignore[name-defined]
        return gain * observations[:, :, 0, 0]

    (option,) = controller_options("odd")
    assert (option.name, option.default, option.choices, option.may_be_none) == ("gain", 1.0, (), False)


def test_networks_and_unknown_names_have_no_options() -> None:
    torch = pytest.importorskip("torch")

    @ef.controller("net")
    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, hops: int = 2) -> None: ...

    assert [controller_options(name) for name in ("etdagnn", "net", "nobody", "mine.safetensors")] == [()] * 4


@pytest.mark.parametrize("name", sorted(set(ef.controller_names())))
def test_every_option_has_a_description_and_a_valid_default(name: str) -> None:
    for option in controller_options(name):
        assert option.help, option.name
        assert option.name not in UNIT_OPTIONS
        ef.load(name, **{option.name: option.default})


def test_misspelled_option_lists_the_options() -> None:
    with pytest.raises(InputError, match=r"'clmap'.*; its options are clamp, clamp_by, potential, "):
        ef.load("tanner-dynamic:clmap=5")


@pytest.mark.parametrize(
    ("name", "head", "options"),
    [
        ("tanner", "tanner", {}),
        ("tanner:clamp=5:cut_off=false", "tanner", {"clamp": 5, "cut_off": False}),
        ("tanner:clamp=none:time_scale=2.0", "tanner:time_scale=2.0", {"clamp": None}),
        ("tanner:comm_radius=5", "tanner:comm_radius=5", {}),
        ("etdagnn:3", "etdagnn:3", {}),
        ("etdagnn:seed=3", "etdagnn:seed=3", {}),
        ("C:/mine.safetensors:comm_radius=5", "C:/mine.safetensors:comm_radius=5", {}),
    ],
)
def test_split_law_options(name: str, head: str, options: dict[str, Any]) -> None:
    assert split_law_options(name) == (head, options)


def test_split_name_and_options_load_the_same_law() -> None:
    name, options = split_law_options("reynolds:cohesion=2:comm_radius=3")
    observations = np.random.default_rng(0).normal(size=(1, 5, 1, 3, 2)).astype(np.float32)
    whole, parts = ef.load("reynolds:cohesion=2:comm_radius=3"), ef.load(name, **options)
    assert np.array_equal(whole(observations), parts(observations))  # type: ignore[call-arg, arg-type]
    assert whole.senses == parts.senses
