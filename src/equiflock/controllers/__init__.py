"""What turns knowledge into acceleration: the registry of controllers, and the controllers themselves."""

from equiflock.controllers import tanner as _tanner  # registers its laws
from equiflock.controllers.registry import load, names, register, save

__all__ = ["load", "names", "register", "save"]

del _tanner
