"""Compiled weights of features, and their sums over all pairs of a flock."""
