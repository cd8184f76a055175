"""What a page may ask for. Every message is one of these, checked to the last number, or refused."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import override

from equiflock.runtime.checks import InputError
from equiflock.viewer.setting import FARTHEST, Checked, DiskObstacle, Point, Setting, one_line
from equiflock.viewer.stage import Stage

LONGEST_REQUEST = 16 * 1024
"""How long a message of a page may be, in bytes."""
FASTEST = 10.0

Speed = Annotated[float, Field(ge=-FASTEST, le=FASTEST)]
Reach = Annotated[float, Field(gt=0, le=FARTHEST)]
Number = Annotated[int, Field(ge=0, le=10**9)]


class Start(Checked):
    """Begin a flight; the one before is forgotten. Searches for other starts that are under way end."""

    do: Literal["start"]
    setting: Setting


class Cancel(Checked):
    """End the search for a start that is under way; what was flying before flies on."""

    do: Literal["cancel"]


class Play(Checked):
    """Begin to play the flights that the server was started with."""

    do: Literal["play"]
    flock: Number = 0


class Advance(Checked):
    """Let time pass: so many steps, or as many as there is time for."""

    do: Literal["advance"]
    steps: Annotated[int, Field(ge=0, le=1000)]


class Seek(Checked):
    """Go to a frame of a playback."""

    do: Literal["seek"]
    frame: Number


class Show(Checked):
    """Whether pictures show who hears whom."""

    do: Literal["show"]
    edges: bool


class Action(Checked, ABC):
    """Something that a person does to live flights."""

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
    """Let the agent nearest to a place lead or, if it does, follow."""

    do: Literal["lead"]
    at: Point
    reach: Reach
    panel: Number = 0

    @override
    def on(self, stage: Stage) -> None:
        stage.lead(self.at, self.reach, self.panel)


class Appoint(Action):
    """Let an agent lead or, if it does, follow: the one of that number, wherever it has flown to."""

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
    | Scatter
    | Save
)
_requests: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="do")])


def read_request(text: str) -> Request:
    """The request in a message, or one line that says what is wrong with it."""
    try:
        return _requests.validate_json(text)
    except ValidationError as error:
        raise InputError(one_line(error)) from None
