"""Experiments: flights as jobs, their measures, and the resulting tables."""
