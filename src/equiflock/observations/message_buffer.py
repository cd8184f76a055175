"""The message buffer of a flight with an imperfect radio or failed agents, and the radio, which may change in flight.

`RadioArgs` describe the radio of a step to the kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from equiflock._runtime import threads
from equiflock._runtime.checks import InputError
from equiflock._runtime.jit import Array, kernel
from equiflock._runtime.memory import check_fits_memory
from equiflock._runtime.randomness import hash_seed
from equiflock._runtime.threads import AGENTS_PER_THREAD, split_flocks
from equiflock.flock import FOLLOWER, Flock
from equiflock.graph.radius_graph import Graph, radius_graph
from equiflock.observations.aggregation_kernels import KernelArgs
from equiflock.observations.delayed_messages import (
    FixedLinks,
    MessageHistory,
    SlotCells,
    aggregate_delayed_messages,
    build_message_graph,
    sort_slot,
)
from equiflock.observations.neighbour_lists import COLUMNS_PER_PASS, Records
from equiflock.observations.radio import IDEAL_RADIO, Radio, check_radio
from equiflock.observations.radio_kernels import (
    LinkArgs,
    LossArgs,
    MeasuringArgs,
    MessageWindow,
    RadioArgs,
    ReceiverState,
    SendingArgs,
    quantize_older_hops,
)

NEVER = np.iinfo(np.int64).max
HASH_BITS = 53
"""Bits of a message's hash that decide whether it is lost."""
FLOAT64_FRACTION_BITS, EXPONENT_SIGN_BITS = 53, 9
"""Bits of a float64's fraction, with the leading one; bits of a quantized number that are not fraction."""


@kernel
def _hash_seed(seed: int) -> Any:
    return hash_seed(seed)


class MessageBuffer:
    """Recent messages of a flock in flight; call `begin_step` once per step.

    Args:
        radio: how messages travel.
        step: the last step before the first message; -1 at the beginning of a flight.

    Memory is O(N) times the largest age of a message in steps, plus one.
    """

    def __init__(self, radio: Radio, step: int = -1) -> None:
        self.radio = radio
        self.step = step
        self.first_step = step + 1
        """The send step of the first messages in the buffer."""
        self._silent_from: Int64[np.ndarray, "B N"] | None = None
        self._present_from: Int64[np.ndarray, "B N"] = np.empty((0, 0), np.int64)
        self._history: MessageHistory | None = None
        self._cells: SlotCells | None = None
        self._is_sorted: Bool[np.ndarray, " B"] = np.empty(0, bool)
        """Flocks of which all slots but that of the present step are in `_cells`."""
        self._seed_hash = np.uint64(_hash_seed(radio.seed))  # np.uint64, as Numba would type a small int as signed
        self._loss_args = _make_loss_args(radio)
        self._splitter = _compute_splitter(radio.quantization)
        self._window = MessageWindow(radio.delay, radio.jitter, radio.last_known)

    def with_radio(self, radio: Radio) -> MessageBuffer:
        """Return a buffer for another radio, which continues the count of steps.

        It keeps messages in transit if both radios have the same `memory`, else it is empty.
        """
        buffer = MessageBuffer(radio, self.step)
        if radio.memory == self.radio.memory:
            buffer.first_step, buffer._history = self.first_step, self._history
            buffer._silent_from, buffer._present_from = self._silent_from, self._present_from
        return buffer

    @property
    def mixes_send_steps(self) -> bool:
        """Whether messages of several send steps can be used at one step."""
        return self.radio.jitter + self.radio.last_known > 0

    @property
    def newest_send_step(self) -> int:
        """The send step of the newest messages that can be used now; before `first_step` if there are none yet."""
        return self.step - self.radio.delay

    def begin_step(self, flock: Flock, previous: Array) -> None:
        """Count a new step and store a copy of its messages; a radio without memory needs no copy.

        `flock` is the state that agents send, without those that are muted, and `previous` (B, N, K * C * D) the
        observations of the step before, which they send as well.
        """
        self.step += 1
        B, N, _ = flock.shape
        if self._silent_from is None:
            self._silent_from, self._present_from = np.full((B, N), NEVER), np.full((B, N), self.step)
        if not flock.all_working:
            self._silent_from = np.where(flock.muted, np.minimum(self._silent_from, self.step), NEVER)
        if self.radio.memory > 0:
            if self._history is None:
                self._history = _make_history(self.radio.memory + 1, *flock.shape, previous.shape[2])
            for history, message in zip(self._history, (flock.positions, flock.velocities, previous), strict=True):
                history[self.step % len(history)][..., : message.shape[2]] = message

    def get_sent_state(self, flock: Flock, previous: Array) -> tuple[Flock, Array]:
        """Return flock and older hops (B, N, at least K * C * D) as they were when the messages arriving now were sent.

        Without a delay these are the arguments. Otherwise `previous` is ignored, and roles, groups and conditions are
        those of now.
        """
        if self.radio.delay == 0:
            return flock, previous
        assert self._history is not None
        positions, velocities, older_hops = (history[self.newest_send_step % len(history)] for history in self._history)
        return Flock.view(positions, velocities, *flock.arrays[2:], comm_radius=flock.comm_radius), older_hops

    def make_radio_args(self, flock: Flock, time_scale: float = 1.0) -> RadioArgs:
        """Return the radio of this step as kernels take it; `flock` is the state of the receivers now.

        `time_scale`, of the senses, converts the noise of velocities.
        """
        assert self._silent_from is not None
        radio, mixes_send_steps = self.radio, self.mixes_send_steps
        # The ring has a slot for each age of a message, 0 included; without a ring all records are of one send step.
        if mixes_send_steps:
            link = LinkArgs(self._seed_hash, self.step, radio.memory + 1, flock.roles.size)
        else:
            link = LinkArgs(self._seed_hash, self.newest_send_step, 1, 0)
        noise = radio.noise * flock.comm_radius
        is_delayed = radio.delay > 0 and not mixes_send_steps
        is_measured = radio.memory > 0 or noise > 0.0 or radio.quantization is not None
        return RadioArgs(
            link,
            self._loss_args,
            MeasuringArgs(is_measured, is_delayed, noise, noise * time_scale, self._splitter),
            SendingArgs(radio.send_interval, self._silent_from, self._present_from),
            ReceiverState(flock.positions, flock.velocities),
            self._window,
        )

    def make_radio_args_now(self, flock: Flock) -> RadioArgs:
        """Return the radio with the step now, also where all messages have the same delay, for the message graph."""
        args = self.make_radio_args(flock)
        return args._replace(link=args.link._replace(step=self.step))

    def aggregate_delayed_messages(
        self,
        flock: Flock,
        active: Array,
        kernel_args: KernelArgs,
        graph: Graph | None,
        observations: Array,
        agent_ids: Array | None,
        time_scale: float,
    ) -> bool:
        """Fill in `observations` (B, N, K * C * D) of the active flocks from messages of several steps.

        Return False if a value is out of range. `graph` is that of a fixed topology, None for a dynamic one. This sorts
        the messages of this step into cells and quantizes their older hops in the buffer. A second call in the same
        step, for flocks that begin anew, quantizes to the same bits.
        """
        assert self._history is not None
        (B, N, _), comm_radius = flock.shape, kernel_args.comm_radius
        positions, velocities, older_hops = self._history
        slots, slot = len(positions), self.step % len(positions)
        ids = np.empty(0, np.int64) if agent_ids is None else agent_ids
        flocks = [active[first:last] for first, last in split_flocks(len(active), N)]
        if self._cells is None:
            self._cells, self._is_sorted = _make_cell_lists(slots, B, N), np.zeros(B, bool)
        # Sort the messages of this step into cells, and of flocks without cell lists those of all steps.
        cells, jobs = self._cells, []
        for s in range(slots):
            unsorted = flocks if s == slot else [part[~self._is_sorted[part]] for part in flocks]
            jobs += [(positions[s], velocities[s], ids, comm_radius, cells, s, part) for part in unsorted if len(part)]
        if not all(threads.run_parallel(sort_slot, jobs)):
            return False
        self._is_sorted[active] = True
        # Quantize the older hops of this step, once.
        radio_args = self.make_radio_args(flock, time_scale)
        if self._splitter > 0.0:
            quantize_older_hops(older_hops[slot].reshape(B * N, -1), older_hops.shape[3], self._splitter, 0, B * N)
        # Threads take whole flocks, or parts of a single one.
        parts = [(part, 0, N) for part in flocks]
        if len(active) == 1:
            parts = [(active, first, last) for first, last in threads.split_range(N, AGENTS_PER_THREAD)]
        empty = np.empty(0, np.int64)
        links = FixedLinks(empty, empty) if graph is None else FixedLinks(graph.starts, graph.senders)
        # A record is the row (slot, flock, agent) of the history.
        rows = slots * B * N
        records = Records(
            positions.reshape(rows, -1).T,
            velocities.reshape(rows, -1),
            older_hops.reshape(rows, older_hops.shape[3]),
            np.tile(np.arange(B * N, dtype=np.uintp), slots),
            np.tile(np.arange(N) if agent_ids is None else agent_ids, B),
            flock.roles.reshape(-1),
            flock.groups.reshape(-1),
            bool((flock.obstacles >= 0).any()),
        )
        common = self._history, cells, links, records, kernel_args, radio_args, observations.reshape(B * N, -1)
        return all(threads.run_parallel(aggregate_delayed_messages, [(*common, *part) for part in parts]))

    def compute_message_graph(
        self, flock: Flock, graph: Graph | None, agent_ids: Int64[np.ndarray, " N"] | None
    ) -> Graph:
        """Return the graph of the messages used now; `graph` is that of a fixed topology, None for a dynamic one."""
        radio, newest = self.radio, self.newest_send_step

        def get_reach_graph(step: int) -> Graph:
            """Return who would receive from whom at a step if all agents sent and no message was lost."""
            if graph is not None:
                return graph
            # An agent that is silent now may have sent then; one that receives nothing now uses nothing.
            positions, velocities = flock.positions, flock.velocities
            if self._history is not None:
                slot = step % len(self._history.positions)
                positions, velocities = self._history.positions[slot], self._history.velocities[slot]
            _, _, _, obstacles, groups, conditions = flock.arrays
            rest = flock.effective_roles, obstacles, groups, np.zeros_like(conditions)
            return radius_graph(Flock.view(positions, velocities, *rest, comm_radius=flock.comm_radius))

        steps = range(max(newest - radio.jitter - radio.last_known, self.first_step), newest + 1)
        can_receive, radio_args = flock.effective_roles == FOLLOWER, self.make_radio_args_now(flock)
        ids = np.empty(0, np.int64) if agent_ids is None else agent_ids
        return build_message_graph(can_receive, steps, get_reach_graph, radio_args, ids)

    def renumber(self, order: Int64[np.ndarray, " N"]) -> None:
        """Reorder the agents: the new agent s is the old agent order[s]."""
        if self._silent_from is not None:
            self._silent_from, self._present_from = self._silent_from[:, order], self._present_from[:, order]
        if self._history is not None:
            for history in self._history:
                history[:] = history[:, :, order]
        self._cells = None  # sorted by the old indices

    def restart(self, flock: Flock, mask: Bool[np.ndarray, " B"], previous: Array) -> None:
        """Let the flocks of a mask begin anew at the present step: their first messages are those of now.

        `flock` has all flocks, and `previous` (B, N, K * C * D) the observations of the step before.
        """
        # After a change of the radio there are no messages yet: those of the other flocks begin with the next step.
        if self._silent_from is None:
            shape = flock.shape[:2]
            self._silent_from, self._present_from = np.full(shape, NEVER), np.full(shape, self.step + 1)
        self.first_step = min(self.first_step, self.step)
        self._silent_from[mask] = np.where(flock.muted[mask], self.step, NEVER)
        self._present_from[mask] = self.step
        if self.radio.memory > 0:
            if self._history is None:
                self._history = _make_history(self.radio.memory + 1, *flock.shape, previous.shape[2])
            # Older messages of these flocks are not used; their state only has to fit into the cells.
            for history, message in zip(self._history, (flock.positions, flock.velocities, previous), strict=True):
                history[:, mask, :, : message.shape[2]] = message[mask]
            if self._cells is not None:
                self._is_sorted[mask] = False

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Continue with another flock, whose first agents are the kept ones; their messages in transit are kept.

        New agents, and agents that were silent and now send again, start without messages at the next step.
        """
        if self._silent_from is None:
            return
        (B, N, _), kept = flock.shape, int(keep.sum())
        silent_from, present_from = np.full((B, N), NEVER), np.full((B, N), self.step + 1)
        silent_from[:, :kept], present_from[:, :kept] = self._silent_from[:, keep], self._present_from[:, keep]
        # A repaired agent has sent nothing while it was silent: it starts like a new one.
        repaired = (silent_from < NEVER) & ~flock.muted
        silent_from[repaired], present_from[repaired] = NEVER, self.step + 1
        self._silent_from, self._present_from = silent_from, present_from
        if self._history is None:
            return
        # New agents have sent nothing yet; their current state only has to fit into the cells.
        slots, size = len(self._history.positions), self._history.older_hops.shape[3]
        new = _make_history(slots, *flock.shape, size)
        new.positions[:], new.velocities[:] = flock.positions, flock.velocities
        for fresh, history in zip(new, self._history, strict=True):
            fresh[:, :, :kept] = history[:, :, keep]
        self._history, self._cells = new, None


def _make_history(slots: int, B: int, N: int, D: int, size: int) -> MessageHistory:
    """Allocate the messages of `slots` steps; `size` is K * C * D, which is padded to whole passes of columns."""
    size = -(-size // COLUMNS_PER_PASS) * COLUMNS_PER_PASS
    # Positions and velocities are float64, the older hops float32.
    advice = "lower delay, jitter or last_known, hops, or agents"
    check_fits_memory(f"keeping the messages of {slots:,} steps", slots * B * N * (2 * 8 * D + 4 * size), advice)
    older_hops = np.zeros((slots, B, N, size), np.float32)
    return MessageHistory(np.zeros((slots, B, N, D)), np.zeros((slots, B, N, D)), older_hops)


def _make_cell_lists(slots: int, B: int, N: int) -> SlotCells:
    """Allocate the cell lists of all slots and flocks."""
    shape = slots, B, N
    starts = np.zeros((slots, B, 2 * N + 65), np.uintp)
    return SlotCells(np.zeros(shape, np.uintp), starts, np.zeros(shape, np.uintp), np.ones((slots, B, 3), np.int64))


def _compute_splitter(bits: int | None) -> float:
    """Return the factor of `quantize` for `bits` bits per number; 0 without quantization."""
    return 0.0 if bits is None else 2.0 ** (FLOAT64_FRACTION_BITS - (bits - EXPONENT_SIGN_BITS + 1)) + 1.0


def _make_loss_args(radio: Radio) -> LossArgs:
    """Return the probabilities of a loss; those of bursts are 0 without `burst`, and if packet_loss is 0 or 1."""
    has_bursts = radio.burst is not None and 0.0 < radio.packet_loss < 1.0
    # After a loss 1 - 1 / burst; after an arrival such that the share in the long run is packet_loss.
    loss_after_loss = 1.0 - 1.0 / radio.burst if has_bursts else 0.0  # type: ignore[operator]
    loss_after_arrival = radio.packet_loss * (1.0 - loss_after_loss) / (1.0 - radio.packet_loss) if has_bursts else 0.0
    threshold = np.uint64(round(radio.packet_loss * 2**HASH_BITS))
    return LossArgs(threshold, has_bursts, loss_after_loss, loss_after_arrival)


class RadioState:
    """A radio, which may change between two steps, and a message buffer if messages may be lost, late or inexact.

    Args:
        requires_ideal_radio: whether the senses need an ideal radio and no failures.
    """

    def __init__(self, requires_ideal_radio: bool) -> None:
        self.requires_ideal_radio = requires_ideal_radio
        self.radio = IDEAL_RADIO
        self.message_buffer: MessageBuffer | None = None
        self.steps = -1
        """The last step of the last message buffer; -1 before the first."""

    def set_radio(self, radio: Radio | None) -> None:
        """Change the radio; None for the ideal one.

        Messages in transit are lost unless both radios have the same `memory`. Raise InputError if the senses require
        an ideal radio and this one is not.
        """
        checked, before = check_radio(radio), self.message_buffer
        if checked.is_ideal:
            self._drop_buffer()
        else:
            # Continue the count of steps, so that no two messages have the same hash.
            self.message_buffer = self._start_buffer(checked) if before is None else before.with_radio(checked)
        self.radio = checked

    def set_senses(self, requires_ideal_radio: bool, keep_messages: bool) -> None:
        """Change the senses; messages in transit are lost unless `keep_messages`.

        Raise InputError if the senses require an ideal radio and a message buffer is in use.
        """
        if requires_ideal_radio and self.message_buffer is not None:
            raise _make_ideal_radio_error()
        self.requires_ideal_radio = requires_ideal_radio
        if self.message_buffer is not None and not keep_messages:
            self.message_buffer = MessageBuffer(self.radio, self.message_buffer.step)

    def get_message_buffer(self, flock: Flock) -> MessageBuffer | None:
        """Return the message buffer, or None if all messages arrive at once and exact.

        With an ideal radio, this starts a buffer once an agent has failed; raise InputError if the senses do not
        support it.
        """
        # Messages that failed agents do not send are like lost ones, so failures need a message buffer, too.
        if self.message_buffer is None and not flock.all_working:
            self.message_buffer = self._start_buffer(self.radio)
        return self.message_buffer

    def restart(self, flock: Flock, mask: Bool[np.ndarray, " B"], previous: Array) -> None:
        """Let the flocks of a mask begin anew at the present step, without messages in transit.

        `flock` has all flocks, and `previous` (B, N, K * C * D) the observations of the step before.
        """
        is_new = self.message_buffer is None
        if (message_buffer := self.get_message_buffer(flock)) is not None:
            if is_new:  # the first agents have failed
                message_buffer.begin_step(flock, previous)
            else:
                message_buffer.restart(flock, mask, previous)

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Continue with another flock, whose first agents are the kept ones; their messages in transit are kept.

        With an ideal radio and no failed agents, this drops the message buffer.
        """
        if self.message_buffer is not None:
            self.message_buffer.replace(flock, keep)
        # With an ideal radio, a flock whose agents all work needs no message buffer.
        if self.radio.is_ideal and flock.all_working:
            self._drop_buffer()

    def _start_buffer(self, radio: Radio) -> MessageBuffer:
        """Return a new buffer that continues the count of steps; raise InputError if the senses do not support one."""
        if self.requires_ideal_radio:
            raise _make_ideal_radio_error()
        return MessageBuffer(radio, self.steps)

    def _drop_buffer(self) -> None:
        """Remove the message buffer, if any, and store its count of steps for the next one."""
        if self.message_buffer is not None:
            self.steps, self.message_buffer = self.message_buffer.step, None


def _make_ideal_radio_error() -> InputError:
    return InputError(
        'hop_mean = "sender" needs an ideal radio and no failures: a sender cannot know how many agents receive from it'
    )
