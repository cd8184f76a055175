"""A training that takes a second."""

from __future__ import annotations

from typing import Any

import equiflock as ef

SMALL: dict[str, Any] = {
    "agents": 20,
    "flocks": 5,
    "duration": 0.2,
    "updates": 10,
    "capacity": 100,
    "validation_flocks": 3,
}


def small(**options: Any) -> ef.DAgger:
    return ef.DAgger(**{**SMALL, "epochs": 6, "validate_every": 4, "checkpoint_every": 2, **options})
