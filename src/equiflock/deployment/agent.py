"""One robot's controller, whoever computes it: messages in, an acceleration and the next message out.

A process of a swarm imports this file and little else: kernels are imported where they are chosen.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

AgentKind: TypeAlias = Literal["numpy", "c", "package"]
"""Who computes: the exported file of NumPy, the exported header of C as a shared library, or the package itself."""


class Agent(Protocol):
    """The controller of one robot. A step is `begin`, `receive` for each message that comes, and `end`.

    The order is that of `equiflock.simulate`: everybody sends its state and what it knew a step before, then hears what
    others sent, and then acts on it. What an agent is not told by one of these calls it does not know.
    """

    step: int
    """The number of the step, which stands in its messages; `end` counts it."""

    def begin(self, position: Sequence[float], velocity: Sequence[float]) -> bytes:
        """Begin a step with what the robot measures of itself, D numbers each; the message to send now."""
        ...

    def receive(self, message: bytes) -> str | None:
        """Take in a message of this step; None, or why it was dropped."""
        ...

    def end(self) -> Iterable[float]:
        """Act on what was heard since `begin`: the acceleration, D numbers of float32, in the robot's units."""
        ...


def import_agent_class(path: str | os.PathLike[str]) -> Callable[..., Agent]:
    """The class `Agent` of an exported file of NumPy, which has its weights beside it."""
    found = importlib.util.spec_from_file_location("exported_agent", path)
    assert found is not None and found.loader is not None
    module: Any = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    made: Callable[..., Agent] = module.Agent
    return made


def build_agent_factory(kind: AgentKind, program: str, settings: Mapping[str, Any]) -> Callable[[], Agent]:
    """A function that makes the controller of a robot, which knows nothing yet.

    Args:
        kind: who computes.
        program: the exported file (.py), the shared library (.so), or the name of a controller.
        settings: `number` and `group` of the robot; for the package all that `PackageAgent` takes.
    """
    if kind == "numpy":
        make = import_agent_class(program)
        return lambda: make(settings["number"], settings["group"])
    if kind == "c":
        from equiflock.deployment.compiled_agent import CompiledAgent

        return lambda: CompiledAgent(program, settings["number"], settings["group"])
    from equiflock.deployment.package_agent import PackageAgent, compile_kernels

    compile_kernels(program, **settings)
    return lambda: PackageAgent(program, **settings)
