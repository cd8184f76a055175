"""Controllers, which turn observations into accelerations, and their registry."""

from equiflock.controllers import classical as _classical  # registers the classical laws
from equiflock.controllers.loading import load, load_module, save
from equiflock.controllers.registry import controller, controller_names
from equiflock.controllers.safe import Safe
from equiflock.controllers.safety_limits import SafetyLimits, SafetyState

__all__ = ["Safe", "SafetyLimits", "SafetyState", "controller", "controller_names", "load", "load_module", "save"]

del _classical
