"""The setting of a live flight, which the page's address holds: scenario, options, controllers, numbers and world."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from equiflock.controllers.controller_options import split_law_options
from equiflock.controllers.registry import UNIT_OPTIONS
from equiflock.flock import Flock
from equiflock.runtime.checks import InputError, shorten_repr
from equiflock.scenarios import RandomDisk, Scenario, Stop, make_scenario
from equiflock.scenarios.obstacle_shapes import Points, add_obstacle, ring
from equiflock.scenarios.search_control import NoStartError
from equiflock.viewer.strict_model import StrictModel
from equiflock.viewer.world import WorldSetting

MAX_AGENTS = 10_000
MAX_TOTAL_AGENTS = 2 * MAX_AGENTS
"""The largest number of agents in all, those of obstacles included, whatever a scenario draws."""
MAX_DISKS = 20
MAX_COORDINATE = 1e6
"""The largest coordinate at which anything may be put."""
MAX_OPTION_LENGTH = 100
"""The most characters that the name and the value of an option may have together."""
MAX_NAME_LENGTH = 1000
"""The most characters of a controller's name, and of a word among its options."""
OPTION_FIELDS = {"controller": "controller_options", "compare": "compare_options"}
"""Fields of a setting that name a controller, and those for its options."""
MAX_AGENTS_PAPER_RULE = 1_000
"""Beyond this many agents the paper's disk, of radius N^(1/4), is so dense that everybody hears hundreds."""

Coordinate = Annotated[float, Field(ge=-MAX_COORDINATE, le=MAX_COORDINATE)]
Point = tuple[Coordinate, Coordinate]
LawOptions = Annotated[dict[str, Any], Field(max_length=50)]
DiskRadius = Annotated[float, Field(ge=0.05, le=5.0)]


class DiskObstacle(StrictModel):
    """An obstacle that a person put into the way: a disk with obstacle agents around its rim."""

    x: Coordinate
    y: Coordinate
    radius: DiskRadius

    def make_rim(self, spacing: float) -> Points:
        """Where its agents stand: on a regular polygon whose sides are as near to `spacing` as can be."""
        return ring((self.x, self.y), self.radius, spacing=spacing)


class Setting(StrictModel):
    """A scenario with its options, a controller or two of them, and numbers that all scenarios share."""

    scenario: Annotated[str, Field(max_length=100)] = "flocking"
    """The name of a scenario, one of those that a page is sent when it connects."""
    options: Annotated[dict[str, Any], Field(max_length=50)] = Field(default_factory=dict)
    """Values for fields of the scenario, where they differ from its defaults."""
    controller: Annotated[str, Field(max_length=MAX_NAME_LENGTH)] = "etdagnn"
    """The name of a controller; options that follow the name of a law go to `controller_options`."""
    controller_options: LawOptions = Field(default_factory=dict)
    """Values for options of the law, where they differ from its defaults."""
    compare: Annotated[str, Field(max_length=MAX_NAME_LENGTH)] | None = None
    """A second controller, flown in lockstep from the same start."""
    compare_options: LawOptions = Field(default_factory=dict)
    agents: Annotated[int, Field(ge=3, le=MAX_AGENTS)] = 100
    seed: Annotated[int, Field(ge=0, le=2**31)] = 0
    comm_radius: Annotated[float, Field(ge=0.1, le=3.0)] | None = None
    """R, within which agents hear each other; None for the scenario's."""
    time_step: Annotated[float, Field(ge=1e-4, le=0.1)] = 0.01
    """Seconds per step."""
    radius_rule: Literal["automatic", "quarter-power", "constant-density"] = "automatic"
    """How the disk of the start grows with the flock."""
    orbit: bool | None = None
    """Whether followers avoid obstacles by the orbit technique; None if the scenario decides."""
    disks: Annotated[tuple[DiskObstacle, ...], Field(max_length=MAX_DISKS)] = ()
    """Obstacles that were put into the way on the page."""
    world: WorldSetting = Field(default_factory=WorldSetting)
    """Radio and body."""

    @model_validator(mode="after")
    def _split_controller_names(self) -> Setting:
        """Take options that follow the name of a law for fields of their own, where the page's sliders have them."""
        for name, (field, options) in zip(self.controllers, OPTION_FIELDS.items(), strict=False):
            short_name, told = split_law_options(name)
            # The class is frozen, so its fields are set this way.
            object.__setattr__(self, field, short_name)
            object.__setattr__(self, options, {**told, **getattr(self, options)})
        return self

    @model_validator(mode="after")
    def _check_buildable(self) -> Setting:
        """Refuse an unknown scenario, and options that it does not have or that are out of range."""
        for _, options in self.controller_specs:
            check_law_options(options)
        if self.compare is None and self.compare_options:
            raise InputError("there is no controller to compare, so it has no options")
        for name, value in self.options.items():
            _check_option(name, value)
            if name in self.shared_fields:
                raise InputError(f"{name} is no option of a scenario on this page: it is chosen for all scenarios")
        self.make()
        return self

    @property
    def controllers(self) -> tuple[str, ...]:
        """The names of the controllers, one for each flight."""
        return (self.controller,) if self.compare is None else (self.controller, self.compare)

    @property
    def controller_specs(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """Name and options of each controller, one for each flight."""
        options = self.controller_options, self.compare_options
        return tuple(zip(self.controllers, options, strict=False))

    def replace_law_options(self, panel: int, options: dict[str, Any]) -> Setting:
        """The setting with other options of the controller of one flight."""
        return self.model_copy(update={list(OPTION_FIELDS.values())[panel]: options})

    @property
    def shared_fields(self) -> dict[str, Any]:
        """Values for fields that many scenarios have, directly or in their disk; None leaves the scenario's default."""
        dense = "constant-density" if self.agents > MAX_AGENTS_PAPER_RULE else None
        return {
            "flocks": 1,
            "agents": self.agents,
            "seed": self.seed,
            "comm_radius": self.comm_radius,
            "radius_rule": dense if self.radius_rule == "automatic" else self.radius_rule,
        }

    def make(self) -> Scenario:
        """The scenario itself."""
        shared_fields = {name: value for name, value in self.shared_fields.items() if value is not None}
        return make_scenario(self.scenario, defaults=shared_fields, **self.options)

    @property
    def disk(self) -> RandomDisk:
        """The set of initial conditions that the scenario draws from, or the usual one if it has none."""
        found = getattr(self.make(), "disk", None)
        return found if isinstance(found, RandomDisk) else RandomDisk()

    @property
    def rim_spacing(self) -> float:
        """About how far apart agents on the rim of a dropped obstacle stand: R_min, unless that is 0."""
        return self.disk.min_separation or RandomDisk.min_separation

    def draw(self, stop: Stop | None = None) -> Flock:
        """The start: the flock with the scenario's obstacles, followed by those of `disks` in their order.

        Args:
            stop: ends the search for a start, as for `RandomDisk`.
        """
        try:
            flock = self.make().draw(stop)[0]
        except NoStartError:
            # Its text gives advice about options that a page does not have.
            raise InputError(
                f"no start was found for {self.agents:,} agents that are {self.disk.min_separation:g} apart, hear two "
                f"others within R = {self.disk.comm_radius:g} each, and are all connected: raise R, or choose another "
                "start disk"
            ) from None
        if flock.shape[2] != 2:
            raise InputError(f"live flights are in the plane; the scenario drew a flock in {flock.shape[2]} dimensions")
        for disk in self.disks:
            flock = add_obstacle(flock, disk.make_rim(self.rim_spacing))
        if flock.shape[1] > MAX_TOTAL_AGENTS:
            raise InputError(
                f"there may be {MAX_TOTAL_AGENTS:,} agents in all, obstacle agents included; got {flock.shape[1]:,}"
            )
        return flock


def _check_option(name: str, value: object) -> None:
    """Refuse values that no option of a scenario can have, and numbers that are far too large."""
    # Whole numbers are counts, of agents say, so their limit is lower.
    _check_value(name, value, MAX_AGENTS if isinstance(value, int) else MAX_COORDINATE, MAX_OPTION_LENGTH)


def check_law_options(options: dict[str, Any]) -> None:
    """Refuse values that no option of a law can have, and numbers that are far too large."""
    for name, value in options.items():
        _check_value(name, value, MAX_COORDINATE, MAX_NAME_LENGTH)
        if name in UNIT_OPTIONS:
            raise InputError(f"{name} is chosen when the server is started, as in --controller tanner:{name}=2")


def _check_value(name: str, value: object, limit: float, max_length: int) -> None:
    if not isinstance(value, bool | int | float | str | None) or len(f"{name}{value}") > max_length:
        raise InputError(f"an option is a number, true, false or a word; {name[:40]} is {shorten_repr(value)[:40]}")
    if isinstance(value, int | float) and not -limit <= value <= limit:
        raise InputError(f"{name[:40]} must be from {-limit:,.0f} to {limit:,.0f}; got {value}")
