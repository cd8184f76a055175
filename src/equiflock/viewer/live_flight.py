"""A live flight, which may be changed between two steps: its flock, its law, its radio and its body."""

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
"""Agents on which a controller is tried out before it takes over."""


class LiveFlight:
    """A flight with its present flock, and the recording of it.

    Args:
        start: the flock at t = 0.
        controller: that flies it.
        options: those that the controller was made with.
        time_step: dt, in seconds.
        scenario: whose rules hold.
        orbit: the technique by which followers avoid obstacles, if they do.
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
        # Without the scenario's ending: a flight that is watched and changed goes on.
        flight_options = {"orbit": orbit, "obstacles": scenario.obstacles, **world.flight_options}
        self.flight = flight(start, controller, time_step=time_step, **flight_options)
        self.sensing = cast(DelayedAggregation, self.flight.sensing)
        self.world, self.options = world, options
        self.advance()
        self.recording = self._start_recording()

    def advance(self) -> None:
        """Make a step."""
        moment = next(self.flight)
        self.step, self.flock, self.accelerations = moment.step, moment.flock, moment.accelerations
        self._has_received = True
        """Whether anybody has heard by the radio that there is now."""

    def record(self) -> None:
        """Add the present state to the recording."""
        self.recording.add(self.step, self.flock, self.accelerations, self.flight.body_state)

    def replace_flock(self, flock: Flock, keep: Mask | None = None) -> None:
        """Go on with a changed flock (see `Flight.replace`)."""
        self.flight.replace(flock, keep)
        # The accelerations shown are those of the agents that stay; new agents, leaders and obstacle agents have none.
        decided = self.accelerations if keep is None else self.accelerations[:, keep]
        accelerations = np.zeros_like(flock.positions)
        accelerations[:, : decided.shape[1]] = decided
        accelerations[flock.effective_roles != Role.FOLLOWER] = 0.0
        # A trajectory has the same agents throughout, so other roles, obstacles or groups begin a new recording.
        same_crew = all(np.array_equal(getattr(self.flock, name), getattr(flock, name)) for name in STATIC_ARRAYS)
        self.flock, self.accelerations = flock, accelerations
        if same_crew:
            self.record()
        else:
            self.recording = self._start_recording()

    def change_world(self, world: World) -> None:
        """Go on with another radio and another body, from the next step on."""
        if world == self.world:
            return
        self.world = world
        radio = world.flight_options["radio"]
        if radio != (None if self.sensing.radio.is_ideal else self.sensing.radio):
            self.sensing.radio, self._has_received = radio, False
        if world.body != self.flight.body:
            self.flight.body = world.body
        # What bodies remember is the same in all frames of a recording.
        if set(self.flight.body_state) != set(self.recording.body_state_names):
            self.recording = self._start_recording()
        else:
            self.world_history.append((self.step, world.settings))

    def change_controller(self, controller: Controller, options: dict[str, Any]) -> None:
        """Go on with another controller from the next step on, unless it cannot fly this flock: a clear error."""
        # Some of the agents are enough to find out, and a step of all may take seconds.
        some = Flock.view(
            *(array[:, :MAX_TRIAL_AGENTS] for array in self.flock.arrays), comm_radius=self.flock.comm_radius
        )
        try:
            next(flight(some, controller))
        except InputError:
            raise
        except Exception as error:  # whatever somebody's controller may raise
            raise InputError(f"the controller cannot fly this flock: {type(error).__name__}: {error}") from None
        message_buffer = self.sensing.radio_state.message_buffer
        change_controller(self.flight, controller)
        self._has_received = self._has_received and self.sensing.radio_state.message_buffer is message_buffer
        self.options = options
        self.law_history.append((self.step, options))

    def compute_links(self) -> Links:
        """Who hears whom now, and which messages are missing."""
        # Agents never stand in another order than their own in memory here, as there are too few of them.
        message_graph = self.sensing.compute_message_graph(self.flock) if self._has_received else None
        return build_links(self.flock, message_graph, self.sensing.fixed_graph, self.sensing.obstacles)

    def _start_recording(self) -> Recording:
        self.world_history = [(self.step, self.world.settings)]
        """The worlds of the recording: from which step on, and how each differs from the paper's."""
        self.law_history = [(self.step, self.options)]
        """The options of the controller: from which step on, and those that differ from its defaults."""
        recording = Recording(self.step, self.flock, self.flight.body_state)
        recording.add(self.step, self.flock, self.accelerations, self.flight.body_state)
        return recording
