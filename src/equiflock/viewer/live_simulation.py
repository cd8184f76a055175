"""One live flight, or two in lockstep from the same initial conditions, that can be changed in flight."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock._runtime.randomness import make_rng
from equiflock._runtime.specs import format_spec
from equiflock.controllers.gain_schedule import describe_long_time_step
from equiflock.flock import NO_OBSTACLE, Condition, Conditions, Flock, Role
from equiflock.observations.orbit import Orbit
from equiflock.plotting.player.frames import NO_LINKS, FlockPicture
from equiflock.plotting.player.overlay import Overlay
from equiflock.protocols import Controller
from equiflock.scenarios import Scenario, Stop
from equiflock.scenarios.obstacle_shapes import add_obstacle, obstacle_disks
from equiflock.scenarios.registry import choose_orbit, describe_disagreement
from equiflock.simulation.failures import FailureKind
from equiflock.simulation.simulate import describe_part
from equiflock.simulation.trajectory import Trajectory
from equiflock.viewer.live_flight import LiveFlight, Mask
from equiflock.viewer.outcome_watch import OutcomeWatch
from equiflock.viewer.setting import (
    MAX_DISKS,
    OPTION_FIELDS,
    DiskObstacle,
    EnvironmentSetting,
    Setting,
    check_controller_memory,
    check_total_agents,
)

MAX_ADVANCE_SECONDS = 0.05
"""Time budget of `advance`, which may make fewer steps than requested, to keep the page responsive."""


class LiveSimulation:
    """The one or two flights of a setting, one for each panel of the page.

    Every change except `change_law` applies to all flights, so they always have the same agents. `load` builds a
    controller from its name and options; `stop` cancels the search for initial conditions.
    """

    def __init__(
        self, setting: Setting, load: Callable[[str, dict[str, Any]], Controller], stop: Stop | None = None
    ) -> None:
        self.setting = setting
        self._load = load
        # Load controllers first: errors are raised before the search for initial conditions.
        controllers = [(load(name, options), options) for name, options in setting.controller_specs]
        self.edges = False
        """Whether pictures include the communication graph."""
        scenario, start = setting.make(), setting.draw(stop)
        for controller, _ in controllers:
            check_controller_memory(controller, start)
        self.scenario_obstacle_count = len(obstacle_disks(start)) - len(setting.disks)
        """Number of the scenario's obstacles, which come before those of the setting."""
        self._orbits = [_choose_orbit(scenario, controller) for controller, _ in controllers]
        self.orbit_enabled = setting.orbit
        """Whether followers use the orbit technique; by default if the scenario does or has no obstacles."""
        if self.orbit_enabled is None:
            self.orbit_enabled = scenario.orbit is not None or self.scenario_obstacle_count == 0
        environment = setting.environment.make()
        self.flights = [
            LiveFlight(
                start,
                controller,
                options,
                setting.time_step,
                scenario,
                orbit if self.orbit_enabled else None,
                environment,
            )
            for (controller, options), orbit in zip(controllers, self._orbits, strict=True)
        ]
        self._warnings = [self._describe_risk(scenario, controller) for controller, _ in controllers]
        self._begin_watching(scenario)
        self._draw_count = 0
        """Number of random draws for user actions so far."""

    @property
    def step(self) -> int:
        """Number of steps since the start."""
        return self.flights[0].step

    @property
    def time(self) -> float:
        """Simulated time since the start, in seconds."""
        return self.step * self.setting.time_step

    def advance(self, steps: int) -> None:
        """Advance all flights by up to `steps` steps and record each.

        Stop early after MAX_ADVANCE_SECONDS, but make at least one step unless `steps` is 0.
        """
        end = time.perf_counter() + MAX_ADVANCE_SECONDS
        for _ in range(steps):
            for live in self.flights:
                live.advance()
                live.record()
            if time.perf_counter() > end:
                break
        self._update_watches()

    def _begin_watching(self, scenario: Scenario) -> None:
        """Show what a scenario shows with its flock, and wait for an outcome from now on."""
        self.overlay = Overlay(scenario)
        self._watches = [OutcomeWatch(scenario, self.time) for _ in self.flights]
        self._update_watches()

    def _update_watches(self) -> None:
        """Let each watch see its flight."""
        for watch, live in zip(self._watches, self.flights, strict=True):
            watch.update(self.time, live.flock)

    @property
    def disks(self) -> Float64[np.ndarray, "M 3"]:
        """Centre x, y and radius of every obstacle except walls; requests index obstacles in this order."""
        return obstacle_disks(self.flights[0].flock)

    def _describe_risk(self, scenario: Scenario, controller: object) -> str | None:
        """Return a message if scenario and law differ in an option, or the time step is too long, else None."""
        text = describe_disagreement(scenario, controller)
        return describe_long_time_step(controller, self.setting.time_step) if text is None else text

    @property
    def warning(self) -> str | None:
        """A message about the first flight whose controller does not fit the scenario or the time step, or None."""
        return next((text for text in self._warnings if text is not None), None)

    def describe_options(self) -> dict[str, Any]:
        """Return `changes`, the setting's fields that `change_law` may change, and `warning` if there is one."""
        changes = self.setting.model_dump(mode="json", include={"options", *OPTION_FIELDS.values()})
        return {"changes": changes, **({} if self.warning is None else {"warning": self.warning})}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of the event "started"; radius and orbit are in effect where the setting has None."""
        return {
            "setting": self.setting.model_dump(mode="json"),
            "comm_radius": self.flights[0].flock.comm_radius,
            "orbit": self.orbit_enabled,
            "scenario_obstacle_count": self.scenario_obstacle_count,
            "warning": self.warning,
            "overlay": self.overlay.to_dict(),
        }

    def make_pictures(self) -> list[FlockPicture]:
        """Return the current picture of each flight, with the communication graph if `edges` is True."""
        disks = self.disks
        pictures = []
        for live, watch in zip(self.flights, self._watches, strict=True):
            links = live.compute_links() if self.edges else NO_LINKS
            held = live.flight.compute_held_accelerations()
            overlay = self.overlay.make_state(live.flock, watch.outcome, watch.elapsed)
            pictures.append(
                FlockPicture(live.flock, live.accelerations, disks, links, held_accelerations=held, overlay=overlay)
            )
        return pictures

    def steer(self, velocity: tuple[float, float]) -> None:
        """Set the velocity of all leaders, which keep it; nothing happens without leaders."""
        self._set_velocities(lambda flock: flock.roles == Role.LEADER, velocity)

    def scatter(self) -> None:
        """Draw new velocities for all followers that neither stopped nor drift, the same in all flights.

        Their distribution is that of the initial velocities without the velocity that the flock has in common. The
        scenario's ending judges the flight anew.
        """
        drawn = self.setting.disk.draw_velocities(self._make_rng("scatter"), self.flights[0].flock.shape[1])
        self._set_velocities(lambda flock: flock.effective_roles == Role.FOLLOWER, drawn)
        self._begin_watching(self.setting.make())

    def toggle_leader(self, agent: int) -> None:
        """Toggle an agent between leader and follower, in all flights.

        Raise InputError if the index is too large, or for failed agents and obstacle agents.
        """
        first = self.flights[0].flock
        if agent >= first.shape[1] or first.roles[0, agent] == Role.OBSTACLE:
            raise InputError(f"agent {agent} does not exist or is an obstacle agent")
        if first.conditions[0, agent] != Condition.WORKING:
            raise InputError("a failed agent cannot lead: choose another, or repair it")
        for live in self.flights:
            roles = live.flock.roles.copy()
            roles[0, agent] = Role.LEADER if roles[0, agent] == Role.FOLLOWER else Role.FOLLOWER
            live.replace_flock(replace(live.flock, roles=roles))

    def change_environment(self, environment: EnvironmentSetting) -> None:
        """Continue with another radio and body from the next step on, in all flights, and update the setting.

        Raise InputError if the radio is not ideal and a controller requires an ideal one.
        """
        new_environment = environment.make()
        if not new_environment.radio.is_ideal:
            self._check_imperfect_radio_supported()
        for live in self.flights:
            live.change_environment(new_environment)
        self.setting = self.setting.model_copy(update={"environment": environment})

    def change_law(self, panel: int, options: dict[str, Any]) -> None:
        """Continue one flight with other options of its controller from the next step on, and update the setting.

        `options` are all that differ from their defaults. The scenario and the other flight's controller change with
        it in the options that they share. Raise InputError if a controller cannot be built or fails on this flock.
        """
        self._get_flight(panel)
        before, setting = self.setting, self.setting.replace_law_options(panel, options)
        scenario = setting.make()
        changed = [
            (live, self._load(name, new), new)
            for live, (name, old), (_, new) in zip(
                self.flights, before.controller_specs, setting.controller_specs, strict=True
            )
            if new != old
        ]
        for live, controller, _ in changed:
            check_controller_memory(controller, live.flock)
        for live, controller, new in changed:
            live.change_controller(controller, new)
        self.setting = setting
        if scenario != before.make():
            self._begin_watching(scenario)
        self._warnings = [self._describe_risk(scenario, live.controller) for live in self.flights]

    def fail_agents(self, kind: FailureKind, agents: int) -> None:
        """Let `agents` random working followers fail, or all if they are fewer, the same in all flights.

        Raise InputError if no follower works, or if a controller requires an ideal radio.
        """
        self._check_imperfect_radio_supported()
        first = self.flights[0].flock
        working = np.flatnonzero((first.roles[0] == Role.FOLLOWER) & (first.conditions[0] == Condition.WORKING))
        if len(working) == 0:
            raise InputError("all followers have failed: repair them first")
        chosen = self._make_rng("failures").permutation(working)[:agents]
        conditions = first.conditions.copy()
        conditions[0, chosen] = Condition[kind.upper()]
        self._set_conditions(conditions)

    def repair_agents(self) -> None:
        """Set the condition of all agents to working, in all flights; stopped agents start at rest."""
        self._set_conditions(np.zeros_like(self.flights[0].flock.conditions))

    def remove_agents(self, positions: Sequence[tuple[float, float]], reach: float, panel: int) -> None:
        """Remove the agents within `reach` of any of the positions in one panel, from all flights.

        Obstacle agents stay. Nothing happens if no agent is near; raise InputError if none would remain.
        """
        live = self._get_flight(panel)
        removable = live.flock.roles[0] != Role.OBSTACLE
        removed = np.zeros_like(removable)
        for position in positions:
            removed |= removable & (np.hypot(*(live.flock.positions[0] - position).T) <= reach)
        if not removed.any():
            return
        if removed.sum() == removable.sum():
            raise InputError("the last agents cannot be removed: at least one must remain")
        for flight in self.flights:
            flight.replace_flock(_keep_agents(flight.flock, ~removed), ~removed)

    def add_disk(self, disk: DiskObstacle) -> None:
        """Add a disk obstacle to all flights, as the last of `disks`.

        Raise InputError if there are MAX_DISKS, or if there would be more than MAX_TOTAL_AGENTS agents.
        """
        if len(self.disks) >= MAX_DISKS:
            raise InputError(f"at most {MAX_DISKS} obstacles are allowed: remove one first")
        spacing = self.setting.rim_spacing
        # Flights may differ in their numbers of agents.
        check_total_agents(max(live.flock.shape[1] for live in self.flights) + disk.count_agents(spacing))
        for live in self.flights:
            live.replace_flock(add_obstacle(live.flock, disk.make_rim(spacing)))

    def move_disk(self, index: int, position: tuple[float, float]) -> None:
        """Move the centre of the obstacle `disks[index]` to a position; raise InputError if there is none."""
        moved = _select_obstacle(self.flights[0].flock, index)
        shift = np.subtract(position, self.disks[index, :2])
        for live in self.flights:
            positions = live.flock.positions.copy()
            positions[0, moved] += shift
            live.replace_flock(replace(live.flock, positions=positions))

    def remove_disk(self, index: int) -> None:
        """Remove the obstacle `disks[index]`, so that later indices decrease; raise InputError if there is none."""
        keep = ~_select_obstacle(self.flights[0].flock, index)
        for live in self.flights:
            live.replace_flock(_keep_agents(live.flock, keep), keep)

    def set_orbit(self, active: bool) -> None:
        """Switch the orbit technique on or off from the next step on, in all flights; the setting keeps its value."""
        self.orbit_enabled = active
        for live, orbit in zip(self.flights, self._orbits, strict=True):
            live.sensing.orbit = orbit if active else None

    def to_trajectories(self) -> list[Trajectory]:
        """Return the recording of each flight, with its configuration.

        It starts when roles, agents or obstacles of the flock, or the state arrays of its body, last changed.
        """
        environment = self.setting.environment.make()
        config = {
            "scenario": self.setting.scenario,
            "setting": self.setting.model_dump(mode="json"),
            "disks": self.disks.tolist(),
            "radio": None if environment.radio.is_ideal else describe_part(environment.radio),
            "body": describe_part(environment.body),
        }
        trajectories = []
        for live, (name, options) in zip(self.flights, self.setting.controller_specs, strict=True):
            flight_config = {
                **config,
                "controller": format_spec(name, **options),
                "law_history": live.law_history,
                "environment_history": live.environment_history,
                "orbit": describe_part(live.sensing.orbit),
            }
            trajectories.append(live.recording.to_trajectory(self.setting.time_step, flight_config))
        return trajectories

    def _set_velocities(
        self, select: Callable[[Flock], NDArray[Any]], velocities: NDArray[Any] | tuple[float, float]
    ) -> None:
        """Set the velocities of the agents that a mask (1, N), computed from the flock of each flight, selects."""
        for live in self.flights:
            changed = np.where(select(live.flock)[..., None], velocities, live.flock.velocities)
            live.replace_flock(replace(live.flock, velocities=changed))

    def _set_conditions(self, conditions: Conditions) -> None:
        """Set the conditions (1, N) in all flights; agents that are stopped then get zero velocity."""
        for live in self.flights:
            velocities = np.where((conditions == Condition.STOPPED)[..., None], 0.0, live.flock.velocities)
            live.replace_flock(replace(live.flock, conditions=conditions, velocities=velocities))

    def _check_imperfect_radio_supported(self) -> None:
        """Raise InputError if one of the controllers requires an ideal radio and no failures."""
        for live, name in zip(self.flights, self.setting.controllers, strict=True):
            if live.sensing.senses.requires_ideal_radio:
                raise InputError(
                    f"{name} requires an ideal radio and no failures, "
                    "because hop_mean = 'sender' divides by the sender's degree"
                )

    def _make_rng(self, name: str) -> np.random.Generator:
        """Return a new random generator, seeded by the setting's seed, a name, and the number of calls so far."""
        self._draw_count += 1
        return make_rng(self.setting.seed, name, self._draw_count)

    def _get_flight(self, panel: int) -> LiveFlight:
        """Return the flight of a panel; raise InputError if there is no such panel."""
        if panel >= len(self.flights):
            raise InputError(f"panel must be below {len(self.flights)}; got {panel}")
        return self.flights[panel]


def _choose_orbit(scenario: Scenario, controller: Controller) -> Orbit:
    """Return the orbit technique to use when it is on: the scenario's, else the controller's, else the default."""
    controller_orbit = getattr(controller, "orbit", None)
    default = controller_orbit if isinstance(controller_orbit, Orbit) else Orbit()
    return choose_orbit(scenario, controller) or default


def _select_obstacle(flock: Flock, index: int) -> Mask:
    """Return the mask of the agents on the rim of one disk obstacle; raise InputError if there is no such disk.

    `index` is a row of `obstacle_disks(flock)`, which omits walls, not the number in `flock.obstacles`.
    """
    obstacles = flock.obstacles[0]
    # An obstacle is a disk, not a wall, if it yields a disk together with the flock.
    masks = [obstacles == obstacle for obstacle in np.unique(obstacles[obstacles != NO_OBSTACLE])]
    disks = [mask for mask in masks if len(obstacle_disks(_keep_agents(flock, mask | (obstacles == NO_OBSTACLE))))]
    if index >= len(disks):
        raise InputError(f"obstacle index must be below {len(disks)}; got {index}")
    return np.asarray(disks[index])


def _keep_agents(flock: Flock, keep: Mask) -> Flock:
    """Return a flock with only the agents where `keep` is True, in the same order."""
    return Flock(*(array[:, keep] for array in flock.arrays), comm_radius=flock.comm_radius)
