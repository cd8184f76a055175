"""A flock of exported agents compared with the package. Agents receive only messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import equiflock as ef
from equiflock.controllers.safety_limits import get_safety_limits
from equiflock.deployment.export.program import read_program
from equiflock.deployment.wire_format import encode_agent_message, make_zero_hops, round_to_float32
from equiflock.flock import FOLLOWER
from equiflock.observations.orbit import Orbit
from equiflock.simulation.flight_builder import make_decision_function
from equiflock.simulation.safety_filter import SafetyFilter

TIME_STEP = 0.01


@dataclass
class Parity:
    """Differences between the accelerations of agents and of the package, for the same states.

    Errors are relative to `Program.compute_magnitude`: the sum of the absolute values of the terms of an acceleration,
    at least 1.
    """

    worst: float = 0.0
    largest: float = 0.0
    """The largest entry of an acceleration."""
    answers: list[Any] = field(default_factory=list)
    """Accelerations (N, D) of all agents at every step."""
    degrees: list[float] = field(default_factory=list)
    """Mean degree at every step."""
    dropped: list[str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    """States of the agents of a `Safe` controller, step by step."""
    different_states: int = 0
    """How many of them are not those of the package."""


def fly(
    controller: Any,
    start: ef.Flock,
    make: Callable[[int, int], Any],
    steps: int,
    orbit: Orbit | None = None,
    radio: ef.Radio | None = None,
    delivering: ef.Radio | None = None,
    time_step: float = TIME_STEP,
) -> Parity:
    """Fly one flock with the package, and compare agents made by `make(number, group)` at every step.

    The order is that of a flight: all send, all receive, all act. If messages are used for longer than the step of
    their arrival, `delivering` is the radio that decides which arrive.
    """
    flock, found = round_to_float32(start), Parity()
    roles, groups, D = flock.roles[0], flock.groups[0], flock.shape[2]
    agents = {i: make(i, int(groups[i])) for i in range(len(roles)) if roles[i] == FOLLOWER}
    senses = ef.DelayedAggregation(controller.senses, orbit=orbit, radio=radio)
    arriving = ef.DelayedAggregation(controller.senses, radio=delivering or radio)
    program = read_program(controller, D)
    delay = 0 if radio is None else radio.delay
    think, silent = make_decision_function(controller, time_step, delay).decide, make_zero_hops(controller.senses, D)
    limits, sent = get_safety_limits(controller), []
    safety = None if limits is None else SafetyFilter(limits, controller.senses, time_step, radio or ef.Radio())
    for step in range(steps):
        known = senses.observe(flock)
        wanted = np.asarray(think(flock, known))[0]
        terms = program.compute_magnitude(known[0], time_step)
        if safety is not None:
            safety.observe(flock)
            wanted = safety.limit(flock, wanted[None])[0]
            terms = np.maximum(terms, safety.compute_magnitude(flock.velocities[0])[:, None])
        arriving.observe(flock)
        graph = arriving.compute_message_graph(flock)
        state = flock.positions[0].astype(np.float32), flock.velocities[0].astype(np.float32)
        said = []
        for j, role in enumerate(roles):
            if role == FOLLOWER:
                said.append(agents[j].begin(state[0][j], state[1][j]))
            else:
                said.append(encode_agent_message(flock, j, step, silent))
        sent.append(said)
        answers = np.zeros_like(wanted)
        for i, agent in agents.items():
            # In reverse order, which must not matter.
            received = (sent[step - delay][j] for j in graph.neighbours(0, i)[::-1])
            found.dropped += filter(None, map(agent.receive, received))
            answers[i] = agent.end()
            if safety is not None:
                found.states.append(agent.state)
                found.different_states += agent.state != ef.SafetyState(safety.states[0, i]).name
        follows = roles == FOLLOWER
        errors = np.abs(answers - wanted) / terms
        found.worst = max(found.worst, float(errors[follows].max()))
        found.largest = max(found.largest, float(np.abs(wanted[follows]).max()))
        found.answers.append(answers)
        found.degrees.append(float(graph.degrees.mean()))
        flock = _advance(flock, np.where(follows[:, None], wanted, 0.0), time_step)
    return found


def _advance(flock: ef.Flock, accelerations: Any, time_step: float) -> ef.Flock:
    # As far as a test needs: a body with limits, so that no flock flies apart within a few steps.
    velocities = flock.velocities + time_step * np.clip(accelerations, -20.0, 20.0)
    positions = flock.positions + time_step * flock.velocities
    arrays: Sequence[Any] = (positions, velocities, *flock.arrays[2:])
    return round_to_float32(ef.Flock(*arrays, comm_radius=flock.comm_radius))


def start_of(agents: int = 14, dimensions: int = 2, seed: int = 0, groups: int = 1, radius: float = 1.0) -> ef.Flock:
    """Return a flock in which agents have about half of the others as neighbours."""
    chance = np.random.default_rng(seed)
    side = {2: 1.1, 3: 0.8}[dimensions] * radius * (agents / 14) ** (1 / dimensions)
    positions = chance.uniform(-side, side, (1, agents, dimensions)) + 3.0 * radius
    velocities = radius * chance.normal(size=positions.shape)
    numbers = chance.integers(0, groups, (1, agents))
    return ef.Flock(positions, velocities, groups=numbers, comm_radius=radius)


def busiest(flock: ef.Flock) -> int:
    """Return the agent with the most neighbours."""
    return int(ef.radius_graph(flock).degrees[0].argmax())
