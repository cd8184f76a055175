"""Simulation: the loop of a flight, its recorded trajectory, and metrics."""
