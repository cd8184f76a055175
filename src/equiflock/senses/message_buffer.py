"""What the senses of a flight remember of its radio, and what they tell the kernels of it at every step."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from equiflock.flock import FOLLOWER, Flock
from equiflock.runtime import threads
from equiflock.runtime.hashing import hash_seed
from equiflock.runtime.jit import Array, kernel
from equiflock.runtime.threads import AGENTS_PER_THREAD, split_flocks
from equiflock.senses.delayed_messages import aggregate_delayed_messages, sort_slot
from equiflock.senses.graph import Graph, radius_graph
from equiflock.senses.message_graph import build_message_graph
from equiflock.senses.radio import Radio
from equiflock.senses.radio_kernels import quantize_older_hops

NEVER = np.iinfo(np.int64).max
HASH_BITS = 53
"""Bits of a hash that decide whether a message is lost."""
FLOAT64_FRACTION_BITS, EXPONENT_SIGN_BITS = 53, 9
"""Bits of the fraction of float64, the leading one included; bits of a quantized number that are not fraction."""


@kernel
def _hash_seed(seed: int) -> Any:
    return hash_seed(seed)


class MessageBuffer:
    """The radio of a flock in flight: `begin_step` once per step, then what the kernels are to be told.

    Args:
        radio: how messages travel.
        step: the number of the last step before it, which nobody hears of; -1 at the beginning of a flight.

    Memory is O(N) times the steps that a message may be old, plus one.
    """

    def __init__(self, radio: Radio, step: int = -1) -> None:
        self.radio = radio
        self.step = step
        self.first_step = step + 1
        """The step of the first messages that are remembered."""
        self._silent_from: Int64[np.ndarray, "B N"] | None = None
        self._present_from: Int64[np.ndarray, "B N"] = np.empty((0, 0), np.int64)
        self._history: tuple[Array, Array, Array] | None = None
        self._cells: tuple[Array, Array, Array, Array] | None = None
        self._key = np.uint64(_hash_seed(radio.seed))  # else Numba takes a small one for a signed number

    def tuned(self, radio: Radio) -> MessageBuffer:
        """The reception of another radio from now on; what is on the way stays so if both remember as many steps."""
        other = MessageBuffer(radio, self.step)
        if radio.memory == self.radio.memory:
            other.first_step = self.first_step
            other._history, other._silent_from, other._present_from = (
                self._history,
                self._silent_from,
                self._present_from,
            )
        return other

    @property
    def mixes_send_steps(self) -> bool:
        """Whether messages of several steps may be used at once."""
        return self.radio.jitter + self.radio.last_known > 0

    @property
    def newest_send_step(self) -> int:
        """The step of the newest messages that may be heard now; before `first` if there are none yet."""
        return self.step - self.radio.delay

    def begin_step(self, flock: Flock, previous: Array, muted: Bool[np.ndarray, "B N"] | None) -> None:
        """Take note of what agents send now: their state, and what they knew `previous`, (B, N, K * C * D).

        `muted` are the agents that send nothing from now on, if there are any.
        """
        self.step += 1
        B, N, _ = flock.shape
        if self._silent_from is None:
            self._silent_from, self._present_from = np.full((B, N), NEVER), np.full((B, N), self.step)
        if muted is not None:
            self._silent_from = np.where(muted, np.minimum(self._silent_from, self.step), NEVER)
        # What is sent now is heard later; a radio without memory needs no copy.
        if self.radio.memory > 0:
            if self._history is None:
                sizes = flock.shape[2], flock.shape[2], previous.shape[2]
                kinds = np.float64, np.float64, np.float32
                slots = self.radio.memory + 1
                self._history = tuple(  # type: ignore[assignment]
                    np.zeros((slots, B, N, size), kind) for size, kind in zip(sizes, kinds, strict=True)
                )
            assert self._history is not None
            for history, said in zip(self._history, (flock.positions, flock.velocities, previous), strict=True):
                history[self.step % len(history)] = said

    def sent_state(self, flock: Flock, previous: Array) -> tuple[Flock, Array]:
        """The flock, and what its agents passed on, at the step at which the messages that are heard now were sent."""
        if self.radio.delay == 0:
            return flock, previous
        assert self._history is not None
        positions, velocities, older_hops = (history[self.newest_send_step % len(history)] for history in self._history)
        return Flock.view(positions, velocities, *flock.arrays[2:], comm_radius=flock.comm_radius), older_hops

    def flock_radio(self, flock: Flock, time_scale: float = 1.0) -> tuple[Any, ...]:
        """What the kernels are told, as `equiflock.senses.flock_radio` has it, with the state of the receivers now."""
        radio = self.radio
        # Lost after a lost one with probability 1 - 1 / burst, and after another so often that the share is right.
        bursts = radio.burst is not None and 0.0 < radio.packet_loss < 1.0
        loss_after_loss = 1.0 - 1.0 / radio.burst if bursts else 0.0  # type: ignore[operator]
        loss_after_arrival = radio.packet_loss * (1.0 - loss_after_loss) / (1.0 - radio.packet_loss) if bursts else 0.0
        chances = np.uint64(round(radio.packet_loss * 2**HASH_BITS)), bursts, loss_after_loss, loss_after_arrival
        # The ring holds one more step than a message may be old; without it all records are of one step.
        slots, rows = (radio.memory + 1, flock.roles.size) if self.mixes_send_steps else (1, 0)
        link = self._key, self.step if self.mixes_send_steps else self.newest_send_step, slots, rows
        noise = radio.noise * flock.comm_radius
        delayed = radio.delay > 0 and not self.mixes_send_steps
        is_measured = radio.memory > 0 or noise > 0.0 or radio.quantization is not None
        measuring = is_measured, delayed, noise, noise * time_scale, self._splitter
        return (
            link,
            chances,
            measuring,
            (radio.send_interval, self._silent_from, self._present_from),
            (flock.positions, flock.velocities),
        )

    @property
    def _splitter(self) -> float:
        """The factor that leaves so many bits of a number's fraction (Veltkamp's splitting); 0 for all of them."""
        bits = self.radio.quantization
        return 0.0 if bits is None else 2.0 ** (FLOAT64_FRACTION_BITS - (bits - EXPONENT_SIGN_BITS + 1)) + 1.0

    def aggregate_delayed_messages(
        self,
        flock: Flock,
        active: Array,
        kernel_args: tuple[Any, float, Any],
        graph: Graph | None,
        observations: Array,
        agent_ids: Array | None,
        time_scale: float,
    ) -> bool:
        """Fill in `observations` (B, N, K * C * D) where messages of several steps are used; False if one is off the scale."""
        assert self._history is not None
        (obstacle_rule, comm_radius, channel_spec), (B, N, _) = kernel_args, flock.shape
        slots, slot = len(self._history[0]), self.step % len(self._history[0])
        positions, velocities, older_hops = self._history
        numbers = np.empty(0, np.int64) if agent_ids is None else agent_ids
        flocks = [active[first:last] for first, last in split_flocks(len(active), N)]
        # What is sent now is put into cells once; all that is remembered is if there are no cells of it.
        unsorted = [slot] if self._cells is not None else range(slots)
        cells = self._cells = self._cells or _make_cell_lists(slots, B, N)
        jobs = [
            (positions[each], velocities[each], numbers, comm_radius, cells, each, some)
            for some in flocks
            for each in unsorted
        ]
        if not all(threads.run_parallel(sort_slot, jobs)):
            return False
        # Numbers that are passed on are rounded once, too.
        flock_radio = self.flock_radio(flock, time_scale)
        if self._splitter > 0.0:
            quantize_older_hops(older_hops[slot].reshape(B * N, -1), older_hops.shape[3], self._splitter, 0, B * N)
        # Flocks are shared out to threads, or the agents of a single one.
        parts = [(some, 0, N) for some in flocks]
        if len(active) == 1:
            parts = [(active, first, last) for first, last in threads.split_range(N, AGENTS_PER_THREAD)]
        window = self.radio.delay, self.radio.jitter, self.radio.last_known
        empty = np.empty(0, np.int64)
        links = (empty, empty) if graph is None else (graph.starts, graph.senders)
        order = np.tile(np.arange(B * N, dtype=np.uintp), slots)
        numbering = order, np.tile(np.arange(N) if agent_ids is None else agent_ids, B)
        roles_groups = flock.roles.reshape(-1), flock.groups.reshape(-1)
        obstacles = flock.shape[2] == 2 and bool((flock.obstacles >= 0).any())
        rest = obstacle_rule, comm_radius, channel_spec, observations.reshape(B * N, -1), flock_radio, window, obstacles
        common = self._history, numbering, roles_groups, cells, links, *rest
        return all(threads.run_parallel(aggregate_delayed_messages, [(*common, *part) for part in parts]))

    def compute_message_graph(
        self, flock: Flock, graph: Graph | None, agent_ids: Int64[np.ndarray, " N"] | None
    ) -> Graph:
        """Who uses a message of whom now; `graph` is that of a fixed topology."""
        radio, newest = self.radio, self.newest_send_step

        def get_reach_graph(step: int) -> Graph:
            if graph is not None:
                return graph
            # Who is silent now may have sent then, and who hears nobody now uses nothing.
            positions, velocities = flock.positions, flock.velocities
            if self._history is not None:
                positions, velocities = (history[step % len(history)] for history in self._history[:2])
            _, _, _, obstacles, groups, conditions = flock.arrays
            crew = flock.effective_roles, obstacles, groups, np.zeros_like(conditions)
            return radius_graph(Flock.view(positions, velocities, *crew, comm_radius=flock.comm_radius))

        steps = range(max(newest - radio.jitter - radio.last_known, self.first_step), newest + 1)
        # The kernel compares with the step of now, whatever the step at which the messages of one delay were sent.
        (key, _, slots, rows), *rest = self.flock_radio(flock)
        window = radio.delay, radio.jitter, radio.last_known
        numbers = np.empty(0, np.int64) if agent_ids is None else agent_ids
        flock_radio = (key, self.step, slots, rows), *rest
        return build_message_graph(
            flock.effective_roles == FOLLOWER, steps, get_reach_graph, flock_radio, window, numbers
        )

    def renumber(self, order: Int64[np.ndarray, " N"]) -> None:
        """Go on with the same agents in another order: the s-th is the one that was number order[s]."""
        if self._silent_from is not None:
            self._silent_from, self._present_from = self._silent_from[:, order], self._present_from[:, order]
        if self._history is not None:
            self._history = tuple(np.ascontiguousarray(history[:, :, order]) for history in self._history)  # type: ignore[assignment]
        self._cells = None  # their order is that of the old numbers

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Go on with another flock: its first agents are the kept ones, whose messages on the way stay on the way."""
        if self._silent_from is None:
            return
        (B, N, _), kept = flock.shape, int(keep.sum())
        silent_from, present_from = np.full((B, N), NEVER), np.full((B, N), self.step + 1)
        silent_from[:, :kept], present_from[:, :kept] = self._silent_from[:, keep], self._present_from[:, keep]
        # Who was mute and is no more says nothing of that time: it begins anew.
        repaired = (silent_from < NEVER) & ~flock.muted
        silent_from[repaired], present_from[repaired] = NEVER, self.step + 1
        self._silent_from, self._present_from = silent_from, present_from
        if self._history is None:
            return
        # New agents have said nothing yet; where they stand now is as good a place as any for the cells.
        made = []
        for history, now in zip(self._history, (flock.positions, flock.velocities, None), strict=True):
            fresh = np.zeros((len(history), B, N, history.shape[3]), history.dtype)
            if now is not None:
                fresh[:] = now
            fresh[:, :, :kept] = history[:, :, keep]
            made.append(fresh)
        self._history, self._cells = tuple(made), None  # type: ignore[assignment]


def _make_cell_lists(slots: int, B: int, N: int) -> tuple[Array, Array, Array, Array]:
    """Memory for the cell lists of all slots and flocks: order, starts, buckets and shapes."""
    shape = slots, B, N
    starts = np.zeros((slots, B, 2 * N + 65), np.uintp)
    return np.zeros(shape, np.uintp), starts, np.zeros(shape, np.uintp), np.ones((slots, B, 3), np.int64)
