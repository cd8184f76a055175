"""Where flocks begin: a seed and a few numbers become a `Flock`."""

from equiflock.initial.random_disk import RandomDisk, random_disk

__all__ = ["RandomDisk", "random_disk"]
