"""Scenarios by name. `@scenario("name")` adds one, `make_scenario("name")` makes one.

A scenario is everything about a flight but the controller: where flocks begin, who leads, what stands in the way, when
it is over, and what is measured. `simulate`, `evaluate`, `view`, trainings, films and the reproduction read it alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float64

from equiflock.flock import Flock
from equiflock.outcomes import Outcome
from equiflock.protocols import Ending, Moment
from equiflock.runtime.checks import InputError, raise_wrong_choice, shorten_repr
from equiflock.runtime.options import parse_options
from equiflock.scenarios.random_disk import RandomDisk, check_disk
from equiflock.scenarios.search_control import Stop
from equiflock.senses.aggregation import Obstacles
from equiflock.senses.orbit import Orbit

Measure: TypeAlias = str | Callable[[Moment], Float64[np.ndarray, " B"]]
"""The name of a function in `equiflock.metrics`, or a function of a moment with a name of its own."""
Figure: TypeAlias = Literal["curves", "endings"]


@runtime_checkable
class Scenario(Protocol):
    """What the classes of scenarios have once they are registered. Only `draw` has no default.

    Attributes:
        name: under which it is registered.
        split: names the set of initial conditions of its test, as for `RandomDisk`; the scenario's name by default.
        duration: of its test, in seconds.
        time_step: of its test, in seconds.
        test_options: options of its test that are not the defaults.
        orbit: the technique by which followers avoid obstacles; None if obstacle agents just stand still.
        obstacles: which obstacle agents within R a follower hears, the "nearest" or "all".
        success_outcomes: the outcomes that are successes; all others are failures. None of them if it cannot fail.
        measures: what is recorded at every step and shown.
        figure: which figure shows it: the measures over time, "curves", or how flights ended, "endings".
        shared_options: its options that a controller which has them, too, must have alike: `describe_disagreement` tells.
    """

    name: str
    split: str
    duration: float
    time_step: float
    test_options: Mapping[str, Any]
    orbit: Orbit | None
    obstacles: Obstacles
    success_outcomes: tuple[Outcome, ...]
    measures: tuple[Measure, ...]
    figure: Figure
    shared_options: tuple[str, ...]

    def draw(self, stop: Stop | None = None) -> Flock:
        """The flocks at t = 0; `stop` ends a search that takes long."""
        ...

    def ending(self) -> Ending | None:
        """What decides when a flight is over, a new one for each flight; None if it flies for its whole duration."""
        ...


SCENARIO_DEFAULTS: Mapping[str, Any] = {
    "duration": 2.0,
    "time_step": 0.01,
    "test_options": {},
    "orbit": None,
    "obstacles": "nearest",
    "success_outcomes": (),
    "measures": ("velocity_variance", "mean_acceleration_norm"),
    "figure": "curves",
    "shared_options": (),
}
"""The values of attributes that a scenario does not define itself."""

_scenarios: dict[str, type[Any]] = {}
Definition = TypeVar("Definition", bound=type[Any])


def scenario(name: str) -> Callable[[Definition], Definition]:
    """Add a scenario under a name, for `make_scenario`, trainings and the command line.

        @ef.scenario("slow")
        @dataclass(frozen=True)
        class Slow:
            disk: ef.RandomDisk = ef.RandomDisk(max_speed=0.5)

            def draw(self, stop=None):
                return self.disk.draw(stop)

    It is a frozen dataclass with `draw`; what it lacks of `Scenario` is filled in with defaults. Its fields are its
    options: `make_scenario("slow", agents=50)`, and `slow:agents=50` on the command line. Those of a field `disk` of
    type RandomDisk count as its own.
    """
    if not isinstance(name, str) or not name or ":" in name:
        raise InputError(f"a scenario's name must be a word without a colon; got {shorten_repr(name)}")

    def add(definition: Definition) -> Definition:
        if name in _scenarios:
            raise InputError(f"a scenario named {name!r} is registered already")
        drawn = callable(getattr(definition, "draw", None))
        frozen = is_dataclass(definition) and definition.__dataclass_params__.frozen  # type: ignore[attr-defined]
        if not (isinstance(definition, type) and frozen and drawn):
            raise InputError(
                f"the scenario {name!r} must be a frozen dataclass with draw(); got {shorten_repr(definition)}"
            )
        # What the class does not define is filled in, so that readers find every attribute of the protocol.
        needed = [each.name for each in fields(definition) if each.init and _has_no_default(each)]
        if needed:
            raise InputError(f"the scenario {name!r} must have a default for its field {needed[0]!r}")
        for attribute, value in {**SCENARIO_DEFAULTS, "ending": _no_ending}.items():
            if not hasattr(definition, attribute):
                setattr(definition, attribute, value)
        if definition.success_outcomes and definition.ending is _no_ending:
            raise InputError(f"the scenario {name!r} names outcomes that are successes, but has no ending()")
        # Not those of a scenario that it inherits from.
        definition.name = name
        if "split" not in vars(definition):
            definition.split = name
        _scenarios[name] = definition
        return definition

    return add


def _has_no_default(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _no_ending(self: Any) -> None:
    """The ending of a scenario whose flights end with their duration only."""
    return


def scenario_names() -> tuple[str, ...]:
    """The names that `make_scenario` knows."""
    return tuple(_scenarios)


def scenario_class(name: str) -> type[Any]:
    """The class of a scenario, by its name without options; a clear error if there is none."""
    if name not in _scenarios:
        more = ", or one of your own that was registered first (on the command line by --plugin)"
        raise_wrong_choice("scenario", name, scenario_names(), more)
    return _scenarios[name]


def is_bundled(name: str) -> bool:
    """Whether a scenario of that name, options or not, comes with the package."""
    return scenario_class(name.partition(":")[0]).__module__.startswith("equiflock.")


def build_flight_options(scenario: Scenario, controller: object = None) -> dict[str, Any]:
    """The arguments of `flight` and `simulate` that a scenario decides: a new ending, and the rules about obstacles.

    The technique may be the controller's: see `choose_orbit`.
    """
    orbit = choose_orbit(scenario, controller)
    return {"ending": scenario.ending(), "orbit": orbit, "obstacles": scenario.obstacles}


def choose_orbit(scenario: Scenario, controller: object) -> Orbit | None:
    """The orbit technique of a scenario under a controller.

    The controller's own numbers, in its attribute `orbit`, take the place of the default ones; any others, and None
    for no technique at all, were chosen by whoever made the scenario and stay.
    """
    own = getattr(controller, "orbit", None)
    return own if isinstance(own, Orbit) and scenario.orbit == Orbit() else scenario.orbit


def find_failed_flights(scenario: Scenario, outcomes: Sequence[Outcome]) -> Bool[np.ndarray, " B"]:
    """Which flights failed: those whose outcome is none of the scenario's successes."""
    if not scenario.success_outcomes or scenario.ending() is None:
        raise InputError(
            f"scenario {scenario.name!r} cannot tell failures: it needs an ending(), and in `succeeded` the outcomes "
            "that are successes"
        )
    return np.array([outcome not in scenario.success_outcomes for outcome in outcomes], bool)


def describe_disagreement(scenario: Scenario, controller: object) -> str | None:
    """A line about an option that scenario and controller must have alike and have not, or None."""
    for name in scenario.shared_options:
        wanted = getattr(scenario, name)
        found = getattr(controller, name, wanted)
        if not np.array_equal(wanted, found):
            told = f"the {name} of the scenario is {shorten_repr(wanted)}, that of the controller {shorten_repr(found)}"
            return f"{told}: choose the same for both"
    return None


def collect_options(scenario: Scenario) -> dict[str, Any]:
    """The options that a scenario was made with, those of its disk among them, as `make_scenario` takes them."""
    # Fields of the disk and of the scenario side by side; the scenario's own win where names are the same.
    values = {field.name: getattr(scenario, field.name) for field in fields(scenario) if field.init}  # type: ignore[arg-type]
    disk = values.pop("disk", None)
    return ({} if disk is None else {field.name: getattr(disk, field.name) for field in fields(disk)}) | values


def make_scenario(name: str, defaults: Mapping[str, Any] | None = None, **options: Any) -> Scenario:
    """The scenario of that name.

    Args:
        name: such as "flocking", or with options, "obstacles:sides=48".
        defaults: options to use where the scenario has such and they are not given.
        options: its fields, and those of its `disk`.
    """
    if not isinstance(name, str):
        raise InputError(f"a scenario must be named; got {shorten_repr(name)}")
    # Options are the scenario's own fields and those of its disk, which need not be named as such.
    head, colon, told = name.partition(":")
    kind = scenario_class(head)
    own = {field.name for field in fields(kind) if field.init}
    disk = {field.name for field in fields(RandomDisk)} if "disk" in own else set()
    named = parse_options(told) if colon else {}
    given = {**named, **options}
    for key in named.keys() & options.keys():
        if named[key] != options[key]:
            raise InputError(f"option {key!r} is given twice, as {named[key]!r} in {name!r} and as {options[key]!r}")
    unknown = sorted(set(given) - own - disk)
    if unknown:
        raise InputError(
            f"scenario {head!r} has no option {unknown[0]!r}; it has {', '.join(sorted((own | disk) - {'disk'}))}"
        )
    # What the caller gives goes before what is usual; of the usual, only what the scenario has.
    merged = {key: value for key, value in (defaults or {}).items() if key in own | disk} | given
    arguments = {key: value for key, value in merged.items() if key in own}
    if "disk" in arguments:
        check_disk(arguments["disk"])
    elif disk:
        arguments["disk"] = _make_disk(kind, {key: value for key, value in merged.items() if key in disk - own})
    try:
        found: Scenario = kind(**arguments)
    except InputError:
        raise
    except Exception as error:  # whatever a class of somebody else's raises
        raise InputError(f"scenario {head!r} cannot be made: {type(error).__name__}: {error}") from None
    return found


def _make_disk(kind: type[Any], options: Mapping[str, Any]) -> RandomDisk:
    """The scenario's own disk with these options; its split is the scenario's if that is not given."""
    # The class may have a disk with defaults of its own, which stay where no option says otherwise.
    disk = next(field for field in fields(kind) if field.name == "disk")
    default = disk.default_factory() if callable(disk.default_factory) else disk.default
    usual: RandomDisk = default if isinstance(default, RandomDisk) else RandomDisk()
    return replace(usual, **{"split": kind.split, **options})
