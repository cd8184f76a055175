"""Live flights that can be changed while they fly: one, or two in lockstep from the same start."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from equiflock.flock import Condition, Conditions, Flock, Role
from equiflock.protocols import Controller
from equiflock.runtime.checks import InputError
from equiflock.runtime.options import write_options
from equiflock.runtime.randomness import stream
from equiflock.scenarios import Scenario, Stop
from equiflock.scenarios.passing import obstacle_disks
from equiflock.scenarios.registry import disagreement, orbit_of
from equiflock.scenarios.shapes import with_obstacle
from equiflock.senses.orbit import Orbit
from equiflock.simulation.failures import FailureKind
from equiflock.simulation.simulate import description
from equiflock.simulation.trajectory import Trajectory
from equiflock.viewer.choosing import distances_from, have_role, obeying, of_obstacle, only
from equiflock.viewer.frames import NO_LINKS, FlockPicture
from equiflock.viewer.live import LiveFlight
from equiflock.viewer.setting import MOST_DISKS, DiskObstacle, Setting
from equiflock.viewer.world import WorldSetting

SECONDS_PER_ADVANCE = 0.05
"""An advance ends after this time, even with fewer steps than were requested, so that the page stays responsive."""
Load = Callable[[str, dict[str, Any]], Controller]


class Stage:
    """The flights of a setting. They always have the same agents, whatever is done to them.

    Args:
        setting: what they begin with.
        load: makes a controller of a name and options.
        stop: ends the search for a start, as for `RandomDisk`.
    """

    def __init__(self, setting: Setting, load: Load, stop: Stop | None = None) -> None:
        self.setting = setting
        self._load = load
        # A controller that cannot be made is known before a start is looked for.
        controllers = [(load(name, options), options) for name, options in setting.flown]
        self.edges = False
        """Whether pictures show who hears whom."""
        scenario, start = setting.make(), setting.draw(stop)
        self.given = len(obstacle_disks(start)) - len(setting.disks)
        """The number of obstacles of the scenario itself; they come before those of the setting."""
        self._techniques = [_technique(scenario, controller) for controller, _ in controllers]
        # A scenario with obstacles decides on the technique; in one without any, dropped obstacles are avoided.
        self.orbiting = (scenario.orbit is not None or self.given == 0) if setting.orbit is None else setting.orbit
        """Whether followers avoid obstacles by the orbit technique."""
        world = setting.world.make()
        self.flights = [
            LiveFlight(start, *flown, setting.time_step, scenario, technique if self.orbiting else None, world)
            for flown, technique in zip(controllers, self._techniques, strict=True)
        ]
        self._remarks = [disagreement(scenario, controller) for controller, _ in controllers]
        self._draws = 0
        """How often chance has had a say in what was done to the flights."""

    @property
    def step(self) -> int:
        """How many steps were made."""
        return self.flights[0].step

    @property
    def time(self) -> float:
        """How long the flights have been going on, in seconds."""
        return self.step * self.setting.time_step

    def advance(self, steps: int) -> None:
        """Make this many steps, or as many as there is time for, but at least one unless `steps` is 0."""
        # Both flights make the same number of steps, so that they stay in lockstep.
        end = time.perf_counter() + SECONDS_PER_ADVANCE
        for _ in range(steps):
            for live in self.flights:
                live.advance()
                live.record()
            if time.perf_counter() > end:
                break

    @property
    def disks(self) -> Float64[np.ndarray, "M 3"]:
        """Centre and radius of every obstacle but walls; a page counts obstacles in this order, from 0."""
        return obstacle_disks(self.flights[0].flock)

    @property
    def remark(self) -> str | None:
        """A line about what the scenario and a law must have alike and have not, such as a pattern, or None."""
        return next((text for text in self._remarks if text is not None), None)

    def told(self) -> dict[str, Any]:
        """What the page is sent of the flights: the setting, and what the scenario decided where that is open."""
        return {
            "setting": self.setting.model_dump(mode="json"),
            "comm_radius": self.flights[0].flock.comm_radius,
            "orbit": self.orbiting,
            "given": self.given,
            "remark": self.remark,
        }

    def pictures(self) -> list[FlockPicture]:
        """The flock of each panel as it is now."""
        disks = self.disks
        found = []
        for live in self.flights:
            links = live.links() if self.edges else NO_LINKS
            held = live.flight.held_accelerations()
            found.append(FlockPicture(live.flock, live.accelerations, disks, links, held=held))
        return found

    def steer(self, velocity: tuple[float, float]) -> None:
        """Give all leaders a velocity."""
        self._velocities(lambda flock: np.where(have_role(flock, Role.LEADER)[:, None], velocity, flock.velocities[0]))

    def scatter(self) -> None:
        """Give every follower a velocity of its own, drawn anew as at the start, the same in both flights."""
        fresh = self.setting.disk.draw_velocities(self._stream("scatter"), self.flights[0].flock.shape[1])
        self._velocities(lambda flock: np.where(obeying(flock)[:, None], fresh, flock.velocities[0]))

    def lead(self, at: tuple[float, float], reach: float, panel: int) -> None:
        """Make the agent nearest to a place a leader or, if it is one, a follower; it must be within reach."""
        live = self._flight(panel)
        # Obstacle agents cannot lead, however near they are.
        distances = np.where(have_role(live.flock, Role.OBSTACLE), np.inf, distances_from(live.flock, at))
        chosen = int(np.argmin(distances))
        if distances[chosen] > reach:
            raise InputError("no agent is there: click on one")
        self.appoint(chosen)

    def appoint(self, agent: int) -> None:
        """Make the agent of a number a leader or, if it is one, a follower, in all flights."""
        first = self.flights[0].flock
        if agent >= first.shape[1] or first.roles[0, agent] == Role.OBSTACLE:
            raise InputError(f"there is no agent number {agent}")
        if first.conditions[0, agent] != Condition.WORKING:
            raise InputError("an agent that has failed cannot lead: choose another, or repair it")
        for live in self.flights:
            roles = live.flock.roles.copy()
            roles[0, agent] = Role.LEADER if roles[0, agent] == Role.FOLLOWER else Role.FOLLOWER
            live.change(replace(live.flock, roles=roles))

    def change_world(self, world: WorldSetting) -> None:
        """Go on with another radio and another body, in all flights."""
        made = world.make()
        if not made.radio.is_perfect:
            self._check_imperfect()
        for live in self.flights:
            live.change_world(made)
        self.setting = self.setting.model_copy(update={"world": world})

    def change_law(self, panel: int, options: dict[str, Any]) -> None:
        """Go on with other options of the controller of one flight."""
        live = self._flight(panel)
        controller = self._load(self.setting.controllers[panel], options)
        live.change_controller(controller, options)
        self._remarks[panel] = disagreement(self.setting.make(), controller)
        self.setting = self.setting.with_law(panel, options)

    def fail(self, kind: FailureKind, agents: int) -> None:
        """Let so many followers fail, drawn at random, the same in all flights; all that work if they are fewer."""
        self._check_imperfect()
        first = self.flights[0].flock
        able = np.flatnonzero((first.roles[0] == Role.FOLLOWER) & (first.conditions[0] == Condition.WORKING))
        if len(able) == 0:
            raise InputError("no follower is left that works")
        chosen = self._stream("failures").permutation(able)[:agents]
        conditions = first.conditions.copy()
        conditions[0, chosen] = Condition[kind.upper()]
        self._set_conditions(conditions)

    def repair(self) -> None:
        """Let all agents work again, in all flights; those that stopped begin at rest."""
        self._set_conditions(np.zeros_like(self.flights[0].flock.conditions))

    def remove(self, places: Sequence[tuple[float, float]], reach: float, panel: int) -> None:
        """Take away the agents of a flight within reach of some places, and the same ones of the other flight."""
        live = self._flight(panel)
        # All places of a request at once; agents are chosen by where they are in the panel that was clicked.
        near = np.zeros(live.flock.shape[1], bool)
        for place in places:
            near |= distances_from(live.flock, place) <= reach
        gone = near & ~have_role(live.flock, Role.OBSTACLE)
        if not gone.any():
            return
        if gone.sum() >= np.count_nonzero(~have_role(live.flock, Role.OBSTACLE)):
            raise InputError("the last agent stays: somebody must fly")
        for other in self.flights:
            other.change(only(other.flock, ~gone), ~gone)

    def drop(self, disk: DiskObstacle) -> None:
        """Put an obstacle into the way."""
        if len(self.disks) >= MOST_DISKS:
            raise InputError(f"there may be {MOST_DISKS} obstacles; remove one first")
        # The same obstacle goes into all flights.
        rim = disk.rim(self.setting.spacing)
        for live in self.flights:
            live.change(with_obstacle(live.flock, rim))

    def move(self, number: int, at: tuple[float, float]) -> None:
        """Put an obstacle somewhere else."""
        moved = of_obstacle(self.flights[0].flock, number)
        shift = np.subtract(at, self.disks[number, :2])
        for live in self.flights:
            positions = live.flock.positions.copy()
            positions[0, moved] += shift
            live.change(replace(live.flock, positions=positions))

    def lift(self, number: int) -> None:
        """Take an obstacle away."""
        keep = ~of_obstacle(self.flights[0].flock, number)
        for live in self.flights:
            live.change(only(live.flock, keep), keep)

    def orbit(self, on: bool) -> None:
        """Switch the orbit technique on or off."""
        self.orbiting = on
        for live, technique in zip(self.flights, self._techniques, strict=True):
            live.sensing.orbit = technique if on else None

    def trajectories(self) -> list[Trajectory]:
        """What was recorded of each flight since its agents changed for the last time."""
        world = self.setting.world.make()
        told = {
            "scenario": self.setting.scenario,
            "setting": self.setting.model_dump(mode="json"),
            "disks": self.disks.tolist(),
            "radio": description(world.rules["radio"]),
            "body": description(world.body),
        }
        found = []
        for live, (name, options) in zip(self.flights, self.setting.flown, strict=True):
            own = {"controller": write_options(name, options), "laws": live.laws, "worlds": live.worlds}
            own["orbit"] = description(live.sensing.orbit)
            found.append(live.recording.trajectory(self.setting.time_step, {**told, **own}))
        return found

    def _velocities(self, of: Callable[[Flock], NDArray[Any]]) -> None:
        for live in self.flights:
            live.change(replace(live.flock, velocities=of(live.flock)[None]))

    def _set_conditions(self, conditions: Conditions) -> None:
        """Let agents fail or work: all flights have the same agents, and the same ones of them fail."""
        for live in self.flights:
            velocities = np.where((conditions == Condition.STOPPED)[..., None], 0.0, live.flock.velocities)
            live.change(replace(live.flock, conditions=conditions, velocities=velocities))

    def _check_imperfect(self) -> None:
        """Raise a clear error if one of the controllers needs all messages."""
        for live, name in zip(self.flights, self.setting.controllers, strict=True):
            if live.sensing.senses.needs_perfection:
                raise InputError(f"{name} needs a perfect radio and agents that work: it divides by who hears a sender")

    def _stream(self, name: str) -> np.random.Generator:
        """Random numbers that differ from those of the last time, and are the same for the same seed."""
        self._draws += 1
        return stream(self.setting.seed, name, self._draws)

    def _flight(self, panel: int) -> LiveFlight:
        if panel >= len(self.flights):
            raise InputError(f"panel must be below {len(self.flights)}; got {panel}")
        return self.flights[panel]


def _technique(scenario: Scenario, controller: Controller) -> Orbit:
    """The orbit technique when it is on: that of the scenario under this controller, or in one without the usual."""
    own = getattr(controller, "orbit", None)
    return orbit_of(scenario, controller) or (own if isinstance(own, Orbit) else Orbit())
