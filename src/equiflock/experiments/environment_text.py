"""The environment of a flight as text, for tables and titles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from equiflock.bodies import make_body
from equiflock.experiments.world import DEFAULT_BODY_NAME, World
from equiflock.senses.radio import Radio
from equiflock.simulation.failures import FailureKind, Failures

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
        _describe_body(body.partition(":")[0], world.body),
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
