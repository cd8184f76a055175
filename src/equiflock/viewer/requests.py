"""Requests of a page. Every message is validated against these classes, including the range of every number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator
from typing_extensions import override

from equiflock._runtime.checks import InputError
from equiflock.simulation.failures import FailureKind
from equiflock.viewer.live_simulation import LiveSimulation
from equiflock.viewer.setting import (
    MAX_AGENTS,
    MAX_COORDINATE,
    DiskObstacle,
    EnvironmentSetting,
    LawOptions,
    Point,
    Setting,
    StrictModel,
    check_law_options,
    format_validation_error,
)

MAX_REQUEST_BYTES = 16 * 1024
"""Maximum size of a message from a page."""
MAX_VELOCITY_COMPONENT = 10.0
"""Bound of each component of the leaders' velocity."""

# Every number is bounded, so that no request can exhaust memory or leave the range of the kernels.
VelocityComponent = Annotated[float, Field(ge=-MAX_VELOCITY_COMPONENT, le=MAX_VELOCITY_COMPONENT)]
SelectionRadius = Annotated[float, Field(gt=0, le=MAX_COORDINATE)]
BoundedIndex = Annotated[int, Field(ge=0, le=10**9)]


class Start(StrictModel):
    """Start a flight in place of the current one. On receipt it cancels a running search for initial conditions."""

    command: Literal["start"]
    setting: Setting


class Cancel(StrictModel):
    """Cancel the running search for initial conditions; the current flight continues."""

    command: Literal["cancel"]


class Play(StrictModel):
    """Play a flock, by its index in the batch, of the saved flights with which the server was started."""

    command: Literal["play"]
    flock: BoundedIndex = 0


class Advance(StrictModel):
    """Advance up to `steps` steps, within the time budget of `LiveSimulation.advance`."""

    command: Literal["advance"]
    steps: Annotated[int, Field(ge=0, le=1000)]


class Seek(StrictModel):
    """Go to a frame of a saved flight by its index, or to the last if the index is beyond it."""

    command: Literal["seek"]
    frame: BoundedIndex


class ShowEdges(StrictModel):
    """Choose whether pictures include the communication graph; the answer is a frame."""

    command: Literal["show_edges"]
    edges: bool


class Action(StrictModel, ABC):
    """A request that changes live flights, by the method of `LiveSimulation` with the name of its command."""

    @abstractmethod
    def apply(self, live_simulation: LiveSimulation) -> None:
        """Apply the request to live flights; raise InputError if that is not possible."""


class Steer(Action):
    """Set the velocity of all leaders."""

    command: Literal["steer"]
    velocity: tuple[VelocityComponent, VelocityComponent]

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.steer(self.velocity)


class ToggleNearestLeader(Action):
    """Toggle the agent nearest to a point in a panel, within `reach` of it, between leader and follower."""

    command: Literal["toggle_nearest_leader"]
    position: Point
    reach: SelectionRadius
    panel: BoundedIndex = 0

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.toggle_nearest_leader(self.position, self.reach, self.panel)


class ToggleLeader(Action):
    """Toggle the agent of an index between leader and follower."""

    command: Literal["toggle_leader"]
    agent: BoundedIndex

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.toggle_leader(self.agent)


class RemoveAgents(Action):
    """Remove the agents within `reach` of any of the positions in a panel; obstacle agents stay."""

    command: Literal["remove_agents"]
    positions: Annotated[tuple[Point, ...], Field(max_length=100)]
    reach: SelectionRadius
    panel: BoundedIndex = 0

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.remove_agents(self.positions, self.reach, self.panel)


class AddDisk(Action):
    """Add a disk obstacle."""

    command: Literal["add_disk"]
    disk: DiskObstacle

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.add_disk(self.disk)


class MoveDisk(Action):
    """Move the centre of a disk obstacle, indexed as in the frame, to a position."""

    command: Literal["move_disk"]
    index: BoundedIndex
    position: Point

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.move_disk(self.index, self.position)


class RemoveDisk(Action):
    """Remove a disk obstacle, indexed as in the frame."""

    command: Literal["remove_disk"]
    index: BoundedIndex

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.remove_disk(self.index)


class SetOrbit(Action):
    """Switch the orbit technique on or off."""

    command: Literal["set_orbit"]
    active: bool

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.set_orbit(self.active)


class ChangeEnvironment(Action):
    """Continue with another radio and body."""

    command: Literal["change_environment"]
    environment: EnvironmentSetting

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.change_environment(self.environment)


class ChangeLaw(Action):
    """Continue the flight of a panel with other options of its controller, in place of all present ones."""

    command: Literal["change_law"]
    options: LawOptions
    panel: BoundedIndex = 0

    @model_validator(mode="after")
    def _check_options(self) -> ChangeLaw:
        """Raise InputError for options of a wrong type or out of bounds, and for those that set the robots' units."""
        check_law_options(self.options)
        return self

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.change_law(self.panel, self.options)


class FailAgents(Action):
    """Let `agents` random working followers fail, or all if they are fewer."""

    command: Literal["fail_agents"]
    kind: FailureKind
    agents: Annotated[int, Field(ge=1, le=MAX_AGENTS)] = 1

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.fail_agents(self.kind, self.agents)


class RepairAgents(Action):
    """Set the condition of all agents to working."""

    command: Literal["repair_agents"]

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.repair_agents()


class Scatter(Action):
    """Draw new velocities for all followers that neither stopped nor drift."""

    command: Literal["scatter"]

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.scatter()


class Save(StrictModel):
    """Save the recordings of the live flights and a film of them in the background."""

    command: Literal["save"]
    speed: Annotated[float, Field(ge=0.01, le=10.0)] = 0.5
    """Simulated seconds per second of film."""


Request = (
    Start
    | Cancel
    | Play
    | Advance
    | Seek
    | ShowEdges
    | Steer
    | ToggleNearestLeader
    | ToggleLeader
    | RemoveAgents
    | AddDisk
    | MoveDisk
    | RemoveDisk
    | SetOrbit
    | ChangeEnvironment
    | ChangeLaw
    | FailAgents
    | RepairAgents
    | Scatter
    | Save
)
# With a discriminator, errors concern only the class that `command` selects.
_request_adapter: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="command")])


def parse_request(text: str) -> Request:
    """Return the request in a JSON message; raise InputError with the first error as one line if it is invalid."""
    try:
        return _request_adapter.validate_json(text)
    except ValidationError as error:
        raise InputError(format_validation_error(error)) from None
