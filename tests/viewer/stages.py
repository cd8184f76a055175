"""Small live flights for tests."""

from __future__ import annotations

import equiflock as ef
from equiflock.viewer.live_simulation import LiveSimulation
from equiflock.viewer.setting import Setting


def live_simulation(**setting: object) -> LiveSimulation:
    """Thirty agents under the expert, unless told otherwise."""
    chosen = Setting(**{"agents": 30, "controller": "tanner", **setting})
    return LiveSimulation(chosen, lambda name, options: ef.load(name, **options))


def fly(live: LiveSimulation, steps: int) -> None:
    """Exactly so many steps, though the machine may be slow."""
    target = live.step + steps
    while live.step < target:
        live.advance(target - live.step)
