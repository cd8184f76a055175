"""Small live flights for tests."""

from __future__ import annotations

import equiflock as ef
from equiflock.viewer.setting import Setting
from equiflock.viewer.stage import Stage


def stage(**setting: object) -> Stage:
    """Thirty agents under the expert, unless told otherwise."""
    chosen = Setting(**{"agents": 30, "controller": "tanner", **setting})
    return Stage(chosen, lambda name, options: ef.load(name, **options))


def fly(live: Stage, steps: int) -> None:
    """Exactly so many steps, though the machine may be slow."""
    target = live.step + steps
    while live.step < target:
        live.advance(target - live.step)
