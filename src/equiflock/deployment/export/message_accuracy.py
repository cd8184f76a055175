"""Loss of accuracy by compact messages: accelerations from decoded messages compared with exact ones, on a flight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equiflock.deployment.export.program import Program
from equiflock.deployment.wire_format import CompactFormat, dequantize, quantize, round_to_float16
from equiflock.flock import Flock
from equiflock.graph.radius_graph import Graph, radius_graph
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.scenarios.random_disk import random_disk

AGENTS, STEPS, SEED = 30, 30, 0
TIME_STEP = 0.01
"""In seconds of the controller."""
MAX_ACCELERATION = 20.0
"""In R per squared second of the controller, so that no flock flies apart."""


def measure_accuracy_losses(
    program: Program, comm_radius: float, formats: Sequence[CompactFormat | None]
) -> list[float]:
    """Return the loss of accuracy of each format; None is version 1, float32.

    A random flock flies under exact messages. Along its trajectory the agents of each format observe what they decode,
    and relay it. The loss is the RMS difference of accelerations over agents and steps, relative to the RMS
    acceleration; NaN if there is none.
    """
    senses, D = program.senses, program.dimensions
    start = random_disk(flocks=1, agents=AGENTS, seed=SEED, dimensions=D)
    flock, dt = start.in_units(1.0 / comm_radius, 1.0 / senses.time_scale), TIME_STEP * senses.time_scale
    limit = MAX_ACCELERATION * comm_radius / senses.time_scale**2
    sensing = DelayedAggregation(replace(senses, topology="fixed"), orbit=program.orbit)
    links = radius_graph(flock)
    memory = np.zeros((1 + len(formats), AGENTS, senses.hops, senses.width, D), np.float32)
    total, differences = 0.0, np.zeros(len(formats))
    for step in range(STEPS):
        links = links if senses.topology == "fixed" else radius_graph(flock)
        sent = [_round_state(flock, each) for each in formats]
        memory[0] = _observe(sensing, flock, flock.arrays[:2], memory[0], links)
        for n, (each, state) in enumerate(zip(formats, sent, strict=True), start=1):
            memory[n] = _observe(sensing, flock, state, _round_memory(memory[n], each), links)
        exact, *rounded = program(memory)
        if step >= senses.hops:
            total += float(np.square(exact).sum())
            differences += [float(np.square(each - exact).sum()) for each in rounded]
        velocities = flock.velocities + dt * np.clip(np.nan_to_num(exact), -limit, limit)
        flock = replace(flock, positions=flock.positions + dt * flock.velocities, velocities=velocities)
    return [float(each) for each in np.sqrt(differences / total)] if total > 0.0 else [np.nan] * len(formats)


def _round_state(flock: Flock, compact: CompactFormat | None) -> list[NDArray[Any]]:
    """Return positions and velocities as receivers decode them."""
    if compact is None:
        return [array.astype(np.float32) for array in flock.arrays[:2]]
    pairs = zip(flock.arrays[:2], compact.quanta, strict=True)
    return [dequantize(quantize(array, quantum), array, quantum) for array, quantum in pairs]


def _round_memory(memory: NDArray[np.float32], compact: CompactFormat | None) -> NDArray[np.float32]:
    """Return observations as receivers decode them: without the hops that are not sent."""
    if compact is None:
        return memory
    rounded = round_to_float16(memory).astype(np.float32)
    rounded[:, compact.relayed_hops :] = 0.0
    return rounded


def _observe(
    sensing: DelayedAggregation, flock: Flock, sent: Sequence[NDArray[Any]], relayed: NDArray[np.float32], links: Graph
) -> NDArray[np.float32]:
    """Return the observations (N, K, C, D) of agents that know their own state and receive the states `sent`.

    Agent i observes in copy i of the flock, in which only agent i receives.
    """
    N, own = flock.shape[1], np.arange(flock.shape[1])
    states = [np.repeat(np.asarray(array, np.float64), N, axis=0) for array in sent]
    for array, exact in zip(states, flock.arrays[:2], strict=True):
        array[own, own] = exact[0]
    flocks = Flock(*states, comm_radius=flock.comm_radius)
    sensing.fixed_graph = Graph.from_edges(links.rows * (N + 1), links.senders, (N, N))
    sensing.load_memory(flocks, np.repeat(relayed[None], N, axis=0))
    return np.asarray(sensing.observe(flocks)[own, own])
