"""The exported header as agents of this process: compiled by the system's C compiler, called through ctypes.

Processes of a swarm import this file, so it imports no NumPy and nothing of the package that does, unless it is needed.
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
    "of a wrong length",
    "it does not begin with EF",
    "of another version",
    "a number in it is not finite, or too large",
    "from this agent's own number",
    "not newer than what its sender said before",
    "more neighbours than there is room for",
    "from an agent that is not heard",
)
"""What the numbers that `receive` returns mean; 0 says that a message was heard."""

# Functions of a header are static, so that whoever includes it twice gets no clash; a library needs some that are not.
LIBRARY_SOURCE = """#include "{header}"
size_t exported_size(void);
size_t exported_message(void);
int exported_dimensions(void);
void exported_init({name}_agent *agent, uint32_t number, uint8_t group);
void exported_begin({name}_agent *agent, const float *position, const float *velocity, uint8_t *message);
int exported_hear({name}_agent *agent, const uint8_t *message, size_t length);
int exported_end({name}_agent *agent, float *acceleration);
const float *exported_known(const {name}_agent *agent);
size_t exported_size(void) {{ return sizeof({name}_agent); }}
size_t exported_message(void) {{ return {NAME}_MESSAGE; }}
int exported_dimensions(void) {{ return {NAME}_D; }}
void exported_init({name}_agent *agent, uint32_t number, uint8_t group) {{ {name}_init(agent, number, group); }}
void exported_begin({name}_agent *agent, const float *position, const float *velocity, uint8_t *message)
{{ {name}_begin(agent, position, velocity, message); }}
int exported_hear({name}_agent *agent, const uint8_t *message, size_t length)
{{ return {name}_hear(agent, message, length); }}
int exported_end({name}_agent *agent, float *acceleration) {{ return {name}_end(agent, acceleration); }}
const float *exported_known(const {name}_agent *agent) {{ return agent->known; }}
"""


def compile_header(
    header: str | os.PathLike[str],
    library: str | os.PathLike[str],
    *,
    neighbours: int | None = None,
    last_known: int = 0,
    flags: tuple[str, ...] = COMPILER_FLAGS,
) -> Path:
    """Compile an exported header as a shared library, which `CompiledAgent` opens.

    Args:
        header: that `equiflock.export` wrote.
        library: where to write it.
        neighbours: how many others an agent has room for; as the header says if left out.
        last_known: for how many steps more the last message of a silent neighbour is used.
        flags: of the compiler.
    """
    from equiflock.deployment.export.template import make_identifier
    from equiflock.runtime.checks import InputError

    header, library = Path(header).resolve(), Path(library)
    # CC may be several words, such as ccache gcc.
    named = shlex.split(os.environ.get("CC", ""))
    compiler, *more = named or ["cc"]
    if shutil.which(compiler) is None:
        reason = f"{compiler}, which CC names, cannot be found" if named else "there is no C compiler"
        raise InputError(
            f"{reason}: install {compiler if named else 'gcc'}, or choose the NumPy agent, which needs none"
        )
    if not header.is_file():
        raise InputError(f"no exported header at {header}: there is no such file")
    name = make_identifier(header.stem)
    NAME = name.upper()
    room = [] if neighbours is None else [f"-D{NAME}_NEIGHBOURS={neighbours}"]
    source = LIBRARY_SOURCE.format(header=header, name=name, NAME=NAME)
    command = [compiler, *more, *flags, *room, f"-D{NAME}_LAST_KNOWN={last_known}", "-shared", "-fPIC", "-x", "c", "-"]
    done = subprocess.run([*command, "-o", str(library), "-lm"], input=source, text=True, capture_output=True)
    if done.returncode != 0:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise InputError(f"{header.name} cannot be compiled by {compiler}: {reason}")
    return library


class CompiledAgent:
    """One agent of a compiled library; as `equiflock.deployment.agent.Agent` says.

    Args:
        library: that `compile_header` wrote.
        number: of the agent.
        group: its group, from 0 to 254.
    """

    def __init__(self, library: str | os.PathLike[str], number: int, group: int = 0) -> None:
        self._library: Any = ctypes.CDLL(str(Path(library).resolve()))
        self._library.exported_agent_size.restype = self._library.exported_message_size.restype = ctypes.c_size_t
        self._library.exported_observations.restype = ctypes.POINTER(ctypes.c_float)
        self._library.exported_receive.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        self.size = self._library.exported_agent_size()
        """Bytes of memory that the agent takes."""
        self._dimensions = self._library.exported_dimensions()
        self._agent = (ctypes.c_uint32 * (-(-self.size // 4)))()
        self._message = (ctypes.c_char * self._library.exported_message_size())()
        self._vectors = [(ctypes.c_float * self._dimensions)() for _ in range(3)]
        self._library.exported_init(self._agent, ctypes.c_uint32(number), ctypes.c_uint8(group))

    @property
    def step(self) -> int:
        """The number of the step, which stands in its messages; the second number of the agent's memory."""
        return int(self._agent[1])

    @step.setter
    def step(self, step: int) -> None:
        self._agent[1] = step

    def begin(self, position: Sequence[float], velocity: Sequence[float]) -> bytes:
        """Begin a step with what the robot measures of itself, D numbers each; the message to send now."""
        for vector, given in zip(self._vectors, (position, velocity), strict=False):
            numbers = [float(number) for number in given]
            if len(numbers) != self._dimensions:
                from equiflock.runtime.checks import InputError, shorten_repr

                raise InputError(f"position and velocity must be {self._dimensions} numbers; got {shorten_repr(given)}")
            vector[:] = numbers
        self._library.exported_begin(self._agent, self._vectors[0], self._vectors[1], self._message)
        return bytes(self._message.raw)

    def receive(self, message: bytes) -> str | None:
        """Take in a message of this step; None, or why it was dropped."""
        return DROP_REASONS[self._library.exported_receive(self._agent, message, len(message))]

    def end(self) -> list[float]:
        """Act on what was heard since `begin`: the acceleration, D numbers, in the robot's units."""
        self._library.exported_end(self._agent, self._vectors[2])
        return list(self._vectors[2])

    def read_observations(self, hops: int, channels: int) -> NDArray[np.float32]:
        """What the agent knows, (K, C, D)."""
        import numpy as np

        known = self._library.exported_observations(self._agent)
        size = hops * channels * self._dimensions
        return np.array(known[:size], np.float32).reshape(hops, channels, self._dimensions)
