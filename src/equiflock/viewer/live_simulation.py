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
from equiflock.runtime.options import format_options
from equiflock.runtime.randomness import make_rng
from equiflock.scenarios import Scenario, Stop
from equiflock.scenarios.obstacle_shapes import add_obstacle
from equiflock.scenarios.registry import choose_orbit, describe_disagreement
from equiflock.scenarios.until_passed import obstacle_disks
from equiflock.senses.orbit import Orbit
from equiflock.simulation.failures import FailureKind
from equiflock.simulation.simulate import describe_part
from equiflock.simulation.trajectory import Trajectory
from equiflock.viewer.agent_selection import (
    compute_distances,
    keep_agents,
    select_controlled,
    select_obstacle,
    select_role,
)
from equiflock.viewer.frames import NO_LINKS, FlockPicture
from equiflock.viewer.live_flight import LiveFlight
from equiflock.viewer.setting import MAX_DISKS, DiskObstacle, Setting
from equiflock.viewer.world import WorldSetting

MAX_ADVANCE_SECONDS = 0.05
"""An advance ends after this time, even with fewer steps than were requested, so that the page stays responsive."""
ControllerLoader = Callable[[str, dict[str, Any]], Controller]


class LiveSimulation:
    """The flights of a setting. They always have the same agents, whatever is done to them.

    Args:
        setting: what they begin with.
        load: makes a controller of a name and options.
        stop: ends the search for a start, as for `RandomDisk`.
    """

    def __init__(self, setting: Setting, load: ControllerLoader, stop: Stop | None = None) -> None:
        self.setting = setting
        self._load = load
        # A controller that cannot be made is known before a start is looked for.
        controllers = [(load(name, options), options) for name, options in setting.controller_specs]
        self.edges = False
        """Whether pictures show who hears whom."""
        scenario, start = setting.make(), setting.draw(stop)
        self.scenario_obstacle_count = len(obstacle_disks(start)) - len(setting.disks)
        """The number of obstacles of the scenario itself; they come before those of the setting."""
        self._orbits = [_choose_orbit(scenario, controller) for controller, _ in controllers]
        # A scenario with obstacles decides on the technique; in one without any, dropped obstacles are avoided.
        self.orbit_enabled = (
            (scenario.orbit is not None or self.scenario_obstacle_count == 0)
            if setting.orbit is None
            else setting.orbit
        )
        """Whether followers avoid obstacles by the orbit technique."""
        world = setting.world.make()
        self.flights = [
            LiveFlight(
                start, *controller_specs, setting.time_step, scenario, technique if self.orbit_enabled else None, world
            )
            for controller_specs, technique in zip(controllers, self._orbits, strict=True)
        ]
        self._warnings = [describe_disagreement(scenario, controller) for controller, _ in controllers]
        self._draw_count = 0
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
        end = time.perf_counter() + MAX_ADVANCE_SECONDS
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
    def warning(self) -> str | None:
        """A line about what the scenario and a law must have alike and have not, such as a pattern, or None."""
        return next((text for text in self._warnings if text is not None), None)

    def to_dict(self) -> dict[str, Any]:
        """What the page is sent of the flights: the setting, and what the scenario decided where that is open."""
        return {
            "setting": self.setting.model_dump(mode="json"),
            "comm_radius": self.flights[0].flock.comm_radius,
            "orbit": self.orbit_enabled,
            "given": self.scenario_obstacle_count,
            "remark": self.warning,
        }

    def make_pictures(self) -> list[FlockPicture]:
        """The flock of each panel as it is now."""
        disks = self.disks
        found = []
        for live in self.flights:
            compute_links = live.compute_links() if self.edges else NO_LINKS
            held_accelerations = live.flight.compute_held_accelerations()
            found.append(
                FlockPicture(
                    live.flock, live.accelerations, disks, compute_links, held_accelerations=held_accelerations
                )
            )
        return found

    def steer(self, velocity: tuple[float, float]) -> None:
        """Give all leaders a velocity."""
        self._set_velocities(
            lambda flock: np.where(select_role(flock, Role.LEADER)[:, None], velocity, flock.velocities[0])
        )

    def scatter(self) -> None:
        """Give every follower a velocity of its own, drawn anew as at the start, the same in both flights."""
        fresh = self.setting.disk.draw_velocities(self._make_rng("scatter"), self.flights[0].flock.shape[1])
        self._set_velocities(lambda flock: np.where(select_controlled(flock)[:, None], fresh, flock.velocities[0]))

    def toggle_nearest_leader(self, position: tuple[float, float], reach: float, panel: int) -> None:
        """Make the agent nearest to a place a leader or, if it is one, a follower; it must be within reach."""
        live = self._get_flight(panel)
        # Obstacle agents cannot lead, however near they are.
        distances = np.where(select_role(live.flock, Role.OBSTACLE), np.inf, compute_distances(live.flock, position))
        chosen = int(np.argmin(distances))
        if distances[chosen] > reach:
            raise InputError("no agent is there: click on one")
        self.toggle_leader(chosen)

    def toggle_leader(self, agent: int) -> None:
        """Make the agent of a number a leader or, if it is one, a follower, in all flights."""
        first = self.flights[0].flock
        if agent >= first.shape[1] or first.roles[0, agent] == Role.OBSTACLE:
            raise InputError(f"there is no agent number {agent}")
        if first.conditions[0, agent] != Condition.WORKING:
            raise InputError("an agent that has failed cannot lead: choose another, or repair it")
        for live in self.flights:
            roles = live.flock.roles.copy()
            roles[0, agent] = Role.LEADER if roles[0, agent] == Role.FOLLOWER else Role.FOLLOWER
            live.replace_flock(replace(live.flock, roles=roles))

    def change_world(self, world: WorldSetting) -> None:
        """Go on with another radio and another body, in all flights."""
        made = world.make()
        if not made.radio.is_ideal:
            self._check_imperfect_radio_supported()
        for live in self.flights:
            live.change_world(made)
        self.setting = self.setting.model_copy(update={"world": world})

    def change_law(self, panel: int, options: dict[str, Any]) -> None:
        """Go on with other options of the controller of one flight."""
        live = self._get_flight(panel)
        controller = self._load(self.setting.controllers[panel], options)
        live.change_controller(controller, options)
        self._warnings[panel] = describe_disagreement(self.setting.make(), controller)
        self.setting = self.setting.replace_law_options(panel, options)

    def fail_agents(self, kind: FailureKind, agents: int) -> None:
        """Let so many followers fail, drawn at random, the same in all flights; all that work if they are fewer."""
        self._check_imperfect_radio_supported()
        first = self.flights[0].flock
        able = np.flatnonzero((first.roles[0] == Role.FOLLOWER) & (first.conditions[0] == Condition.WORKING))
        if len(able) == 0:
            raise InputError("no follower is left that works")
        chosen = self._make_rng("failures").permutation(able)[:agents]
        conditions = first.conditions.copy()
        conditions[0, chosen] = Condition[kind.upper()]
        self._set_conditions(conditions)

    def repair_agents(self) -> None:
        """Let all agents work again, in all flights; those that stopped begin at rest."""
        self._set_conditions(np.zeros_like(self.flights[0].flock.conditions))

    def remove_agents(self, places: Sequence[tuple[float, float]], reach: float, panel: int) -> None:
        """Take away the agents of a flight within reach of some places, and the same ones of the other flight."""
        live = self._get_flight(panel)
        # All places of a request at once; agents are chosen by where they are in the panel that was clicked.
        near = np.zeros(live.flock.shape[1], bool)
        for place in places:
            near |= compute_distances(live.flock, place) <= reach
        gone = near & ~select_role(live.flock, Role.OBSTACLE)
        if not gone.any():
            return
        if gone.sum() >= np.count_nonzero(~select_role(live.flock, Role.OBSTACLE)):
            raise InputError("the last agent stays: somebody must fly")
        for other in self.flights:
            other.replace_flock(keep_agents(other.flock, ~gone), ~gone)

    def add_disk(self, disk: DiskObstacle) -> None:
        """Put an obstacle into the way."""
        if len(self.disks) >= MAX_DISKS:
            raise InputError(f"there may be {MAX_DISKS} obstacles; remove one first")
        # The same obstacle goes into all flights.
        make_rim = disk.make_rim(self.setting.rim_spacing)
        for live in self.flights:
            live.replace_flock(add_obstacle(live.flock, make_rim))

    def move_disk(self, number: int, position: tuple[float, float]) -> None:
        """Put an obstacle somewhere else."""
        moved = select_obstacle(self.flights[0].flock, number)
        shift = np.subtract(position, self.disks[number, :2])
        for live in self.flights:
            positions = live.flock.positions.copy()
            positions[0, moved] += shift
            live.replace_flock(replace(live.flock, positions=positions))

    def remove_disk(self, number: int) -> None:
        """Take an obstacle away."""
        keep = ~select_obstacle(self.flights[0].flock, number)
        for live in self.flights:
            live.replace_flock(keep_agents(live.flock, keep), keep)

    def orbit(self, enabled: bool) -> None:
        """Switch the orbit technique on or off."""
        self.orbit_enabled = enabled
        for live, technique in zip(self.flights, self._orbits, strict=True):
            live.sensing.orbit = technique if enabled else None

    def to_trajectories(self) -> list[Trajectory]:
        """What was recorded of each flight since its agents changed for the last time."""
        world = self.setting.world.make()
        told = {
            "scenario": self.setting.scenario,
            "setting": self.setting.model_dump(mode="json"),
            "disks": self.disks.tolist(),
            "radio": describe_part(world.flight_options["radio"]),
            "body": describe_part(world.body),
        }
        found = []
        for live, (name, options) in zip(self.flights, self.setting.controller_specs, strict=True):
            own = {"controller": format_options(name, options), "laws": live.law_history, "worlds": live.world_history}
            own["orbit"] = describe_part(live.sensing.orbit)
            found.append(live.recording.to_trajectory(self.setting.time_step, {**told, **own}))
        return found

    def _set_velocities(self, compute_velocities: Callable[[Flock], NDArray[Any]]) -> None:
        for live in self.flights:
            live.replace_flock(replace(live.flock, velocities=compute_velocities(live.flock)[None]))

    def _set_conditions(self, conditions: Conditions) -> None:
        """Let agents fail or work: all flights have the same agents, and the same ones of them fail."""
        for live in self.flights:
            velocities = np.where((conditions == Condition.STOPPED)[..., None], 0.0, live.flock.velocities)
            live.replace_flock(replace(live.flock, conditions=conditions, velocities=velocities))

    def _check_imperfect_radio_supported(self) -> None:
        """Raise a clear error if one of the controllers needs all messages."""
        for live, name in zip(self.flights, self.setting.controllers, strict=True):
            if live.sensing.senses.requires_ideal_radio:
                raise InputError(f"{name} needs a perfect radio and agents that work: it divides by who hears a sender")

    def _make_rng(self, name: str) -> np.random.Generator:
        """Random numbers that differ from those of the last time, and are the same for the same seed."""
        self._draw_count += 1
        return make_rng(self.setting.seed, name, self._draw_count)

    def _get_flight(self, panel: int) -> LiveFlight:
        if panel >= len(self.flights):
            raise InputError(f"panel must be below {len(self.flights)}; got {panel}")
        return self.flights[panel]


def _choose_orbit(scenario: Scenario, controller: Controller) -> Orbit:
    """The orbit technique when it is on: that of the scenario under this controller, or in one without the usual."""
    own = getattr(controller, "orbit", None)
    return choose_orbit(scenario, controller) or (own if isinstance(own, Orbit) else Orbit())
