"""Bodies: what a commanded acceleration does to an agent."""

from equiflock.bodies.double_integrator import DoubleIntegrator
from equiflock.bodies.unicycle import Unicycle

__all__ = ["DoubleIntegrator", "Unicycle"]
