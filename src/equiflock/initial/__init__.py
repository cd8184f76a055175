"""Where flocks begin: a seed and a few numbers become a `Flock`."""

from equiflock.initial.leaders import LeaderFollowing
from equiflock.initial.obstacle_course import ObstacleCourse
from equiflock.initial.random_disk import RandomDisk, random_disk
from equiflock.initial.search import SearchCancelledError, Stop

__all__ = ["LeaderFollowing", "ObstacleCourse", "RandomDisk", "SearchCancelledError", "Stop", "random_disk"]
