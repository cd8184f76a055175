"""Exported files as agents: the header compiled, the NumPy file imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equiflock as ef
from equiflock.deployment.exported_agents import COMPILER_FLAGS, CompiledAgent, compile_header, import_agent_class
from equiflock.observations.orbit import Orbit

Maker = Callable[[int, int], Any]
"""Makes an agent from its number and group."""


def compiled(
    controller: Any,
    folder: Path,
    dimensions: int | None = None,
    orbit: Orbit | None = None,
    flags: tuple[str, ...] = COMPILER_FLAGS,
    **options: Any,
) -> Maker:
    """Export the controller as C and compile it."""
    header = folder / "agent.h"
    ef.export(controller, header, dimensions=dimensions, orbit=orbit)
    # A unique name: a library is not opened again under a name that was opened before.
    library = compile_header(header, folder / f"agent-{len([*folder.iterdir()])}.so", flags=flags, **options)
    return lambda number, group: CompiledAgent(library, number, group)


def imported(controller: Any, folder: Path, dimensions: int | None = None, orbit: Orbit | None = None) -> Maker:
    """Export the controller as NumPy and import the file."""
    ef.export(controller, folder / "agent.npz", dimensions=dimensions, orbit=orbit)
    return import_agent_class(folder / "agent.py")
