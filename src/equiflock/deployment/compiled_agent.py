"""Agents from an exported C header, compiled with the system's C compiler and called through ctypes.

Robot processes import this file, so it imports NumPy, and modules of the package that import NumPy, only when needed.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

COMPILER_FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic")
DROP_REASONS = (
    None,
    "wrong length",
    "does not begin with EF",
    "unsupported version",
    "a value is not finite or too large",
    "sender has this agent's own number",
    "not newer than the last message of its sender",
    "no room for another neighbour",
    "sender is not a neighbour",
)
"""Meaning of the return codes of NAME_receive; 0: the message was received."""

# The header's functions are static, so that several files can include it; a shared library needs exported symbols.
LIBRARY_SOURCE = """#include "{header}"
size_t exported_agent_size(void);
size_t exported_message_size(void);
int exported_dimensions(void);
void exported_init({name}_agent *agent, uint32_t number, uint8_t group);
void exported_begin({name}_agent *agent, const float *position, const float *velocity, uint8_t *message);
int exported_receive({name}_agent *agent, const uint8_t *message, size_t length);
int exported_end({name}_agent *agent, float *acceleration);
const float *exported_observations(const {name}_agent *agent);
size_t exported_agent_size(void) {{ return sizeof({name}_agent); }}
size_t exported_message_size(void) {{ return {NAME}_MESSAGE; }}
int exported_dimensions(void) {{ return {NAME}_D; }}
void exported_init({name}_agent *agent, uint32_t number, uint8_t group) {{ {name}_init(agent, number, group); }}
void exported_begin({name}_agent *agent, const float *position, const float *velocity, uint8_t *message)
{{ {name}_begin(agent, position, velocity, message); }}
int exported_receive({name}_agent *agent, const uint8_t *message, size_t length)
{{ return {name}_receive(agent, message, length); }}
int exported_end({name}_agent *agent, float *acceleration) {{ return {name}_end(agent, acceleration); }}
const float *exported_observations(const {name}_agent *agent) {{ return agent->observations; }}
"""


def compile_header(
    header: str | os.PathLike[str],
    library: str | os.PathLike[str],
    *,
    neighbours: int | None = None,
    last_known: int = 0,
    flags: tuple[str, ...] = COMPILER_FLAGS,
) -> Path:
    """Compile an exported header to a shared library for `CompiledAgent`. Return the library's path.

    The compiler is $CC, or cc. Raise InputError if it or the header is missing, or if it fails; warnings are errors.

    Args:
        header: header written by `equiflock.export`.
        library: path of the library.
        neighbours: largest number of neighbours of an agent; the header's default if None.
        last_known: extra steps for which the last message of a silent neighbour is used.
        flags: compiler flags.
    """
    from equiflock._runtime.checks import InputError
    from equiflock.deployment.export.source_text import make_identifier

    header, library = Path(header).resolve(), Path(library)
    # CC may have several words, such as ccache gcc.
    cc = shlex.split(os.environ.get("CC", ""))
    compiler, *options = cc or ["cc"]
    if shutil.which(compiler) is None:
        reason = f"CC is {compiler}, which was not found" if cc else "found no C compiler"
        raise InputError(
            f"{reason}: install {compiler if cc else 'gcc'}, or use the NumPy agent, which needs no compiler"
        )
    if not header.is_file():
        raise InputError(f"header must be an exported file, but {header} does not exist")
    name = make_identifier(header.stem)
    NAME = name.upper()
    capacity = [] if neighbours is None else [f"-D{NAME}_NEIGHBOURS={neighbours}"]
    source = LIBRARY_SOURCE.format(header=header, name=name, NAME=NAME)
    macros = [*capacity, f"-D{NAME}_LAST_KNOWN={last_known}"]
    command = [compiler, *options, *flags, *macros, "-shared", "-fPIC", "-x", "c", "-"]
    done = subprocess.run([*command, "-o", str(library), "-lm"], input=source, text=True, capture_output=True)
    if done.returncode != 0:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise InputError(f"{compiler} cannot compile {header.name}: {reason}")
    return library


class CompiledAgent:
    """An agent of a compiled library; implements `equiflock.deployment.agents.Agent`.

    Args:
        library: library written by `compile_header`.
        number: number of the agent.
        group: group of the agent, from 0 to 254.
    """

    def __init__(self, library: str | os.PathLike[str], number: int, group: int = 0) -> None:
        self._library: Any = ctypes.CDLL(str(Path(library).resolve()))
        self._library.exported_agent_size.restype = self._library.exported_message_size.restype = ctypes.c_size_t
        self._library.exported_observations.restype = ctypes.POINTER(ctypes.c_float)
        self._library.exported_receive.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        self.size = self._library.exported_agent_size()
        """Memory of the agent in bytes."""
        self._dimensions = self._library.exported_dimensions()
        self._agent = (ctypes.c_uint32 * (-(-self.size // 4)))()
        self._message = (ctypes.c_char * self._library.exported_message_size())()
        self._vectors = [(ctypes.c_float * self._dimensions)() for _ in range(3)]
        self._library.exported_init(self._agent, ctypes.c_uint32(number), ctypes.c_uint8(group))

    @property
    def step(self) -> int:
        """Number of the current step: the second uint32 of the agent's memory."""
        return int(self._agent[1])

    @step.setter
    def step(self, step: int) -> None:
        self._agent[1] = step

    def begin(self, position: Sequence[float], velocity: Sequence[float]) -> bytes:
        """Begin a step with the robot's measured position and velocity. Return the message to send.

        Raise InputError if one of them does not have D numbers.
        """
        for vector, values in zip(self._vectors, (position, velocity), strict=False):
            numbers = [float(number) for number in values]
            if len(numbers) != self._dimensions:
                from equiflock._runtime.checks import InputError, shorten_repr

                raise InputError(
                    f"position and velocity must have {self._dimensions} numbers, got {shorten_repr(values)}"
                )
            vector[:] = numbers
        self._library.exported_begin(self._agent, self._vectors[0], self._vectors[1], self._message)
        return bytes(self._message.raw)

    def receive(self, message: bytes) -> str | None:
        """Store a message of this step. Return None if it was stored, else the reason why it was dropped."""
        return DROP_REASONS[self._library.exported_receive(self._agent, message, len(message))]

    def end(self) -> list[float]:
        """End the step. Return the acceleration, D numbers in the robot's units."""
        self._library.exported_end(self._agent, self._vectors[2])
        return list(self._vectors[2])

    def read_observations(self, hops: int, channels: int) -> NDArray[np.float32]:
        """Return a copy of the observations (K, C, D) of the last step that ended; K = `hops`, C = `channels`."""
        import numpy as np

        pointer = self._library.exported_observations(self._agent)
        size = hops * channels * self._dimensions
        return np.array(pointer[:size], np.float32).reshape(hops, channels, self._dimensions)
