"""Learned controllers: layers, the paper's networks, their compiled form, and their weights."""
