"""One robot's controller, whoever computes it: messages in, an acceleration and the next message out.

A process of a swarm imports this file and little else: what needs torch or kernels is imported where it is chosen.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

AgentKind: TypeAlias = Literal["numpy", "c", "torch"]
"""Who computes: the exported file of NumPy, the exported header of C as a shared library, or the package itself."""

DROPPED = (
    "",
    "wrong length",
    "it does not begin with EF",
    "another version",
    "a number in it is not finite, or too large",
    "from this agent's own number",
    "not newer than what its sender said before",
    "more neighbours than there is room for",
    "from a stranger",
)
"""What the numbers mean that `hear` of the exported header returns."""


class Agent(Protocol):
    """The controller of one robot. A step is `begin`, `hear` for each message that comes, and `end`.

    The order is that of `equiflock.simulate`: everybody sends its state and what it knew a step before, then hears what
    others sent, and then acts on it. What an agent is not told by one of these calls it does not know.
    """

    step: int
    """The number of the step, which stands in its messages; `end` counts it."""

    def begin(self, position: Sequence[float], velocity: Sequence[float]) -> bytes:
        """Begin a step with what the robot measures of itself, D numbers each; the message to send now."""
        ...

    def hear(self, message: bytes) -> str | None:
        """Take in a message of this step; None, or why it was dropped."""
        ...

    def end(self) -> Iterable[float]:
        """Act on what was heard since `begin`: the acceleration, D numbers of float32, in the robot's units."""
        ...


def agent_maker(kind: AgentKind, program: str, settings: Mapping[str, Any]) -> Callable[[], Agent]:
    """A function that makes the controller of a robot, which knows nothing yet.

    Args:
        kind: who computes.
        program: the exported file (.py), the shared library (.so), or the name of a controller.
        settings: `number` and `group` of the robot; for torch all that `PackageAgent` takes.
    """
    if kind == "numpy":
        found = importlib.util.spec_from_file_location("exported_agent", program)
        assert found is not None and found.loader is not None
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        return lambda: module.Agent(settings["number"], settings["group"])
    if kind == "c":
        library = ctypes.CDLL(str(Path(program).resolve()))
        return lambda: CompiledAgent(library, settings["number"], settings["group"])
    from equiflock.deployment.package_agent import PackageAgent

    return lambda: PackageAgent(program, **settings)


class CompiledAgent:
    """The exported header of C, called through ctypes; `equiflock.deployment.compiling` makes the library."""

    def __init__(self, library: Any, number: int, group: int) -> None:
        self._library = library
        self._memory = ctypes.create_string_buffer(library.agent_size())
        self._vector = ctypes.c_float * library.agent_dimensions()
        self._message = ctypes.create_string_buffer(library.agent_message_size())
        self._acceleration = self._vector()
        library.agent_begins(self._memory, number, group)

    @property
    def step(self) -> int:
        """The number of the step."""
        return int(self._library.agent_step(self._memory))

    @step.setter
    def step(self, step: int) -> None:
        self._library.agent_set_step(self._memory, step)

    def begin(self, position: Sequence[float], velocity: Sequence[float]) -> bytes:
        """Begin a step; the message to send now."""
        self._library.agent_says(self._memory, self._vector(*position), self._vector(*velocity), self._message)
        return self._message.raw

    def hear(self, message: bytes) -> str | None:
        """Take in a message; None, or why it was dropped."""
        code = self._library.agent_hears(self._memory, message, ctypes.c_size_t(len(message)))
        return None if code == 0 else DROPPED[code] if code < len(DROPPED) else f"reason {code}"

    def end(self) -> Iterable[float]:
        """The acceleration."""
        self._library.agent_acts(self._memory, self._acceleration)
        return list(self._acceleration)
