"""The air of a swarm: which messages reach whom at a step, by the radio and the hash of the simulator."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from equiflock.features import Senses
from equiflock.flock import FOLLOWER, STOPPED, WORKING, Flock
from equiflock.runtime.checks import InputError
from equiflock.senses.delayed_messages import MessageWindow
from equiflock.senses.graph import Graph, radius_graph
from equiflock.senses.message_buffer import MessageBuffer
from equiflock.senses.message_graph import build_message_graph
from equiflock.senses.radio import Radio


class MessageDelivery:
    """Which messages arrive, step by step. How long they are used is the receivers' own affair.

    Args:
        radio: how messages travel.
        senses: of the controller, by whose units and topology they are within reach.
    """

    def __init__(self, radio: Radio, senses: Senses) -> None:
        # What a message says is the sender's, and what its receiver measures is its own: the air changes neither.
        for name in ("noise", "quantization"):
            if getattr(radio, name):
                raise InputError(f"a swarm passes messages on as they are: {name} is for equiflock simulate alone")
        self.radio = replace(radio, last_known=0)
        self._senses = senses
        self._message_buffer = MessageBuffer(self.radio)
        self._recent_flocks: deque[Flock] = deque(maxlen=self.radio.memory + 1)
        self._initial_graph: Graph | None = None

    def compute_arrivals(self, flock: Flock) -> Iterator[tuple[int, int, int]]:
        """Let a step pass: the messages that arrive now, as (receiver, sender, the step at which it was sent)."""
        flock = self._senses.scale_flock(_clear_other_failures(flock))
        none = np.zeros((*flock.shape[:2], 0), np.float32)
        self._message_buffer.begin_step(flock, none, None if flock.all_working else flock.muted)
        # Who is within reach of whom is decided when a message is sent, whoever has failed since.
        _, velocities, _, obstacles, groups, conditions = flock.arrays
        crew = flock.effective_roles, obstacles, groups, np.zeros_like(conditions)
        sent = Flock.view(flock.positions.copy(), velocities, *crew, comm_radius=flock.comm_radius)
        self._recent_flocks.append(sent)
        if self._senses.topology == "fixed" and self._initial_graph is None:
            self._initial_graph = radius_graph(sent)
        now, radio_args = self._message_buffer.step, self._message_buffer.radio_args_now(flock)
        window = MessageWindow(self.radio.delay, self.radio.jitter, 0)
        hears, unranked = flock.effective_roles == FOLLOWER, np.empty(0, np.int64)
        for step in range(max(now - self.radio.memory, 0), now - self.radio.delay + 1):
            graph = build_message_graph(
                hears, range(step, step + 1), self._get_reach_graph, radio_args, window, unranked
            )
            for receiver, sender in graph.edges(0):
                yield int(receiver), int(sender), step

    def _get_reach_graph(self, step: int) -> Graph:
        """Who was within reach of whom at a step."""
        if self._initial_graph is not None:
            return self._initial_graph
        return radius_graph(self._recent_flocks[step - self._message_buffer.step - 1])


def _clear_other_failures(flock: Flock) -> Flock:
    """The flock, in which only those say nothing whose processes are gone; receivers judge what the others say."""
    if flock.all_working:
        return flock
    positions, velocities, roles, obstacles, groups, conditions = flock.arrays
    speaking = np.where(conditions == STOPPED, conditions, np.int8(WORKING))
    return Flock.view(positions, velocities, roles, obstacles, groups, speaking, comm_radius=flock.comm_radius)
