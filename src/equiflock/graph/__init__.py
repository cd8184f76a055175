"""The communication graph of a flock, and geometry of its positions."""
