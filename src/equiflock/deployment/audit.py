"""The locality audit in the simulator: does a controller use anything that its agent did not hear?

A flight is recorded: every state, and who used a message of whom. Then, for one agent at a time, everything that did
not reach it (see `cone`) is changed: where the others are and how they fly, and agents are added. Nobody comes within
reach of anybody whose knowledge reaches the agent, so it still receives the same messages. Senses and controller are
given these changed flocks, step by step, and the agent's accelerations must be the same to the bit. The states of the
others are any at all, so this is also what it would see if they flew by other weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from equiflock.deployment.audit_result import Audit, ChangeEffect, ReceivedItem
from equiflock.deployment.causal_past import Edges, compute_causal_past
from equiflock.deployment.wire_format import count_message_bytes
from equiflock.flock import FOLLOWER, OBSTACLE, Flock
from equiflock.protocols import Controller
from equiflock.runtime.checks import InputError, check_count, shorten_repr
from equiflock.runtime.randomness import make_rng
from equiflock.scenarios.random_disk import random_disk
from equiflock.senses.aggregation import DelayedAggregation
from equiflock.senses.orbit import Orbit
from equiflock.senses.radio import Radio, check_radio
from equiflock.simulation.flight_builder import check_controller, flight, make_decision_function

ADDED_AGENT_COUNT = 7
"""So many agents are added."""
PLACEMENT_TRIES = 5
"""So often a place just out of reach is looked for before an agent is sent far away."""
CHANGE_KINDS = ("the positions of others", "the velocities of others", "how many others there are", "all of it at once")


def audit(
    controller: Controller,
    *,
    start: Flock | None = None,
    steps: int = 20,
    agents: int = 8,
    time_step: float = 0.01,
    radio: Radio | None = None,
    orbit: Orbit | None = None,
    seed: int = 0,
) -> Audit:
    """Look whether a controller uses anything that its agent did not receive.

    Args:
        controller: any controller. One that sees the flock, an expert, fails if it looks at what is out of reach.
        start: a single flock, wide enough for some to be out of reach of others; 100 agents in a disk if left out, in
            the controller's units.
        steps: how many steps are flown.
        agents: how many followers are looked at, chosen at random.
        time_step: dt, in seconds.
        radio: how messages travel; all arrive at once and exact if left out.
        orbit: the technique by which followers avoid obstacles, if they do.
        seed: of everything that is drawn at random.
    """
    check_controller(controller)
    steps, radio = check_count("steps", steps), check_radio(radio)
    start = _draw_default_start(controller, seed) if start is None else _check_single_flock(start)
    rng = make_rng(seed, "audit")
    # Of the flight, what happened: the states, who heard whom, and what agents did.
    loop = flight(start, controller, time_step=time_step, radio=radio, orbit=orbit)
    flocks, edges, answers = [], [], []
    for moment in islice(loop, steps):
        flocks.append(Flock.view(*(array.copy() for array in moment.flock.arrays), comm_radius=start.comm_radius))
        edges.append(_get_edges(moment.compute_message_graph))
        answers.append(moment.accelerations[0].copy())
    replay = _Replay(controller, radio, orbit)
    name = str(getattr(controller, "name", type(controller).__name__))
    if not np.array_equal(replay.accelerations(flocks), np.array(answers)):
        raise InputError(f"{name} answers the same observations differently each time: its accelerations prove nothing")
    changes, record = [], []
    followers = np.flatnonzero(start.roles[0] == FOLLOWER)
    for agent in np.sort(rng.choice(followers, min(check_count("agents", agents), len(followers)), replace=False)):
        reached = compute_causal_past(int(agent), edges, start.shape[1], controller.senses.hops, radio.memory)
        if controller.senses.topology == "fixed":
            reached[0] |= reached.any(axis=0)  # whom an agent ever hears was decided then
        record += _list_received(int(agent), edges, count_message_bytes(controller.senses, start.shape[2]))
        for change_kind in CHANGE_KINDS:
            changed, count = _change_unreached(flocks, reached, change_kind, rng)
            now = replay.accelerations(changed)[:, agent]
            changes.append(_compare_accelerations(int(agent), change_kind, count, np.array(answers)[:, agent], now))
    if all(change.changed == 0 for change in changes if change.change_kind == CHANGE_KINDS[0]):
        raise InputError(
            "every agent of this flock reaches every other: audit a wider one, such as start=random_disk(..)"
        )
    procedure = (
        f"{start.shape[1]} agents flew {steps} steps of {time_step:g} s in the simulator. For each agent looked at, "
        "everything that did not reach it, in a message or passed on by those it heard, was changed, and the flight "
        "was computed again from what agents received."
    )
    return Audit(name, procedure, tuple(record), tuple(changes), steps)


class _Replay:
    """Senses and controller, given flocks whose states are decided by somebody else."""

    def __init__(self, controller: Controller, radio: Radio, orbit: Orbit | None) -> None:
        self.senses, self.sensing_options = controller.senses, {"radio": radio, "orbit": orbit}
        self.decide, _ = make_decision_function(controller)

    def accelerations(self, flocks: Iterable[Flock]) -> Float64[np.ndarray, "T N D"]:
        """The accelerations at every step."""
        sensing = DelayedAggregation(self.senses, **self.sensing_options)  # type: ignore[arg-type]
        found = []
        for flock in flocks:
            answer = np.array(self.decide(flock, sensing.observe(flock)), np.float64)
            answer[flock.roles != FOLLOWER] = 0.0
            found.append(answer[0])
        return np.array(found)


def _draw_default_start(controller: Controller, seed: int) -> Flock:
    """100 agents in a disk, in the units that the controller was loaded for."""
    start = random_disk(flocks=1, agents=100, seed=seed)
    length, time = controller.senses.scales
    return start.in_units(1.0 / length, 1.0 / time) if controller.senses.is_scaled else start


def _check_single_flock(start: Flock) -> Flock:
    if not isinstance(start, Flock) or len(start) != 1 or not start.all_working:
        raise InputError(f"start must be a Flock of one flock whose agents all work; got {shorten_repr(start)}")
    return start


def _get_edges(heard: Any) -> Edges:
    edges: Edges = heard().edges(0)
    return edges


def _list_received(agent: int, edges: list[Edges], size: int) -> list[ReceivedItem]:
    """The messages that an agent used."""
    return [
        ReceivedItem(agent, step, int(sender), size)
        for step, some in enumerate(edges)
        for sender in np.sort(some[some[:, 0] == agent, 1])
    ]


def _change_unreached(
    flocks: list[Flock], reached: Bool[np.ndarray, "T N"], change_kind: str, rng: np.random.Generator
) -> tuple[list[Flock], int]:
    """The flocks with everything of a kind changed that did not reach an agent, and how many agents that are."""
    moves, turns, grows = (change_kind in (kind, CHANGE_KINDS[-1]) for kind in CHANGE_KINDS[:-1])
    roles = flocks[0].roles[0]
    # Obstacle agents stand still, all the time.
    free = ~reached & (roles != OBSTACLE)
    found = []
    for flock, mine, other in zip(flocks, reached, free, strict=True):
        positions, velocities, reach = flock.positions[0].copy(), flock.velocities[0].copy(), flock.comm_radius
        kept = positions[mine]
        if moves:
            positions[other] = _draw_positions_out_of_reach(positions[other], kept, reach, rng)
        if turns:
            velocities[other] = rng.normal(0.0, 1.0 + np.abs(velocities).max(), velocities[other].shape)
        arrays = [positions, velocities, *(array[0] for array in flock.arrays[2:])]
        if grows:
            near = kept[rng.integers(len(kept), size=ADDED_AGENT_COUNT)]
            more = [_draw_positions_out_of_reach(near, kept, reach, rng), rng.normal(size=near.shape)]
            arrays[:2] = [np.concatenate(pair) for pair in zip(arrays[:2], more, strict=True)]
            # Followers of group 0 that work and are no obstacle.
            arrays[2:] = [
                np.concatenate([array, np.full(ADDED_AGENT_COUNT, value, array.dtype)])
                for array, value in zip(arrays[2:], (FOLLOWER, -1, 0, 0), strict=True)
            ]
        found.append(Flock(*(array[None] for array in arrays), comm_radius=reach))
    return found, int(free.any(axis=0).sum()) * (moves or turns) + ADDED_AGENT_COUNT * grows


def _draw_positions_out_of_reach(
    near: Float64[np.ndarray, "M D"], kept: Float64[np.ndarray, "A D"], reach: float, rng: np.random.Generator
) -> Float64[np.ndarray, "M D"]:
    """Places around `near` from which nobody of `kept` can be reached, else far away."""
    # Far: beyond everybody, in any direction.
    far = rng.normal(size=near.shape)
    far *= (np.ptp(kept, axis=0).max() + 10.0 * reach) / np.linalg.norm(far, axis=1, keepdims=True)
    places: Float64[np.ndarray, "M D"] = kept.mean(axis=0) + far * rng.uniform(1.0, 3.0, (len(near), 1))
    # As near as they may come, which is more of a trial.
    for _ in range(PLACEMENT_TRIES):
        tried = near + rng.normal(0.0, reach, near.shape)
        distances = np.linalg.norm(tried[:, None] - kept[None], axis=2).min(axis=1)
        places = np.where((distances > 1.001 * reach)[:, None], tried, places)
    return places


def _compare_accelerations(agent: int, change_kind: str, count: int, before: Any, now: Any) -> ChangeEffect:
    different = (before.view(np.uint64) != np.ascontiguousarray(now).view(np.uint64)).any(axis=1)
    return ChangeEffect(agent, change_kind, count, len(before), int(different.sum()), float(np.abs(now - before).max()))
