"""Whether a controller can be exported, for which dimensions, and by which technique it avoids obstacles then."""

from __future__ import annotations

import inspect
from typing import Any

from equiflock.controllers.registry import controller_names
from equiflock.controllers.unit_scaling import ScaledController
from equiflock.features import Senses
from equiflock.orbit_technique import Orbit
from equiflock.runtime.checks import InputError, check_count, shorten_repr


def unwrap_scaled(controller: Any) -> tuple[Any, float]:
    """The controller in its own units, and the factor from its accelerations to those of the robots."""
    scale = 1.0
    while isinstance(controller, ScaledController):
        scale, controller = scale * controller.acceleration_scale, controller.controller
    return controller, scale


def get_controller_name(controller: Any) -> str:
    """The name that a controller is registered under, or that of its class."""
    return str(getattr(controller, "name", type(controller).__name__))


def check_local(controller: Any) -> Senses:
    """The senses of a controller that an agent can run by itself; a clear error for any other."""
    if inspect.isclass(controller) or not callable(controller):
        raise InputError(
            f"a controller for robots is such as equiflock.load('etdagnn'); got {shorten_repr(controller)}"
        )
    name = get_controller_name(controller)
    if getattr(controller, "privileged", False):
        # Some laws have a form that each agent can fly by itself.
        local = next((each for each in (f"{name}-local", f"{name}-dynamic") if each in controller_names()), "")
        raise InputError(
            f"{name} is privileged: it sees the whole flock, which no robot can; use "
            f"{local and f'{local}, or '}a network that learned from it, such as etdagnn"
        )
    senses = getattr(controller, "senses", None)
    if not isinstance(senses, Senses):
        raise InputError(f"{name} must declare senses, such as equiflock.paper_senses(), to run on a robot")
    if senses.requires_ideal_radio:
        raise InputError(f'{name} has hop_mean = "sender": a sender cannot know who hears it; use "receiver"')
    return senses


def resolve_dimensions(controller: Any, dimensions: int | None) -> int:
    """D of what is exported: as asked, or as the controller is built for, or 2."""
    built = getattr(unwrap_scaled(controller)[0], "dimensions", None)
    if dimensions is not None and check_count("dimensions", dimensions) not in (2, 3):
        raise InputError(f"dimensions must be 2 or 3; got {dimensions}")
    if built is not None and dimensions not in (None, built):
        raise InputError(f"{get_controller_name(controller)} is built for D = {built}; got dimensions = {dimensions}")
    return int(built or dimensions or 2)


def resolve_orbit(controller: Any, orbit: Orbit | None, dimensions: int) -> Orbit | None:
    """The technique for obstacles: the one given, or that which the controller was tuned with; none in space."""
    if orbit is not None and not isinstance(orbit, Orbit):
        raise InputError(f"orbit must be an Orbit, such as equiflock.Orbit(), or None; got {shorten_repr(orbit)}")
    if orbit is not None and dimensions != 2:
        raise InputError(f"orbit is a technique for D = 2; got dimensions = {dimensions}")
    own = getattr(controller, "orbit", None)
    found = orbit or (own if isinstance(own, Orbit) else None)
    return found if dimensions == 2 else None
