"""Flights that a report shows, saved in its run directory, so that a second report simulates nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from equiflock._runtime.checks import InputError
from equiflock._runtime.files import remove_path
from equiflock.simulation.trajectory import Trajectory

KEY = "report"
"""Config entry of a saved flight: a checksum of all that it depends on."""


def load_or_fly(
    path: Path,
    key: str,
    fly: Callable[[], Trajectory],
    on_flight: Callable[[], object] = lambda: None,
    on_notice: Callable[[str], object] = lambda text: None,
) -> Trajectory:
    """Return the flight that is saved at `path` with this key; else simulate it by `fly`, and save it there.

    `on_flight` is called before a simulation, and `on_notice` with a line of text about a damaged flight or one with
    another key, which is replaced.
    """
    if path.exists():
        try:
            saved = Trajectory.load(path)
            if saved.config.get(KEY) == key:
                return saved
            reason = f"{path} is another flight, or that of another run"
        except InputError as error:
            reason = str(error)
        on_notice(f"{reason}; it is simulated again")
        remove_path(path)
    on_flight()
    run = fly()
    run = replace(run, config={**run.config, KEY: key})
    run.save(path)
    return run
