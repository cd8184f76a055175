"""Radio and body of a live flight, as the page's sliders set them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated, Any

from pydantic import Field, model_validator

from equiflock.bodies import body_names
from equiflock.bodies.registry import body_class
from equiflock.experiments.world import DEFAULT_BODY, DEFAULT_BODY_NAME, World, make_world
from equiflock.viewer.strict_model import StrictModel

MAX_DELAY = 10
"""Maximum delay in steps; a radio stores the states of all agents for this time."""
BODY_PARAMETERS = ("max_acceleration", "max_turn_rate", "lag")
"""Body parameters with sliders; a body may lack some of them."""

Limit = Annotated[float, Field(ge=0.01, le=1e6)]


class WorldSetting(StrictModel):
    """Radio and body parameters, named as in `make_world`; the defaults are the paper's."""

    packet_loss: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    delay: Annotated[int, Field(ge=0, le=MAX_DELAY)] = 0
    noise: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    body: Annotated[str, Field(max_length=100)] = DEFAULT_BODY_NAME
    """Name of a body."""
    max_acceleration: Limit | None = None
    max_turn_rate: Limit | None = None
    lag: Annotated[float, Field(ge=0.0, le=10.0)] = 0.0

    @model_validator(mode="after")
    def _check_buildable(self) -> WorldSetting:
        """Raise InputError for an unknown body, options after its name, and values of parameters that it lacks."""
        body_class(self.body)  # only a name: options after it would not be bounded
        self.make()
        return self

    def make(self) -> World:
        """Build radio and body; parameters at their defaults are omitted, as the body may lack them."""
        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        values = {name: getattr(self, name) for name in defaults}
        world = make_world(**{name: value for name, value in values.items() if value != defaults[name]})
        # Reuse the default body object, for which the faster step applies.
        return replace(world, body=DEFAULT_BODY) if world.body == DEFAULT_BODY else world


def list_bodies() -> list[dict[str, Any]]:
    """Return a dict with `name` and `parameters`, those of BODY_PARAMETERS that it has, for each registered body."""
    field_names = {name: {field.name for field in fields(body_class(name))} for name in body_names()}
    return [
        {"name": name, "parameters": [parameter for parameter in BODY_PARAMETERS if parameter in names]}
        for name, names in field_names.items()
    ]
