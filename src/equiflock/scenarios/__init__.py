"""Where flocks begin, who leads, what stands in the way, when it is over, and what is measured: one file each."""

from equiflock.scenarios.corridor import Corridor
from equiflock.scenarios.flocking import Flocking
from equiflock.scenarios.leaders import LeaderFollowing
from equiflock.scenarios.merging import Merging
from equiflock.scenarios.obstacles import ObstacleCourse
from equiflock.scenarios.random_disk import RandomDisk, random_disk
from equiflock.scenarios.registry import Scenario, make_scenario, scenario, scenario_names
from equiflock.scenarios.search import SearchCancelledError, Stop

__all__ = [
    "Corridor",
    "Flocking",
    "LeaderFollowing",
    "Merging",
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
