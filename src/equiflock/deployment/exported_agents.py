"""The interface of one robot's controller, and the exported NumPy files and C headers that implement it.

Robot processes import this file, so it imports NumPy, and modules of the package that import NumPy, only when needed.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

AgentKind: TypeAlias = Literal["numpy", "c", "package"]
"""Implementation of an agent: the exported NumPy file, the exported C header as a shared library, or the package."""
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
    "sizes, channels or units of the message are others",
    "rotation is not orthogonal, or offset not finite or too large",
    "this agent has no valid state, to which the message is relative",
)
"""Meaning of the return codes of NAME_receive; 0: the message was received."""
STATE_NAMES = "OK", "ALONE", "LIMITED", "TOO_CLOSE", "FENCE", "STALE", "INVALID"
"""Names of the states of an agent with limits, those of `SafetyState`."""
LIBRARY_SOURCE = """#include "{header}"
size_t exported_agent_size(void) {{ return sizeof({name}_agent); }}
size_t exported_message_size(void) {{ return {NAME}_MESSAGE; }}
int exported_dimensions(void) {{ return {NAME}_D; }}
#ifdef {NAME}_PACKETS
int exported_packets(void) {{ return {NAME}_PACKETS; }}
#else
int exported_packets(void) {{ return 1; }}
#endif
#if defined({NAME}_GAIN_PERIOD) || defined({NAME}_MAX_ACCELERATION)
int exported_needs_period(void) {{ return 1; }}
void exported_init({name}_agent *agent, uint32_t number, uint8_t group, float period)
{{ {name}_init(agent, number, group, period); }}
#else
int exported_needs_period(void) {{ return 0; }}
void exported_init({name}_agent *agent, uint32_t number, uint8_t group, float period)
{{ (void)period; {name}_init(agent, number, group); }}
#endif
void exported_begin({name}_agent *agent, const float *position, const float *velocity, uint8_t *message)
{{ {name}_begin(agent, position, velocity, message); }}
int exported_receive({name}_agent *agent, const uint8_t *message, size_t length)
{{ return {name}_receive(agent, message, length); }}
#ifdef {NAME}_OWN_FRAMES
int exported_receive_rotated({name}_agent *agent, const uint8_t *message, size_t length, const float *rotation,
                             const float *offset)
{{ return {name}_receive_rotated(agent, message, length, rotation, offset); }}
#endif
int exported_end({name}_agent *agent, float *acceleration) {{ return {name}_end(agent, acceleration); }}
const float *exported_observations(const {name}_agent *agent) {{ return agent->observations; }}
#ifdef {NAME}_MAX_ACCELERATION
int exported_has_limits(void) {{ return 1; }}
int exported_state(const {name}_agent *agent) {{ return agent->state; }}
uint32_t exported_late_count(const {name}_agent *agent) {{ return agent->late_count; }}
void exported_set_time({name}_agent *agent, uint32_t microseconds) {{ {name}_set_time(agent, microseconds); }}
void exported_restart({name}_agent *agent) {{ {name}_restart(agent); }}
#else
int exported_has_limits(void) {{ return 0; }}
#endif
#if defined({NAME}_GAIN_PERIOD) && defined({NAME}_MAX_ACCELERATION)
void exported_set_delay({name}_agent *agent, float seconds) {{ {name}_set_delay(agent, seconds); }}
#else
void exported_set_delay({name}_agent *agent, float seconds) {{ (void)agent; (void)seconds; }}
#endif
"""
"""Source of a shared library. The header's functions are static, so that several files can include it."""


class Agent(Protocol):
    """The controller of one robot. A step is `begin`, `receive` for each message that arrives, and `end`.

    The order is that of `equiflock.simulate`: all agents send their state and their observations of the previous step,
    then receive messages, then act. An agent has no input other than these calls.
    """

    step: int
    """Number of the current step, which its messages contain; `end` increments it."""

    def begin(self, position: Sequence[float], velocity: Sequence[float]) -> bytes:
        """Begin a step with the robot's measured position and velocity, D numbers each. Return the message to send."""
        ...

    def receive(self, message: bytes) -> str | None:
        """Store a message of this step. Return None if it was stored, else the reason why it was dropped."""
        ...

    def end(self) -> Iterable[float]:
        """End the step. Return the acceleration, D float32 numbers in the robot's units."""
        ...


def restart_agent(agent: Agent, make_agent: Callable[[], Agent], step: int) -> Agent:
    """Return an agent at this step, without observations and neighbours, for a robot that has missed steps.

    An agent with limits goes on, so that it does not forget for how long it has received no message; another is
    replaced by a new one.
    """
    restart = getattr(agent, "restart", None)
    if restart is None:
        agent = make_agent()
    else:
        restart()
    agent.step = step
    return agent


def build_agent_factory(kind: AgentKind, program: str, settings: Mapping[str, Any]) -> Callable[[], Agent]:
    """Return a function that makes new agents, at step 0 and without observations; compile the kernels of the package.

    `program` is the path of the exported file (.py) or the shared library (.so), or the name of a controller.
    `settings` are the agent's arguments: `number` and `group` of the robot, `period` if the controller has a gain
    schedule or limits, and `delay` if it has both; for the package all arguments of `PackageAgent`.
    """
    if kind == "package":
        from equiflock.deployment.package_agent import PackageAgent, compile_kernels

        compile_kernels(program, **settings)
        return lambda: PackageAgent(program, **settings)
    if kind == "c":
        return lambda: CompiledAgent(program, **settings)
    agent_class = import_agent_class(program)
    return lambda: agent_class(**settings)


def import_agent_class(path: str | os.PathLike[str]) -> Callable[..., Agent]:
    """Run an exported NumPy file and return its class `Agent`. Its weights (.npz) must be in the same directory."""
    spec = importlib.util.spec_from_file_location("exported_agent", path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    agent_class: Callable[..., Agent] = module.Agent
    return agent_class


def compile_header(
    header: str | os.PathLike[str],
    library: str | os.PathLike[str],
    *,
    neighbours: int | None = None,
    flags: tuple[str, ...] = COMPILER_FLAGS,
) -> Path:
    """Compile an exported header to a shared library for `CompiledAgent`. Return the library's path.

    An agent has room for `neighbours`; for the header's default if None. The compiler is $CC, or cc. Raise InputError
    if it or the header is missing, or if it fails; warnings are errors.
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
    source = LIBRARY_SOURCE.format(header=header, name=name, NAME=name.upper())
    macros = [] if neighbours is None else [f"-D{name.upper()}_NEIGHBOURS={neighbours}"]
    command = [compiler, *options, *flags, *macros, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library), "-lm"]
    done = subprocess.run(command, input=source, text=True, capture_output=True)
    if done.returncode != 0:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise InputError(f"{compiler} cannot compile {header.name}: {reason}")
    return library


class CompiledAgent:
    """An `Agent` of a library written by `compile_header`; its group is from 0 to 254.

    `period` is the robot's sampling period in seconds. Raise InputError if it is None and the controller has a gain
    schedule or limits; other controllers do not use it. `delay`, the usual delay of messages in seconds, lowers the
    gain of a controller with limits; without limits it is part of the period.
    """

    def __init__(
        self,
        library: str | os.PathLike[str],
        number: int,
        group: int = 0,
        period: float | None = None,
        delay: float = 0.0,
    ) -> None:
        self._library: Any = ctypes.CDLL(str(Path(library).resolve()))
        self._library.exported_agent_size.restype = self._library.exported_message_size.restype = ctypes.c_size_t
        self._library.exported_observations.restype = ctypes.POINTER(ctypes.c_float)
        message_types: list[Any] = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        self._library.exported_receive.argtypes = message_types
        if hasattr(self._library, "exported_receive_rotated"):
            self._library.exported_receive_rotated.argtypes = [*message_types, ctypes.c_void_p, ctypes.c_void_p]
        self.size = self._library.exported_agent_size()
        """Memory of the agent in bytes."""
        self._dimensions = self._library.exported_dimensions()
        self._agent = (ctypes.c_uint32 * (-(-self.size // 4)))()
        self._packet_count = self._library.exported_packets()
        self._message = (ctypes.c_char * (self._packet_count * self._library.exported_message_size()))()
        self._position, self._velocity, self._acceleration = ((ctypes.c_float * self._dimensions)() for _ in range(3))
        if period is None and self._library.exported_needs_period():
            from equiflock._runtime.checks import InputError

            raise InputError(
                "period must be the robot's sampling period in seconds, as the controller's gain or limits need it"
            )
        self._arguments = ctypes.c_uint32(number), ctypes.c_uint8(group), ctypes.c_float(period or 0.0)
        self._library.exported_init(self._agent, *self._arguments)
        self._has_limits = bool(self._library.exported_has_limits())
        if delay:
            self._library.exported_set_delay(self._agent, ctypes.c_float(delay))

    @property
    def step(self) -> int:
        """Number of the current step: the second uint32 of the agent's memory."""
        return int(self._agent[1])

    @step.setter
    def step(self, step: int) -> None:
        self._agent[1] = step

    @property
    def state(self) -> str:
        """Name of the `SafetyState` of the last step; "OK" for a controller without limits."""
        return STATE_NAMES[self._library.exported_state(self._agent)] if self._has_limits else STATE_NAMES[0]

    @property
    def late_count(self) -> int:
        """Number of steps that ended late by the clock of `set_time`; 0 for a controller without limits."""
        return int(self._library.exported_late_count(self._agent)) if self._has_limits else 0

    def set_time(self, seconds: float) -> None:
        """Pass the robot's clock, before `end`; ignored by a controller without limits."""
        if self._has_limits:
            self._library.exported_set_time(self._agent, ctypes.c_uint32(round(seconds * 1e6) % 2**32))

    def restart(self) -> None:
        """Forget neighbours and observations after missed steps; the step, and with limits the silence, go on."""
        if self._has_limits:
            self._library.exported_restart(self._agent)
        else:
            step = self.step
            self._library.exported_init(self._agent, *self._arguments)
            self.step = step

    def begin(self, position: Sequence[float], velocity: Sequence[float]) -> Any:
        """Begin a step. Return the message, or a list of its packets if there are several.

        Raise InputError if a vector does not have D numbers.
        """
        for vector, values in ((self._position, position), (self._velocity, velocity)):
            numbers = [float(number) for number in values]
            if len(numbers) != self._dimensions:
                from equiflock._runtime.checks import InputError, shorten_repr

                raise InputError(
                    f"position and velocity must have {self._dimensions} numbers, got {shorten_repr(values)}"
                )
            vector[:] = numbers
        self._library.exported_begin(self._agent, self._position, self._velocity, self._message)
        message, size = bytes(self._message.raw), len(self._message) // self._packet_count
        packets = [message[start : start + size] for start in range(0, len(message), size)]
        return packets if self._packet_count > 1 else message

    def receive(self, message: bytes, rotation: ArrayLike | None = None, offset: ArrayLike | None = None) -> str | None:
        """Store a message or packet. Return None, or why it was dropped.

        `rotation` (D, D) and `offset` (D,) are for exports with `own_frames`.
        """
        if rotation is None and offset is None:
            return DROP_REASONS[self._library.exported_receive(self._agent, message, len(message))]
        arrays = self._to_floats(rotation, self._dimensions**2), self._to_floats(offset, self._dimensions)
        return DROP_REASONS[self._library.exported_receive_rotated(self._agent, message, len(message), *arrays)]

    @staticmethod
    def _to_floats(values: ArrayLike | None, size: int) -> Any:
        """Return an array of C floats, or None."""
        import numpy as np

        return None if values is None else (ctypes.c_float * size)(*np.ravel(values))

    def end(self) -> list[float]:
        """End the step and return the acceleration."""
        self._library.exported_end(self._agent, self._acceleration)
        return list(self._acceleration)

    def read_observations(self, hops: int, channels: int) -> NDArray[np.float32]:
        """Return a copy of the observations (K, C, D) of the last step that ended; K = `hops`, C = `channels`."""
        import numpy as np

        pointer = self._library.exported_observations(self._agent)
        size = hops * channels * self._dimensions
        return np.array(pointer[:size], np.float32).reshape(hops, channels, self._dimensions)
