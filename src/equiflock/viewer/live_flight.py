"""A live flight, whose flock, law, radio and body may change between two steps."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from equiflock.experiments.world import World
from equiflock.flock import Flock, Role
from equiflock.protocols import Controller
from equiflock.runtime.checks import InputError
from equiflock.scenarios import Scenario
from equiflock.senses.aggregation import DelayedAggregation
from equiflock.senses.orbit import Orbit
from equiflock.simulation.flight_builder import change_controller, flight
from equiflock.simulation.trajectory import STATIC_ARRAYS
from equiflock.viewer.agent_selection import Mask
from equiflock.viewer.frames import Links, build_links
from equiflock.viewer.recording import Recording

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
