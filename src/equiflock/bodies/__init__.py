"""Bodies, one file each: the motion of an agent under a commanded acceleration.

All modules of this package are imported, which registers their bodies. `__all__` lists the public names of `equiflock`.
"""

from equiflock._runtime.imports import import_submodules
from equiflock.bodies.double_integrator import DoubleIntegrator
from equiflock.bodies.registry import body, body_names, make_body
from equiflock.bodies.unicycle import Unicycle

__all__ = ["DoubleIntegrator", "Unicycle", "body", "body_names", "make_body"]

import_submodules(__name__, __path__)
