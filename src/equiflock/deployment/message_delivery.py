"""Delivery of a swarm's messages: the same radio, with the same hash, as in the simulator."""

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
    """Decides which messages arrive, step by step. Receivers decide for how long they use them (`last_known`).

    Raise InputError for a radio with noise or quantization, which would change messages.

    Args:
        radio: model of communication.
        senses: senses of the controller; their units and topology define who is in range.
    """

    def __init__(self, radio: Radio, senses: Senses) -> None:
        # The host delivers bytes unchanged, so it cannot apply noise or quantization.
        for name in ("noise", "quantization"):
            if getattr(radio, name):
                raise InputError(f"a swarm delivers messages unchanged: {name} is for equiflock simulate only")
        self.radio = replace(radio, last_known=0)
        self._senses = senses
        self._message_buffer = MessageBuffer(self.radio)
        self._recent_flocks: deque[Flock] = deque(maxlen=self.radio.memory + 1)
        self._initial_graph: Graph | None = None

    def compute_arrivals(self, flock: Flock) -> Iterator[tuple[int, int, int]]:
        """Advance one step and yield the messages that arrive, as (receiver, sender, step at which it was sent).

        Call this once per step and exhaust the iterator. Only followers receive; stopped agents neither send nor
        receive.
        """
        flock = self._senses.scale_flock(_clear_other_failures(flock))
        no_values = np.zeros((*flock.shape[:2], 0), np.float32)
        self._message_buffer.begin_step(flock, no_values, None if flock.all_working else flock.muted)
        # A message's range is checked when it is sent; later failures do not matter.
        _, velocities, _, obstacles, groups, conditions = flock.arrays
        attributes = flock.effective_roles, obstacles, groups, np.zeros_like(conditions)
        sent = Flock.view(flock.positions.copy(), velocities, *attributes, comm_radius=flock.comm_radius)
        self._recent_flocks.append(sent)
        if self._senses.topology == "fixed" and self._initial_graph is None:
            self._initial_graph = radius_graph(sent)
        # The current step, not the step of sending, enters the hash.
        now, radio_args = self._message_buffer.step, self._message_buffer.make_radio_args_now(flock)
        window = MessageWindow(self.radio.delay, self.radio.jitter, 0)
        receives, unranked = flock.effective_roles == FOLLOWER, np.empty(0, np.int64)
        for step in range(max(now - self.radio.memory, 0), now - self.radio.delay + 1):
            graph = build_message_graph(
                receives, range(step, step + 1), self._get_reach_graph, radio_args, window, unranked
            )
            for receiver, sender in graph.edges(0):
                yield int(receiver), int(sender), step

    def _get_reach_graph(self, step: int) -> Graph:
        """Return the graph of agents that were in range of each other at a step; at step 0 if the topology is fixed."""
        if self._initial_graph is not None:
            return self._initial_graph
        return radius_graph(self._recent_flocks[step - self._message_buffer.step - 1])


def _clear_other_failures(flock: Flock) -> Flock:
    """Return the flock in which all failed agents work except STOPPED ones, whose processes are gone."""
    if flock.all_working:
        return flock
    positions, velocities, roles, obstacles, groups, conditions = flock.arrays
    stopped_only = np.where(conditions == STOPPED, conditions, np.int8(WORKING))
    return Flock.view(positions, velocities, roles, obstacles, groups, stopped_only, comm_radius=flock.comm_radius)
