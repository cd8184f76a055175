"""Exported files as agents: the header compiled, the NumPy file imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equiflock as ef
from equiflock.deployment.agent import import_agent_class
from equiflock.deployment.compiled_agent import COMPILER_FLAGS, CompiledAgent, compile_header
from equiflock.orbit_technique import Orbit

Maker = Callable[[int, int], Any]
"""Makes an agent of its number and group."""


def compiled(
    controller: Any,
    folder: Path,
    dimensions: int | None = None,
    orbit: Orbit | None = None,
    flags: tuple[str, ...] = COMPILER_FLAGS,
    **options: Any,
) -> Maker:
    """The controller exported as C and compiled."""
    header = folder / "agent.h"
    ef.export(controller, header, dimensions=dimensions, orbit=orbit)
    # A name of its own, as a library of a name that was opened before is not opened again.
    library = compile_header(header, folder / f"agent-{len([*folder.iterdir()])}.so", flags=flags, **options)
    return lambda number, group: CompiledAgent(library, number, group)


def imported(controller: Any, folder: Path, dimensions: int | None = None, orbit: Orbit | None = None) -> Maker:
    """The controller exported as NumPy, and the file imported."""
    ef.export(controller, folder / "agent.npz", dimensions=dimensions, orbit=orbit)
    return import_agent_class(folder / "agent.py")
