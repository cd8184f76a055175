"""Train, judge, watch and deploy controllers that let a swarm fly together with no central computer."""

import importlib
from typing import TYPE_CHECKING, Any

from equiflock import metrics, threads, types
from equiflock.checks import InputError
from equiflock.controllers import load, names, register, save
from equiflock.course import UntilPassed
from equiflock.flight import Flight, flight
from equiflock.graph import Graph, components, radius_graph
from equiflock.imitation.fast_forward import FastForward
from equiflock.imitation.recipe import DAgger
from equiflock.initial import LeaderFollowing, ObstacleCourse, RandomDisk, random_disk
from equiflock.messages import DelayedAggregation, messages
from equiflock.orbit import Orbit
from equiflock.simulation import simulate
from equiflock.trajectory import Trajectory
from equiflock.types import Flock, LocalController, Moment, Outcome, PrivilegedController, Role
from equiflock.version import __version__
from equiflock.world import UntilDisconnected

if TYPE_CHECKING:
    from equiflock import theory
    from equiflock.imitation.dagger import train

__all__ = [
    "DAgger",
    "DelayedAggregation",
    "FastForward",
    "Flight",
    "Flock",
    "Graph",
    "InputError",
    "LeaderFollowing",
    "LocalController",
    "Moment",
    "ObstacleCourse",
    "Orbit",
    "Outcome",
    "PrivilegedController",
    "RandomDisk",
    "Role",
    "Trajectory",
    "UntilDisconnected",
    "UntilPassed",
    "__version__",
    "components",
    "flight",
    "load",
    "messages",
    "metrics",
    "names",
    "radius_graph",
    "random_disk",
    "register",
    "save",
    "simulate",
    "theory",
    "threads",
    "train",
    "types",
]


def __getattr__(name: str) -> Any:
    """`train` and `theory`, on first use: they need torch, which takes seconds to import."""
    if name == "train":
        from equiflock.imitation.dagger import train

        return train
    if name == "theory":
        return importlib.import_module("equiflock.theory")
    raise AttributeError(f"module 'equiflock' has no attribute {name!r}")
