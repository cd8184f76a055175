"""Scenarios, one file each: initial conditions, leaders, obstacles, the ending, and the recorded measures.

Importing this package imports all of its modules, which registers their scenarios.
"""

from equiflock._runtime.imports import import_submodules
from equiflock.scenarios.flocking import Flocking
from equiflock.scenarios.leaders import LeaderFollowing
from equiflock.scenarios.obstacles import ObstacleCourse
from equiflock.scenarios.random_disk import RandomDisk, SearchCancelledError, Stop, random_disk
from equiflock.scenarios.registry import Scenario, make_scenario, scenario, scenario_names

__all__ = [
    "Flocking",
    "LeaderFollowing",
    "ObstacleCourse",
    "RandomDisk",
    "Scenario",
    "SearchCancelledError",
    "Stop",
    "make_scenario",
    "random_disk",
    "scenario",
    "scenario_names",
]

import_submodules(__name__, __path__)
