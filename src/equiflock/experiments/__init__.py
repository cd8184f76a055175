"""Experiments: what is flown, what is measured, and the tables that come out of it."""
