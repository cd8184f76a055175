"""Environment of a flight: the radio, the body that executes commanded accelerations, and failures of agents."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from equiflock._runtime.checks import InputError, shorten_repr
from equiflock.bodies import DoubleIntegrator, body_names, make_body
from equiflock.bodies.registry import body_class
from equiflock.flock import Flock, Role
from equiflock.observations.radio import IDEAL_RADIO, Radio, check_radio
from equiflock.protocols import AnyBody
from equiflock.simulation.body_motion import check_body
from equiflock.simulation.failures import NO_FAILURES, FailureKind, Failures, check_failures

RADIO_OPTIONS: Mapping[str, str] = {
    "radio_seed" if each.name == "seed" else each.name: each.name for each in fields(Radio)
}
"""Option name -> field of `Radio`."""
FAILURE_OPTIONS: Mapping[str, str] = {
    "fail": "agents",
    **{f"fail_{name}": name for name in ("kind", "time", "rate", "seed")},
}
"""Option name -> field of `Failures`."""
BODY_OPTION_NAMES: Mapping[str, str] = {"top_speed": "max_speed", "body_seed": "seed"}
"""Option name -> field of the body where the two differ, because scenarios have options of the same name."""
DEFAULT_BODY_NAME = "double-integrator"
DEFAULT_BODY = DoubleIntegrator()
MAX_SUFFIX_LENGTH = 80
"""Longest environment suffix of a file name; longer ones are hashed."""
BODY_TEXTS: Mapping[str, str] = {
    "max_acceleration": "at most {:g} of acceleration",
    "max_speed": "at most {:g} of speed",
    "max_turn_rate": "at most {:g} rad/s of turning",
    "drag": "drag of {:g} per second",
    "lag": "{:g} s of lag",
    "gust": "gusts of {:g}",
    "max_tilt": "at most {:g} degrees of tilt",
    "height": "at a height of {:g} m",
    "downwash": "downwash",
}
"""Text of each field of a body; other fields appear by name."""
FAILURE_TEXTS: Mapping[FailureKind, tuple[str, str]] = {
    "stopped": ("stops", "stop"),
    "silent": ("falls silent", "fall silent"),
    "drifting": ("drifts uncontrolled", "drift uncontrolled"),
}
"""Verb of each failure kind, singular and plural."""
PART_CHECKS: Mapping[str, Callable[[object], object]] = {
    "radio": check_radio,
    "body": check_body,
    "failures": check_failures,
}
"""Functions that raise InputError unless a part is valid."""


@dataclass(frozen=True, repr=False)
class Environment:
    """Radio, body and failures of a flight. The defaults are the paper's: ideal radio and body, no failures.

    >>> import equiflock as ef
    >>> environment = ef.Environment(radio=ef.Radio(packet_loss=0.2), body=ef.DoubleIntegrator(max_acceleration=5.0))
    >>> environment
    Environment(radio=Radio(packet_loss=0.2), body=DoubleIntegrator(max_acceleration=5))
    >>> run = ef.simulate(ef.random_disk(flocks=2, agents=20), ef.load("etdagnn"), environment=environment)
    >>> run.config["radio"]["packet_loss"]
    0.2

    The time step is not part of it. None stands for the default of a part.
    """

    radio: Radio = IDEAL_RADIO
    body: AnyBody = DEFAULT_BODY
    failures: Failures = NO_FAILURES

    def __post_init__(self) -> None:
        for name, check in PART_CHECKS.items():
            part = getattr(self, name)
            object.__setattr__(self, name, getattr(type(self), name) if part is None else check(part))

    @classmethod
    def from_options(cls, **options: Any) -> Environment:
        """Build an environment from options, others at their defaults. Raise InputError if one is unknown or invalid.

        Options are the keys of `RADIO_OPTIONS` and `FAILURE_OPTIONS`, `body` (a name for `make_body`), and the body's
        fields, renamed by `BODY_OPTION_NAMES`.
        """
        radio, failures = (
            _build_part(part, {name: options.pop(name) for name in names if name in options}, names)
            for part, names in ((Radio, RADIO_OPTIONS), (Failures, FAILURE_OPTIONS))
        )
        body = options.pop("body", DEFAULT_BODY_NAME)
        names = {name: BODY_OPTION_NAMES.get(name, name) for name in options}
        return cls(radio, _build_part(lambda **numbers: make_body(body, **numbers), options, names), failures)

    @property
    def settings(self) -> dict[str, Any]:
        """Options that differ from the defaults, JSON-serializable, as `from_options` accepts them.

        Raises InputError if the body is not registered.
        """
        options: dict[str, Any] = {}
        for part, names in ((self.radio, RADIO_OPTIONS), (self.failures, FAILURE_OPTIONS)):
            changed = _list_changed_fields(part)
            options |= {name: changed[field] for name, field in names.items() if field in changed}
        if self.body == DEFAULT_BODY:
            return options
        body_fields = [f"{name}={value}" for name, value in _list_changed_fields(self.body).items()]
        return {**options, "body": ":".join([_find_body_name(self.body), *body_fields])}

    @property
    def file_suffix(self) -> str:
        """Suffix that identifies the environment in file names: its settings, or their hash if these are too long."""
        text = "-".join(f"{name}={value}" for name, value in self.settings.items()).replace(":", "-").replace("/", "_")
        return text if len(text) <= MAX_SUFFIX_LENGTH else hashlib.sha256(repr(self).encode()).hexdigest()[:12]

    @property
    def is_bundled(self) -> bool:
        """Whether the body comes with the package."""
        return type(self.body).__module__.startswith("equiflock.")

    @property
    def has_ideal_body(self) -> bool:
        """Whether the body executes every command at once and exactly, as the paper's does."""
        return bool(getattr(self.body, "is_ideal", False))

    def check_duration(self, duration: float) -> None:
        """Raise InputError if agents would fail at a set time after the end; random failures are not checked."""
        if self.failures.agents and self.failures.time > duration:
            raise InputError(f"fail_time must be at most the duration, {duration:g} s; got {self.failures.time:g}")

    def check_followers(self, followers: int) -> None:
        """Raise InputError if more agents would fail than a flock has followers."""
        if self.failures.agents > followers:
            raise InputError(f"fail must be at most the number of followers, {followers}; got {self.failures.agents}")

    def check_start(self, start: Flock) -> None:
        """Raise InputError if more agents would fail than one of these flocks has followers."""
        self.check_followers(int((start.roles == Role.FOLLOWER).sum(axis=1).min()))

    def __repr__(self) -> str:
        # Names of job results derive from this text: equal environments must have equal texts.
        parts = (f"{name}={_format_part(part)}" for name, part in _list_changed_fields(self).items())
        return f"Environment({', '.join(parts)})"


DEFAULT_ENVIRONMENT = Environment()


def map_body_options(body: Any) -> dict[str, str]:
    """Return option name -> field of a body, a dataclass or an instance of one."""
    names = {field: option for option, field in BODY_OPTION_NAMES.items()}
    return {names.get(each.name, each.name): each.name for each in fields(body) if each.init}


def apply_shorthands(environment: Environment | None, **shorthands: object) -> Environment:
    """Return the environment, by default the paper's, with the parts that the shorthands radio, body, failures set.

    A shorthand of None sets nothing. Raise InputError if a part is given both ways, or invalid.
    """
    environment = DEFAULT_ENVIRONMENT if environment is None else environment
    if not isinstance(environment, Environment):
        raise InputError(
            "environment must be an Environment, such as equiflock.Environment(radio=equiflock.Radio(delay=1)); "
            f"got {shorten_repr(environment)}"
        )
    given: dict[str, Any] = {name: part for name, part in shorthands.items() if part is not None}
    for name in given:
        if getattr(environment, name) != getattr(DEFAULT_ENVIRONMENT, name):
            raise InputError(f"{name} is given twice, in environment= and as {name}=: leave out one of them")
    return replace(environment, **given)


def _build_part(make: Any, options: Mapping[str, Any], names: Mapping[str, str]) -> Any:
    """Build a part from options, whose fields are `names`; an InputError names the option rather than the field."""
    try:
        return make(**{names[name]: value for name, value in options.items()})
    except InputError as error:
        field, _, rest = str(error).partition(" ")
        option = next((name for name in options if names[name] == field), field)
        raise InputError(f"{option} {rest}") from None


def _list_changed_fields(part: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults.

    Whole floats become int, so that equal parts have equal texts.
    """
    changed = {}
    for each in fields(part):
        value = getattr(part, each.name)
        default: Any = each.default if each.default_factory is MISSING else each.default_factory()
        if not np.array_equal(value, default):  # a user's body may have arrays
            changed[each.name] = int(value) if isinstance(value, float) and value.is_integer() else value
    return changed


def _format_part(part: Any) -> str:
    """Return a dataclass as text with the fields that differ from their defaults; of other objects their repr."""
    if not is_dataclass(part):
        return repr(part)
    texts = (f"{name}={value!r}" for name, value in _list_changed_fields(part).items())
    return f"{type(part).__name__}({', '.join(texts)})"


def _find_body_name(body: AnyBody) -> str:
    """Return the name of a body; raise InputError if its class is not registered."""
    for name in body_names():
        if body_class(name) is type(body):
            return name
    raise InputError(f"body must be a registered one, {', '.join(body_names())}; got {body!r}")


def describe_environment(environment: Environment) -> str:
    """Return a text such as "20% packet loss, 1 step of delay; 5 agents stop at 1 s", or "" for the default."""
    parts = (
        _describe_radio(environment.radio),
        _describe_body(environment.body),
        _describe_failures(environment.failures),
    )
    return "; ".join(", ".join(phrases) for phrases in parts if phrases)


def _describe_radio(radio: Radio) -> list[str]:
    """Return a phrase per setting of the radio that is not ideal."""
    longest = radio.delay + radio.jitter
    least = f"{radio.delay} to " if radio.jitter else ""
    phrases = {
        f"{100 * radio.packet_loss:g}% packet loss": radio.packet_loss > 0,
        f"in bursts of {radio.burst or 1:g} steps": radio.packet_loss > 0 and radio.burst is not None,
        f"{least}{_format_steps(longest)} of delay": longest > 0,
        f"noise of {radio.noise:g}": radio.noise > 0,
        f"{radio.quantization} bits per number": radio.quantization is not None,
        f"a message every {radio.send_interval} steps": radio.send_interval > 1,
        f"messages kept for {_format_steps(radio.last_known)}": radio.last_known > 0,
    }
    return [phrase for phrase, applies in phrases.items() if applies]


def _format_steps(number: int) -> str:
    """Return "1 step" or "2 steps" for a number of steps."""
    return f"{number} step{'' if number == 1 else 's'}"


def _describe_body(body: AnyBody) -> list[str]:
    """Return the name, unless it is that of the default body, and a phrase per changed field except the seed."""
    changed = _list_changed_fields(body)
    changed.pop("seed", None)
    phrases = [
        BODY_TEXTS[field].format(value) if field in BODY_TEXTS and value is not None else f"{field} {value}"
        for field, value in changed.items()
    ]
    name = _find_body_name(body)
    return phrases if name == DEFAULT_BODY_NAME else [name, *phrases]


def _describe_failures(failures: Failures) -> list[str]:
    """Return phrases for the failures at a set time and at a random rate; none for those that do not occur."""
    singular, plural = FAILURE_TEXTS[failures.kind]
    agents = f"1 agent {singular}" if failures.agents == 1 else f"{failures.agents} agents {plural}"
    phrases = {
        f"{agents} at {failures.time:g} s": failures.agents > 0,
        f"agents {plural} at a rate of {failures.rate:g} per second": failures.rate > 0,
    }
    return [phrase for phrase, applies in phrases.items() if applies]
