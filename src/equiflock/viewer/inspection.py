"""What a page shows of one agent: its state, its neighbours by hop, what it received, and why it accelerates.

A live flight knows all of it: the observations are those of its last step, which nothing computes again. A saved flight
has positions, velocities and commands, from which observations are computed again if all messages arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, shorten_repr
from equiflock.controllers.explanation import Explanation, explain
from equiflock.flock import Condition, Flock, Role
from equiflock.observations.radio import IDEAL_RADIO, Radio
from equiflock.plotting.player.frames import Links, build_links
from equiflock.plotting.player.playback import Playback
from equiflock.simulation.trajectory import Trajectory
from equiflock.viewer.live_flight import LiveFlight
from equiflock.viewer.live_simulation import LiveSimulation
from equiflock.viewer.saved_observations import (
    MAX_HOPS,
    SavedObservations,
    load_named_controller,
    observe_saved_frame,
    read_senses,
)

MAX_LISTED = 200
"""Maximum number of neighbours of one hop that are listed, the nearest; all are counted."""
MAX_VECTORS = 300
"""Maximum number of observed vectors, hops times channels, that are sent and explained."""
HOPS_OF_SAVED_FLIGHTS = 3
"""Hops of neighbours of a saved flight that does not say what its controller observes."""
TOLERANCE = 1e-3
"""Relative difference of commanded and explained acceleration up to which they are the same."""
CHANGED = "the flight was changed after its last step: the next step shows what the agent observes"
OTHER_REASONS = "the acceleration depends on more than these observations: on limits, memory, or other options"
SILENT_ROLES = {
    Role.LEADER: "a leader keeps its velocity: it receives nothing and commands nothing",
    Role.OBSTACLE: "an obstacle agent stands still: it receives nothing and commands nothing",
}
SILENT_CONDITIONS = {
    Condition.STOPPED: "a stopped agent stands still: it receives nothing and commands nothing",
    Condition.DRIFTING: "a drifting agent keeps its velocity: it receives nothing and commands nothing",
}
"""Why an agent has no observations and no acceleration."""


def describe_agent(current: LiveSimulation | Playback, agent: int | None, agent_id: int | None) -> dict[str, Any]:
    """Return the fields of the event "watched" for an agent, given by its index in the newest frame or by its id.

    `id` stays the same while agents come and go. `agent` is the index now, among `agents`; None if the agent with this
    id is gone. `panels` has a description for each flight. Raise InputError if the index is too large.
    """
    index, own_id, count = _find_agent(current, agent, agent_id)
    panels: list[dict[str, Any] | None] = []
    if index is not None and isinstance(current, Playback):
        panels = [_describe_saved_agent(run, current.frame, index) for run in current.runs]
    elif index is not None and isinstance(current, LiveSimulation):
        panels = [_describe_live_agent(live, index) for live in current.flights]
    return {"id": own_id, "agent": index, "agents": count, "step": current.step, "panels": panels}


def _find_agent(
    current: LiveSimulation | Playback, agent: int | None, agent_id: int | None
) -> tuple[int | None, int, int]:
    """Return index (None if there is none with this id), id and number of agents."""
    if isinstance(current, LiveSimulation):
        ids = current.flights[0].agent_ids
    else:
        ids = np.arange(max(run.positions.shape[2] for run in current.runs))
    if agent_id is not None:
        found = np.flatnonzero(ids == agent_id)
        return (int(found[0]) if len(found) else None), agent_id, len(ids)
    if agent is None or agent >= len(ids):
        raise InputError(f"agent must be below {len(ids)}; got {agent}")
    return agent, int(ids[agent]), len(ids)


def _describe_live_agent(live: LiveFlight, index: int) -> dict[str, Any]:
    """Return the description of an agent of a live flight."""
    flock, senses = live.flock, live.sensing.senses
    description = _describe_state(flock, index)
    links = _find_live_links(live, index)
    lost = links.lost_edges[links.lost_edges[:, 0] == index, 1]
    description |= {
        "neighbours": _describe_neighbours(flock, links, index, senses.hops),
        "lost": len(lost),
        "lost_senders": lost[:MAX_LISTED].tolist(),
        "ages": [_compute_age(live.environment.radio, hop) for hop in range(1, senses.hops + 1)],
        "time_step": live.flight.time_step,
        "commanded": _to_list(live.accelerations[0, index]),
        "channels": [list(channel) for channel in senses.channels],
        "observations": None,
        "explanation": None,
        "is_changed": live.is_changed,
        "reason": _explain_silence(flock, index),
    }
    if description["reason"] is None and live.is_changed:
        description["reason"] = CHANGED
    elif description["reason"] is None:
        observation, commanded = live.observations[0, index], live.accelerations[0, index]
        description |= _describe_observation(observation, commanded, lambda: live.explain(index))
    return description


def _describe_saved_agent(run: Trajectory, frame: int, index: int) -> dict[str, Any] | None:
    """Return the description of an agent of a saved flight; None if the flight has fewer agents."""
    flock = run.flock(frame)
    if index >= flock.shape[1]:
        return None
    # Half a step allows for the rounding of times.
    in_flight = run.times[frame] < (int(run.steps[0]) - 0.5) * run.time_step and frame < len(run.accelerations)
    commanded = run.accelerations[frame][0, index] if in_flight else None
    senses = read_senses(run.config)
    hops = min(HOPS_OF_SAVED_FLIGHTS if senses is None else senses.hops, MAX_HOPS)
    description = {
        **_describe_state(flock, index),
        "lost": None,
        "lost_senders": [],
        "ages": None,
        "time_step": run.time_step,
        "commanded": None if commanded is None else _to_list(commanded),
        "channels": [],
        "observations": None,
        "explanation": None,
        "is_changed": False,
        "reason": _explain_silence(flock, index),
    }
    links = None
    if description["reason"] is None:
        try:
            saved = observe_saved_frame(run, frame)
        except InputError as error:
            description["reason"] = str(error)
        else:
            description |= _describe_saved_observation(run, frame, index, saved, commanded)
            if saved.fixed_graph is not None:
                links = build_links(flock, fixed_graph=saved.fixed_graph)
    links = _find_links_nearby(flock, index, hops) if links is None else links
    return {**description, "neighbours": _describe_neighbours(flock, links, index, hops)}


def _describe_saved_observation(
    run: Trajectory, frame: int, index: int, saved: SavedObservations, commanded: NDArray[Any] | None
) -> dict[str, Any]:
    """Return observations of a saved flight; if its controller is known, they must lead to the saved command."""
    known: dict[str, Any] = {
        "channels": [list(channel) for channel in saved.senses.channels],
        "ages": [_compute_age(IDEAL_RADIO, hop) for hop in range(1, saved.senses.hops + 1)],
    }
    if commanded is None:
        own = {
            "observations": _list_vectors(saved.observations[0, index]),
            "reason": "nothing is commanded after the end",
        }
        return known | own

    def explain_saved() -> Explanation:
        controller = load_named_controller(str(run.config.get("controller")))
        return explain(controller, saved.observations, index, flock=run.flock(frame), time_step=run.time_step)

    return known | _describe_observation(saved.observations[0, index], commanded, explain_saved)


def _describe_state(flock: Flock, index: int) -> dict[str, Any]:
    """Return role, group, condition and speed of an agent, and the number of dimensions."""
    return {
        "role": Role(int(flock.roles[0, index])).name.lower(),
        "group": int(flock.groups[0, index]),
        "condition": Condition(int(flock.conditions[0, index])).name.lower(),
        "speed": float(np.linalg.norm(flock.velocities[0, index])),
        "dimensions": flock.shape[2],
    }


def _explain_silence(flock: Flock, index: int) -> str | None:
    """Return why an agent receives nothing and commands nothing; None for a follower that works or is silent."""
    role = SILENT_ROLES.get(Role(int(flock.roles[0, index])))
    return role or SILENT_CONDITIONS.get(Condition(int(flock.conditions[0, index])))


def _find_live_links(live: LiveFlight, index: int) -> Links:
    """Return the messages in use, and lost ones, of all agents or of those that matter for an agent."""
    if live.environment.radio.is_ideal and live.sensing.fixed_graph is None:
        return _find_links_nearby(live.flock, index, live.sensing.senses.hops, live.sensing.obstacles)
    return live.compute_links()


def _find_links_nearby(flock: Flock, index: int, hops: int, obstacles: str = "nearest") -> Links:
    """Return the messages of an ideal radio among the agents that an agent's hops can reach."""
    distances = _measure(flock.positions[0] - flock.positions[0, index])
    near = np.flatnonzero(distances <= (1.001 * hops * flock.comm_radius) ** 2)
    links = build_links(
        Flock.view(*(array[:, near] for array in flock.arrays), comm_radius=flock.comm_radius), obstacles=obstacles
    )
    return links._replace(edges=near[links.edges])


def _describe_neighbours(flock: Flock, links: Links, index: int, hops: int) -> list[dict[str, Any]] | None:
    """Return count and links of the neighbours at each hop 1 .. `hops`; None if the flock is too dense to list them.

    An agent of hop k sends to one of hop k - 1, and to none of a lower hop. Its link (receiver, sender) leads to the
    nearest of these. Of more than MAX_LISTED agents only the nearest to the agent are listed.
    """
    if links.too_many:
        return None
    edges, positions = links.edges, flock.positions[0]
    reached = np.zeros(len(positions), bool)
    reached[index] = True
    last, described = reached, []
    for _ in range(hops):
        onward = edges[last[edges[:, 0]] & ~reached[edges[:, 1]]]
        lengths = _measure(positions[onward[:, 0]] - positions[onward[:, 1]])
        # The first link of each sender is its shortest.
        onward = onward[np.lexsort((lengths, onward[:, 1]))]
        senders, first = np.unique(onward[:, 1], return_index=True)
        order = np.argsort(_measure(positions[senders] - positions[index]), kind="stable")
        described.append({"count": len(senders), "links": onward[first][order][:MAX_LISTED].tolist()})
        last = np.zeros(len(positions), bool)
        last[senders] = reached[senders] = True
    return described


def _measure(vectors: NDArray[Any]) -> Float64[np.ndarray, " n"]:
    """Return the squared norms of vectors (n, D)."""
    return np.asarray(np.square(vectors).sum(axis=1))


def _compute_age(radio: Radio, hop: int) -> list[int]:
    """Return the least and the largest age, in steps, of what an agent observes at a hop.

    Each of its k hops takes from `delay` steps to `memory`, and a relay passes on what it observed a step before.
    """
    return [hop * radio.delay + hop - 1, hop * radio.memory + hop - 1]


def _describe_observation(
    observation: NDArray[Any], commanded: NDArray[Any], explain_agent: Callable[[], Explanation]
) -> dict[str, Any]:
    """Return the observation (K, C, D) of a follower and the contributions to its acceleration, or why there are none.

    `explain_agent` is called for the latter.
    """
    K, C = observation.shape[:2]
    if K * C > MAX_VECTORS:
        return {"reason": f"the controller observes {K * C} vectors; at most {MAX_VECTORS} are shown"}
    explained: dict[str, Any] = {"observations": _list_vectors(observation)}
    try:
        explanation = explain_agent()
    except InputError as error:
        return {**explained, "reason": str(error)}
    except Exception as error:  # a plugin's controller may raise anything
        text = f"{type(error).__name__}: {shorten_repr(str(error))}"
        return {**explained, "reason": f"the controller cannot be evaluated for one agent: {text}"}
    parts = np.stack([part.vector for part in explanation.contributions])
    if not (np.isfinite(parts).all() and np.isfinite(explanation.acceleration).all()):
        return {**explained, "reason": "the controller returns NaN near these observations"}
    size = np.linalg.norm(commanded) + np.linalg.norm(parts, axis=1).sum()
    if np.linalg.norm(explanation.acceleration - commanded) > TOLERANCE * size:
        return {**explained, "reason": OTHER_REASONS}
    return {**explained, "explanation": _describe_explanation(explanation)}


def _describe_explanation(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as lists."""
    return {
        "method": explanation.method,
        "contributions": [
            {"name": part.name, "hop": part.hop, "channel": part.channel, "vector": _to_list(part.vector)}
            for part in explanation.contributions
        ],
        "remainder": _to_list(explanation.remainder),
    }


def _list_vectors(observation: NDArray[Any]) -> list[list[list[float]]]:
    """Return an observation (K, C, D) as lists."""
    return [[_to_list(vector) for vector in hop] for hop in observation]


def _to_list(vector: NDArray[Any]) -> list[float]:
    """Return a vector as numbers of six digits, which keeps messages short."""
    return [float(f"{value:.6g}") for value in vector.tolist()]
