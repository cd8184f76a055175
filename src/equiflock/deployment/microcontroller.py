"""Exported headers on a Cortex-M4F, such as the STM32F405 of a Crazyflie, emulated by QEMU.

`record_agent` records one agent of a simulated flight: the same states and messages must give the same accelerations.
`emulate` replays the recording in a small firmware, which prints its accelerations. Memory figures come from the
compiler. The emulator counts instructions, not cycles: a Cortex-M4F takes one cycle for most of them, and 14 for a
division or a square root.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int8

from equiflock._runtime.checks import InputError
from equiflock.bodies import DoubleIntegrator
from equiflock.deployment.export import export
from equiflock.deployment.export.c_header import format_floats
from equiflock.deployment.export.program import read_program
from equiflock.deployment.export.source_text import fill_template, format_c_float, list_template_parts
from equiflock.deployment.swarm_host import Float32Body
from equiflock.deployment.wire_format import encode_agent_message, make_zero_hops, round_to_float32
from equiflock.flock import FOLLOWER, Flock
from equiflock.observations.orbit import Orbit
from equiflock.simulation.flight_builder import flight

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


@dataclass(frozen=True, eq=False)
class Recording:
    """T steps of one agent, with the observations and accelerations that the package computes."""

    number: int
    group: int
    time_step: float
    """dt, in seconds: the sampling period of the agent."""
    positions: Float32[np.ndarray, "T D"]
    velocities: Float32[np.ndarray, "T D"]
    messages: tuple[tuple[bytes, ...], ...]
    """Received messages of every step."""
    observations: Float32[np.ndarray, "T K C D"]
    accelerations: Float64[np.ndarray, "T D"]
    magnitudes: Float64[np.ndarray, "T D"]
    """Scale of errors: see `Program.compute_magnitude`, and with limits also `SafetyFilter.compute_magnitude`."""
    states: Int8[np.ndarray, " T"] | None = None
    """Codes of `SafetyState`; None for a controller without limits."""

    def compute_largest_error(self, accelerations: Any) -> float:
        """Return the largest error of other accelerations (T, D) in any component, relative to `magnitudes`."""
        return float((np.abs(np.asarray(accelerations, np.float64) - self.accelerations) / self.magnitudes).max())


def record_agent(
    controller: Any, start: Flock, agent: int, steps: int, *, orbit: Orbit | None = None, time_step: float = 0.01
) -> Recording:
    """Simulate the first flock of `start` with an ideal radio for `steps` steps and record one of its followers.

    The body is a double integrator; states are rounded to float32. Raise InputError if `agent` is not a follower.
    """
    start = round_to_float32(start[0])
    if start.roles[0, agent] != FOLLOWER:
        raise InputError(f"agent must be a follower, which receives messages; agent {agent} is not one")
    relayed = np.stack([make_zero_hops(controller.senses, start.shape[2])] * start.shape[1])
    states, messages, observations, accelerations, safety_states = [], [], [], [], []
    loop = flight(start, controller, time_step=time_step, body=Float32Body(DoubleIntegrator()), orbit=orbit)
    for moment in islice(loop, steps):
        assert moment.compute_message_graph is not None
        senders = moment.compute_message_graph().neighbours(0, agent)
        messages.append(tuple(encode_agent_message(moment.flock, int(j), moment.step, relayed[j]) for j in senders))
        states.append([array[0, agent].astype(np.float32) for array in moment.flock.arrays[:2]])
        observations.append(moment.observations[0, agent].copy())
        accelerations.append(moment.accelerations[0, agent].copy())
        if moment.safety_states is not None:
            safety_states.append(moment.safety_states[0, agent])
        relayed = moment.observations[0, :, :-1].copy()
    positions, velocities = np.swapaxes(states, 0, 1)
    program, known = read_program(controller, start.shape[2], orbit), np.array(observations)
    magnitudes = program.compute_magnitude(known, time_step)
    if loop.safety is not None:
        magnitudes = np.maximum(magnitudes, loop.safety.compute_magnitude(velocities)[:, None])
    return Recording(
        number=agent,
        group=int(start.groups[0, agent]),
        time_step=time_step,
        positions=positions,
        velocities=velocities,
        messages=tuple(messages),
        observations=known,
        accelerations=np.array(accelerations, np.float64),
        magnitudes=magnitudes,
        states=None if loop.safety is None else np.array(safety_states, np.int8),
    )


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
    states: tuple[int, ...] = ()
    """Codes of `SafetyState` at every step; empty for a controller without limits."""

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

    Controller and orbit are those of the recording; `folder` is for the generated files. Raise InputError if a tool is
    missing or fails, or if the firmware drops a message.
    """
    if missing := list_missing_tools():
        raise InputError(f"{', '.join(missing)} not found: run `make emulator` to install the tools")
    D = recording.positions.shape[1]
    export(controller, folder / f"{HEADER_NAME}.h", dimensions=D, orbit=orbit)
    (folder / "recording.h").write_text(format_recording_as_c(recording))
    program = read_program(controller, D, orbit)
    for name in ("firmware.c", "firmware.ld"):
        words = {"file": HEADER_NAME, "name": HEADER_NAME, "NAME": HEADER_NAME.upper()}
        (folder / name).write_text(fill_template(name, words, list_template_parts(program), ("/*", "*/")))
    gcc, nm, qemu = TOOLS
    _run_tool([gcc, *PROCESSOR, *COMPILER_FLAGS, *SECTIONS, "-c", "firmware.c", "-o", "firmware.o"], folder)
    linked = ["-nostartfiles", f"--specs={LINKER_SPECS}", "-Wl,--gc-sections", "-T", "firmware.ld", "firmware.o", "-lm"]
    _run_tool([gcc, *PROCESSOR, *linked, "-o", "firmware.elf"], folder)
    bits, ticks, calibration, states = _parse_firmware_output(
        _run_tool([qemu, *MACHINE, *INSTRUCTION_COUNTING, *SEMIHOSTING, "-kernel", "firmware.elf"], folder)
    )
    own, whole = (_parse_symbol_sizes(_run_tool([nm, "-S", file], folder)) for file in ("firmware.o", "firmware.elf"))
    accelerations = np.array(bits, np.uint32).view(np.float32)
    if len(accelerations) != recording.accelerations.size:
        raise InputError(
            f"the firmware must print {recording.accelerations.size} accelerations, got {len(accelerations)}"
        )
    weights = 4 * program.weight_count
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
        states=tuple(states),
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


def _parse_firmware_output(text: str) -> tuple[list[int], list[int], int, list[int]]:
    """Return the float32 bits of all accelerations, the ticks of every step and of the calibration loop, and states."""
    rows = [line.split() for line in text.splitlines()]
    if failures := [row for row in rows if row and row[0] in ("fault", "dropped")]:
        raise InputError(f"the firmware failed: {' '.join(failures[0])}")
    words = {
        name: [int(row[1], 16) for row in rows if row and row[0] == name]
        for name in ("a", "ticks", "calibration", "state")
    }
    if not words["calibration"]:
        raise InputError("the firmware printed nothing: it did not run in the emulator")
    return words["a"], words["ticks"], words["calibration"][0], words["state"]


def _parse_symbol_sizes(nm_output: str) -> dict[str, int]:
    """Return the sizes in bytes by symbol, from the output of `nm -S`."""
    rows = (line.split() for line in nm_output.splitlines())
    return {row[3]: int(row[1], 16) for row in rows if len(row) == 4}


def _parse_stack_usage(su_file: Path) -> int:
    """Return the largest stack of the firmware's `agent_` functions plus the largest of the header's, in bytes."""
    rows = (line.split("\t") for line in su_file.read_text().splitlines())
    sizes = {row[0].rpartition(":")[2]: int(row[1]) for row in rows}
    callers, called = (
        [size for name, size in sizes.items() if name.startswith(prefix)] for prefix in ("agent_", f"{HEADER_NAME}_")
    )
    return max(callers) + max(called, default=0)


def format_recording_as_c(recording: Recording) -> str:
    """Return the states and received messages of a recording as C constants."""
    steps, D = recording.positions.shape
    lines = [
        "#include <stdint.h>",
        f"#define RECORDED_STEPS {steps}",
        f"#define RECORDED_NUMBER {recording.number}u",
        f"#define RECORDED_GROUP {recording.group}u",
        f"#define RECORDED_PERIOD {format_c_float(recording.time_step)}",
    ]
    for name, vectors in (("positions", recording.positions), ("velocities", recording.velocities)):
        rows = ",\n".join(f"    {{{format_floats(vector).strip()}}}" for vector in vectors)
        lines += [f"static const float recorded_{name}[RECORDED_STEPS][{D}] = {{", rows, "};"]
    counts = ", ".join(str(len(messages)) for messages in recording.messages)
    data = b"".join(b"".join(messages) for messages in recording.messages) or b"\0"
    lines.append(f"static const int recorded_counts[RECORDED_STEPS] = {{{counts}}};")
    lines.append(f"static const uint8_t recorded_messages[{len(data)}] = {{{', '.join(map(str, data))}}};")
    return "\n".join(lines) + "\n"
