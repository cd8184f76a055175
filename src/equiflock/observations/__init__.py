"""Observations that agents compute from the messages of their neighbours: delayed aggregation, radio, obstacle rule."""
