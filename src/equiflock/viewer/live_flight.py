"""A live flight, whose flock, law, radio and body may change between two steps, and its recording."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from jaxtyping import Bool
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock._runtime.memory import ReadOnlyDict
from equiflock.controllers.explanation import Explanation, explain
from equiflock.flock import Flock, Role, Vectors
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.observations.orbit import Orbit
from equiflock.outcomes import Outcome
from equiflock.plotting.player.frames import Links, build_links
from equiflock.protocols import Controller
from equiflock.scenarios import Scenario
from equiflock.simulation.body_motion import BodyState
from equiflock.simulation.environment import Environment
from equiflock.simulation.flight_builder import change_controller, flight
from equiflock.simulation.trajectory import STATIC_ARRAYS, Trajectory

Mask = Bool[np.ndarray, " N"]
EMPTY_BODY_STATE: BodyState = ReadOnlyDict()
MAX_BYTES = 64 * 2**20
"""Maximum memory of one recording."""
MAX_TRIAL_AGENTS = 100
"""Number of agents on which a new controller is tried before it takes over."""


class Recording:
    """Frames of a flight, from `step` on: every step or, when memory is full, every second step, every fourth, ..

    The newest step is always among the frames. A trajectory has constant agents; when they change, a new recording
    starts. The frames take up to `max_bytes`, but at least 8 are kept.
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
        # Each frame has positions, velocities, accelerations, conditions and the body state.
        size = 3 * flock.positions.nbytes + flock.conditions.nbytes + sum(array.nbytes for array in body_state.values())
        self._max_frames = max(max_bytes // size, 8)

    def add(self, step: int, flock: Flock, accelerations: Vectors, body_state: BodyState = EMPTY_BODY_STATE) -> None:
        """Append copies of a step's arrays as the newest frame."""
        last = self._steps[-1] if self._steps else None
        # Drop the last frame if it is the same step, before a change by the user, or was kept only as the newest one.
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

        `config` gets the entries `start_time` (seconds since the live flight's start) and `keep_every` (steps between
        frames, except before the last).
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


class LiveFlight:
    """A flight with its current flock, a batch of one, and its recording. The constructor computes and records step 0.

    `options` are those with which the controller was built; the scenario supplies the obstacle rule.
    """

    def __init__(
        self,
        start: Flock,
        controller: Controller,
        options: dict[str, Any],
        time_step: float,
        scenario: Scenario,
        orbit: Orbit | None,
        environment: Environment,
    ) -> None:
        # Without the scenario's ending: a live flight has no end.
        flight_options: dict[str, Any] = {"orbit": orbit, "obstacles": scenario.obstacles, "environment": environment}
        self.flight = flight(start, controller, time_step=time_step, **flight_options)
        self.sensing = cast(DelayedAggregation, self.flight.sensing)
        self.environment, self.options, self.controller = environment, options, controller
        self.agent_ids = np.arange(start.shape[1])
        """(N,), a number for each agent, which it keeps while others come and go."""
        self._next_id = len(self.agent_ids)
        self.advance()
        self._start_recording()

    def advance(self) -> None:
        """Advance one step, which sets `step`, `flock` and `accelerations`; it is not recorded (see `record`)."""
        moment = next(self.flight)
        self.step, self.flock, self.accelerations = moment.step, moment.flock, moment.accelerations
        self.observations = moment.observations
        """(1, N, K, C, D), from which the controller computed the accelerations."""
        self.is_changed = False
        """Whether flock, controller or environment were changed since: then accelerations have another reason."""
        self._has_received = True
        """Whether a step was made with the current radio and message buffer, so that the messages in use are known."""

    def record(self) -> None:
        """Add the current state to the recording, in place of an earlier state of the same step."""
        self.recording.add(self.step, self.flock, self.accelerations, self.flight.body_state)

    def replace_flock(self, flock: Flock, keep: Mask | None = None) -> None:
        """Continue with a changed flock: the agents where `keep` is True (default: all) in their order, then new ones.

        Accelerations stay until the next step; those of new agents and of agents that the controller does not command
        are 0. If roles, obstacles or groups differ, a new recording starts.
        """
        self.flight.replace(flock, keep)
        self._replace_ids(flock, keep)
        self.is_changed = True
        kept = self.accelerations if keep is None else self.accelerations[:, keep]
        accelerations = np.zeros_like(flock.positions)
        accelerations[:, : kept.shape[1]] = kept
        accelerations[flock.effective_roles != Role.FOLLOWER] = 0.0
        same_agents = all(np.array_equal(getattr(self.flock, name), getattr(flock, name)) for name in STATIC_ARRAYS)
        self.flock, self.accelerations = flock, accelerations
        if same_agents:
            self.record()
        else:
            self._start_recording()

    def _replace_ids(self, flock: Flock, keep: Mask | None) -> None:
        """Keep the ids of kept agents, and give new ones, which were never in use, to new agents."""
        kept = self.agent_ids if keep is None else self.agent_ids[keep]
        new = np.arange(self._next_id, self._next_id + flock.shape[1] - len(kept))
        self._next_id += len(new)
        self.agent_ids = np.concatenate([kept, new])

    def explain(self, agent: int) -> Explanation:
        """Return why an agent accelerates as it does; call it only for followers, and unless `is_changed`."""
        return explain(
            self.controller,
            self.observations,
            agent,
            flock=self.flock,
            time_step=self.flight.time_step,
            latency=self.environment.radio.latency,
        )

    def change_environment(self, environment: Environment) -> None:
        """Continue with another radio and body from the next step on; do nothing if they are the present ones.

        A new recording starts if the body has other state arrays; else `environment_history` gets an entry.
        """
        if environment == self.environment:
            return
        self.environment, self.is_changed = environment, True
        if environment.radio != self.sensing.radio:
            self.sensing.radio, self._has_received = environment.radio, False
            # The gain of a controller depends on the latency of its messages.
            change_controller(self.flight, self.controller)
        if environment.body != self.flight.body:
            self.flight.body = environment.body
        # All frames of a recording have the same body state arrays.
        if set(self.flight.body_state) != set(self.recording.body_state_names):
            self._start_recording()
        else:
            self.environment_history.append((self.step, environment.settings))

    def change_controller(self, controller: Controller, options: dict[str, Any]) -> None:
        """Continue with another controller from the next step on, and add its options to `law_history`.

        It is first tried for one step on the first MAX_TRIAL_AGENTS agents. Raise InputError if that fails; the present
        controller then stays.
        """
        # A step of all agents may take seconds.
        sample = Flock.view(
            *(array[:, :MAX_TRIAL_AGENTS] for array in self.flock.arrays), comm_radius=self.flock.comm_radius
        )
        try:
            next(flight(sample, controller))
        except InputError:
            raise
        except Exception as error:  # a plugin's controller may raise anything
            raise InputError(f"the controller cannot fly this flock: {type(error).__name__}: {error}") from None
        message_buffer = self.sensing.message_buffer
        change_controller(self.flight, controller)
        self.controller, self.is_changed = controller, True
        self._has_received = self._has_received and self.sensing.message_buffer is message_buffer
        self.options = options
        self.law_history.append((self.step, options))

    def compute_links(self) -> Links:
        """Return the messages in use and those that were lost: none before a first step with the current radio."""
        sensing = self.sensing
        # Without a message buffer all messages arrive. In other units, rounding decides about agents at distance R.
        may_lose_messages = sensing.message_buffer is not None or sensing.senses.is_scaled
        # Agents are in their original memory order: flocks here are too small to be sorted.
        compute_message_graph = sensing.compute_message_graph if self._has_received and may_lose_messages else None
        return build_links(self.flock, compute_message_graph, sensing.fixed_graph, sensing.obstacles)

    def _start_recording(self) -> None:
        """Start a new recording with the current state as its first frame, and restart both histories."""
        self.environment_history = [(self.step, self.environment.settings)]
        """Environments of the recording: (first step, settings that differ from the paper's)."""
        self.law_history = [(self.step, self.options)]
        """Controller options of the recording: (first step, options that differ from the defaults)."""
        self.recording = Recording(self.step, self.flock, self.flight.body_state)
        self.record()
