"""Whoever uses a name of version 0.1 is told the new one, in one line."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Callable
from typing import Any

import pytest

import equiflock
from equiflock.runtime.renamed import MODULES

ef: Any = equiflock
"""Types would find the old names before they are used."""


@pytest.mark.parametrize(
    ("old", "text"),
    [
        ("messages", r"equiflock\.messages of version 0\.1 is now equiflock\.observe\(flock, senses\)"),
        ("register", r"equiflock\.register of version 0\.1 is now equiflock\.controller"),
        ("names", r"is now equiflock\.controller_names"),
        ("types", r"is now equiflock\.flock, equiflock\.outcomes and equiflock\.protocols"),
        ("imitation", r"equiflock\.imitation of version 0\.1 is now equiflock\.learning"),
    ],
)
def test_old_names_of_the_package_tell_the_new_ones(old: str, text: str) -> None:
    with pytest.raises(AttributeError, match=text):
        getattr(ef, old)


@pytest.mark.parametrize("old", MODULES)
def test_modules_that_moved_say_where_they_are_and_are_there(old: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"{old} of version 0.1 is now {MODULES[old]}"):
        importlib.import_module(old)
    for new in MODULES[old].replace(" and ", ", ").split(", "):
        assert importlib.util.find_spec(new) is not None


def test_other_modules_that_are_not_there_are_just_not_there() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'equiflock\.weather'"):
        importlib.import_module("equiflock.weather")


FLOCK = ef.Flock([[[0.0, 0.0], [0.5, 0.0]]], [[[1.0, 0.0], [0.0, 0.0]]])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ef.simulate(FLOCK, pilot=ef.load("tanner")), "simulate takes controller in place of pilot"),
        (lambda: ef.simulate(FLOCK, ef.load("tanner"), radius=2.0), "simulate takes comm_radius in place of radius"),
        (lambda: ef.flight(FLOCK, ef.load("tanner"), radius=2.0), "flight takes comm_radius in place of radius"),
        (lambda: ef.radius_graph(FLOCK, radius=2.0), "radius_graph takes comm_radius"),
        (lambda: ef.components(FLOCK, radius=2.0), "components takes comm_radius"),
        (lambda: ef.metrics.component_count(FLOCK, radius=2.0), "component_count takes comm_radius"),
        (lambda: ef.UntilPassed(radius=2.0), "UntilPassed takes comm_radius"),
        (lambda: ef.UntilDisconnected(radius=2.0), "UntilDisconnected takes comm_radius"),
        (lambda: ef.DelayedAggregation(hops=1, one_hop="mean"), "DelayedAggregation takes senses in place of hops"),
        (lambda: ef.controller("align", hops=1, one_hop="mean"), "controller takes senses in place of hops"),
        (lambda: ef.DAgger(clamp=50.0), 'DAgger takes expert="tanner:clamp=.." in place of clamp'),
    ],
)
def test_old_arguments_tell_the_new_ones(call: Callable[[], object], text: str) -> None:
    with pytest.raises(ef.InputError, match=text):
        call()


def test_old_attributes_tell_the_new_ones_and_cannot_be_set() -> None:
    loop = ef.flight(FLOCK, ef.load("tanner"))
    moment, run = next(itertools.islice(loop, 1)), ef.simulate(FLOCK, ef.load("tanner"), duration=0.01)
    for thing, old, new in [
        (moment, "messages", "observations"),
        (moment, "radius", "comm_radius"),
        (run, "radius", "comm_radius"),
        (loop, "radius", "comm_radius"),
        (loop, "orbit", r"sensing\.orbit"),
    ]:
        text = rf"{type(thing).__name__}\.{old} of version 0\.1 is now {type(thing).__name__}\.{new}"
        with pytest.raises(AttributeError, match=text):
            getattr(thing, old)
    with pytest.raises(AttributeError, match=r"is now Flight\.sensing\.orbit"):
        loop.orbit = ef.Orbit()


def test_a_controller_that_declares_hops_as_in_version_01_is_told_of_senses() -> None:
    class Old:
        hops, one_hop = 1, "mean"

        def __call__(self, observations: object) -> object:
            return observations

    with pytest.raises(ef.InputError, match="Old must declare senses in place of hops and one_hop"):
        ef.flight(FLOCK, Old())
