"""Scenarios, one file each: where flocks begin, who leads, obstacles, the ending, and what is measured.

All files of this folder are imported, so a scenario is registered by being here. Those in `equiflock` are named below.
"""

from equiflock.runtime.discovery import import_submodules
from equiflock.scenarios.flocking import Flocking
from equiflock.scenarios.leaders import LeaderFollowing
from equiflock.scenarios.obstacles import ObstacleCourse
from equiflock.scenarios.random_disk import RandomDisk, random_disk
from equiflock.scenarios.registry import Scenario, make_scenario, scenario, scenario_names
from equiflock.scenarios.search_control import SearchCancelledError, Stop

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
