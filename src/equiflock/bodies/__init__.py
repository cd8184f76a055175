"""Bodies: what a commanded acceleration does to an agent."""

from equiflock.bodies.double_integrator import DoubleIntegrator

__all__ = ["DoubleIntegrator"]
