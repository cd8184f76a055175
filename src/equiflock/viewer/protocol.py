"""The websocket protocol between page and server: the requests of a page and the answers to them.

A request is a JSON object whose `command` selects one of the classes below, which validate all fields and the range of
every number. It has one answer: to advance, seek and show_edges a frame, in the binary format of `frames`, and to all
others a JSON object with an `event`:

    watched                 watch; with the fields of `inspection.describe_agent`
    started                 start and play; with the fields of `LiveSimulation.to_dict`, or `playback`
    saving                  save; "save_progress" events and finally "saved" or "save_failed" follow
    done                    all other commands; that of change_law has `changes`, fields of the setting that follow
                            from it, and may have a `warning`
    refused, cancelled      the request is invalid, or its search was cancelled; nothing has changed
    failed                  the flight raised an error and was dropped

Answers have the order of the requests, so a page that waits for each never receives more than it can draw. Events
without a request are "welcome" (`ViewerConfig.welcome`), "compiling" (progress of the compiler), "working" (an answer
takes long) and those of a save.
`session` executes requests.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

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


class Watch(StrictModel):
    """Describe one agent of each panel, by its index in the newest frame or by the `id` of an earlier answer."""

    command: Literal["watch"]
    agent: BoundedIndex | None = None
    id: BoundedIndex | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Watch:
        if (self.agent is None) == (self.id is None):
            raise InputError("watch needs either agent or id")
        return self


class Action(StrictModel):
    """A change of live flights: calls the method of `LiveSimulation` named as its command, with its fields."""

    command: str

    def apply(self, live_simulation: LiveSimulation) -> None:
        """Apply the request to live flights; raise InputError if that is not possible."""
        arguments = {name: getattr(self, name) for name in type(self).model_fields if name != "command"}
        getattr(live_simulation, self.command)(**arguments)


class Steer(Action):
    """Set the velocity of all leaders."""

    command: Literal["steer"]
    velocity: tuple[VelocityComponent, VelocityComponent]


class ToggleLeader(Action):
    """Toggle the agent of an index between leader and follower."""

    command: Literal["toggle_leader"]
    agent: BoundedIndex


class RemoveAgents(Action):
    """Remove the agents within `reach` of any of the positions in a panel; obstacle agents stay."""

    command: Literal["remove_agents"]
    positions: Annotated[tuple[Point, ...], Field(max_length=100)]
    reach: SelectionRadius
    panel: BoundedIndex = 0


class AddDisk(Action):
    """Add a disk obstacle."""

    command: Literal["add_disk"]
    disk: DiskObstacle


class MoveDisk(Action):
    """Move the centre of a disk obstacle, indexed as in the frame, to a position."""

    command: Literal["move_disk"]
    index: BoundedIndex
    position: Point


class RemoveDisk(Action):
    """Remove a disk obstacle, indexed as in the frame."""

    command: Literal["remove_disk"]
    index: BoundedIndex


class SetOrbit(Action):
    """Switch the orbit technique on or off."""

    command: Literal["set_orbit"]
    active: bool


class ChangeEnvironment(Action):
    """Continue with another radio and body."""

    command: Literal["change_environment"]
    environment: EnvironmentSetting


class ChangeLaw(Action):
    """Continue the flight of a panel with other options of its controller, in place of all present ones."""

    command: Literal["change_law"]
    options: LawOptions
    panel: BoundedIndex = 0

    @model_validator(mode="after")
    def _check_options(self) -> ChangeLaw:
        check_law_options(self.options)
        return self


class FailAgents(Action):
    """Let `agents` random working followers fail, or all if they are fewer."""

    command: Literal["fail_agents"]
    kind: FailureKind
    agents: Annotated[int, Field(ge=1, le=MAX_AGENTS)] = 1


class RepairAgents(Action):
    """Set the condition of all agents to working."""

    command: Literal["repair_agents"]


class Scatter(Action):
    """Draw new velocities for all followers that neither stopped nor drift."""

    command: Literal["scatter"]


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
    | Watch
    | Steer
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
