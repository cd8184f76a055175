"""The loop, what is kept of a flight, and numbers of it."""
