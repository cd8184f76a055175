"""`equiflock export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from equiflock.cli.console import out
from equiflock.cli.plugins import import_plugin
from equiflock.controllers import load
from equiflock.orbit_technique import Orbit
from equiflock.runtime.files import check_writable


@dataclass(frozen=True)
class Export:
    """Write one agent's controller for a robot: as C, as NumPy or as ONNX, with a text that says what it sends."""

    controller: Annotated[str, tyro.conf.Positional]
    """A network such as etdagnn, a law that agents can run by themselves such as tanner-dynamic or reynolds, or a file
    of weights (.safetensors). Options follow the name; etdagnn:comm_radius=5:time_scale=15 is in the units of a robot
    whose radio reaches 5 m and that is 15 times as slow."""
    out: Path
    """The file to write: .h for a C99 header, .npz or .py for NumPy, .onnx for ONNX. A text, .README.md, is written
    beside it."""
    dimensions: Literal[2, 3] | None = None
    """Dimensions of space; those that the controller is built for, or 2, if left out."""
    orbit: bool = False
    """Avoid obstacles by the technique of the paper, with its numbers. A controller that brings numbers of its own
    along avoids them by these in any case."""
    plugin: str | None = None
    """A Python module or file to import first, such as one that registers your own controller."""

    def run(self) -> None:
        """Print the names of the files that were written."""
        from equiflock.deployment.export import export

        import_plugin(self.plugin)
        check_writable(self.out)
        controller = load(self.controller)
        own = getattr(controller, "orbit", None)
        orbit = (own if isinstance(own, Orbit) else Orbit()) if self.orbit else None
        for path in export(controller, self.out, dimensions=self.dimensions, orbit=orbit):
            out.print(f"written: {path} ({path.stat().st_size:,} bytes)", highlight=False, soft_wrap=True)
