"""Bodies, one file each: the motion of an agent under a commanded acceleration.

All modules of this package are imported, which registers their bodies. `__all__` lists the public names of `equiflock`.
"""

from equiflock._runtime.imports import import_submodules
from equiflock.bodies.double_integrator import DoubleIntegrator
from equiflock.bodies.quadrotor import Quadrotor
from equiflock.bodies.registry import body, body_names, make_body
from equiflock.bodies.unicycle import Unicycle

# isort: split
# Last, since bodies are listed in the order of their imports: the default comes first, and this one needs an extra.
from equiflock.bodies.crazyflow import Crazyflow

__all__ = ["Crazyflow", "DoubleIntegrator", "Quadrotor", "Unicycle", "body", "body_names", "make_body"]

import_submodules(__name__, __path__)
