"""Agents that fail in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from equiflock.runtime.checks import InputError, check_choice, check_count, is_finite, short

FailureKind: TypeAlias = Literal["silent", "stopped", "drifting"]


@dataclass(frozen=True)
class Failures:
    """Followers that fail, for good: so many at a time, or any at a rate. By default none."""

    kind: FailureKind = "stopped"
    """What a failed agent does: "silent" sends nothing and flies on as before; "stopped" sends nothing and stands
    still, an obstacle that nobody announced; "drifting" hears nobody and keeps its velocity, and still sends."""
    agents: int = 0
    """How many followers of each flock fail at `time`."""
    time: float = 0.0
    """When they fail, in seconds."""
    rate: float = 0.0
    """Besides, each follower fails with this probability per second, at any time."""
    seed: int = 0
    """Seeds who fails, and when."""

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(FailureKind))
        check_count("agents", self.agents, least=0)
        check_count("seed", self.seed, least=0)
        for name in ("time", "rate"):
            if not (is_finite(getattr(self, name)) and getattr(self, name) >= 0.0):
                raise InputError(f"{name} must be a finite number of at least 0; got {short(getattr(self, name))}")

    @property
    def are_none(self) -> bool:
        """Whether nobody ever fails."""
        return self.agents == 0 and self.rate == 0.0
