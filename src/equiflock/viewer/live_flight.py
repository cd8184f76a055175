"""A live flight, whose flock, law, radio and body may change between two steps."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from jaxtyping import Bool, Float64
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock._runtime.memory import ReadOnlyDict
from equiflock.flock import NO_OBSTACLE, Flock, Role, Vectors
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.observations.orbit import Orbit
from equiflock.outcomes import Outcome
from equiflock.protocols import Controller
from equiflock.scenarios import Scenario
from equiflock.scenarios.obstacle_shapes import obstacle_disks
from equiflock.simulation.body_motion import BodyState
from equiflock.simulation.environment import World
from equiflock.simulation.flight_builder import change_controller, flight
from equiflock.simulation.trajectory import STATIC_ARRAYS, Trajectory
from equiflock.viewer.frames import Links, build_links

# Masks that select agents of a live flock (a batch of one) by role, position or obstacle.

Mask = Bool[np.ndarray, " N"]


def select_role(flock: Flock, role: Role) -> Mask:
    """Return the mask of the agents with a role, whether they work or have failed."""
    return np.asarray(flock.roles[0] == role)


def select_controlled(flock: Flock) -> Mask:
    """Return the mask of the agents that the controller commands: working and silent followers."""
    return np.asarray(flock.effective_roles[0] == Role.FOLLOWER)


def compute_distances(flock: Flock, position: tuple[float, float]) -> Float64[np.ndarray, " N"]:
    """Return the distance of each agent, obstacle agents included, to a point in world coordinates."""
    return np.asarray(np.hypot(*(flock.positions[0] - position).T))


def select_obstacle(flock: Flock, index: int) -> Mask:
    """Return the mask of the agents on the rim of one disk obstacle; raise InputError if there is no such disk.

    Args:
        flock: a batch of one.
        index: row of `obstacle_disks(flock)`, which omits walls; not the number in `flock.obstacles`.
    """
    obstacles = flock.obstacles[0]
    # An obstacle is a disk, not a wall, if it yields a disk together with the flock.
    masks = [obstacles == obstacle for obstacle in np.unique(obstacles[obstacles != NO_OBSTACLE])]
    disks = [mask for mask in masks if len(obstacle_disks(keep_agents(flock, mask | (obstacles == NO_OBSTACLE))))]
    if index >= len(disks):
        raise InputError(f"obstacle index must be below {len(disks)}; got {index}")
    return np.asarray(disks[index])


def keep_agents(flock: Flock, keep: Mask) -> Flock:
    """Return a flock with only the agents where `keep` is True, in the same order."""
    return Flock(*(array[:, keep] for array in flock.arrays), comm_radius=flock.comm_radius)


# The recording of a live flight over its whole duration, in bounded memory, for saving.

EMPTY_BODY_STATE: BodyState = ReadOnlyDict()
MAX_BYTES = 64 * 2**20
"""Maximum memory of one recording."""


class Recording:
    """Frames of a flight: every step or, when memory is full, every second step, every fourth, and so on.

    The newest step is always among the frames. A trajectory has constant agents; when they change, a new recording
    starts.

    Args:
        step: the first step; it is not recorded before it is added.
        flock: the flock at that step, a batch of one.
        body_state: body state arrays (see `Moment.body_state`).
        max_bytes: maximum memory of the frames; at least 8 frames are kept.
    """

    def __init__(
        self, step: int, flock: Flock, body_state: BodyState = EMPTY_BODY_STATE, max_bytes: int = MAX_BYTES
    ) -> None:
        self.first_step = step
        self.keep_every = 1
        self.agent_arrays = {name: getattr(flock, name).copy() for name in STATIC_ARRAYS}
        self.comm_radius = flock.comm_radius
        self._steps: list[int] = []
        self._frames: list[tuple[NDArray[Any], ...]] = []
        self.body_state_names = tuple(body_state)
        """Names of the body state arrays."""
        # Each frame has positions, velocities, accelerations, conditions and the body state.
        size = 3 * flock.positions.nbytes + flock.conditions.nbytes + sum(array.nbytes for array in body_state.values())
        self._max_frames = max(max_bytes // size, 8)

    def add(self, step: int, flock: Flock, accelerations: Vectors, body_state: BodyState = EMPTY_BODY_STATE) -> None:
        """Append copies of a step's arrays as the newest frame.

        It replaces the newest frame if that is the same step (the user changed the flock since) or no multiple of
        `keep_every` after the first. If memory is full, every second frame is dropped and `keep_every` is doubled.
        """
        last = self._steps[-1] if self._steps else None
        # The newest step is always kept; when another follows, it is dropped unless it is a multiple of `keep_every`.
        if last is not None and (last == step or (last - self.first_step) % self.keep_every):
            self._steps.pop()
            self._frames.pop()
        # Memory is full: drop every second frame, and double the interval.
        if len(self._steps) >= self._max_frames:
            self._steps, self._frames = self._steps[::2], self._frames[::2]
            self.keep_every *= 2
        self._steps.append(step)
        body_arrays = (body_state[name] for name in self.body_state_names)
        arrays = flock.positions, flock.velocities, accelerations, flock.conditions, *body_arrays
        self._frames.append(tuple(array.copy() for array in arrays))

    def to_trajectory(self, time_step: float, config: dict[str, Any]) -> Trajectory:
        """Return the recording as a trajectory whose time starts at 0 and whose outcome is TIME_UP.

        Args:
            time_step: seconds per step.
            config: the trajectory's config, to which `start_time` (seconds since the live flight's start) and
                `keep_every` (steps between frames, except before the last) are added.
        """
        steps = np.array(self._steps) - self.first_step
        stacked = (np.stack(part) for part in zip(*self._frames, strict=True))
        positions, velocities, accelerations, conditions, *body_arrays = stacked
        config = {**config, "start_time": self.first_step * time_step, "keep_every": self.keep_every}
        return Trajectory(
            times=steps * time_step,
            positions=positions,
            velocities=velocities,
            accelerations=accelerations[:-1],
            conditions=conditions,
            **self.agent_arrays,
            steps=steps[-1:],
            outcomes=np.array([Outcome.TIME_UP], np.int8),
            time_step=time_step,
            comm_radius=self.comm_radius,
            config=config,
            body_state=dict(zip(self.body_state_names, body_arrays, strict=True)),
        )


MAX_TRIAL_AGENTS = 100
"""Number of agents on which a new controller is tried before it takes over."""


class LiveFlight:
    """A flight with its current flock and its recording. The constructor computes and records step 0.

    Args:
        start: the flock at t = 0, a batch of one.
        controller: the controller.
        options: the options with which the controller was built.
        time_step: dt, in seconds.
        scenario: supplies the obstacle rule.
        orbit: orbit technique of the followers, or None.
        world: radio and body.
    """

    def __init__(
        self,
        start: Flock,
        controller: Controller,
        options: dict[str, Any],
        time_step: float,
        scenario: Scenario,
        orbit: Orbit | None,
        world: World,
    ) -> None:
        # Without the scenario's ending: a live flight has no end.
        flight_options = {"orbit": orbit, "obstacles": scenario.obstacles, **world.flight_options}
        self.flight = flight(start, controller, time_step=time_step, **flight_options)
        self.sensing = cast(DelayedAggregation, self.flight.sensing)
        self.world, self.options = world, options
        self.advance()
        self.recording = self._start_recording()

    def advance(self) -> None:
        """Advance one step, which sets `step`, `flock` and `accelerations`; it is not recorded (see `record`)."""
        moment = next(self.flight)
        self.step, self.flock, self.accelerations = moment.step, moment.flock, moment.accelerations
        self._has_received = True
        """Whether a step was made with the current radio and message buffer, so that the messages in use are known."""

    def record(self) -> None:
        """Add the current state to the recording, in place of an earlier state of the same step."""
        self.recording.add(self.step, self.flock, self.accelerations, self.flight.body_state)

    def replace_flock(self, flock: Flock, keep: Mask | None = None) -> None:
        """Continue with a changed flock. If roles, obstacles or groups differ, a new recording starts.

        Args:
            flock: a batch of one: the kept agents in their order, then new ones. Accelerations stay until the next
                step; those of new agents and of agents that the controller does not command are 0.
            keep: (N,), mask of the present agents that stay; None if all do.
        """
        self.flight.replace(flock, keep)
        # Remaining agents keep their accelerations; new agents, leaders and obstacle agents have none.
        kept = self.accelerations if keep is None else self.accelerations[:, keep]
        accelerations = np.zeros_like(flock.positions)
        accelerations[:, : kept.shape[1]] = kept
        accelerations[flock.effective_roles != Role.FOLLOWER] = 0.0
        # A trajectory has constant roles, obstacles and groups; a change starts a new recording.
        same_agents = all(np.array_equal(getattr(self.flock, name), getattr(flock, name)) for name in STATIC_ARRAYS)
        self.flock, self.accelerations = flock, accelerations
        if same_agents:
            self.record()
        else:
            self.recording = self._start_recording()

    def change_world(self, world: World) -> None:
        """Continue with another radio and body from the next step on; do nothing if the world is the present one.

        A new recording starts if the body has other state arrays; else `world_history` gets an entry.
        """
        if world == self.world:
            return
        self.world = world
        radio = world.flight_options["radio"]
        if radio != (None if self.sensing.radio.is_ideal else self.sensing.radio):
            self.sensing.radio, self._has_received = radio, False
        if world.body != self.flight.body:
            self.flight.body = world.body
        # All frames of a recording have the same body state arrays.
        if set(self.flight.body_state) != set(self.recording.body_state_names):
            self.recording = self._start_recording()
        else:
            self.world_history.append((self.step, world.settings))

    def change_controller(self, controller: Controller, options: dict[str, Any]) -> None:
        """Continue with another controller from the next step on, and add its options to `law_history`.

        It is first tried for one step on the first MAX_TRIAL_AGENTS agents. Raise InputError if that fails; the present
        controller then stays.
        """
        # Try it on a few agents, as a step of all may take seconds.
        sample = Flock.view(
            *(array[:, :MAX_TRIAL_AGENTS] for array in self.flock.arrays), comm_radius=self.flock.comm_radius
        )
        try:
            next(flight(sample, controller))
        except InputError:
            raise
        except Exception as error:  # a plugin's controller may raise anything
            raise InputError(f"the controller cannot fly this flock: {type(error).__name__}: {error}") from None
        message_buffer = self.sensing.radio_state.message_buffer
        change_controller(self.flight, controller)
        self._has_received = self._has_received and self.sensing.radio_state.message_buffer is message_buffer
        self.options = options
        self.law_history.append((self.step, options))

    def compute_links(self) -> Links:
        """Return the messages in use and those that were lost: none before a first step with the current radio."""
        # Agents are in their original memory order: flocks here are too small to be sorted.
        message_graph = self.sensing.compute_message_graph(self.flock) if self._has_received else None
        return build_links(self.flock, message_graph, self.sensing.fixed_graph, self.sensing.obstacles)

    def _start_recording(self) -> Recording:
        """Return a new recording with the current state as its first frame; restart both histories, too."""
        self.world_history = [(self.step, self.world.settings)]
        """Worlds of the recording: (first step, settings that differ from the paper's)."""
        self.law_history = [(self.step, self.options)]
        """Controller options of the recording: (first step, options that differ from the defaults)."""
        recording = Recording(self.step, self.flock, self.flight.body_state)
        recording.add(self.step, self.flock, self.accelerations, self.flight.body_state)
        return recording
