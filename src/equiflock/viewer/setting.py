"""The setting of a live flight: scenario, controllers, their options, shared numbers, and environment.

Settings come from pages, which are not trusted: every number is bounded, and every text is short.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from equiflock._runtime.checks import InputError, format_names, shorten_repr
from equiflock.bodies import body_names
from equiflock.bodies.registry import body_class
from equiflock.controllers.registry import (
    UNIT_OPTIONS,
    controller_options,
    parse_controller_name,
    split_law_options,
)
from equiflock.controllers.trained import DEFAULT_CONTROLLER
from equiflock.flock import Flock
from equiflock.graph.radius_graph import compute_connectivity
from equiflock.protocols import Controller
from equiflock.scenarios import RandomDisk, Scenario, Stop, make_scenario
from equiflock.scenarios.obstacle_shapes import Points, add_obstacle, count_sides, ring
from equiflock.scenarios.random_disk import NoStartError
from equiflock.scenarios.registry import scenario_class
from equiflock.simulation.environment import DEFAULT_BODY_NAME, Environment

MAX_AGENTS = 10_000
MAX_TOTAL_AGENTS = 2 * MAX_AGENTS
"""Maximum number of agents, including obstacle agents."""
MAX_DISKS = 20
MAX_COORDINATE = 1e6
MAX_OPTION_LENGTH = 100
"""Maximum number of characters of a scenario option's name and value together."""
MAX_NAME_LENGTH = 1000
"""Maximum number of characters of a controller's name, and of an option of it."""
MAX_AGENTS_PAPER_RULE = 1_000
"""With more agents the paper's disk, of radius N^(1/4), is so dense that each agent has hundreds of neighbours."""
MAX_DELAY = 10
"""Maximum delay in steps; a radio stores the states of all agents for this time."""
MAX_HOPS = 10
"""Maximum number of hops of a controller, for each of which agents store observations."""
MAX_FIXED_EDGES = 5_000_000
"""Maximum number of edges of the communication graph at t = 0, which controllers with a fixed topology store."""
MAX_OBSTACLES = 500
"""Maximum number of obstacles of a scenario; actions visit one after the other."""
BODY_PARAMETERS = ("max_acceleration", "max_turn_rate", "lag")
"""Body parameters with sliders; a body may lack some of them."""
OPTION_FIELDS = {"controller": "controller_options", "compare": "compare_options"}
"""Fields that name a controller, with the fields of its options."""

Coordinate = Annotated[float, Field(ge=-MAX_COORDINATE, le=MAX_COORDINATE)]
Point = tuple[Coordinate, Coordinate]
Limit = Annotated[float, Field(ge=0.01, le=1e6)]
LawOptions = Annotated[dict[str, Any], Field(max_length=50)]
DiskRadius = Annotated[float, Field(ge=0.05, le=5.0)]


class StrictModel(BaseModel):
    """Frozen model of untrusted input, with strict types and finite numbers, without extra fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def format_validation_error(error: ValidationError) -> str:
    """Return the first validation error as one line: field, message and received value, shortened.

    For an InputError that a validator raised, it is that error's message alone.
    """
    first = error.errors()[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])  # a message of equiflock's
    if first["type"] == "union_tag_invalid":  # its message lists all commands
        commands = format_names(first["ctx"]["expected_tags"].split(", "))
        return f"command must be one of {commands}; got {shorten_repr(first['ctx']['tag'])}"
    path = [str(part) for part in first["loc"]]
    # Objects are too long to quote.
    received = "" if isinstance(first["input"], dict) else f"; got {first['input']!s:.40}"
    return f"{path[-1].replace('_', ' '):.40}: {first['msg']}{received}" if path else f"{first['msg']}{received}"


class EnvironmentSetting(StrictModel):
    """The environment as the page's sliders set it: options of `Environment.from_options`; by default the paper's."""

    packet_loss: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    delay: Annotated[int, Field(ge=0, le=MAX_DELAY)] = 0
    noise: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    body: Annotated[str, Field(max_length=100)] = DEFAULT_BODY_NAME
    """Name of a body."""
    max_acceleration: Limit | None = None
    max_turn_rate: Limit | None = None
    lag: Annotated[float, Field(ge=0.0, le=10.0)] = 0.0

    @model_validator(mode="after")
    def _check_buildable(self) -> EnvironmentSetting:
        """Raise InputError for an unknown body, options after its name, and values of parameters that it lacks."""
        body_class(self.body)  # only a name: options after it would not be bounded
        self.make()
        return self

    def make(self) -> Environment:
        """Build the environment; parameters at their defaults are omitted, as the body may lack them."""
        return Environment.from_options(**self.model_dump(exclude_defaults=True))


def list_bodies() -> list[dict[str, Any]]:
    """Return a dict with `name` and `parameters`, those of BODY_PARAMETERS that it has, for each registered body.

    Bodies in metres are left out, as flocks of the page have R = 1.
    """
    result = []
    for name in body_names():
        if getattr(body_class(name), "is_in_metres", False):
            continue
        names = {field.name for field in fields(body_class(name))}
        result.append({"name": name, "parameters": [each for each in BODY_PARAMETERS if each in names]})
    return result


class DiskObstacle(StrictModel):
    """An obstacle that the user added: a disk with obstacle agents on its rim."""

    x: Coordinate
    y: Coordinate
    radius: DiskRadius

    def count_agents(self, spacing: float) -> int:
        """Return the number of its agents."""
        return count_sides(self.radius, spacing)

    def make_rim(self, spacing: float) -> Points:
        """Return the positions (count, 2) of its agents: a regular polygon with sides of about `spacing`.

        Raise InputError if there are more than MAX_TOTAL_AGENTS.
        """
        sides = self.count_agents(spacing)
        check_total_agents(sides)
        return ring((self.x, self.y), self.radius, sides=sides)


class Setting(StrictModel):
    """A scenario with its options, one or two controllers, and fields that all scenarios share."""

    scenario: Annotated[str, Field(max_length=100)] = "flocking"
    """Name of a scenario."""
    options: Annotated[dict[str, Any], Field(max_length=50)] = Field(default_factory=dict)
    """Scenario fields that differ from their defaults."""
    controller: Annotated[str, Field(max_length=MAX_NAME_LENGTH)] = DEFAULT_CONTROLLER
    """Name of a controller; options after the name of a law are moved to `controller_options`."""
    controller_options: LawOptions = Field(default_factory=dict)
    """Options of the law that differ from their defaults."""
    compare: Annotated[str, Field(max_length=MAX_NAME_LENGTH)] | None = None
    """Second controller, simulated in lockstep from the same initial conditions, or None."""
    compare_options: LawOptions = Field(default_factory=dict)
    agents: Annotated[int, Field(ge=3, le=MAX_AGENTS)] = 100
    seed: Annotated[int, Field(ge=0, le=2**31)] = 0
    comm_radius: Annotated[float, Field(ge=0.1, le=3.0)] | None = None
    """Communication radius R; None for the scenario's."""
    time_step: Annotated[float, Field(ge=1e-4, le=0.1)] = 0.01
    """Seconds per step."""
    radius_rule: Literal["automatic", "quarter-power", "constant-density"] = "automatic"
    """How the radius of the initial disk grows with the number of agents."""
    orbit: bool | None = None
    """Whether followers use the orbit technique; None if the scenario decides."""
    disks: Annotated[tuple[DiskObstacle, ...], Field(max_length=MAX_DISKS)] = ()
    """Obstacles that the user added."""
    environment: EnvironmentSetting = Field(default_factory=EnvironmentSetting)
    """Radio and body."""

    @model_validator(mode="after")
    def _split_controller_names(self) -> Setting:
        """Move options after the name of a law to the options field, which the page's sliders show.

        Options that the field already has win; `comm_radius` and `time_scale` stay in the name.
        """
        for name, (field, options) in zip(self.controllers, OPTION_FIELDS.items(), strict=False):
            short_name, name_options = split_law_options(name)
            # The class is frozen.
            object.__setattr__(self, field, short_name)
            object.__setattr__(self, options, {**name_options, **getattr(self, options)})
        return self

    @model_validator(mode="after")
    def _hand_over_shared_options(self) -> Setting:
        """Give controllers the options that they share with the scenario, and the scenario those of the controllers.

        Values that are given on both sides stay, even if they differ.
        """
        for name in scenario_class(self.scenario).shared_options:
            sharing = [options for law, options in self.controller_specs if name in read_law_defaults(law)]
            given = [each[name] for each in (self.options, *sharing) if name in each]
            for options in (self.options, *sharing) if given else ():
                options.setdefault(name, given[0])
        return self

    @model_validator(mode="after")
    def _check_buildable(self) -> Setting:
        """Raise InputError for an unknown scenario, options that it lacks or that are out of range, and shared fields.

        Raise it also for too many obstacles or agents, as far as the scenario states them before a draw. Whether a law
        has its options shows when it is loaded.
        """
        for _, options in self.controller_specs:
            check_law_options(options)
        if self.compare is None and self.compare_options:
            raise InputError("compare_options requires a second controller: set compare")
        for name, value in self.options.items():
            # Integers are counts, such as agents, and have a lower limit.
            _check_option_value(
                name, value, MAX_AGENTS if isinstance(value, int) else MAX_COORDINATE, MAX_OPTION_LENGTH
            )
            if name in self.shared_fields:
                raise InputError(f"{name} is not a scenario option here: set it as a field of the setting")
        scenario_class(self.scenario)  # only a name: options after it would not be bounded
        sizes = self.make().obstacle_sizes
        check_obstacle_count(len(sizes))
        check_total_agents(self.agents + sum(sizes) + self.count_disk_agents())
        return self

    @property
    def controllers(self) -> tuple[str, ...]:
        """Controller names, one for each flight."""
        return (self.controller,) if self.compare is None else (self.controller, self.compare)

    @property
    def controller_specs(self) -> tuple[tuple[str, dict[str, Any]], ...]:
        """Name and options of each controller."""
        options = self.controller_options, self.compare_options
        return tuple(zip(self.controllers, options, strict=False))

    def replace_law_options(self, panel: int, options: dict[str, Any]) -> Setting:
        """Return a copy with `options` in place of all options of the controller of panel 0 or 1; nothing is checked.

        The scenario and the other controller get the options that they share with it: a missing one has its default.
        """
        kind = scenario_class(self.scenario)
        defaults = read_law_defaults(self.controllers[panel])
        values = {name: options.get(name, defaults[name]) for name in kind.shared_options if name in defaults}
        scenario_defaults = {field.name: field.default for field in fields(kind)}
        update: dict[str, Any] = {"options": _merge_options(self.options, values, scenario_defaults)}
        for name, field in zip(self.controllers, OPTION_FIELDS.values(), strict=False):
            update[field] = _merge_options(getattr(self, field), values, read_law_defaults(name))
        update[list(OPTION_FIELDS.values())[panel]] = options
        return self.model_copy(update=update)

    @property
    def shared_fields(self) -> dict[str, Any]:
        """Values of fields that many scenarios have, directly or in their disk; None for the scenario's default.

        The automatic radius rule is the scenario's, or constant density beyond MAX_AGENTS_PAPER_RULE agents.
        """
        dense = "constant-density" if self.agents > MAX_AGENTS_PAPER_RULE else None
        return {
            "flocks": 1,
            "agents": self.agents,
            "seed": self.seed,
            "comm_radius": self.comm_radius,
            "radius_rule": dense if self.radius_rule == "automatic" else self.radius_rule,
        }

    def make(self) -> Scenario:
        """Build the scenario with its options and shared fields; `disks` and `environment` are not part of it."""
        shared_fields = {name: value for name, value in self.shared_fields.items() if value is not None}
        return make_scenario(self.scenario, defaults=shared_fields, **self.options)

    @property
    def disk(self) -> RandomDisk:
        """Distribution of the scenario's initial conditions, or the default one if it has none."""
        disk = getattr(self.make(), "disk", None)
        return disk if isinstance(disk, RandomDisk) else RandomDisk()

    @property
    def rim_spacing(self) -> float:
        """Approximate distance between agents on the rim of an added obstacle: R_min, or its default if 0."""
        return self.disk.min_separation or RandomDisk.min_separation

    def count_disk_agents(self) -> int:
        """Return the number of obstacle agents of `disks`."""
        return sum(disk.count_agents(self.rim_spacing) for disk in self.disks)

    def draw(self, stop: Stop | None = None) -> Flock:
        """Return initial conditions, a batch of one: the flock with the scenario's obstacles, then `disks` in order.

        The same setting gives the same flock; `stop` cancels the search. Raise InputError if none are found, if they
        are not in two dimensions, or if there are more than MAX_OBSTACLES obstacles or MAX_TOTAL_AGENTS agents.
        """
        try:
            flock = self.make().draw(stop)[0]
        except NoStartError:
            # The original message suggests options that the page does not have.
            raise InputError(
                f"no initial conditions found for {self.agents:,} connected agents with a distance of at least "
                f"{self.disk.min_separation:g} and two neighbours each within R = {self.disk.comm_radius:g}: "
                "increase R, or choose another start disk"
            ) from None
        if flock.shape[2] != 2:
            raise InputError(f"live flights must have 2 dimensions; the scenario drew a flock with {flock.shape[2]}")
        # Checked again, as a scenario of a plugin need not state its obstacles before.
        check_obstacle_count(int(flock.obstacles.max()) + 1)
        check_total_agents(flock.shape[1] + self.count_disk_agents())
        for disk in self.disks:
            flock = add_obstacle(flock, disk.make_rim(self.rim_spacing))
        return flock


def read_law_defaults(controller: str) -> dict[str, Any]:
    """Return the defaults of the options of a controller, named with or without options; {} for a network."""
    return {option.name: option.default for option in controller_options(parse_controller_name(controller).name)}


def _merge_options(options: dict[str, Any], values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the values of those that have a default; values that equal it are left out."""
    merged = options | {name: value for name, value in values.items() if name in defaults}
    return {name: value for name, value in merged.items() if name not in values or value != defaults[name]}


def check_obstacle_count(obstacles: int) -> None:
    """Raise InputError if there are more than MAX_OBSTACLES obstacles."""
    if obstacles > MAX_OBSTACLES:
        raise InputError(f"at most {MAX_OBSTACLES:,} obstacles are allowed; got {obstacles:,}")


def check_total_agents(agents: int) -> None:
    """Raise InputError if there are more than MAX_TOTAL_AGENTS agents, obstacle agents included."""
    if agents > MAX_TOTAL_AGENTS:
        raise InputError(f"at most {MAX_TOTAL_AGENTS:,} agents are allowed, including obstacle agents; got {agents:,}")


def check_controller_memory(controller: Controller, flock: Flock) -> None:
    """Raise InputError if a controller would store more than MAX_HOPS hops or MAX_FIXED_EDGES edges for a flock."""
    if controller.senses.hops > MAX_HOPS:
        raise InputError(f"live flights have at most {MAX_HOPS} hops; the controller has {controller.senses.hops:,}")
    if controller.senses.topology == "fixed":
        edges = int(compute_connectivity(flock).degrees.sum())
        if edges > MAX_FIXED_EDGES:
            raise InputError(
                f"a controller with a fixed topology takes at most {MAX_FIXED_EDGES:,} edges; the flock has {edges:,}: "
                "choose fewer agents, a larger start disk, or another controller"
            )


def check_law_options(options: dict[str, Any]) -> None:
    """Raise InputError if an option is no number, boolean, short text or None, or a number out of bounds.

    Also raise it for `comm_radius` and `time_scale`, which only the server's command line sets.
    """
    for name, value in options.items():
        _check_option_value(name, value, MAX_COORDINATE, MAX_NAME_LENGTH)
        if name in UNIT_OPTIONS:
            raise InputError(f"{name} can only be set when the server is started, as in --controller tanner:{name}=2")


def _check_option_value(name: str, value: object, limit: float, max_length: int) -> None:
    """Raise InputError unless a value is a number from -limit to limit, a boolean, a text or None.

    Raise it also if name and value together have more than `max_length` characters, or the number is NaN.
    """
    if not isinstance(value, bool | int | float | str | None) or len(f"{name}{value}") > max_length:
        raise InputError(f"{name[:40]} must be a number, true, false or a short text; got {shorten_repr(value)[:40]}")
    if isinstance(value, int | float) and not -limit <= value <= limit:
        raise InputError(f"{name[:40]} must be from {-limit:,.0f} to {limit:,.0f}; got {value}")
