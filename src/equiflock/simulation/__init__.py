"""The loop of a flight, the trajectory that is kept of it, and the metrics that describe it."""
