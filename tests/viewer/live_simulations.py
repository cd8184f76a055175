"""Small live flights for tests."""

from __future__ import annotations

import equiflock as ef
from equiflock.viewer.live_simulation import LiveSimulation
from equiflock.viewer.setting import Setting


def live_simulation(**setting: object) -> LiveSimulation:
    """Return a live simulation, by default of 30 agents under the expert."""
    chosen = Setting(**{"agents": 30, "controller": "tanner", **setting})
    return LiveSimulation(chosen, lambda name, options: ef.load(name, **options))


def fly(live: LiveSimulation, steps: int) -> None:
    """Advance exactly `steps` steps, in several calls if the machine is slow."""
    target = live.step + steps
    while live.step < target:
        live.advance(target - live.step)
