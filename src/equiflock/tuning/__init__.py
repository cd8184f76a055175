"""Tuning: a trained network improved directly on what its flights are measured by."""
