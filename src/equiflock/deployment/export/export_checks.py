"""Checks before an export: is the controller local, which D does it have, and which orbit technique does it use."""

from __future__ import annotations

import inspect
from typing import Any

from equiflock.controllers.registry import controller_names
from equiflock.controllers.unit_scaling import ScaledController
from equiflock.features import Senses
from equiflock.orbit_technique import Orbit
from equiflock.runtime.checks import InputError, check_count, shorten_repr


def unwrap_scaled(controller: Any) -> tuple[Any, float]:
    """Return the controller without its unit scaling, and the factor from its accelerations to the robots' units."""
    scale = 1.0
    while isinstance(controller, ScaledController):
        scale, controller = scale * controller.acceleration_scale, controller.controller
    return controller, scale


def get_controller_name(controller: Any) -> str:
    """Return the registered name of a controller, or the name of its class."""
    return str(getattr(controller, "name", type(controller).__name__))


def check_local(controller: Any) -> Senses:
    """Return the senses of a local controller. Raise InputError if it is not callable, privileged, or has no `Senses`.

    Also raise InputError for hop_mean = "sender", which needs an ideal radio.
    """
    if inspect.isclass(controller) or not callable(controller):
        raise InputError(
            f"controller must be a controller, such as equiflock.load('etdagnn'), got {shorten_repr(controller)}"
        )
    name = get_controller_name(controller)
    if getattr(controller, "privileged", False):
        # Some laws have a local variant.
        local = next((each for each in (f"{name}-local", f"{name}-dynamic") if each in controller_names()), "")
        raise InputError(
            f"{name} is privileged: it needs the state of the whole flock, which no robot has; use "
            f"{local and f'{local}, or '}a network trained on it, such as etdagnn"
        )
    senses = getattr(controller, "senses", None)
    if not isinstance(senses, Senses):
        raise InputError(f"{name} must declare senses to run on a robot, such as equiflock.paper_senses()")
    if senses.requires_ideal_radio:
        raise InputError(f'{name} has hop_mean = "sender", but a sender does not know its receivers; use "receiver"')
    return senses


def resolve_dimensions(controller: Any, dimensions: int | None) -> int:
    """Return D of the export: the one the controller is built for, else the given one, else 2.

    Raise InputError if the given one is neither 2 nor 3, or differs from the controller's.
    """
    built = getattr(unwrap_scaled(controller)[0], "dimensions", None)
    if dimensions is not None and check_count("dimensions", dimensions) not in (2, 3):
        raise InputError(f"dimensions must be 2 or 3, got {dimensions}")
    if built is not None and dimensions not in (None, built):
        raise InputError(f"{get_controller_name(controller)} is built for D = {built}, got dimensions = {dimensions}")
    return int(built or dimensions or 2)


def resolve_orbit(controller: Any, orbit: Orbit | None, dimensions: int) -> Orbit | None:
    """Return the orbit technique of the export: the given one, else the controller's own, else None.

    For D = 3 return None, and raise InputError if one is given.
    """
    if orbit is not None and not isinstance(orbit, Orbit):
        raise InputError(f"orbit must be an Orbit, such as equiflock.Orbit(), or None, got {shorten_repr(orbit)}")
    if orbit is not None and dimensions != 2:
        raise InputError(f"orbit requires dimensions = 2, got {dimensions}")
    own = getattr(controller, "orbit", None)
    resolved = orbit or (own if isinstance(own, Orbit) else None)
    return resolved if dimensions == 2 else None
