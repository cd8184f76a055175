"""Bodies, one file each: what a commanded acceleration does to an agent.

All files of this folder are imported, so a body is registered by being here. Those in `equiflock` are named below.
"""

from equiflock.bodies.double_integrator import DoubleIntegrator
from equiflock.bodies.registry import body, body_names, make_body
from equiflock.bodies.unicycle import Unicycle
from equiflock.runtime.discovery import import_submodules

__all__ = ["DoubleIntegrator", "Unicycle", "body", "body_names", "make_body"]

import_submodules(__name__, __path__)
