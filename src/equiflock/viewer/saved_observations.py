"""The observations of a saved flight, which are not saved: its frames give them, if all messages arrived."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from equiflock._runtime.checks import InputError
from equiflock.controllers import controller_names, load
from equiflock.features import Senses
from equiflock.flock import Observations
from equiflock.graph.radius_graph import Graph, radius_graph
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.observations.orbit import Orbit
from equiflock.protocols import Controller
from equiflock.simulation.trajectory import Trajectory

MAX_HOPS = 10
"""Maximum number of hops, for each of which a frame is read."""
MAX_AGENTS = 20_000
"""Maximum number of agents that observe again; more would take long, again and again."""


class SavedObservations(NamedTuple):
    """What the agents of a frame observed."""

    senses: Senses
    observations: Observations
    """(1, N, K, C, D)."""
    fixed_graph: Graph | None
    """Communication graph of a controller with fixed topology."""


def read_senses(config: Mapping[str, Any]) -> Senses | None:
    """Return the senses of a flight, from the settings that `simulate` stores or else from its controller's name."""
    try:
        if isinstance(config.get("senses"), dict):
            return Senses(**config["senses"])
        return load_named_controller(str(config.get("controller"))).senses
    except (InputError, TypeError):  # settings of a plugin that is not loaded, or of no program of ours
        return None


def observe_saved_frame(run: Trajectory, frame: int) -> SavedObservations:
    """Return the observations at a frame of a flight in a batch of one.

    Raise InputError if they cannot be computed: with messages that were late or lost, unknown features, or frames
    that are farther apart than a time step.
    """
    senses = read_senses(run.config)
    if senses is None:
        raise InputError("the saved flight does not say what its controller observes")
    if run.config.get("radio") is not None:
        raise InputError("the saved flight had a radio, and does not say which messages arrived")
    agents = run.positions.shape[2]
    if senses.hops > MAX_HOPS or agents > MAX_AGENTS:
        most = f"at most {MAX_HOPS} hops of {MAX_AGENTS:,} agents are computed again"
        raise InputError(f"{most}; the flight has {senses.hops:,} of {agents:,}")
    first = frame - senses.hops + 1
    if first < 0 and run.config.get("start_time"):
        raise InputError("the saved flight begins later than what the agent remembers")
    first = max(first, 0)
    intervals = np.diff(run.times[first : frame + 1])
    if not np.allclose(intervals, run.time_step, rtol=1e-6):
        raise InputError("frames are farther apart than a time step, and agents remember what was between them")
    obstacles = "all" if run.config.get("obstacles") == "all" else "nearest"
    sensing = DelayedAggregation(senses, orbit=_read_orbit(run.config), obstacles=obstacles)  # type: ignore[arg-type]
    if senses.topology == "fixed":
        sensing.fixed_graph = radius_graph(senses.scale_flock(run.flock(0)))
    for k in range(first, frame + 1):
        observations = sensing.observe(run.flock(k))
    return SavedObservations(senses, observations, sensing.fixed_graph)


@lru_cache(maxsize=8)
def load_named_controller(name: str) -> Controller:
    """Return a registered controller or bundled network; raise InputError for others, such as files."""
    if name.partition(":")[0] not in controller_names():
        raise InputError("the controller of the saved flight is not known here")
    return load(name)


def _read_orbit(config: Mapping[str, Any]) -> Orbit | None:
    """Return the orbit technique of a flight; None without it or if its parameters are unknown."""
    description = config.get("orbit")
    if not isinstance(description, dict) or description.get("kind") != "Orbit":
        return None
    try:
        return Orbit(**{name: value for name, value in description.items() if name != "kind"})
    except (InputError, TypeError):
        return None
