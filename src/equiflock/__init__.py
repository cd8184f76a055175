"""Train, judge, watch and deploy controllers that let a swarm fly together with no central computer."""

from equiflock import metrics, threads, types
from equiflock.controllers import load, names, register
from equiflock.flight import Flight, flight
from equiflock.graph import Graph, components, radius_graph
from equiflock.initial import RandomDisk, random_disk
from equiflock.messages import DelayedAggregation, messages
from equiflock.simulation import simulate
from equiflock.trajectory import Trajectory
from equiflock.types import Flock, InputError, LocalController, Moment, Outcome, PrivilegedController, Role
from equiflock.version import __version__
from equiflock.world import UntilDisconnected

__all__ = [
    "DelayedAggregation",
    "Flight",
    "Flock",
    "Graph",
    "InputError",
    "LocalController",
    "Moment",
    "Outcome",
    "PrivilegedController",
    "RandomDisk",
    "Role",
    "Trajectory",
    "UntilDisconnected",
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
    "simulate",
    "threads",
    "types",
]
