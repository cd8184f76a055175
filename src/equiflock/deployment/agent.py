"""The interface of one robot's controller: messages in, an acceleration and the next message out.

Robot processes import this file, so it has few imports: it imports kernels only for agents that need them.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

AgentKind: TypeAlias = Literal["numpy", "c", "package"]
"""Implementation of an agent: the exported NumPy file, the exported C header as a shared library, or the package."""


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


def import_agent_class(path: str | os.PathLike[str]) -> Callable[..., Agent]:
    """Run an exported NumPy file and return its class `Agent`. Its weights (.npz) must be in the same directory."""
    spec = importlib.util.spec_from_file_location("exported_agent", path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    agent_class: Callable[..., Agent] = module.Agent
    return agent_class


def build_agent_factory(kind: AgentKind, program: str, settings: Mapping[str, Any]) -> Callable[[], Agent]:
    """Return a function that makes new agents, at step 0 and without observations.

    For kind "package", compile the agent's kernels before returning.

    Args:
        kind: implementation of the agent.
        program: path of the exported file (.py) or the shared library (.so), or the name of a controller.
        settings: `number` and `group` of the robot; for the package all arguments of `PackageAgent`.
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
