"""Configuration of the server: what pages may choose from, with descriptions of scenarios and laws for their forms."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from equiflock._runtime.checks import InputError, is_finite, raise_wrong_choice
from equiflock._runtime.specs import SAFE_PATTERN, list_choices, read_annotations, read_field_docstrings
from equiflock._runtime.threads import MAX_SMALL_FLOCK
from equiflock.controllers import controller_names, load
from equiflock.controllers.classical.pair_law import sum_over_all_pairs
from equiflock.controllers.networks.weights import describe_weights
from equiflock.controllers.registry import (
    WEIGHTS_SUFFIX,
    ControllerOption,
    controller_options,
    find_definition,
    is_bundled,
    parse_controller_name,
)
from equiflock.controllers.trained import DEFAULT_CONTROLLER, DESCRIPTIONS, bundled_names, bundled_seeds
from equiflock.features import paper_senses
from equiflock.observations.aggregation import observe
from equiflock.plotting.player.frames import pack_frame
from equiflock.plotting.player.playback import check_playback
from equiflock.protocols import Controller
from equiflock.scenarios.registry import scenario_class, scenario_names
from equiflock.simulation.trajectory import Trajectory
from equiflock.version import __version__
from equiflock.viewer.live_simulation import LiveSimulation
from equiflock.viewer.setting import MAX_DISKS, DiskObstacle, EnvironmentSetting, Setting, list_bodies

MAX_SLOW_DURATION = 5.0
"""Scenarios whose test takes longer, in seconds, are shown in real time: in slow motion success takes minutes."""


@dataclass(frozen=True)
class ViewerConfig:
    """What pages may choose from. A page never sends a file name."""

    setting: Setting = field(default_factory=Setting)
    """Initial setting of a page, unless its address holds another."""
    weights: tuple[Path, ...] = ()
    """Weights files offered in addition to the registered controllers."""
    flights: Sequence[Trajectory] = ()
    """Saved flights to play; if empty, pages show live flights."""
    out: Path = Path("runs/view")
    """Directory in which flights are saved."""

    def __post_init__(self) -> None:
        # Raise errors in the server's arguments now, not when the first page opens.
        if self.flights:
            check_playback(self.flights)
        for name, options in (*self.setting.controller_specs, *((str(path), {}) for path in self.weights)):
            self.load(name, options)

    @property
    def controllers(self) -> tuple[str, ...]:
        """Controller names that a page may choose."""
        # Each trained network is also offered for each training seed, as name:seed.
        trained = (f"{name}:{seed}" for name in bundled_names() for seed in bundled_seeds(name))
        return (*controller_names(), *trained, *map(str, self.weights), *self.controllers_with_units)

    @property
    def controllers_with_units(self) -> tuple[str, ...]:
        """Controllers of the initial setting that are scaled to robots, such as tanner:time_scale=2."""
        return tuple(name for name in self.setting.controllers if "=" in name and not name.endswith(WEIGHTS_SUFFIX))

    def load(self, name: str, options: dict[str, Any]) -> Controller:
        """Build a controller; raise InputError if it or a text option is not offered, or if it cannot be built."""
        if name not in self.controllers:
            raise_wrong_choice("controller", name, (*controller_names(), *map(str, self.weights)))
        self._check_text_options(name, options)
        try:
            return load(name, **options)
        except InputError:
            raise
        except Exception as error:  # a plugin may raise anything
            raise InputError(f"controller {name!r} cannot be made: {type(error).__name__}: {error}") from None

    def _check_text_options(self, name: str, options: dict[str, Any]) -> None:
        """Raise InputError for text values that are not offered: text from a page could be anything, such as a path.

        Offered are the option's default, its choices, words that its safe pattern matches, and the values that the
        initial setting has for this controller.
        """
        initial_options = [options for controller, options in self.setting.controller_specs if controller == name]
        for option in controller_options(parse_controller_name(name).name):
            value = options.get(option.name)
            allowed = option.default, *(initial.get(option.name) for initial in initial_options)
            if not isinstance(value, str) or value in allowed or option.is_safe(value):
                continue
            if option.choices:
                more = f", or a word that matches {option.safe_pattern}" if option.safe_pattern else ""
                raise_wrong_choice(f"{option.name} of {name}", value[:40], option.choices, more)
            raise InputError(f"{option.name} of {name} can only be set when the server is started; got {value!r:.40}")

    def compile_kernels(self) -> None:
        """Compile the kernels that pages need, those of the initial setting first, by simulating a few steps."""
        LiveSimulation(self.setting, self.load).advance(2)
        # Small and large flocks use different kernels; a distant obstacle adds the obstacle kernels.
        distant = DiskObstacle(x=1000.0, y=1000.0, radius=0.1)
        for agents in (100, MAX_SMALL_FLOCK + 1):
            setting = Setting(controller=self.setting.controller, compare="tanner", agents=agents, disks=(distant,))
            live_simulation = LiveSimulation(setting, self.load)
            live_simulation.edges = True
            live_simulation.advance(3)
            pack_frame(live_simulation.step, live_simulation.time, live_simulation.make_pictures())
            # Sliders and failures add the kernels of radios and bodies; some controllers require an ideal radio.
            for environment in (
                EnvironmentSetting(packet_loss=0.1, delay=1, max_acceleration=5.0),
                EnvironmentSetting(body="unicycle"),
            ):
                with suppress(InputError):
                    live_simulation.change_environment(environment)
                    live_simulation.fail_agents("silent", 1)
                    live_simulation.advance(3)
                    pack_frame(live_simulation.step, live_simulation.time, live_simulation.make_pictures())
        # Laws sum over the whole flock or over the neighbours at t = 0. A law's weight functions are compiled when a
        # page chooses it, which takes a fraction of a second.
        flock = Setting().draw()
        sum_over_all_pairs(flock, (("velocity", "mean"),))
        observe(flock, paper_senses("sum", topology="fixed"))
        # Drawing initial conditions of each scenario compiles the kernels of its search.
        for name in scenario_names():
            with suppress(InputError):  # a scenario may require options
                Setting(scenario=name).draw()

    @cached_property
    def welcome(self) -> dict[str, Any]:
        """The welcome message: the names, scenarios and limits from which a page builds its controls."""
        return {
            "version": __version__,
            "setting": self.setting.model_dump(mode="json"),
            "default_controller": DEFAULT_CONTROLLER,
            "scenarios": list_scenarios(excluded_fields=self.setting.shared_fields),
            "laws": list_laws((*controller_names(), *self.controllers_with_units)),
            "trained": {name: list(bundled_seeds(name)) for name in bundled_names()},
            "weights": [str(path) for path in self.weights],
            "networks": {**DESCRIPTIONS, **{str(path): describe_weights(path) for path in self.weights}},
            "max_disks": MAX_DISKS,
            "bodies": list_bodies(),
            "flocks": min((len(run.steps) for run in self.flights), default=0),
        }


def list_scenarios(excluded_fields: Collection[str]) -> list[dict[str, Any]]:
    """Return a dict with name, help and options for each registered scenario, sorted by name, JSON-serializable.

    It also has `shared_options`, `suitable_controllers` and `controller_requirement` of `equiflock.scenarios.Scenario`,
    and `is_long`.

    `excluded_fields` are set elsewhere on the page, such as the number of agents.
    """
    return [
        {
            "name": name,
            "help": _extract_class_help(kind),
            "options": _describe_scenario_options(kind, excluded_fields),
            "is_long": isinstance(kind.duration, int | float) and kind.duration > MAX_SLOW_DURATION,
            "shared_options": list(kind.shared_options),
            "suitable_controllers": list(kind.suitable_controllers),
            "controller_requirement": kind.controller_requirement,
        }
        for name, kind in ((name, scenario_class(name)) for name in sorted(scenario_names()))
    ]


def list_laws(names: Iterable[str]) -> list[dict[str, Any]]:
    """Return a dict with name, help, options and `is_bundled` for each law, sorted by name, JSON-serializable.

    `names` are controllers, with or without scaling options, such as tanner:time_scale=2; bundled trained networks are
    skipped. Options that may be None come last.
    """
    laws = []
    for name in sorted(names):
        head = parse_controller_name(name).name
        if head in bundled_names():
            continue
        options = [
            description
            for option in controller_options(head)
            if (description := _describe_law_option(head, option)) is not None
        ]
        options.sort(key=lambda option: bool(option["may_be_none"]))
        help_text = _extract_class_help(find_definition(head))
        laws.append({"name": name, "help": help_text, "options": options, "is_bundled": is_bundled(head)})
    return laws


def _describe_law_option(law: str, option: ControllerOption) -> dict[str, Any] | None:
    """Return name, kind, default, help, choices, safe_pattern, may_be_none and must_be_positive, for a form.

    Return None if it is no number, boolean or choice. A number must be positive if the law cannot be built with 0.
    """
    types = set(get_args(option.hint) or (option.hint,)) - {NoneType}
    # If the default is None, only a purely numeric type shows that the option is a number.
    if is_finite(option.default) or (option.default is None and types and types <= {int, float}):
        kind: str | None = "integer" if types == {int} else "number"
    else:
        kind = _choose_input_kind(option.default, option.choices)
    if kind is None:
        return None
    return {
        "name": option.name,
        "kind": kind,
        "default": option.default,
        "help": _flatten_text(option.help),
        "choices": list(option.choices),
        "safe_pattern": option.safe_pattern,
        "may_be_none": option.may_be_none,
        "must_be_positive": kind in ("integer", "number") and not _accepts_zero(law, option.name),
    }


def _accepts_zero(law: str, option: str) -> bool:
    """Return whether `load` can build the law with 0 for one option and the defaults of all others."""
    try:
        load(law, **{option: 0})
    except Exception:  # a plugin may raise anything
        return False
    return True


def _describe_scenario_options(kind: type[Any], excluded_fields: Collection[str]) -> list[dict[str, Any]]:
    """Return name, kind, default, choices, safe_pattern and help (docstring) of each scenario field for a form.

    Fields in `excluded_fields`, with init=False, or with a default that is no number, boolean or choice are skipped.
    """
    texts = read_field_docstrings(kind)  # type: ignore[arg-type]  # classes can be hashed
    types = read_annotations(kind)
    options = []
    for parameter in fields(kind):
        choices = list_choices(types.get(parameter.name))
        input_kind = _choose_input_kind(parameter.default, choices)
        if parameter.init and input_kind is not None and parameter.name not in excluded_fields:
            option = {
                "name": parameter.name,
                "kind": input_kind,
                "default": parameter.default,
                "choices": list(choices),
                "safe_pattern": parameter.metadata.get(SAFE_PATTERN, ""),
                "help": _flatten_text(texts.get(parameter.name, "")),
            }
            options.append(option)
    return options


def _choose_input_kind(default: object, choices: Collection[str]) -> str | None:
    """Return "boolean", "integer", "number" or "choice" by the type of an option's default.

    Return None if the default is none of these: infinite, None, or a text that is not among `choices`.
    """
    if isinstance(default, bool):
        return "boolean"
    if is_finite(default):
        return "integer" if isinstance(default, int) else "number"
    return "choice" if isinstance(default, str) and default in choices else None


def _extract_class_help(kind: Any) -> str:
    """Return the first paragraph of a docstring as one line; "" if it is missing or generated by `dataclass`."""
    text = inspect.cleandoc(kind.__doc__ or "")
    return "" if text.startswith(f"{kind.__name__}(") else _flatten_text(text.split("\n\n")[0])


def _flatten_text(text: str) -> str:
    """Return a docstring as one line, without backticks and repeated spaces."""
    return " ".join(text.replace("`", "").split())
