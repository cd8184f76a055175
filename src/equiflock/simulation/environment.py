"""Environment of a flight: the radio, the body that executes commanded accelerations, and failures of agents."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, cast

from equiflock._runtime.checks import InputError
from equiflock._runtime.specs import parse_spec
from equiflock.bodies import DoubleIntegrator, body_names, make_body
from equiflock.flock import Flock, Role
from equiflock.observations.radio import IDEAL_RADIO, Radio
from equiflock.protocols import AnyBody
from equiflock.simulation.failures import FailureKind, Failures

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
NO_FAILURES = Failures()
MAX_SUFFIX_LENGTH = 80
"""Longest environment suffix of a file name, in characters; longer ones are hashed."""


@dataclass(frozen=True, repr=False)
class World:
    """Radio, body and failures of a flight. The defaults are the paper's: ideal radio and body, no failures."""

    radio: Radio = IDEAL_RADIO
    body: AnyBody = DEFAULT_BODY
    failures: Failures = NO_FAILURES

    @property
    def flight_options(self) -> dict[str, Any]:
        """Keyword arguments of `flight` and `simulate`; None for a part without effect."""
        return {
            "radio": None if self.radio.is_ideal else self.radio,
            "body": self.body,
            "failures": None if self.failures.is_empty else self.failures,
        }

    @property
    def settings(self) -> dict[str, Any]:
        """Options that differ from the defaults, JSON-serializable, as `make_world` accepts them."""
        options = {
            name: _to_int_if_whole(getattr(part, field))
            for part, default, names in (
                (self.radio, IDEAL_RADIO, RADIO_OPTIONS),
                (self.failures, NO_FAILURES, FAILURE_OPTIONS),
            )
            for name, field in names.items()
            if getattr(part, field) != getattr(default, field)
        }
        return options if self.body == DEFAULT_BODY else {**options, "body": _format_body(self.body)}

    @property
    def file_suffix(self) -> str:
        """Suffix that identifies the environment in file names: its settings, or their hash if these are too long."""
        text = "-".join(f"{name}={value}" for name, value in self.settings.items()).replace(":", "-").replace("/", "_")
        return text if len(text) <= MAX_SUFFIX_LENGTH else hashlib.sha256(repr(self).encode()).hexdigest()[:12]

    @property
    def is_bundled(self) -> bool:
        """Whether the body comes with the package."""
        return type(self.body).__module__.startswith("equiflock.")

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
        return f"World({', '.join(f'{name}={value!r}' for name, value in self.settings.items())})"


DEFAULT_WORLD = World()


def make_world(**options: Any) -> World:
    """Build an environment from options, others at their defaults. Raise InputError if one is unknown or invalid.

    Options are the keys of `RADIO_OPTIONS` and `FAILURE_OPTIONS`, `body` (a name for `make_body`), and the body's
    fields, renamed by `BODY_OPTION_NAMES`.
    """
    radio = _build_part(Radio, {name: options.pop(name) for name in RADIO_OPTIONS if name in options}, RADIO_OPTIONS)
    failures = _build_part(
        Failures, {name: options.pop(name) for name in FAILURE_OPTIONS if name in options}, FAILURE_OPTIONS
    )
    body = options.pop("body", DEFAULT_BODY_NAME)
    names = {name: BODY_OPTION_NAMES.get(name, name) for name in options}
    return World(radio, _build_part(lambda **numbers: make_body(body, **numbers), options, names), failures)


def _build_part(make: Any, options: Mapping[str, Any], names: Mapping[str, str]) -> Any:
    """Build a part from options; `names` maps each option to a field.

    InputError names the option rather than the field.
    """
    try:
        return make(**{names[name]: value for name, value in options.items()})
    except InputError as error:
        text = str(error)
        for name, field in names.items():
            if name in options and text.startswith(f"{field} "):
                text = name + text.removeprefix(field)
                break
        raise InputError(text) from None


def _format_body(body: AnyBody) -> str:
    """Return a body as text NAME:OPTION=VALUE.., with the options that differ from the defaults.

    Raise InputError if its class is not registered.
    """
    names = [name for name in body_names() if type(make_body(name)) is type(body)]
    if not names:
        raise InputError(f"body must be a registered one, {', '.join(body_names())}; got {body!r}")
    default = make_body(names[0])
    parts = [names[0]]
    for each in fields(cast(Any, body)):
        value = getattr(body, each.name)
        if value != getattr(default, each.name):
            parts.append(f"{each.name}={_to_int_if_whole(value)}")
    return ":".join(parts)


def _to_int_if_whole(value: Any) -> Any:
    """Return 2 for 2.0, so that equal environments have equal texts."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# The environment of a flight as text, for tables and titles.

BODY_TEXTS: Mapping[str, str] = {
    "max_acceleration": "at most {:g} of acceleration",
    "max_speed": "at most {:g} of speed",
    "max_turn_rate": "at most {:g} rad/s of turning",
    "drag": "drag of {:g} per second",
    "lag": "{:g} s of lag",
    "gust": "gusts of {:g}",
}
"""Text of each body option; other options appear by name."""
FAILURE_TEXTS: Mapping[FailureKind, tuple[str, str]] = {
    "stopped": ("stops", "stop"),
    "silent": ("falls silent", "fall silent"),
    "drifting": ("drifts uncontrolled", "drift uncontrolled"),
}
"""Verb of each failure kind, singular and plural."""


def describe_environment(world: World) -> str:
    """Return a text such as "20% packet loss, 1 step of delay; 5 agents stop at 1 s", or "" for the default."""
    body: str = world.settings.get("body", DEFAULT_BODY_NAME)
    parts = (
        _describe_radio(world.radio),
        _describe_body(parse_spec(body).name, world.body),
        _describe_failures(world.failures),
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


def _describe_body(name: str, body: Any) -> list[str]:
    """Return a phrase per field that differs from the default of this body, without the seed.

    The name comes first unless it is that of the default body.
    """
    default = make_body(name)
    values = {each.name: getattr(body, each.name) for each in fields(body)} if is_dataclass(body) else {}
    phrases = [
        BODY_TEXTS[option].format(value) if option in BODY_TEXTS and value is not None else f"{option} {value}"
        for option, value in values.items()
        if value != getattr(default, option) and option != "seed"
    ]
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
