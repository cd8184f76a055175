"""The registry of scenarios: `@scenario("name")` adds one, `make_scenario("name")` makes one.

A scenario is everything about a flight but the controller: initial conditions, leaders, obstacles, the ending, and the
recorded measures. `simulate`, `evaluate`, `view`, training, animations and the reproduction all use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64

from equiflock._runtime.checks import InputError, raise_wrong_choice, shorten_repr
from equiflock._runtime.registry import Registry
from equiflock._runtime.specs import parse_spec
from equiflock.controllers.registry import controller_names, parse_controller_name
from equiflock.controllers.registry import is_bundled as is_bundled_controller
from equiflock.flock import Flock
from equiflock.observations.aggregation import Obstacles
from equiflock.observations.orbit import Orbit
from equiflock.outcomes import Outcome
from equiflock.protocols import Ending, Moment
from equiflock.scenarios.marks import Marks
from equiflock.scenarios.random_disk import RandomDisk, Stop, check_disk
from equiflock.scenarios.success_measure import SuccessMeasure

Measure: TypeAlias = str | Callable[[Moment], Float64[np.ndarray, " B"]]
"""The name of a metric (see `equiflock.metric`), or a named function of a moment."""
Figure: TypeAlias = Literal["curves", "endings"]


@runtime_checkable
class Scenario(Protocol):
    """The interface of a registered scenario. Registration adds these defaults to a class that does not have them."""

    name: str
    split: str
    """Set of initial conditions of its test, as for `RandomDisk`; default: the scenario's name."""
    duration: float = 2.0
    """Duration of its test, in seconds."""
    time_step: float = 0.01
    """dt of its test, in seconds."""
    test_options: Mapping[str, Any] = {}
    """Options of its test that differ from the defaults."""
    orbit: Orbit | None = None
    """Orbit technique by which followers avoid obstacles; None: obstacle agents only stand still."""
    obstacles: Obstacles = "nearest"
    """Obstacle agents within R from which a follower receives messages: the "nearest" or "all"."""
    success_outcomes: tuple[Outcome, ...] = ()
    """Outcomes that are successes; all others are failures. Empty if a flight cannot fail."""
    measures: tuple[Measure, ...] = ("velocity_variance", "mean_acceleration_norm")
    """Quantities recorded at every step and shown."""
    figure: Figure = "curves"
    """The scenario's figure: "curves", the measures over time, or "endings", the shares of outcomes."""
    shared_options: tuple[str, ...] = ()
    """Options that must equal those of a controller that also has them: see `describe_disagreement`."""
    suitable_controllers: tuple[str, ...] = ()
    """Names of registered controllers that do what the scenario asks, the best first; empty if any may do it."""
    controller_requirement: str = "was made for it"
    """What a suitable controller does, such as "knows the pattern": ends the sentence "needs a controller that .."."""
    success_measure: SuccessMeasure | None = None
    """The number that tells how far a flock is from success, such as 82% in place; None for none."""
    group_names: Sequence[str] = ()
    """Names of groups 0, 1, .. in the legend; the others are called "group" and their number."""

    obstacle_sizes: Sequence[int] = ()
    """Number of agents of each obstacle of a flock, if known before it is drawn; live flights limit them."""

    def draw(self, stop: Stop | None = None) -> Flock:
        """Return the flocks at t = 0; `stop` cancels a long search."""

    def ending(self) -> Ending | None:
        """Return a new ending for one flight; None, the default, if flights always last their whole duration."""
        return None

    def marks(self, flock: Flock) -> Sequence[Marks]:
        """Return the marks to draw with a flock, a batch of one, such as its goal; none by default."""
        return ()


SCENARIOS: Registry[type[Any]] = Registry("scenario")
Definition = TypeVar("Definition", bound=type[Any])


def scenario(name: str) -> Callable[[Definition], Definition]:
    """Register a scenario for `make_scenario`, training and the command line.

        @ef.scenario("slow")
        @dataclass(frozen=True)
        class Slow:
            disk: ef.RandomDisk = ef.RandomDisk(max_speed=0.5)

            def draw(self, stop=None):
                return self.disk.draw(stop)

    A scenario is a frozen dataclass with `draw`; missing attributes of `Scenario` get default values. Its fields are
    its options: `make_scenario("slow", agents=50)`, or `slow:agents=50` on the command line. The fields of a field
    `disk` of type RandomDisk are options, too. Raise InputError if the name is taken, a field has no default, there are
    success_outcomes without an ending, or a suitable controller is not registered.
    """
    SCENARIOS.check_new_name(name)

    def add(definition: Definition) -> Definition:
        SCENARIOS.check_class(name, definition, "draw")
        # Add the attributes of the protocol that the class does not define.
        for attribute, value in vars(Scenario).items():
            if not attribute.startswith("_") and not hasattr(definition, attribute):
                setattr(definition, attribute, value)
        if definition.success_outcomes and definition.ending is Scenario.ending:
            raise InputError(f"the scenario {name!r} has success_outcomes, so it must have an ending()")
        _check_suitable_controllers(name, definition)
        # Set name and split even if the class inherits them from another scenario.
        definition.name = name
        if "split" not in vars(definition):
            definition.split = name
        SCENARIOS.parts[name] = definition
        return definition

    return add


def _check_suitable_controllers(name: str, definition: Any) -> None:
    """Raise InputError unless `suitable_controllers` is a tuple of names of registered controllers without options."""
    names = definition.suitable_controllers
    if not isinstance(names, tuple):
        raise InputError(f"suitable_controllers of the scenario {name!r} must be a tuple; got {shorten_repr(names)}")
    for each in names:
        if each not in controller_names():
            hint = "; register your own controllers before the scenario"
            raise_wrong_choice(f"a suitable controller of the scenario {name!r}", each, controller_names(), hint)


def scenario_names() -> tuple[str, ...]:
    """Return the names of all registered scenarios."""
    return SCENARIOS.names()


def scenario_class(name: str) -> type[Any]:
    """Return the class of a scenario by its name without options; raise InputError if there is none."""
    return SCENARIOS.find(name)


def is_bundled(name: str) -> bool:
    """Return whether the scenario of that name, which may have options, comes with the package, not from a plugin."""
    return scenario_class(parse_spec(name).name).__module__.startswith("equiflock.")


def build_flight_options(scenario: Scenario, controller: object = None) -> dict[str, Any]:
    """Return the arguments of `flight` and `simulate` that a scenario sets: a new ending, and the obstacle rules."""
    orbit = choose_orbit(scenario, controller)
    return {"ending": scenario.ending(), "orbit": orbit, "obstacles": scenario.obstacles}


def choose_orbit(scenario: Scenario, controller: object) -> Orbit | None:
    """Return the orbit technique of a scenario under a controller.

    The controller's attribute `orbit` replaces the default parameters of the orbit technique. It does not replace
    parameters that the scenario sets explicitly, including None for no orbit technique.
    """
    controller_orbit = getattr(controller, "orbit", None)
    is_default = scenario.orbit == Orbit()
    return controller_orbit if isinstance(controller_orbit, Orbit) and is_default else scenario.orbit


def find_failed_flights(scenario: Scenario, outcomes: Sequence[Outcome]) -> Bool[np.ndarray, " B"]:
    """Return the mask (B,) of failed flights: all whose outcome, be it FLYING, is not in success_outcomes.

    Raise InputError if the scenario has no success_outcomes or no ending.
    """
    if not scenario.success_outcomes or scenario.ending() is None:
        raise InputError(
            f"scenario {scenario.name!r} cannot tell failures: it needs an ending(), and the outcomes that are "
            "successes in success_outcomes"
        )
    return np.array([outcome not in scenario.success_outcomes for outcome in outcomes], bool)


def describe_disagreement(scenario: Scenario, controller: object) -> str | None:
    """Return a message about the first shared option in which scenario and controller differ; None if there is none."""
    for name in scenario.shared_options:
        expected = getattr(scenario, name)
        actual = getattr(controller, name, expected)
        if not np.array_equal(expected, actual):
            return (
                f"the {name} of the scenario is {shorten_repr(expected)}, that of the controller "
                f"{shorten_repr(actual)}: choose the same for both"
            )
    return None


def describe_unsuitability(scenario: Scenario, controller: str) -> str | None:
    """Return a message if a controller, named with or without options, is not among the suitable ones; else None.

    Weights files and controllers of plugins are not judged.
    """
    suitable = scenario.suitable_controllers
    if not suitable or parse_controller_name(controller).name in suitable or not is_bundled_controller(controller):
        return None
    return f"{scenario.name} needs a controller that {scenario.controller_requirement}: use {suitable[0]}"


def choose_controller(scenario: str, default: str) -> str:
    """Return the default controller if it suits a scenario, named without options, else its first suitable one."""
    suitable = scenario_class(scenario).suitable_controllers
    return default if not suitable or default in suitable else suitable[0]


def collect_options(scenario: Scenario) -> dict[str, Any]:
    """Return all options of a scenario, with those of its disk in place of `disk`, as `make_scenario` takes them.

    A field of the scenario takes precedence over one of the disk with the same name.
    """
    values = {field.name: getattr(scenario, field.name) for field in fields(scenario) if field.init}  # type: ignore[arg-type]
    disk = values.pop("disk", None)
    return ({} if disk is None else {field.name: getattr(disk, field.name) for field in fields(disk)}) | values


def make_scenario(name: str, defaults: Mapping[str, Any] | None = None, **options: Any) -> Scenario:
    """Make a scenario such as "flocking" or "obstacles:sides=48"; raise InputError if it or an option is unknown.

    `options` are fields of the scenario and of its `disk`; an option in the name, too, must have the same value there.
    A whole `disk` can be given instead of its fields, which are then ignored. `defaults` are values of options that are
    not given otherwise; options that the scenario lacks are ignored there.
    """
    # Options are the scenario's fields and those of its disk.
    spec = parse_spec(name)
    kind = scenario_class(spec.name)
    own = {field.name for field in fields(kind) if field.init}
    disk = {field.name for field in fields(RandomDisk)} if "disk" in own else set()
    given = SCENARIOS.merge_options(spec, options, sorted(own | disk))
    # Options that are given override the defaults that the scenario has.
    merged = {key: value for key, value in (defaults or {}).items() if key in own | disk} | given
    arguments = {key: value for key, value in merged.items() if key in own}
    if "disk" in arguments:
        check_disk(arguments["disk"])
    elif disk:
        arguments["disk"] = _make_disk(kind, {key: value for key, value in merged.items() if key in disk - own})
    return cast(Scenario, SCENARIOS.construct(spec.name, kind, arguments))


def _make_disk(kind: type[Any], options: Mapping[str, Any]) -> RandomDisk:
    """Return the default disk of the class with these options; the default split is the scenario's."""
    field = next(field for field in fields(kind) if field.name == "disk")
    default = field.default_factory() if callable(field.default_factory) else field.default
    disk: RandomDisk = default if isinstance(default, RandomDisk) else RandomDisk()
    return replace(disk, **{"split": kind.split, **options})
