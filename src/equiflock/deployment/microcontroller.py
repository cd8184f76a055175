"""Exported headers on a Cortex-M4F, such as the STM32F405 of a Crazyflie, emulated by QEMU.

A small firmware replays the recording of one agent and prints its accelerations. Memory figures come from the compiler.
The emulator counts instructions, not cycles: a Cortex-M4F takes one cycle for most of them, and 14 for a division or a
square root.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock.bodies import DoubleIntegrator
from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.deployment.export import export
from equiflock.deployment.export.c_header import format_floats
from equiflock.deployment.export.program import read_program
from equiflock.deployment.export.source_text import fill_template
from equiflock.deployment.wire_format import OBSTACLE_GROUP, Message, encode_message, make_zero_hops
from equiflock.flock import FOLLOWER, OBSTACLE, Flock
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.observations.orbit import Orbit
from equiflock.protocols import BodyStep

# Recordings of one agent in a simulated flight: its states, received messages, observations and accelerations.
#
# Exported controllers are tested against recordings: the same states and bytes must give the same accelerations.


@dataclass(frozen=True, eq=False)
class Recording:
    """T steps of one agent.

    Attributes:
        number: number of the agent.
        group: group of the agent.
        positions: (T, D) float32.
        velocities: (T, D) float32.
        messages: received messages of every step.
        observations: (T, K, C, D) float32, computed by the package.
        accelerations: (T, D), computed by the package.
        magnitudes: (T, D), scale of errors: see `Program.compute_magnitude`.
    """

    number: int
    group: int
    positions: NDArray[np.float32]
    velocities: NDArray[np.float32]
    messages: tuple[tuple[bytes, ...], ...]
    observations: NDArray[np.float32]
    accelerations: NDArray[np.float64]
    magnitudes: NDArray[np.float64]

    def compute_largest_error(self, accelerations: Any) -> float:
        """Return the largest error of other accelerations (T, D) in any component, relative to `magnitudes`."""
        return float((np.abs(np.asarray(accelerations, np.float64) - self.accelerations) / self.magnitudes).max())


def round_to_float32(flock: Flock) -> Flock:
    """Return the flock with its state rounded to float32, but still float64: messages represent it exactly."""
    positions, velocities = (array.astype(np.float32).astype(np.float64) for array in flock.arrays[:2])
    return Flock(positions, velocities, *flock.arrays[2:], comm_radius=flock.comm_radius)


def record_agent(
    controller: Any, start: Flock, agent: int, steps: int, *, orbit: Orbit | None = None, time_step: float = 0.01
) -> Recording:
    """Simulate the first flock of `start` with an ideal radio for `steps` steps and record one of its followers.

    The body is a double integrator; states are rounded to float32. Raise InputError if `agent` is not a follower.
    """
    flock = round_to_float32(start[0])
    roles, groups = flock.roles[0], flock.groups[0]
    if roles[agent] != FOLLOWER:
        raise InputError(f"agent must be a follower, which receives messages; agent {agent} is not one")
    sensing, decide = DelayedAggregation(controller.senses, orbit=orbit), as_numpy_function(controller)
    program, K = read_program(controller, flock.shape[2], orbit), controller.senses.hops
    relayed = np.stack([make_zero_hops(controller.senses, flock.shape[2])] * len(roles))
    rows: list[tuple[Any, ...]] = []
    for step in range(steps):
        observations = sensing.observe(flock)[0].copy()
        accelerations = np.asarray(decide(observations[None]), np.float64)
        positions, velocities = (array[0].astype(np.float32) for array in flock.arrays[:2])
        messages = tuple(
            encode_message(
                Message(int(j), step, positions[j], velocities[j], relayed[j], _get_message_group(roles[j], groups[j]))
            )
            for j in sensing.compute_message_graph(flock).neighbours(0, agent)
        )
        rows.append((positions[agent], velocities[agent], messages, observations[agent], accelerations[0, agent]))
        relayed = observations[:, : K - 1]
        flock = _advance(flock, accelerations, time_step)
    columns = [*zip(*rows, strict=True)]
    recorded = np.array(columns[3], np.float32)
    return Recording(
        number=agent,
        group=int(groups[agent]),
        positions=np.array(columns[0]),
        velocities=np.array(columns[1]),
        messages=tuple(columns[2]),
        observations=recorded,
        accelerations=np.array(columns[4]),
        magnitudes=program.compute_magnitude(recorded),
    )


def _get_message_group(role: int, group: int) -> int:
    return OBSTACLE_GROUP if role == OBSTACLE else int(group)


def _advance(flock: Flock, accelerations: NDArray[np.float64], time_step: float) -> Flock:
    """Return the flock one time step later, as double integrators, rounded to float32; only followers accelerate."""
    positions, velocities = flock.positions.copy(), flock.velocities.copy()
    commanded = np.where((flock.roles == FOLLOWER)[..., None], accelerations, 0.0)
    DoubleIntegrator().advance(BodyStep(positions, velocities, flock.roles, commanded, time_step, np.arange(1)))
    return round_to_float32(Flock(positions, velocities, *flock.arrays[2:], comm_radius=flock.comm_radius))


TOOLS = ("arm-none-eabi-gcc", "arm-none-eabi-nm", "qemu-system-arm")
LINKER_SPECS = "nano.specs"
"""Specs file with which the linker finds newlib, the C library."""
PROCESSOR = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
COMPILER_FLAGS = ("-std=c99", "-Os", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wdouble-promotion")
SECTIONS = ("-ffunction-sections", "-fdata-sections", "-fstack-usage")
MACHINE = ("-M", "netduinoplus2", "-nographic", "-monitor", "none", "-serial", "none")
# One instruction takes 1 ns of virtual time, so that the emulator's clock counts instructions.
INSTRUCTION_COUNTING = ("-icount", "shift=0", "-chardev", "stdio,id=out")
SEMIHOSTING = ("-semihosting-config", "enable=on,target=native,chardev=out")
TOOL_TIMEOUT = 120.0
"""Timeout of each tool, in seconds."""
CALIBRATION_INSTRUCTIONS = 200_000
"""Instructions of the calibration loop, which converts ticks to instructions."""
HEADER_NAME = "robot"
"""Stem of the exported header."""


@dataclass(frozen=True)
class ResourceUsage:
    """Resources that a controller uses on a microcontroller; memory in bytes."""

    code: int
    """Flash of the header's code, without libm."""
    weights: int
    """Flash of matrices and biases."""
    library: int
    """Flash of the functions of libm and libc that it calls."""
    memory: int
    """RAM of the agent."""
    stack: int
    """Largest stack of its functions, without libm."""
    neighbours: float
    """Mean number of neighbours per step."""
    instructions: int
    """Mean number per step: write the message, receive all messages, compute the acceleration."""
    largest_error: float
    """Largest error of an acceleration, relative to `Program.compute_magnitude`."""

    @property
    def flash(self) -> int:
        """Flash of code and weights."""
        return self.code + self.weights


def list_missing_tools() -> list[str]:
    """Return the tools that are not installed, newlib included; `make emulator` installs them from Debian packages."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if TOOLS[0] in missing:
        return missing
    # The C library is a separate package. The compiler prints the path of its specs file, or just the name if missing.
    query = [TOOLS[0], f"-print-file-name={LINKER_SPECS}"]
    specs = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    return missing if Path(specs).is_file() else [*missing, f"{LINKER_SPECS} of newlib"]


def emulate(controller: Any, recording: Recording, folder: Path, *, orbit: Orbit | None = None) -> ResourceUsage:
    """Export a controller, compile it for a Cortex-M4F, replay a recording on it in QEMU, and measure it.

    Raise InputError if a tool is missing or fails, or if the firmware drops a message.

    Args:
        controller: the recorded controller.
        recording: recording of one agent.
        folder: directory for the generated files.
        orbit: orbit technique of the recording.
    """
    if missing := list_missing_tools():
        raise InputError(f"{', '.join(missing)} not found: run `make emulator` to install the tools")
    D = recording.positions.shape[1]
    export(controller, folder / f"{HEADER_NAME}.h", dimensions=D, orbit=orbit)
    (folder / "recording.h").write_text(format_recording_as_c(recording))
    for name in ("firmware.c", "firmware.ld"):
        words = {"file": HEADER_NAME, "name": HEADER_NAME, "NAME": HEADER_NAME.upper()}
        (folder / name).write_text(fill_template(name, words, (), ("/*", "*/")))
    gcc, nm, qemu = TOOLS
    _run_tool([gcc, *PROCESSOR, *COMPILER_FLAGS, *SECTIONS, "-c", "firmware.c", "-o", "firmware.o"], folder)
    linked = ["-nostartfiles", f"--specs={LINKER_SPECS}", "-Wl,--gc-sections", "-T", "firmware.ld", "firmware.o", "-lm"]
    _run_tool([gcc, *PROCESSOR, *linked, "-o", "firmware.elf"], folder)
    bits, ticks, calibration = _parse_firmware_output(
        _run_tool([qemu, *MACHINE, *INSTRUCTION_COUNTING, *SEMIHOSTING, "-kernel", "firmware.elf"], folder)
    )
    own, whole = (_parse_symbol_sizes(_run_tool([nm, "-S", file], folder)) for file in ("firmware.o", "firmware.elf"))
    accelerations = np.array(bits, np.uint32).view(np.float32)
    if len(accelerations) != recording.accelerations.size:
        raise InputError(
            f"the firmware must print {recording.accelerations.size} accelerations, got {len(accelerations)}"
        )
    weights = 4 * read_program(controller, D, orbit).weight_count
    header_symbols = [name for name in whole if name in own and name.startswith((f"{HEADER_NAME}_", "agent_"))]
    return ResourceUsage(
        code=sum(whole[name] for name in header_symbols) - weights,
        weights=weights,
        library=sum(size for name, size in whole.items() if name not in own),
        memory=whole["agent"],
        stack=_parse_stack_usage(folder / "firmware.su"),
        neighbours=float(np.mean([len(each) for each in recording.messages])),
        instructions=round(float(np.mean(ticks)) * CALIBRATION_INSTRUCTIONS / calibration),
        largest_error=recording.compute_largest_error(accelerations.reshape(recording.accelerations.shape)),
    )


def _run_tool(command: Sequence[str], folder: Path) -> str:
    """Run a tool in `folder` and return its standard output. Raise InputError if it fails or exceeds TOOL_TIMEOUT."""
    try:
        process = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TOOL_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise InputError(f"{command[0]} did not finish within {TOOL_TIMEOUT:g} s") from None
    if process.returncode != 0:
        lines = process.stderr.strip().splitlines()
        reason = next((line for line in lines if "error" in line), lines[0] if lines else f"code {process.returncode}")
        raise InputError(f"{command[0]} failed: {reason}")
    return process.stdout


def _parse_firmware_output(text: str) -> tuple[list[int], list[int], int]:
    """Return the float32 bits of all accelerations, the ticks of every step and the ticks of the calibration loop.

    Raise InputError if the firmware reports a fault or a dropped message, or printed nothing.
    """
    rows = [line.split() for line in text.splitlines()]
    if failures := [row for row in rows if row and row[0] in ("fault", "dropped")]:
        raise InputError(f"the firmware failed: {' '.join(failures[0])}")
    words = {
        name: [int(row[1], 16) for row in rows if row and row[0] == name] for name in ("a", "ticks", "calibration")
    }
    if not words["calibration"]:
        raise InputError("the firmware printed nothing: it did not run in the emulator")
    return words["a"], words["ticks"], words["calibration"][0]


def _parse_symbol_sizes(nm_output: str) -> dict[str, int]:
    """Return the sizes in bytes by symbol, from the output of `nm -S`; symbols without a size are left out."""
    rows = (line.split() for line in nm_output.splitlines())
    return {row[3]: int(row[1], 16) for row in rows if len(row) == 4}


def _parse_stack_usage(su_file: Path) -> int:
    """Return the stack in bytes, from the compiler's .su file.

    It is the largest stack of the firmware's `agent_` functions plus the largest of the header's functions.
    """
    rows = (line.split("\t") for line in su_file.read_text().splitlines())
    sizes = {row[0].rpartition(":")[2]: int(row[1]) for row in rows}
    calls = [size for name, size in sizes.items() if name.startswith("agent_")]
    return max(calls) + max((size for name, size in sizes.items() if re.match(rf"{HEADER_NAME}_", name)), default=0)


def format_recording_as_c(recording: Recording) -> str:
    """Return the states and received messages of a recording as C constants; accelerations are not included."""
    steps, D = recording.positions.shape
    counts = [len(messages) for messages in recording.messages]
    data = b"".join(b"".join(messages) for messages in recording.messages)
    return "\n".join(
        [
            "#include <stdint.h>",
            f"#define RECORDED_STEPS {steps}",
            f"#define RECORDED_NUMBER {recording.number}u",
            f"#define RECORDED_GROUP {recording.group}u",
            *_format_vectors("recorded_positions", recording.positions, D),
            *_format_vectors("recorded_velocities", recording.velocities, D),
            f"static const int recorded_counts[RECORDED_STEPS] = {{{_format_integers(counts)}}};",
            f"static const uint8_t recorded_messages[{max(len(data), 1)}] = {{{_format_integers(data or [0])}}};",
            "",
        ]
    )


def _format_vectors(name: str, vectors: Any, D: int) -> list[str]:
    """Return the lines of a C array of vectors (T, D)."""
    rows = ",\n".join(f"    {{{format_floats(vector).strip()}}}" for vector in vectors)
    return [f"static const float {name}[RECORDED_STEPS][{D}] = {{", rows, "};"]


def _format_integers(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))
