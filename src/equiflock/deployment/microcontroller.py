"""An exported header on a Cortex-M4F, the class of a Crazyflie's STM32F405, which QEMU emulates.

A small program replays what one agent measured and heard in a flight of the package, and writes what it would do.
Memory is what the compiler says. The emulator counts instructions, not cycles: a Cortex-M4F takes one cycle for most of
them, and 14 for a division or a root.
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

from equiflock.deployment.export import export
from equiflock.deployment.export.c_header import format_floats
from equiflock.deployment.export.program import read_program
from equiflock.deployment.export.template import fill_template
from equiflock.deployment.recording import Recording
from equiflock.orbit_technique import Orbit
from equiflock.runtime.checks import InputError

TOOLS = ("arm-none-eabi-gcc", "arm-none-eabi-nm", "qemu-system-arm")
LINKER_SPECS = "nano.specs"
"""By which the linker finds newlib, the C library."""
PROCESSOR = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
COMPILER_FLAGS = ("-std=c99", "-Os", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wdouble-promotion")
SECTIONS = ("-ffunction-sections", "-fdata-sections", "-fstack-usage")
MACHINE = ("-M", "netduinoplus2", "-nographic", "-monitor", "none", "-serial", "none")
# One instruction takes a nanosecond of the emulator's time, so that its clock counts them.
INSTRUCTION_COUNTING = ("-icount", "shift=0", "-chardev", "stdio,id=out")
SEMIHOSTING = ("-semihosting-config", "enable=on,target=native,chardev=out")
TOOL_TIMEOUT = 120.0
"""Seconds that the emulator may take."""
CALIBRATION_INSTRUCTIONS = 200_000
"""Instructions of the loop by which ticks are turned into instructions."""
HEADER_NAME = "robot"
"""The exported header's."""


@dataclass(frozen=True)
class ResourceUsage:
    """What a controller takes of a microcontroller, all in bytes but for instructions and the error."""

    code: int
    """Flash for the code of the header, without libm."""
    weights: int
    """Flash for matrices and biases."""
    library: int
    """Flash for what it calls of libm and libc."""
    memory: int
    """RAM of the agent."""
    stack: int
    """Stack that its functions take at most, without libm's."""
    neighbours: float
    """How many others it heard, in the mean over steps."""
    instructions: int
    """Per step, in the mean: the message written, all messages of neighbours heard, and the acceleration made."""
    worst: float
    """The largest error of an acceleration, relative to `Program.compute_magnitude`."""

    @property
    def flash(self) -> int:
        """Code and weights."""
        return self.code + self.weights


def list_missing_tools() -> list[str]:
    """The tools that are not installed; `make emulator` installs them from Debian's packages."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if TOOLS[0] in missing:
        return missing
    # The C library is a package of its own. The compiler prints the path of its file, or the name if there is none.
    told = subprocess.run([TOOLS[0], f"-print-file-name={LINKER_SPECS}"], capture_output=True, text=True).stdout.strip()
    return missing if Path(told).is_file() else [*missing, f"{LINKER_SPECS} of newlib"]


def emulate(controller: Any, recording: Recording, folder: Path, *, orbit: Orbit | None = None) -> ResourceUsage:
    """Export a controller, compile it for a Cortex-M4F, replay a recording on it in QEMU, and measure it.

    Args:
        controller: that was recorded.
        recording: of one agent.
        folder: for the files that are made.
        orbit: the technique for obstacles, as for the recording.
    """
    if missing := list_missing_tools():
        raise InputError(f"{', '.join(missing)} cannot be found: run `make emulator`, which installs it")
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
    answers, ticks, calibration = _parse_firmware_output(
        _run_tool([qemu, *MACHINE, *INSTRUCTION_COUNTING, *SEMIHOSTING, "-kernel", "firmware.elf"], folder)
    )
    own, whole = (_parse_symbol_sizes(_run_tool([nm, "-S", file], folder)) for file in ("firmware.o", "firmware.elf"))
    found = np.array(answers, np.uint32).view(np.float32)
    if len(found) != recording.accelerations.size:
        raise InputError(f"the emulator answered {len(found)} numbers in place of {recording.accelerations.size}")
    weights = 4 * read_program(controller, D, orbit).weight_count
    ours = [name for name in whole if name in own and name.startswith((f"{HEADER_NAME}_", "agent_"))]
    return ResourceUsage(
        code=sum(whole[name] for name in ours) - weights,
        weights=weights,
        library=sum(size for name, size in whole.items() if name not in own),
        memory=whole["agent"],
        stack=_parse_stack_usage(folder / "firmware.su"),
        neighbours=float(np.mean([len(each) for each in recording.messages])),
        instructions=round(float(np.mean(ticks)) * CALIBRATION_INSTRUCTIONS / calibration),
        worst=recording.worst(found.reshape(recording.accelerations.shape)),
    )


def _run_tool(command: Sequence[str], folder: Path) -> str:
    """What a tool says; a clear error if it fails, or never ends."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TOOL_TIMEOUT)
    except subprocess.TimeoutExpired:
        raise InputError(f"{command[0]} did not end within {TOOL_TIMEOUT:g} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        reason = next((line for line in lines if "error" in line), lines[0] if lines else f"code {done.returncode}")
        raise InputError(f"{command[0]} failed: {reason}")
    return done.stdout


def _parse_firmware_output(text: str) -> tuple[list[int], list[int], int]:
    """Bits of accelerations, ticks of every step, and those of the calibration, in what the firmware wrote."""
    rows = [line.split() for line in text.splitlines()]
    if wrong := [row for row in rows if row and row[0] in ("fault", "dropped")]:
        raise InputError(f"the firmware failed: {' '.join(wrong[0])}")
    words = {
        name: [int(row[1], 16) for row in rows if row and row[0] == name] for name in ("a", "ticks", "calibration")
    }
    if not words["calibration"]:
        raise InputError("the firmware wrote nothing: it did not run in the emulator")
    return words["a"], words["ticks"], words["calibration"][0]


def _parse_symbol_sizes(listed: str) -> dict[str, int]:
    """Bytes of code and data by name, as nm lists them."""
    rows = (line.split() for line in listed.splitlines())
    return {row[3]: int(row[1], 16) for row in rows if len(row) == 4}


def _parse_stack_usage(listed: Path) -> int:
    """Bytes of stack, as the compiler lists them by function: the deepest call, and all that it may call at once."""
    rows = (line.split("\t") for line in listed.read_text().splitlines())
    sizes = {row[0].rpartition(":")[2]: int(row[1]) for row in rows}
    calls = [size for name, size in sizes.items() if name.startswith("agent_")]
    return max(calls) + max((size for name, size in sizes.items() if re.match(rf"{HEADER_NAME}_", name)), default=0)


def format_recording_as_c(recording: Recording) -> str:
    """The recording as constants of C."""
    steps, D = recording.positions.shape
    counts, said = [len(each) for each in recording.messages], b"".join(b"".join(each) for each in recording.messages)
    return "\n".join(
        [
            "#include <stdint.h>",
            f"#define RECORDED_STEPS {steps}",
            f"#define RECORDED_NUMBER {recording.number}u",
            f"#define RECORDED_GROUP {recording.group}u",
            *_format_vectors("recorded_positions", recording.positions, D),
            *_format_vectors("recorded_velocities", recording.velocities, D),
            f"static const int recorded_counts[RECORDED_STEPS] = {{{_format_integers(counts)}}};",
            f"static const uint8_t recorded_messages[{max(len(said), 1)}] = {{{_format_integers(said or [0])}}};",
            "",
        ]
    )


def _format_vectors(name: str, vectors: Any, D: int) -> list[str]:
    rows = ",\n".join(f"    {{{format_floats(vector).strip()}}}" for vector in vectors)
    return [f"static const float {name}[RECORDED_STEPS][{D}] = {{", rows, "};"]


def _format_integers(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))
