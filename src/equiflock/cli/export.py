"""`equiflock export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from equiflock._runtime.files import check_writable
from equiflock.cli.plugins import import_plugin
from equiflock.cli.shared_options import SafetyArgument, parse_safety
from equiflock.cli.terminal import out
from equiflock.controllers import load
from equiflock.observations.orbit import Orbit


@dataclass(frozen=True)
class Export:
    """Export one agent's controller for a robot, as C, NumPy or ONNX.

    A README beside the file describes its interface: inputs, outputs, and the messages to send.
    """

    controller: Annotated[str, tyro.conf.Positional]
    """A decentralized controller, as for `equiflock simulate`, such as etdagnn, reynolds, or a weights file."""
    out: Path
    """File to write: .h for a C99 header, .npz or .py for NumPy, .onnx for ONNX; a .README.md is written beside it."""
    dimensions: Literal[2, 3] | None = None
    """Dimensions of space, D; by default those that the controller is built for, or else 2."""
    orbit: bool = False
    """Avoid obstacles by the paper's orbit technique; always on for weights that have their own orbit parameters."""
    safety: SafetyArgument = None
    message_bytes: int | None = None
    """Most bytes of a packet of the robots' radio, such as 60: larger messages become 16-bit numbers in packets."""
    packets: int = 4
    """Most packets of a message, with --message-bytes."""
    relayed_hops: int | None = None
    """Number of hops that agents relay, with --message-bytes; by default all, or as many as fit if not all do."""
    own_frames: bool = False
    """Agents have no common frame: they measure the rotation and position of their neighbours."""
    plugin: str | None = None
    """Python module or file to import first, which may register your own controllers."""

    def run(self) -> None:
        """Write the files and print their paths and sizes."""
        from equiflock.deployment.export import export

        import_plugin(self.plugin)
        check_writable(self.out)
        orbit = None
        if self.orbit:
            own_orbit = getattr(load(self.controller), "orbit", None)
            orbit = own_orbit if isinstance(own_orbit, Orbit) else Orbit()
        written = export(
            self.controller,
            self.out,
            dimensions=self.dimensions,
            orbit=orbit,
            safety=parse_safety(self.safety),
            message_bytes=self.message_bytes,
            packets=self.packets,
            relayed_hops=self.relayed_hops,
            own_frames=self.own_frames,
            report=lambda table: out.print(table, highlight=False, markup=False, soft_wrap=True),
        )
        for path in written:
            out.print(f"written: {path} ({path.stat().st_size:,} bytes)", highlight=False, soft_wrap=True)
