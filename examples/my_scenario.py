"""my_scenario.py: a wall with a gate, through which the flock is led."""

from dataclasses import dataclass, field, replace

import numpy as np

import equiflock as ef
from equiflock.scenarios.marks import segments
from equiflock.scenarios.obstacle_shapes import add_obstacle, wall
from equiflock.scenarios.success_measure import SuccessMeasure

THROUGH = ef.Outcome.add("THROUGH", "all agents are through the gate")


@dataclass(frozen=True)
class UntilThrough:
    """Ends a flight when the last agent of the flock is beyond the wall."""

    wall_at: float

    def __call__(self, times, flock, flying):
        beyond = flock.positions[:, :, 0] > self.wall_at
        all_through = (beyond | (flock.roles == ef.Role.OBSTACLE)).all(axis=1)
        return np.where(all_through, THROUGH, ef.Outcome.FLYING)


@ef.scenario("gate")
@dataclass(frozen=True)
class Gate:
    """Flocks that fly to the right, two agents in the middle leading, through a gate in a wall."""

    disk: ef.RandomDisk = field(default_factory=lambda: ef.RandomDisk(agents=50))
    """The flocks."""
    width: float = 4.0
    """Of the gate."""

    duration = 10.0
    orbit = ef.Orbit()
    success_outcomes = (THROUGH,)
    figure = "endings"
    suitable_controllers = ("starling", "etdagnn")
    controller_requirement = "stays connected past obstacles"

    @property
    def wall_at(self):
        return self.disk.radius + 1.5

    def ending(self):
        return UntilThrough(self.wall_at + 0.5)

    @property
    def success_measure(self):
        return SuccessMeasure("{} through the gate", self.share_beyond)

    def share_beyond(self, flock):
        beyond = flock.working & (flock.positions[:, :, 0] > self.wall_at)
        return beyond.sum(axis=1) / flock.working.sum(axis=1)

    def marks(self, flock):
        return [segments("gate", [[self.wall_at, -self.width / 2, self.wall_at, self.width / 2]])]

    def draw(self, stop=None):
        flock = self.disk.draw(stop)
        roles = flock.roles.copy()
        for b, heights in enumerate(np.abs(flock.positions[:, :, 1])):
            roles[b, np.argsort(heights)[:2]] = ef.Role.LEADER
        flock = replace(flock, velocities=np.tile([1.0, 0.0], (*flock.shape[:2], 1)), roles=roles)
        for side in (-1.0, 1.0):
            ends = side * self.width / 2, side * (self.disk.radius + 2.0)
            flock = add_obstacle(flock, wall((self.wall_at, ends[0]), (self.wall_at, ends[1]), spacing=0.2))
        return flock


if __name__ == "__main__":
    gate = ef.make_scenario("gate", flocks=5, width=5.0)
    run = ef.simulate(
        gate.draw(), ef.load("etdagnn"), duration=gate.duration, ending=gate.ending(), orbit=gate.orbit, keep_every=10
    )
    print([outcome.name for outcome in run.outcome])
