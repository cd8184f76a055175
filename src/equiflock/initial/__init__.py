"""Where flocks begin: a seed and a few numbers become a `Flock`."""

from equiflock.initial.random_disk import random_disk

__all__ = ["random_disk"]
