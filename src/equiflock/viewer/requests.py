"""The requests of a page. Every message is checked against these classes, all numbers included, or refused."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator
from typing_extensions import override

from equiflock.runtime.checks import InputError
from equiflock.simulation.failures import FailureKind
from equiflock.viewer.checked import Checked, one_line
from equiflock.viewer.setting import (
    FARTHEST,
    MOST_AGENTS,
    DiskObstacle,
    LawOptions,
    Point,
    Setting,
    check_law_options,
)
from equiflock.viewer.stage import Stage
from equiflock.viewer.world import WorldSetting

LONGEST_REQUEST = 16 * 1024
"""The largest size of a message from a page, in bytes."""
FASTEST = 10.0
"""The largest component of a velocity that leaders can be given."""

# Every number from a page has limits, so that no request can fill memory or leave the range of the kernels.
Speed = Annotated[float, Field(ge=-FASTEST, le=FASTEST)]
Reach = Annotated[float, Field(gt=0, le=FARTHEST)]
Number = Annotated[int, Field(ge=0, le=10**9)]


class Start(Checked):
    """Begin a flight in place of the present one. A search for another start that still runs is cancelled."""

    do: Literal["start"]
    setting: Setting


class Cancel(Checked):
    """Cancel the search for a start that is running; the flight from before goes on."""

    do: Literal["cancel"]


class Play(Checked):
    """Begin to play the flights that the server was started with."""

    do: Literal["play"]
    flock: Number = 0


class Advance(Checked):
    """Make this many steps, or as many as there is time for."""

    do: Literal["advance"]
    steps: Annotated[int, Field(ge=0, le=1000)]


class Seek(Checked):
    """Go to a frame of a playback."""

    do: Literal["seek"]
    frame: Number


class Show(Checked):
    """Choose whether pictures show who hears whom."""

    do: Literal["show"]
    edges: bool


class Action(Checked, ABC):
    """A request that changes the flocks of live flights."""

    @abstractmethod
    def on(self, stage: Stage) -> None:
        """Do it to the flights on the stage."""


class Steer(Action):
    """Give all leaders a velocity."""

    do: Literal["steer"]
    velocity: tuple[Speed, Speed]

    @override
    def on(self, stage: Stage) -> None:
        stage.steer(self.velocity)


class Lead(Action):
    """Make the agent nearest to a place a leader or, if it is one, a follower."""

    do: Literal["lead"]
    at: Point
    reach: Reach
    panel: Number = 0

    @override
    def on(self, stage: Stage) -> None:
        stage.lead(self.at, self.reach, self.panel)


class Appoint(Action):
    """Make the agent of a number a leader or, if it is one, a follower, wherever it is."""

    do: Literal["appoint"]
    agent: Number

    @override
    def on(self, stage: Stage) -> None:
        stage.appoint(self.agent)


class Remove(Action):
    """Take away the agents within reach of some places."""

    do: Literal["remove"]
    at: Annotated[tuple[Point, ...], Field(max_length=100)]
    reach: Reach
    panel: Number = 0

    @override
    def on(self, stage: Stage) -> None:
        stage.remove(self.at, self.reach, self.panel)


class Drop(Action):
    """Put an obstacle into the way."""

    do: Literal["drop"]
    disk: DiskObstacle

    @override
    def on(self, stage: Stage) -> None:
        stage.drop(self.disk)


class Move(Action):
    """Put an obstacle somewhere else."""

    do: Literal["move"]
    number: Number
    at: Point

    @override
    def on(self, stage: Stage) -> None:
        stage.move(self.number, self.at)


class Lift(Action):
    """Take an obstacle away."""

    do: Literal["lift"]
    number: Number

    @override
    def on(self, stage: Stage) -> None:
        stage.lift(self.number)


class Technique(Action):
    """Switch the orbit technique on or off."""

    do: Literal["orbit"]
    active: bool

    @override
    def on(self, stage: Stage) -> None:
        stage.orbit(self.active)


class ChangeWorld(Action):
    """Go on with another radio and another body."""

    do: Literal["world"]
    world: WorldSetting

    @override
    def on(self, stage: Stage) -> None:
        stage.change_world(self.world)


class ChangeLaw(Action):
    """Go on with other options of the controller of one flight."""

    do: Literal["law"]
    options: LawOptions
    panel: Number = 0

    @model_validator(mode="after")
    def _have_values(self) -> ChangeLaw:
        check_law_options(self.options)
        return self

    @override
    def on(self, stage: Stage) -> None:
        stage.change_law(self.panel, self.options)


class Fail(Action):
    """Let so many followers fail, whoever that may be, or all that are left if they are fewer."""

    do: Literal["fail"]
    kind: FailureKind
    agents: Annotated[int, Field(ge=1, le=MOST_AGENTS)] = 1

    @override
    def on(self, stage: Stage) -> None:
        stage.fail(self.kind, self.agents)


class Repair(Action):
    """Let all agents work again."""

    do: Literal["repair"]

    @override
    def on(self, stage: Stage) -> None:
        stage.repair()


class Scatter(Action):
    """Give every follower a velocity of its own."""

    do: Literal["scatter"]

    @override
    def on(self, stage: Stage) -> None:
        stage.scatter()


class Save(Checked):
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
    | Show
    | Steer
    | Lead
    | Appoint
    | Remove
    | Drop
    | Move
    | Lift
    | Technique
    | ChangeWorld
    | ChangeLaw
    | Fail
    | Repair
    | Scatter
    | Save
)
# The field `do` says which class a message belongs to, so errors are those of that class alone.
_requests: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="do")])


def read_request(text: str) -> Request:
    """The request in a message, or one line that says what is wrong with it."""
    try:
        # Types and ranges are checked by pydantic; its report is shortened to one line for the page.
        return _requests.validate_json(text)
    except ValidationError as error:
        raise InputError(one_line(error)) from None
