"""Export of one agent's controller as C, NumPy or ONNX: `export` writes the files and a README."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from equiflock._runtime.checks import InputError
from equiflock._runtime.files import atomic_write
from equiflock.controllers.loading import load, read_own_radius
from equiflock.controllers.safe import apply_limits
from equiflock.controllers.safety_limits import SafetyLimits, get_safety_limits
from equiflock.deployment.export.c_header import format_c_header
from equiflock.deployment.export.message_choice import DEFAULT_MAX_PACKETS, MessageOptions, choose_messages
from equiflock.deployment.export.numpy_agent import format_numpy_agent, pack_weights
from equiflock.deployment.export.onnx import write_onnx
from equiflock.deployment.export.program import (
    Program,
    check_local,
    get_controller_name,
    read_program,
    read_sampling,
    resolve_dimensions,
    resolve_orbit,
    unwrap_scaled,
)
from equiflock.deployment.export.readme import format_readme
from equiflock.deployment.export.source_text import make_identifier
from equiflock.observations.orbit import Orbit
from equiflock.protocols import Controller

SUFFIXES = (".h", ".onnx", ".npz", ".py")


def export(
    controller: Controller | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    dimensions: int | None = None,
    orbit: Orbit | None = None,
    safety: SafetyLimits | None = None,
    message_bytes: int | None = None,
    packets: int = DEFAULT_MAX_PACKETS,
    relayed_hops: int | None = None,
    own_frames: bool = False,
    report: Callable[[str], object] | None = None,
) -> tuple[Path, ...]:
    """Write one agent's controller for a robot and return the paths of the written files.

    Args:
        controller: a local controller, its name, or its weights file: a network, or a law that is a linear function of
            observations. It keeps the units it was loaded with, such as
            `load("etdagnn", comm_radius=5.0, time_scale=15.0)`. The agents of a `Safe` controller keep its limits.
        path: .h writes a C99 header, .onnx a graph of the controller only, .npz or .py a Python file that needs NumPy,
            with its weights. Each comes with a .README.md of the same name, which names the controller as given here.
            Existing files are replaced.
        dimensions: D, 2 or 3, for a controller that is not built for one; 2 if None.
        orbit: orbit technique (obstacle avoidance); the controller's own if None.
        safety: limits that the agents keep; those of the controller, if any, if None.
        message_bytes: most bytes that the robots' radio carries in a packet; messages in float32 of any size if None.
            Larger messages have 16-bit numbers, and are split into packets (`equiflock.deployment.wire_format`), for R
            of the controller's name, or else its unit of length.
        packets: most packets of a message.
        relayed_hops: number of hops that agents relay. If None, all K - 1, or as many as fit if not all do.
        own_frames: agents have no common frame, but measure the rotation and position of their neighbours.
        report: called with a table of the message formats considered, if `message_bytes` is given.
    """
    options, path = MessageOptions(message_bytes, packets, relayed_hops, own_frames), Path(path)
    if path.suffix not in SUFFIXES:
        expected = ", ".join(SUFFIXES)
        raise InputError(f"path must end in one of {expected}, got {path.name!r}")
    make_identifier(path.stem)  # fail before anything is written
    if path.suffix == ".onnx" and options != MessageOptions():
        raise InputError("a graph (.onnx) has no messages: export .h or .npz, or leave out all options of messages")
    loaded = apply_limits(load(controller) if isinstance(controller, (str, os.PathLike)) else controller, safety)
    check_local(loaded)
    D = resolve_dimensions(loaded, dimensions)
    orbit = resolve_orbit(loaded, orbit, D)
    given_name = os.fspath(controller) if isinstance(controller, (str, os.PathLike)) else get_controller_name(loaded)
    suffix = ".py" if path.suffix == ".npz" else path.suffix
    if suffix == ".onnx" and get_safety_limits(loaded) is not None:
        raise InputError(
            "limits need the robot's state, which is no input of an ONNX graph: export to .h or .py, or without limits"
        )
    if suffix == ".onnx":
        write_onnx(loaded, path, D)
        program, written, table = replace(_read_outline(loaded, D, orbit), name=given_name), [path], ""
    else:
        program = replace(read_program(loaded, D, orbit), name=given_name)
        comm_radius = find_comm_radius(controller, program)
        if program.safety is not None:
            program.safety.check_radius(comm_radius)
        program, table = choose_messages(program, comm_radius, options)
        if table and report is not None:
            report(table)
        if suffix == ".h":
            written = [_write_text(path, format_c_header(program, path.stem))]
        else:
            content = pack_weights(program)
            text = format_numpy_agent(program, path.stem, content)
            written = [_write_text(path.with_suffix(suffix), text), path.with_suffix(".npz")]
            with atomic_write(written[-1]) as scratch:
                scratch.write_bytes(content)
    return *written, _write_text(path.with_suffix(".README.md"), format_readme(program, path.stem, suffix, table))


def find_comm_radius(controller: Any, program: Program) -> float:
    """Return R in the robots' units, by the controller's name, or else the controller's unit of length."""
    named = isinstance(controller, (str, os.PathLike))
    return (read_own_radius(os.fspath(controller)) if named else None) or program.senses.length_scale


def _read_outline(controller: Controller, D: int, orbit: Orbit | None) -> Program:
    """Return the program of a controller or, if it has custom layers, a program without layers, for the README."""
    try:
        return read_program(controller, D, orbit)
    except InputError:
        name, scale = get_controller_name(controller), unwrap_scaled(controller)[1]
        sampling = read_sampling(controller)
        return Program(name, D, controller.senses, False, "none", (), **sampling, acceleration_scale=scale, orbit=orbit)


def _write_text(path: Path, text: str) -> Path:
    """Write a text file atomically. Return its path."""
    with atomic_write(path) as scratch:
        scratch.write_text(text)
    return path
