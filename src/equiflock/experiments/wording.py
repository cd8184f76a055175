"""A world in words, for tables and titles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from equiflock.bodies import make_body
from equiflock.experiments.world import USUAL_BODY, World
from equiflock.senses.radio import Radio
from equiflock.simulation.failures import FailureKind, Failures

BODY: Mapping[str, str] = {
    "max_acceleration": "at most {:g} of acceleration",
    "max_speed": "at most {:g} of speed",
    "max_turn_rate": "at most {:g} rad/s of turning",
    "drag": "drag of {:g} per second",
    "lag": "{:g} s of lag",
    "gust": "gusts of {:g}",
}
"""The options of bodies in words; any other is told by its name."""
FAILED: Mapping[FailureKind, tuple[str, str]] = {
    "stopped": ("stops", "stop"),
    "silent": ("falls silent", "fall silent"),
    "drifting": ("drifts on deaf", "drift on deaf"),
}
"""What one failed agent does, and what several do."""


def in_words(world: World) -> str:
    """Such as "20% loss, 1 step of delay; at most 5 of acceleration; 5 agents stop at 1 s"; empty if all is usual."""
    body: str = world.settings.get("body", USUAL_BODY)
    parts = _radio_words(world.radio), _body_words(body.partition(":")[0], world.body), _failure_words(world.failures)
    return "; ".join(", ".join(words) for words in parts if words)


def _radio_words(radio: Radio) -> list[str]:
    longest = radio.delay + radio.jitter
    least = f"{radio.delay} to " if radio.jitter else ""
    told = {
        f"{100 * radio.loss:g}% loss": radio.loss > 0,
        f"in runs of {radio.burst or 1:g} steps": radio.loss > 0 and radio.burst is not None,
        f"{least}{_steps(longest)} of delay": longest > 0,
        f"noise of {radio.noise:g}": radio.noise > 0,
        f"{radio.quantization} bits per number": radio.quantization is not None,
        f"a message every {radio.every} steps": radio.every > 1,
        f"messages kept for {_steps(radio.last_known)}": radio.last_known > 0,
    }
    return [words for words, holds in told.items() if holds]


def _steps(number: int) -> str:
    return f"{number} step{'' if number == 1 else 's'}"


def _body_words(name: str, body: Any) -> list[str]:
    usual = make_body(name)
    values = {each.name: getattr(body, each.name) for each in fields(body)} if is_dataclass(body) else {}
    told = [
        BODY[option].format(value) if option in BODY and value is not None else f"{option} {value}"
        for option, value in values.items()
        if value != getattr(usual, option) and option != "seed"
    ]
    return told if name == USUAL_BODY else [name, *told]


def _failure_words(failures: Failures) -> list[str]:
    one, several = FAILED[failures.kind]
    who = f"1 agent {one}" if failures.agents == 1 else f"{failures.agents} agents {several}"
    told = {
        f"{who} at {failures.time:g} s": failures.agents > 0,
        f"agents {several} at a rate of {failures.rate:g} per second": failures.rate > 0,
    }
    return [words for words, holds in told.items() if holds]
