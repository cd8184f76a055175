"""Radio kernels: remove lost messages from neighbour lists, and compute r_ij and v_ij as the radio delivers them.

A message has a hash of (seed, flock, send step, receiver, sender). It is lost if the hash, as a number from 0 to 1, is
below the packet loss. Bursts are a Markov chain of two states on every link, lost and arrived (Gilbert-Elliott): with p
the packet loss and b the mean length of a burst, a message is lost after a lost one with probability 1 - 1/b, and after
an arrived one with p / (b (1 - p)). The hash of a step gives the transition, and at many steps the new state does not
depend on the old one; so `is_lost_in_burst` goes back to the last such step, b (1 - p) steps on average for bursts that
are longer than by chance, and links need no memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from equiflock._runtime.jit import Array, Index, inline_kernel, kernel
from equiflock._runtime.randomness import hash_combine, hash_to_normal, hash_to_uniform, hash_word, mix
from equiflock.flock import MAX_MAGNITUDE, OBSTACLE
from equiflock.observations.neighbour_lists import Batch, Records

HASH_SHIFT = np.uint64(11)
NOISE_STREAM, JITTER_STREAM, VELOCITY_NOISE_STREAM = np.uint64(1), np.uint64(2), np.uint64(3)
"""Streams of further random numbers of a message, combined with its hash."""
PHASE_STREAM = -1
"""The stream of the phases of agents, in place of a step."""


class LinkArgs(NamedTuple):
    """What the hash of a message and its send step are computed from.

    Records of several send steps stand in a ring of `slots` slots; `step` is then the step now.
    """

    seed_hash: np.uint64
    """The hash of the radio's seed."""
    step: Index
    """int64: the send step of all messages; the step now if `rows` > 0."""
    slots: Index
    """int64: slots of the ring."""
    rows: Index
    """int64: records per slot; 0 if all records are of one send step."""


class LossArgs(NamedTuple):
    """Which messages are lost."""

    threshold: np.uint64
    """Messages whose hash, shifted to 53 bits, is below this are lost."""
    has_bursts: bool
    """Whether losses follow the Gilbert-Elliott chain instead."""
    loss_after_loss: float
    """The probability of a loss after a loss."""
    loss_after_arrival: float
    """The probability of a loss after an arrival."""


class MeasuringArgs(NamedTuple):
    """How a receiver's r_ij and v_ij differ from the exact ones."""

    is_measured: bool
    """Whether they differ at all."""
    is_delayed: bool
    """Whether messages are older than the receiver's state, all by the same delay."""
    position_noise: float
    """Standard deviation of each entry of r_ij."""
    velocity_noise: float
    """Standard deviation of each entry of v_ij."""
    splitter: float
    """The factor of `quantize`; 0 for no quantization."""


class SendingArgs(NamedTuple):
    """Which agents send at a step."""

    send_interval: Index
    """int64: steps between two messages of an agent."""
    silent_from: Array
    """(B, N) int64: the step from which on each agent is silent."""
    present_from: Array
    """(B, N) int64: the first step at which each agent is in the flock."""


class ReceiverState(NamedTuple):
    """The state of the receivers now, which differs from the sent one if there is a delay."""

    positions: Array
    """(B, N, D) float64."""
    velocities: Array
    """(B, N, D) float64."""


class MessageWindow(NamedTuple):
    """When messages are used, in steps."""

    delay: Index
    """int64: steps from sending to arrival."""
    jitter: Index
    """int64: the most further steps to arrival."""
    last_known: Index
    """int64: steps after arrival for which a message is used."""


class RadioArgs(NamedTuple):
    """A radio that is not ideal, at one step, as kernels take it."""

    link: LinkArgs
    loss: LossArgs
    measuring: MeasuringArgs
    sending: SendingArgs
    receivers: ReceiverState
    window: MessageWindow


def pack_radio_args(radio_args: RadioArgs) -> tuple[Any, ...]:
    """Return the radio as plain tuples, for kernels that Python calls for small flocks.

    To identify the type of a NamedTuple at each call from Python takes Numba almost a microsecond.
    """
    return tuple(map(tuple, radio_args))


@kernel
def unpack_radio_args(packed: tuple[Any, ...], steps_ahead: Index) -> RadioArgs:
    """Return the radio of `pack_radio_args`, `steps_ahead` steps later."""
    (seed_hash, step, slots, rows), loss, measuring, sending, receivers, window = packed
    return RadioArgs(
        LinkArgs(seed_hash, step + steps_ahead, slots, rows),
        LossArgs(*loss),
        MeasuringArgs(*measuring),
        SendingArgs(*sending),
        ReceiverState(*receivers),
        MessageWindow(*window),
    )


class FlockRadio(NamedTuple):
    """The radio of one flock of a batch, and its senders in the order of records."""

    flock: Index
    """The index of the flock."""
    args: RadioArgs
    sender_hashes: Array
    """(N,) uint64: the hash of each sender's id."""
    is_silent: Array
    """(N,) bool: whether it sent no message."""


@kernel
def make_flock_radio(flock: Index, radio_args: RadioArgs, N: Index) -> FlockRadio:
    """Return the radio of a flock of N agents; `apply_radio` fills in its senders."""
    return FlockRadio(flock, radio_args, np.empty(N, np.uint64), np.empty(N, np.bool_))


@kernel
def get_agent_id(i: Index, agent_ids: Array) -> Index:
    """Return the id by which the caller knows the agent with index i in memory."""
    return np.uint64(agent_ids[i]) if agent_ids.size > 0 else np.uint64(i)


@kernel
def is_lost_in_burst(
    flock: Index, step: Index, receiver: Index, sender: Index, loss_after_loss: float, loss_after_arrival: float
) -> bool:
    """Return whether the message of a step is lost, by the chain of its link; `flock` is the hash of seed and flock."""
    # A number between the two probabilities keeps the state before, or inverts it if loss is likelier after arrival.
    low, high, inverted = min(loss_after_loss, loss_after_arrival), max(loss_after_loss, loss_after_arrival), False
    while True:
        number = hash_to_uniform(hash_combine(hash_combine(hash_combine(flock, step), receiver), sender))
        if number < low or number >= high:
            return bool((number < low) != inverted)
        inverted ^= loss_after_loss < loss_after_arrival
        step -= 1


@kernel
def get_send_step(j: Index, link: LinkArgs) -> Index:
    """Return the step at which record j of a ring was sent."""
    step, slots = link.step, link.slots
    return step - (step % slots - np.int64(j) // link.rows) % slots


@kernel
def skips_step(flock: Index, step: Index, sender: Index, send_interval: Index) -> bool:
    """Return whether an agent sends nothing at this step of its interval; `flock` is the hash of seed and flock."""
    if send_interval == 1:
        return False
    phase = hash_combine(hash_combine(flock, PHASE_STREAM), sender) % np.uint64(send_interval)
    return bool((np.uint64(step) + phase) % np.uint64(send_interval) != 0)


@kernel
def apply_radio(flock_radio: FlockRadio, records: Records, older_size: Index, first: Index, last: Index) -> bool:
    """Hash the senders of records first .. last - 1, quantize their older hops, and add the receivers' state if late.

    Return False if a receiver is out of range.
    """
    b, radio_args, sender_hashes, is_silent = flock_radio
    order, agent_ids = records.order, records.agent_ids
    send_interval, silent_from, present_from = radio_args.sending
    step, flock = radio_args.link.step, hash_combine(radio_args.link.seed_hash, b)
    for s in range(np.uintp(first), np.uintp(last)):
        i = order[s]
        agent_id, can_send = get_agent_id(i, agent_ids), present_from[b, i] <= step < silent_from[b, i]
        sender_hashes[s] = hash_word(agent_id)
        is_silent[s] = not can_send or skips_step(flock, step, agent_id, send_interval)
    if radio_args.measuring.splitter > 0.0:
        quantize_older_hops(records.older_hops, older_size, radio_args.measuring.splitter, first, last)
    return _gather_receivers(b, radio_args, records, first, last) if radio_args.measuring.is_delayed else True


@kernel
def _gather_receivers(b: Index, radio_args: RadioArgs, records: Records, first: Index, last: Index) -> bool:
    """Copy the state now of the agents order[first : last] of flock b into rows N + first .. N + last - 1.

    Return False if a position or velocity is NaN or exceeds MAX_MAGNITUDE.
    """
    positions, velocities = radio_args.receivers
    order, record_positions, record_velocities = records.order, records.positions, records.velocities
    N, fine = np.uintp(order.size), True
    for s in range(np.uintp(first), np.uintp(last)):
        i = order[s]
        for d in range(positions.shape[2]):
            record_positions[d, N + s], record_velocities[N + s, d] = positions[b, i, d], velocities[b, i, d]
            fine &= (abs(positions[b, i, d]) <= MAX_MAGNITUDE) & (abs(velocities[b, i, d]) <= MAX_MAGNITUDE)
    return fine


@kernel
def drop_lost_messages(flock_radio: FlockRadio, batch: Batch, records: Records) -> None:
    """Remove the messages that do not arrive from the lists of a batch of agents.

    These are lost messages, those of agents that did not send, and those sent before the receiver joined the flock.
    Offsets and ends of the lists are updated.
    """
    # The constant lets the compiler omit the third coordinate in the plane.
    if batch.lists.offsets.shape[0] == 4:
        _drop_lost_messages_nd(2, flock_radio, batch, records)
    else:
        _drop_lost_messages_nd(3, flock_radio, batch, records)


@inline_kernel
def _drop_lost_messages_nd(D: Index, flock_radio: FlockRadio, batch: Batch, records: Records) -> None:
    """Do what `drop_lost_messages` does, for D as a compile-time constant."""
    senders, offsets, ends = batch.lists
    order, agent_ids = records.order, records.agent_ids
    b, radio_args, sender_hashes, is_silent = flock_radio
    threshold, has_bursts, loss_after_loss, loss_after_arrival = radio_args.loss
    present_from, step = radio_args.sending.present_from, radio_args.link.step
    flock, begin, kept = hash_combine(radio_args.link.seed_hash, b), np.uintp(0), np.uintp(0)
    now = hash_combine(flock, step)
    for a in range(batch.agents):
        i = order[batch.first + a]
        receiver = get_agent_id(i, agent_ids)
        # An agent receives no message that was sent before it joined the flock.
        receiver_hash, is_present = hash_combine(now, receiver), present_from[b, i] <= step
        for e in range(begin, ends[a]):
            j = np.uintp(senders[e])
            # Always written, kept if it arrives: no branch to mispredict.
            senders[kept] = senders[e]
            offsets[0, kept], offsets[1, kept] = offsets[0, e], offsets[1, e]
            if D == 3:
                offsets[2, kept] = offsets[2, e]
            arrives = (mix(receiver_hash ^ sender_hashes[j]) >> HASH_SHIFT) >= threshold
            if has_bursts:
                arrives = not is_lost_in_burst(
                    flock, step, receiver, get_agent_id(order[j], agent_ids), loss_after_loss, loss_after_arrival
                )
            kept += np.uintp(arrives & is_present & (not is_silent[j]))
        begin, ends[a] = ends[a], kept


@kernel
def quantize(x: float, splitter: float) -> float:
    """Round x to the nearest number with fewer bits of fraction (Veltkamp's splitting); a splitter of 0 keeps x."""
    wide = x * splitter
    return wide - (wide - x) if splitter > 0.0 else x


@kernel
def quantize_older_hops(older_hops: Array, older_size: Index, splitter: float, first: Index, last: Index) -> None:
    """Round the older hops in the records first .. last - 1 to the bits of a message, in place."""
    for s in range(first, last):
        for n in range(older_size):
            older_hops[s, n] = quantize(np.float64(older_hops[s, n]), splitter)


@kernel
def measure_messages(b: Index, radio_args: RadioArgs, batch: Batch, shift: Index, records: Records) -> None:
    """Write r_ij and v_ij as the radio delivers them into `batch.features`, and r_ij into the lists as well.

    `shift` is the distance from an agent's record as sent to its record now.
    """
    # The constant lets the compiler omit the third coordinate in the plane.
    if records.velocities.shape[1] == 2:
        _measure_messages_nd(2, b, radio_args, batch, shift, records)
    else:
        _measure_messages_nd(3, b, radio_args, batch, shift, records)


@inline_kernel
def _measure_messages_nd(
    D: Index, b: Index, radio_args: RadioArgs, batch: Batch, shift: Index, records: Records
) -> None:
    """Do what `measure_messages` does, for D as a compile-time constant."""
    record_positions, record_velocities = records.positions, records.velocities
    order, agent_ids, roles = records.order, records.agent_ids, records.roles
    senders, offsets, ends = batch.lists
    virtual_velocities, nearest, obstacle_counts = batch.rule_result
    vectors, flock = batch.features.vectors, hash_combine(radio_args.link.seed_hash, b)
    link, measuring = radio_args.link, radio_args.measuring
    position_noise, velocity_noise, splitter = measuring.position_noise, measuring.velocity_noise, measuring.splitter
    begin, now = np.uintp(0), hash_combine(flock, link.step)
    for a in range(batch.agents):
        own, receiver = batch.first + shift + a, get_agent_id(order[batch.first + a], agent_ids)
        receiver_hash = hash_combine(now, receiver)
        for e in range(begin, ends[a]):
            # Relative position and velocity: the receiver's now, the sender's when it sent.
            j = np.uintp(senders[e])
            for d in range(D):
                vectors[e, d] = record_positions[d, own] - record_positions[d, j]
                vectors[e, D + d] = record_velocities[own, d] - record_velocities[j, d]
            # Measurement noise, drawn from the hash of the message.
            if position_noise > 0.0:
                sent = receiver_hash
                if link.rows > 0:
                    sent = hash_combine(hash_combine(flock, get_send_step(j, link)), receiver)
                h = hash_combine(sent, get_agent_id(order[j], agent_ids))
                _add_noise(D, e, h, position_noise, velocity_noise, vectors)
            # Quantization.
            if splitter > 0.0:
                for d in range(2 * D):
                    vectors[e, d] = quantize(vectors[e, d], splitter)
            # The orbit technique replaces the relative velocity of the nearest obstacle agent by a virtual one, and of
            # others by 0. It is computed from exact positions, so it is neither noisy nor rounded.
            if obstacle_counts[a] > 0 and roles[order[j]] == OBSTACLE:
                vectors[e, D] = virtual_velocities[a, 0] if j == nearest[a] else 0.0
                vectors[e, D + 1] = virtual_velocities[a, 1] if j == nearest[a] else 0.0
            for d in range(D):
                offsets[d, e] = vectors[e, d]
        begin = ends[a]


@kernel
def _add_noise(D: Index, e: Index, h: Index, position_noise: float, velocity_noise: float, vectors: Array) -> None:
    """Add normal noise to r_ij and v_ij of entry e, whose message has the hash h."""
    noise_hash = hash_combine(h, NOISE_STREAM)
    if D == 2:
        vectors[e, 0] += position_noise * hash_to_normal(noise_hash, 0)
        vectors[e, 1] += position_noise * hash_to_normal(noise_hash, 1)
        vectors[e, 2] += velocity_noise * hash_to_normal(noise_hash, 2)
        vectors[e, 3] += velocity_noise * hash_to_normal(noise_hash, 3)
    else:
        velocity_hash = hash_combine(h, VELOCITY_NOISE_STREAM)
        for d in range(3):
            vectors[e, d] += position_noise * hash_to_normal(noise_hash, d)
            vectors[e, 3 + d] += velocity_noise * hash_to_normal(velocity_hash, d)
