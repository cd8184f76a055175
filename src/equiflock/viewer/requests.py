"""The requests of a page. Every message is checked against these classes, all numbers included, or refused."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator
from typing_extensions import override

from equiflock.runtime.checks import InputError
from equiflock.simulation.failures import FailureKind
from equiflock.viewer.live_simulation import LiveSimulation
from equiflock.viewer.setting import (
    MAX_AGENTS,
    MAX_COORDINATE,
    DiskObstacle,
    LawOptions,
    Point,
    Setting,
    check_law_options,
)
from equiflock.viewer.strict_model import StrictModel, format_validation_error
from equiflock.viewer.world import WorldSetting

MAX_REQUEST_BYTES = 16 * 1024
"""The largest size of a message from a page, in bytes."""
MAX_VELOCITY_COMPONENT = 10.0
"""The largest component of a velocity that leaders can be given."""

# Every number from a page has limits, so that no request can fill memory or leave the range of the kernels.
VelocityComponent = Annotated[float, Field(ge=-MAX_VELOCITY_COMPONENT, le=MAX_VELOCITY_COMPONENT)]
SelectionRadius = Annotated[float, Field(gt=0, le=MAX_COORDINATE)]
BoundedIndex = Annotated[int, Field(ge=0, le=10**9)]


class Start(StrictModel):
    """Begin a flight in place of the present one. A search for another start that still runs is cancelled."""

    do: Literal["start"]
    setting: Setting


class Cancel(StrictModel):
    """Cancel the search for a start that is running; the flight from before goes on."""

    do: Literal["cancel"]


class Play(StrictModel):
    """Begin to play the flights that the server was started with."""

    do: Literal["play"]
    flock: BoundedIndex = 0


class Advance(StrictModel):
    """Make this many steps, or as many as there is time for."""

    do: Literal["advance"]
    steps: Annotated[int, Field(ge=0, le=1000)]


class Seek(StrictModel):
    """Go to a frame of a playback."""

    do: Literal["seek"]
    frame: BoundedIndex


class ShowEdges(StrictModel):
    """Choose whether pictures show who hears whom."""

    do: Literal["show"]
    edges: bool


class Action(StrictModel, ABC):
    """A request that changes the flocks of live flights."""

    @abstractmethod
    def apply(self, live_simulation: LiveSimulation) -> None:
        """Do it to the flights on the stage."""


class Steer(Action):
    """Give all leaders a velocity."""

    do: Literal["steer"]
    velocity: tuple[VelocityComponent, VelocityComponent]

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.steer(self.velocity)


class ToggleNearestLeader(Action):
    """Make the agent nearest to a place a leader or, if it is one, a follower."""

    do: Literal["lead"]
    position: Point
    reach: SelectionRadius
    panel: BoundedIndex = 0

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.toggle_nearest_leader(self.position, self.reach, self.panel)


class ToggleLeader(Action):
    """Make the agent of a number a leader or, if it is one, a follower, wherever it is."""

    do: Literal["appoint"]
    agent: BoundedIndex

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.toggle_leader(self.agent)


class RemoveAgents(Action):
    """Take away the agents within reach of some places."""

    do: Literal["remove"]
    positions: Annotated[tuple[Point, ...], Field(max_length=100)]
    reach: SelectionRadius
    panel: BoundedIndex = 0

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.remove_agents(self.positions, self.reach, self.panel)


class AddDisk(Action):
    """Put an obstacle into the way."""

    do: Literal["drop"]
    disk: DiskObstacle

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.add_disk(self.disk)


class MoveDisk(Action):
    """Put an obstacle somewhere else."""

    do: Literal["move"]
    number: BoundedIndex
    position: Point

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.move_disk(self.number, self.position)


class RemoveDisk(Action):
    """Take an obstacle away."""

    do: Literal["lift"]
    number: BoundedIndex

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.remove_disk(self.number)


class SetOrbit(Action):
    """Switch the orbit technique on or off."""

    do: Literal["orbit"]
    active: bool

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.orbit(self.active)


class ChangeWorld(Action):
    """Go on with another radio and another body."""

    do: Literal["world"]
    world: WorldSetting

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.change_world(self.world)


class ChangeLaw(Action):
    """Go on with other options of the controller of one flight."""

    do: Literal["law"]
    options: LawOptions
    panel: BoundedIndex = 0

    @model_validator(mode="after")
    def _check_options(self) -> ChangeLaw:
        check_law_options(self.options)
        return self

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.change_law(self.panel, self.options)


class FailAgents(Action):
    """Let so many followers fail, whoever that may be, or all that are left if they are fewer."""

    do: Literal["fail"]
    kind: FailureKind
    agents: Annotated[int, Field(ge=1, le=MAX_AGENTS)] = 1

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.fail_agents(self.kind, self.agents)


class RepairAgents(Action):
    """Let all agents work again."""

    do: Literal["repair"]

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.repair_agents()


class Scatter(Action):
    """Give every follower a velocity of its own."""

    do: Literal["scatter"]

    @override
    def apply(self, live_simulation: LiveSimulation) -> None:
        live_simulation.scatter()


class Save(StrictModel):
    """Write the flight as a film and a folder."""

    do: Literal["save"]
    speed: Annotated[float, Field(ge=0.01, le=10.0)] = 0.5
    """How fast the film shows the flight, in simulated seconds per second."""


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
    | ChangeWorld
    | ChangeLaw
    | FailAgents
    | RepairAgents
    | Scatter
    | Save
)
# The field `do` says which class a message belongs to, so errors are those of that class alone.
_request_adapter: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="do")])


def parse_request(text: str) -> Request:
    """The request in a message, or one line that says what is wrong with it."""
    try:
        # Types and ranges are checked by pydantic; its report is shortened to one line for the page.
        return _request_adapter.validate_json(text)
    except ValidationError as error:
        raise InputError(format_validation_error(error)) from None
