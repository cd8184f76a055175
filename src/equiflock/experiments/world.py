"""The world that flocks fly in: how messages travel, what a commanded acceleration does, and who fails."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from equiflock.bodies import DoubleIntegrator, body_names, make_body
from equiflock.flock import Flock, Role
from equiflock.protocols import AnyBody
from equiflock.runtime.checks import InputError
from equiflock.senses.radio import IDEAL_RADIO, Radio
from equiflock.simulation.failures import Failures

RADIO_OPTIONS: Mapping[str, str] = {
    "radio_seed" if each.name == "seed" else each.name: each.name for each in fields(Radio)
}
"""The fields of `Radio` by their names as options of a world."""
FAILURE_OPTIONS: Mapping[str, str] = {
    "fail": "agents",
    **{f"fail_{name}": name for name in ("kind", "time", "rate", "seed")},
}
"""The fields of `Failures` by their names as options of a world."""
BODY_OPTION_NAMES: Mapping[str, str] = {"top_speed": "max_speed", "body_seed": "seed"}
"""The fields of bodies that have another name as options of a world, as scenarios have options of those names."""
DEFAULT_BODY_NAME = "double-integrator"
DEFAULT_BODY = DoubleIntegrator()
NO_FAILURES = Failures()
MAX_SUFFIX_LENGTH = 80
"""So many characters the name of a file has for a world."""


@dataclass(frozen=True, repr=False)
class World:
    """Radio, body and failures of a flight. By default those of the paper: perfect, and nobody fails."""

    radio: Radio = IDEAL_RADIO
    body: AnyBody = DEFAULT_BODY
    failures: Failures = NO_FAILURES

    @property
    def flight_options(self) -> dict[str, Any]:
        """The arguments of `flight` and `simulate` that it decides; None where a part does nothing."""
        return {
            "radio": None if self.radio.is_ideal else self.radio,
            "body": self.body,
            "failures": None if self.failures.is_empty else self.failures,
        }

    @property
    def settings(self) -> dict[str, Any]:
        """The options that are not the usual ones, as JSON can hold them and `make_world` takes them."""
        found = {
            name: _to_int_if_whole(getattr(part, field))
            for part, usual, names in (
                (self.radio, IDEAL_RADIO, RADIO_OPTIONS),
                (self.failures, NO_FAILURES, FAILURE_OPTIONS),
            )
            for name, field in names.items()
            if getattr(part, field) != getattr(usual, field)
        }
        return found if self.body == DEFAULT_BODY else {**found, "body": _format_body(self.body)}

    @property
    def file_suffix(self) -> str:
        """What tells it from others in the names of files: its settings, or their hash if they are many; or nothing."""
        text = "-".join(f"{name}={value}" for name, value in self.settings.items()).replace(":", "-").replace("/", "_")
        return text if len(text) <= MAX_SUFFIX_LENGTH else hashlib.sha256(repr(self).encode()).hexdigest()[:12]

    @property
    def is_bundled(self) -> bool:
        """Whether its body comes with the package."""
        return type(self.body).__module__.startswith("equiflock.")

    def check_duration(self, duration: float) -> None:
        """Raise a clear error if agents were to fail after the end of a flight."""
        if self.failures.agents and self.failures.time > duration:
            raise InputError(f"fail_time must be at most the duration, {duration:g} s; got {self.failures.time:g}")

    def check_followers(self, followers: int) -> None:
        """Raise a clear error if more agents were to fail than there are followers in a flock."""
        if self.failures.agents > followers:
            raise InputError(f"fail must be at most the number of followers, {followers}; got {self.failures.agents}")

    def check_start(self, start: Flock) -> None:
        """Raise a clear error if this world is none for these flocks."""
        self.check_followers(int((start.roles == Role.FOLLOWER).sum(axis=1).min()))

    def __repr__(self) -> str:
        # Jobs keep their results by this text: the same world has the same text, however it was given.
        return f"World({', '.join(f'{name}={value!r}' for name, value in self.settings.items())})"


DEFAULT_WORLD = World()


def make_world(**options: Any) -> World:
    """The world with these options: those in `RADIO_OPTIONS` and `FAILURE_OPTIONS`, `body`, a name as for `make_body`, and the body's.

    Those of the body that are in `BODY_OPTION_NAMES` have their new names.
    """
    radio = _build_part(Radio, {name: options.pop(name) for name in RADIO_OPTIONS if name in options}, RADIO_OPTIONS)
    failures = _build_part(
        Failures, {name: options.pop(name) for name in FAILURE_OPTIONS if name in options}, FAILURE_OPTIONS
    )
    body = options.pop("body", DEFAULT_BODY_NAME)
    names = {name: BODY_OPTION_NAMES.get(name, name) for name in options}
    return World(radio, _build_part(lambda **numbers: make_body(body, **numbers), options, names), failures)


def _build_part(make: Any, options: Mapping[str, Any], names: Mapping[str, str]) -> Any:
    """A part made with these options; errors call them by their names as options."""
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
    """A body as one word: its name, and its options that are not the usual ones."""
    names = [name for name in body_names() if type(make_body(name)) is type(body)]
    if not names:
        raise InputError(f"body must be one of those that have a name, {', '.join(body_names())}; got {body!r}")
    usual = make_body(names[0])
    told = [names[0]]
    for each in fields(cast(Any, body)):
        value = getattr(body, each.name)
        if value != getattr(usual, each.name):
            told.append(f"{each.name}={_to_int_if_whole(value)}")
    return ":".join(told)


def _to_int_if_whole(value: Any) -> Any:
    """2 for 2.0, as both are the same world."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
