"""Communication graph, radio, and the observations that agents compute from messages."""
