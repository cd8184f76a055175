"""Locality audit in the simulator: does a controller use anything that its agent did not receive?

The audit records every state of a flight and all messages that agents used. Then, for one agent at a time, it changes
everything outside the agent's causal past: positions and velocities of others, and the number of agents. No changed
agent comes in range of an agent whose observations reach the audited one, so that one still receives the same messages.
Senses and controller process these changed flocks step by step, and the agent's accelerations must be bit-identical.
The changed states are arbitrary, so they also cover others that fly with other weights.
"""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from equiflock._runtime.checks import InputError, check_count, shorten_repr
from equiflock._runtime.files import atomic_write
from equiflock._runtime.randomness import make_rng
from equiflock.controllers.safety_limits import get_safety_limits
from equiflock.deployment.wire_format import count_message_bytes
from equiflock.flock import FOLLOWER, OBSTACLE, Flock
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.observations.orbit import Orbit
from equiflock.observations.radio import Radio, check_radio
from equiflock.plotting.html_report import Chip, HtmlReport, format_markdown_table
from equiflock.protocols import Controller, Moment
from equiflock.scenarios.random_disk import random_disk
from equiflock.simulation.flight import DecisionFunction
from equiflock.simulation.flight_builder import check_controller, flight, make_decision_function
from equiflock.simulation.safety_filter import SafetyFilter

Edges = Int64[np.ndarray, "edges 2"]
"""Messages used at a step, as rows (receiver, sender)."""
ADDED_AGENT_COUNT = 7
"""Number of agents that the audit adds."""
PLACEMENT_TRIES = 5
"""Attempts to place an agent just out of range before it is placed far away."""
CHANGE_KINDS = ("positions of others", "velocities of others", "number of others", "all at once")
MAX_LINES = 400
"""Lines of the record that the page shows per agent; the .csv file has the whole record."""
OWN_MEASUREMENT = -1
"""Sender of an agent's own measurements."""


class ReceivedItem(NamedTuple):
    """A message that an agent used, or its own measurement."""

    agent: int
    step: int
    sender: int
    """Number of the sender, or `OWN_MEASUREMENT`."""
    size: int
    """Bytes."""
    content: str = ""
    """The bytes as hexadecimal digits; empty in the simulator, which sends no bytes."""


class ChangeEffect(NamedTuple):
    """Effect of a change, to states that one agent did not receive, on its accelerations."""

    agent: int
    change_kind: str
    changed_agents: int
    """Number of agents that were changed at some step, or added."""
    compared_count: int
    """Number of compared accelerations, one per step."""
    different_count: int
    """Number of accelerations, or a swarm's messages with them, that are not bit-identical."""
    largest_difference: float
    """Largest difference of a component of an acceleration; infinite if one is missing."""


@dataclass(frozen=True)
class Audit:
    """Result of an audit: `audit.passed`, `print(audit)`, `audit.save("audit.html")`."""

    controller: str
    procedure: str
    """Description of the flight and the changes."""
    record: tuple[ReceivedItem, ...]
    changes: tuple[ChangeEffect, ...]

    @property
    def passed(self) -> bool:
        """Whether all compared accelerations, and a swarm's messages, are bit-identical."""
        return all(change.different_count == 0 for change in self.changes)

    @property
    def agents(self) -> tuple[int, ...]:
        """Numbers of the audited agents."""
        return tuple(sorted({change.agent for change in self.changes}))

    @property
    def verdict(self) -> str:
        """Verdict in one sentence, with the first kind of change that had an effect."""
        if self.passed:
            return f"{self.controller} used nothing that it did not receive"
        failed = [change for change in self.changes if change.different_count > 0]
        return (
            f"{self.controller} used what it did not receive: accelerations of {len({each.agent for each in failed})} "
            f"of {len(self.agents)} agents changed with {failed[0].change_kind}"
        )

    def build_table(self) -> tuple[tuple[str, ...], list[list[str]]]:
        """Return the header and a row for each kind of change, with sums over the audited agents."""
        header = "change", "agents changed", "accelerations compared", "not bit-identical", "largest difference"
        rows = []
        for change_kind in dict.fromkeys(change.change_kind for change in self.changes):
            changes = [change for change in self.changes if change.change_kind == change_kind]
            counts = sorted({change.changed_agents for change in changes})
            compared = sum(change.compared_count for change in changes)
            different = sum(change.different_count for change in changes)
            largest = max(change.largest_difference for change in changes)
            changed = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
            rows.append([change_kind, changed, f"{compared:,}", f"{different:,}", f"{largest:.3g}"])
        return header, rows

    def __str__(self) -> str:
        return f"{self.verdict}\n{format_markdown_table(*self.build_table())}"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the verdict as an HTML page, and the whole record to a .csv file of the same stem. Return the page."""
        page_path = Path(path)
        table = page_path.with_suffix(".csv")
        if table == page_path:
            raise InputError(
                f"path must not end in .csv, which is the record's file: use a name such as audit.html, got {path}"
            )
        with atomic_write(table) as scratch, scratch.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("agent", "step", "sender", "bytes", "content"))
            writer.writerows(
                (a, step, _format_sender(sender), size, content) for a, step, sender, size, content in self.record
            )
        page = HtmlReport(
            f"Locality audit of {self.controller}", "Whether its accelerations depend on anything but its neighbours."
        )
        page.add_verdict(f"{self.verdict}.", [Chip("holds", "passed") if self.passed else Chip("fails", "failed")])
        page.add_text(self.procedure)
        page.add_table(*self.build_table())
        page.add_heading("Agents")
        page.add_table(*self._build_agent_table())
        page.add_heading("Record of received messages")
        page.add_text(
            f"{table.name} has the whole record, a line per message or measurement. This page shows at most "
            f"{MAX_LINES} lines per agent."
        )
        for agent, rows in groupby(sorted(self.record), key=lambda row: row.agent):
            with page.fold(f"agent {agent}"):
                page.add_table(*_build_record_table(list(rows)), align_left=True)
        return page.write(page_path)

    def _build_agent_table(self) -> tuple[tuple[str, ...], list[list[str]]]:
        """Return the header and a row per audited agent. Its own measurements do not count as messages."""
        messages: dict[int, list[ReceivedItem]] = {agent: [] for agent in self.agents}
        for item in self.record:
            if item.sender != OWN_MEASUREMENT and item.agent in messages:
                messages[item.agent].append(item)
        different: Counter[int] = Counter()
        for change in self.changes:
            different[change.agent] += change.different_count
        header = "agent", "messages", "bytes", "senders", "accelerations not bit-identical"
        rows = []
        for agent, items in messages.items():
            size, senders = sum(item.size for item in items), {item.sender for item in items}
            rows.append([str(agent), f"{len(items):,}", f"{size:,}", f"{len(senders)}", f"{different[agent]:,}"])
        return header, rows


def _format_sender(sender: int) -> str:
    return "itself" if sender == OWN_MEASUREMENT else str(sender)


def _build_record_table(rows: Sequence[ReceivedItem]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Return the record of one agent, at most MAX_LINES lines: one per message with content, else one per step."""
    if any(row.content for row in rows):
        lines = [[str(row.step), _format_sender(row.sender), str(row.size), row.content] for row in rows]
        header: tuple[str, ...] = "step", "sender", "bytes", "content"
    else:
        header, lines = ("step", "senders", "bytes"), []
        for step, group in groupby(rows, key=lambda row: row.step):
            items = list(group)
            lines.append([str(step), ", ".join(str(row.sender) for row in items), str(sum(row.size for row in items))])
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], [f"and {len(lines) - MAX_LINES:,} more", *[""] * (len(header) - 1)]]
    return header, lines


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
    """Check whether a controller uses anything that its agent did not receive.

    Raise InputError if the controller is not deterministic, or if the states of all agents reach all audited agents, so
    that there is nothing to change.

    Args:
        controller: any controller. An expert, which sees the whole flock, fails if it uses agents out of range.
        start: a single flock, wide enough that some agents are out of range of others; if None, 100 agents in a disk,
            in the controller's units.
        steps: number of steps.
        agents: number of audited followers, chosen at random.
        time_step: dt, in seconds.
        radio: model of communication; ideal if None.
        orbit: orbit technique of the followers, or None.
        seed: seed of all random draws.
    """
    check_controller(controller)
    steps, radio = check_count("steps", steps), check_radio(radio)
    if start is None:
        length, time = controller.senses.scales
        start = random_disk(flocks=1, agents=100, seed=seed).in_units(1.0 / length, 1.0 / time)
    if not isinstance(start, Flock) or len(start) != 1 or not start.all_working:
        raise InputError(f"start must be a Flock of one flock without failed agents, got {shorten_repr(start)}")
    loop = flight(start, controller, time_step=time_step, radio=radio, orbit=orbit)
    flocks, edges, accelerations = _record_moments(islice(loop, steps))
    decide, rng = make_decision_function(controller, time_step, radio.latency).decide, make_rng(seed, "audit")

    limits = get_safety_limits(controller)

    def replay(flocks: list[Flock]) -> Float64[np.ndarray, "T N D"]:
        sensing = DelayedAggregation(controller.senses, radio=radio, orbit=orbit)
        safety = None if limits is None else SafetyFilter(limits, controller.senses, time_step, radio)
        return _replay_flocks(flocks, sensing, decide, safety)

    name = str(getattr(controller, "name", type(controller).__name__))
    if not np.array_equal(replay(flocks), accelerations):
        raise InputError(
            f"{name} returns different accelerations for the same observations: only a deterministic controller can be "
            "audited"
        )
    changes, record = [], []
    followers = np.flatnonzero(start.roles[0] == FOLLOWER)
    for agent in np.sort(rng.choice(followers, min(check_count("agents", agents), len(followers)), replace=False)):
        reached = compute_causal_past(int(agent), edges, start.shape[1], controller.senses.hops, radio.memory)
        if controller.senses.topology == "fixed":
            reached[0] |= reached.any(axis=0)  # step 0 determines the neighbours of all steps
        record += _list_received(int(agent), edges, count_message_bytes(controller.senses, start.shape[2]))
        for change_kind in CHANGE_KINDS:
            changed, count = _change_unreached(flocks, reached, change_kind, rng)
            now = replay(changed)[:, agent]
            changes.append(_compare_accelerations(int(agent), change_kind, count, accelerations[:, agent], now))
    if all(change.changed_agents == 0 for change in changes if change.change_kind == CHANGE_KINDS[0]):
        raise InputError(
            "information of every agent reaches every other in this flock: audit a wider one, such as "
            "start=random_disk(..)"
        )
    procedure = (
        f"{start.shape[1]} agents flew {steps} steps of {time_step:g} s in the simulator. For each audited agent, "
        "everything was changed that did not reach it, directly or relayed by neighbours, and its accelerations were "
        "computed again."
    )
    return Audit(name, procedure, tuple(record), tuple(changes))


def _record_moments(moments: Iterable[Moment]) -> tuple[list[Flock], list[Edges], Float64[np.ndarray, "T N D"]]:
    """Return the flocks of a flight, the messages that agents used, and their accelerations."""
    flocks, edges, accelerations = [], [], []
    for moment in moments:
        flocks.append(
            Flock.view(*(array.copy() for array in moment.flock.arrays), comm_radius=moment.flock.comm_radius)
        )
        assert moment.compute_message_graph is not None
        edges.append(moment.compute_message_graph().edges(0))
        accelerations.append(moment.accelerations[0].copy())
    return flocks, edges, np.array(accelerations)


def _replay_flocks(
    flocks: Iterable[Flock], sensing: DelayedAggregation, decide: DecisionFunction, safety: SafetyFilter | None
) -> Float64[np.ndarray, "T N D"]:
    """Return the accelerations in these flocks, one per step; zero for agents that are not followers."""
    steps = []
    for flock in flocks:
        accelerations = np.array(decide(flock, sensing.observe(flock)), np.float64)
        if safety is not None:
            safety.observe(flock)
            accelerations = safety.limit(flock, accelerations)
        accelerations[flock.roles != FOLLOWER] = 0.0
        steps.append(accelerations[0])
    return np.array(steps)


def compute_causal_past(
    agent: int, edges: Sequence[Edges], agents: int, hops: int, memory: int
) -> Bool[np.ndarray, "T N"]:
    """Return, for each step and agent, whether that state can affect any acceleration of `agent` during the flight.

    At step n agent i receives messages with the senders' states and their observations of the previous step. So the
    state of j at step n has reached i if i receives from j at n, the state of k at n - 1 if j received from k at n - 1,
    and so on for K hops. True also for states that decide whose messages are in range.

    `edges` are the messages used at every step, `agents` is N, `memory` the largest age of a used message in steps.
    """
    steps = len(edges)
    # depth[n, j]: number of hops of agent j's observations at step n that reach the agent.
    depth = np.zeros((steps, agents), np.int64)
    depth[:, agent] = hops
    reached = np.zeros((steps, agents), bool)
    for n in reversed(range(steps)):
        relevant = depth[n] > 0
        reached[n] |= relevant
        receivers, senders = edges[n][relevant[edges[n][:, 0]]].T
        for m in range(max(n - memory, 0), n + 1):
            reached[m, senders] = True
            # Receivers must not move either at step m: their positions decide whose messages are in range.
            reached[m] |= relevant
            if m > 0:
                np.maximum.at(depth[m - 1], senders, depth[n, receivers] - 1)
    return reached


def _list_received(agent: int, edges: list[Edges], size: int) -> list[ReceivedItem]:
    """Return the messages, of `size` bytes each, that an agent used, by step and sender."""
    return [
        ReceivedItem(agent, step, int(sender), size)
        for step, pairs in enumerate(edges)
        for sender in np.sort(pairs[pairs[:, 0] == agent, 1])
    ]


def _change_unreached(
    flocks: list[Flock], reached: Bool[np.ndarray, "T N"], change_kind: str, rng: np.random.Generator
) -> tuple[list[Flock], int]:
    """Return copies of the flocks with all states outside `reached` changed, and the number of changed or added agents.

    New states are random and independent at every step; obstacle agents do not change. Added agents come last.
    """
    changes_positions, changes_velocities, adds_agents = (
        change_kind in (kind, CHANGE_KINDS[-1]) for kind in CHANGE_KINDS[:-1]
    )
    unreached = ~reached & (flocks[0].roles[0] != OBSTACLE)
    changed = []
    for flock, kept, free in zip(flocks, reached, unreached, strict=True):
        positions, velocities, reach = flock.positions[0].copy(), flock.velocities[0].copy(), flock.comm_radius
        kept_positions = positions[kept]
        if changes_positions:
            positions[free] = _draw_positions_out_of_reach(positions[free], kept_positions, reach, rng)
        if changes_velocities:
            velocities[free] = rng.normal(0.0, 1.0 + np.abs(velocities).max(), velocities[free].shape)
        arrays = [positions, velocities, *(array[0] for array in flock.arrays[2:])]
        if adds_agents:
            near = kept_positions[rng.integers(len(kept_positions), size=ADDED_AGENT_COUNT)]
            added = [_draw_positions_out_of_reach(near, kept_positions, reach, rng), rng.normal(size=near.shape)]
            arrays[:2] = [np.concatenate(pair) for pair in zip(arrays[:2], added, strict=True)]
            # Working followers of group 0, of no obstacle.
            arrays[2:] = [
                np.concatenate([array, np.full(ADDED_AGENT_COUNT, value, array.dtype)])
                for array, value in zip(arrays[2:], (FOLLOWER, -1, 0, 0), strict=True)
            ]
        changed.append(Flock(*(array[None] for array in arrays), comm_radius=reach))
    moved_count = int(unreached.any(axis=0).sum()) * (changes_positions or changes_velocities)
    return changed, moved_count + ADDED_AGENT_COUNT * adds_agents


def _draw_positions_out_of_reach(
    near: Float64[np.ndarray, "M D"], kept: Float64[np.ndarray, "A D"], reach: float, rng: np.random.Generator
) -> Float64[np.ndarray, "M D"]:
    """Return random positions out of range of all `kept` positions: around `near` if possible, else far away."""
    # Far: beyond all kept agents, in a random direction.
    far = rng.normal(size=near.shape)
    far *= (np.ptp(kept, axis=0).max() + 10.0 * reach) / np.linalg.norm(far, axis=1, keepdims=True)
    positions: Float64[np.ndarray, "M D"] = kept.mean(axis=0) + far * rng.uniform(1.0, 3.0, (len(near), 1))
    # Just out of range, which is the harder test.
    for _ in range(PLACEMENT_TRIES):
        candidates = near + rng.normal(0.0, reach, near.shape)
        distances = np.linalg.norm(candidates[:, None] - kept[None], axis=2).min(axis=1)
        positions = np.where((distances > 1.001 * reach)[:, None], candidates, positions)
    return positions


def _compare_accelerations(agent: int, change_kind: str, count: int, before: Any, now: Any) -> ChangeEffect:
    """Return the number of steps at which the bits of two accelerations (T, D) differ, and the largest difference."""
    different = (before.view(np.uint64) != np.ascontiguousarray(now).view(np.uint64)).any(axis=1)
    return ChangeEffect(agent, change_kind, count, len(before), int(different.sum()), float(np.abs(now - before).max()))
