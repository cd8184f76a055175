"""Controllers, which turn observations into accelerations, and their registry."""

from equiflock.controllers import classical as _classical  # registers its laws
from equiflock.controllers.loading import load, save
from equiflock.controllers.registry import controller, controller_names

__all__ = ["controller", "controller_names", "load", "save"]

del _classical
