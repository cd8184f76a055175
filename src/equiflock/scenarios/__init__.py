"""Where flocks begin, who leads, what stands in the way, when it is over, and what is measured: one file each.

A scenario is registered because its file is here; those that have names in `equiflock` are imported by name, too.
"""

from equiflock.runtime.discovery import import_all
from equiflock.scenarios.flocking import Flocking
from equiflock.scenarios.leaders import LeaderFollowing
from equiflock.scenarios.obstacles import ObstacleCourse
from equiflock.scenarios.random_disk import RandomDisk, random_disk
from equiflock.scenarios.registry import Scenario, make_scenario, scenario, scenario_names
from equiflock.scenarios.search import SearchCancelledError, Stop

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

import_all(__name__, __path__)
