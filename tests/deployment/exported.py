"""Exported files as agents: the header compiled, the NumPy file imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import equiflock as ef
from equiflock.controllers import load
from equiflock.controllers.gain_schedule import get_gain_schedule
from equiflock.controllers.safety_limits import get_safety_limits
from equiflock.deployment.exported_agents import COMPILER_FLAGS, CompiledAgent, compile_header, import_agent_class
from equiflock.observations.orbit import Orbit

_libraries: dict[tuple[Any, ...], bytes] = {}
"""Shared libraries by the name and the content of the header, and by how it was compiled."""


def compile_header_once(
    header: Path, library: Path, *, neighbours: int | None = None, flags: tuple[str, ...] = COMPILER_FLAGS
) -> Path:
    """Do as `compile_header` does; a header that was compiled before is not compiled again."""
    key = Path(header).name, Path(header).read_text(), neighbours, flags
    if key not in _libraries:
        _libraries[key] = compile_header(header, library, neighbours=neighbours, flags=flags).read_bytes()
    library.write_bytes(_libraries[key])
    return library


Maker = Callable[[int, int], Any]
"""Makes an agent from its number and group."""


def compiled(
    controller: Any,
    folder: Path,
    dimensions: int | None = None,
    orbit: Orbit | None = None,
    flags: tuple[str, ...] = COMPILER_FLAGS,
    time_step: float = 0.01,
    delay: float = 0.0,
    messages: Mapping[str, Any] | None = None,
    **options: Any,
) -> Maker:
    """Export the controller as C and compile it; agents sample with this time step, and know the usual delay.

    `messages` are options of `export`, `options` those of `compile_header_once`.
    """
    header = folder / "agent.h"
    ef.export(controller, header, dimensions=dimensions, orbit=orbit, **(messages or {}))
    # A unique name: a library is not opened again under a name that was opened before.
    library = compile_header_once(header, folder / f"agent-{len([*folder.iterdir()])}.so", flags=flags, **options)
    return lambda number, group: CompiledAgent(library, number, group, **period_of(controller, time_step, delay))


def imported(
    controller: Any,
    folder: Path,
    dimensions: int | None = None,
    orbit: Orbit | None = None,
    time_step: float = 0.01,
    delay: float = 0.0,
    messages: Mapping[str, Any] | None = None,
) -> Maker:
    """Export the controller as NumPy and import the file; agents sample with this time step, and know the delay."""
    ef.export(controller, folder / "agent.npz", dimensions=dimensions, orbit=orbit, **(messages or {}))
    return partial(import_agent_class(folder / "agent.py"), **period_of(controller, time_step, delay))


def period_of(controller: Any, time_step: float, delay: float = 0.0) -> dict[str, float]:
    """Return the arguments of an agent about time: `period` with a gain schedule or limits, `delay` with both."""
    loaded = load(controller) if isinstance(controller, str) else controller
    has_schedule, has_limits = get_gain_schedule(loaded) is not None, get_safety_limits(loaded) is not None
    if has_schedule and has_limits:
        return {"period": time_step, "delay": delay}
    return {"period": time_step + delay} if has_schedule else {"period": time_step} if has_limits else {}
