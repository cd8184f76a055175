"""The world of a live flight as the page's sliders have it: how messages travel, and what bodies can do."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated, Any

from pydantic import Field, model_validator

from equiflock.bodies import body_names
from equiflock.bodies.registry import body_class
from equiflock.experiments.world import DEFAULT_BODY, DEFAULT_BODY_NAME, World, make_world
from equiflock.viewer.strict_model import StrictModel

MAX_DELAY = 10
"""Steps: a radio remembers the state of all agents for so long."""
BODY_PARAMETERS = ("max_acceleration", "max_turn_rate", "lag")
"""The numbers of bodies that the page has sliders for; a body need not have them all."""

Limit = Annotated[float, Field(ge=0.01, le=1e6)]


class WorldSetting(StrictModel):
    """Radio and body, by the names that these have as options of a world. By default those of the paper."""

    packet_loss: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    delay: Annotated[int, Field(ge=0, le=MAX_DELAY)] = 0
    noise: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    body: Annotated[str, Field(max_length=100)] = DEFAULT_BODY_NAME
    """The name of a body, one of those that a page is sent when it connects."""
    max_acceleration: Limit | None = None
    max_turn_rate: Limit | None = None
    lag: Annotated[float, Field(ge=0.0, le=10.0)] = 0.0

    @model_validator(mode="after")
    def _check_buildable(self) -> WorldSetting:
        """Refuse an unknown body, and numbers that it does not have."""
        body_class(self.body)  # a name alone: other options of a body have no limits here
        self.make()
        return self

    def make(self) -> World:
        """The world itself."""
        # A number that is as usual is not told, so that bodies without it can be chosen.
        usual = {name: field.default for name, field in type(self).model_fields.items()}
        given = {name: getattr(self, name) for name in usual}
        world = make_world(**{name: value for name, value in given.items() if value != usual[name]})
        # A flight that goes back to the very body that it began with is as fast as before.
        return replace(world, body=DEFAULT_BODY) if world.body == DEFAULT_BODY else world


def list_bodies() -> list[dict[str, Any]]:
    """The name of each body, and which of the numbers that the page has sliders for it has."""
    own = {name: {each.name for each in fields(body_class(name))} for name in body_names()}
    return [{"name": name, "numbers": [each for each in BODY_PARAMETERS if each in own[name]]} for name in own]
