"""What one agent knows of another, compiled: the weights of features, and their sums over all pairs of a flock."""
