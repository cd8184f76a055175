"""What becomes of messages on the air: kernels that take lost ones out of lists, and measure what the others say.

With a hash of (seed, flock, step, receiver, sender), where `step` is the one at which a message was sent, a message is
lost if the hash, as a number from 0 to 1, is below the loss. Bursts are a chain of two states on every link, lost and
arrived (Gilbert-Elliott): with p the loss and b the mean length of a burst, a message is lost after a lost one with
probability 1 - 1/b, and after one that arrived with p / (b (1 - p)). The hash of a step says how the chain goes on,
and for many steps it says so whatever the state before; so the state now is found by going back to the last such step,
b (1 - p) steps on average for bursts that are longer than by chance, and nothing has to be remembered of a link.

The kernels of `hearing` get `flock_radio`, which is None for a perfect radio, and else a tuple of

    link       (hash of the seed, the step at which the messages were sent, slots, rows of a slot): where records are
               those of several steps, in a ring of so many slots, the last two say which step a record is of, and the
               step is that of now; else the last is 0
    chances    (messages of hashes below this are lost, are there bursts, lost after a lost one, lost after another)
    measuring  (measured, delayed, noise of positions, noise of velocities, `splitter` of the quantization)
    quieting   (send at every so many-th step, the step from which on each agent is silent (B, N), and that of its first
               message (B, N))
    own        positions and velocities (B, N, D) of the receivers now, which differ from those sent if there is a delay
"""

from __future__ import annotations

from typing import Any

import numpy as np

from equiflock.flock import OBSTACLE
from equiflock.runtime.hashing import hash_combine, hash_to_normal, hash_to_uniform, hash_word, mix
from equiflock.runtime.jit import Array, Index, inline_kernel, kernel

_HASH_SHIFT = np.uint64(11)
NOISE_STREAM, JITTER_STREAM, VELOCITY_NOISE_STREAM = np.uint64(1), np.uint64(2), np.uint64(3)
"""What further numbers of a message are about; each is a hash of the message's own."""
PHASE_STREAM = -1
"""In place of a step: what an agent's phase is about."""


@kernel
def get_agent_id(i: Index, agent_ids: Array) -> Index:
    """The number by which the caller knows agent i, which may stand elsewhere in memory."""
    return np.uint64(agent_ids[i]) if agent_ids.size > 0 else np.uint64(i)


@kernel
def is_lost_in_burst(
    flock: Index, step: Index, receiver: Index, sender: Index, loss_after_loss: float, loss_after_arrival: float
) -> bool:
    """Whether the message of a step is lost, by the chain of its link; `flock` is the hash of seed and flock."""
    # Where the number is between the two probabilities, the state before is kept, or turned over if stay < fall.
    low, high, turned = min(loss_after_loss, loss_after_arrival), max(loss_after_loss, loss_after_arrival), False
    while True:
        number = hash_to_uniform(hash_combine(hash_combine(hash_combine(flock, step), receiver), sender))
        if number < low or number >= high:
            return bool((number < low) != turned)
        turned ^= loss_after_loss < loss_after_arrival
        step -= 1


@kernel
def get_send_step(j: Index, link: Any) -> Index:
    """The step at which record j of a ring was sent."""
    _, step, slots, rows = link
    return step - (step % slots - np.int64(j) // rows) % slots


@kernel
def skips_step(flock: Index, step: Index, sender: Index, send_interval: Index) -> bool:
    """Whether an agent does not send at a step, as its turn is at another."""
    if send_interval == 1:
        return False
    phase = hash_combine(hash_combine(flock, PHASE_STREAM), sender) % np.uint64(send_interval)
    return bool((np.uint64(step) + phase) % np.uint64(send_interval) != 0)


@kernel
def hash_senders(
    b: Index, order: Array, agent_ids: Array, flock_radio: Any, sender_hashes: Any, first: Index, last: Index
) -> None:
    """Write into `sender_hashes` what is hashed of the senders with records first .. last, and mark those that sent nothing."""
    words, quiet = sender_hashes
    (key, step, _, _), _, _, (send_interval, silent_from, present_from), _ = flock_radio
    flock = hash_combine(key, b)
    for s in range(np.uintp(first), np.uintp(last)):
        i = order[s]
        number, there = get_agent_id(i, agent_ids), present_from[b, i] <= step < silent_from[b, i]
        words[s], quiet[s] = hash_word(number), not there or skips_step(flock, step, number, send_interval)


@inline_kernel
def _drop_lost_messages_nd(
    D: Index, b: Index, first: Index, agents: Index, lists: Any, numbering: Any, flock_radio: Any, sender_hashes: Any
) -> None:
    senders, offsets, ends = lists
    (order, agent_ids), (words, quiet) = numbering, sender_hashes
    (key, step, _, _), (threshold, bursts, loss_after_loss, loss_after_arrival), _, (_, _, present_from), _ = (
        flock_radio
    )
    flock, begin, kept = hash_combine(key, b), np.uintp(0), np.uintp(0)
    now = hash_combine(flock, step)
    for a in range(agents):
        receiver = get_agent_id(order[first + a], agent_ids)
        # Who was not there when the messages were sent hears none of them.
        receiver_hash, there = hash_combine(now, receiver), present_from[b, order[first + a]] <= step
        for e in range(begin, ends[a]):
            j = np.uintp(senders[e])
            # Written always and kept if it arrives: no branch for the processor to guess.
            senders[kept] = senders[e]
            offsets[0, kept], offsets[1, kept] = offsets[0, e], offsets[1, e]
            if D == 3:
                offsets[2, kept] = offsets[2, e]
            arrives = (mix(receiver_hash ^ words[j]) >> _HASH_SHIFT) >= threshold
            if bursts:
                arrives = not is_lost_in_burst(
                    flock, step, receiver, get_agent_id(order[j], agent_ids), loss_after_loss, loss_after_arrival
                )
            kept += np.uintp(arrives & there & (not quiet[j]))
        begin, ends[a] = ends[a], kept


@kernel
def drop_lost_messages(
    b: Index, first: Index, agents: Index, lists: Any, numbering: Any, flock_radio: Any, sender_hashes: Any
) -> None:
    """Leave in the lists of a batch of agents, whose records begin with `first`, the messages that arrive."""
    # The constant lets the compiler leave the third coordinate out in the plane.
    if lists[1].shape[0] == 4:
        _drop_lost_messages_nd(2, b, first, agents, lists, numbering, flock_radio, sender_hashes)
    else:
        _drop_lost_messages_nd(3, b, first, agents, lists, numbering, flock_radio, sender_hashes)


@kernel
def quantize(x: float, splitter: float) -> float:
    """X rounded to the nearest number of fewer bits of fraction (Veltkamp's splitting); x itself if splitter is 0."""
    wide = x * splitter
    return wide - (wide - x) if splitter > 0.0 else x


@kernel
def quantize_older_hops(older_hops: Array, older_size: Index, splitter: float, first: Index, last: Index) -> None:
    """Round what agents pass on, in the records first .. last, to the bits of a message."""
    for s in range(first, last):
        for n in range(older_size):
            older_hops[s, n] = quantize(np.float64(older_hops[s, n]), splitter)


@inline_kernel
def _measure_messages_nd(
    D: Index,
    first: Index,
    shift: Index,
    agents: Index,
    lists: Any,
    records: Any,
    roles: Array,
    rule_result: Any,
    flock_radio: Any,
    flock: Index,
    numbering: Any,
    vectors: Array,
) -> None:
    record_positions, record_velocities, _ = records
    senders, offsets, ends = lists
    order, agent_ids = numbering
    taken, nearest, obstacle_counts = rule_result
    link, _, (_, _, position_noise, velocity_noise, splitter), _, _ = flock_radio
    begin, now = np.uintp(0), hash_combine(flock, link[1])
    for a in range(agents):
        own, receiver = first + shift + a, get_agent_id(order[first + a], agent_ids)
        receiver_hash = hash_combine(now, receiver)
        for e in range(begin, ends[a]):
            # Relative position and velocity: the receiver's now, the sender's when it sent.
            j = np.uintp(senders[e])
            for d in range(D):
                vectors[d, e] = record_positions[d, own] - record_positions[d, j]
                vectors[D + d, e] = record_velocities[own, d] - record_velocities[j, d]
            # Noise of the measurement, which belongs to the message.
            if position_noise > 0.0:
                sent = (
                    receiver_hash
                    if link[3] == 0
                    else hash_combine(hash_combine(flock, get_send_step(j, link)), receiver)
                )
                h = hash_combine(sent, get_agent_id(order[j], agent_ids))
                _add_noise(D, e, h, position_noise, velocity_noise, vectors)
            # The bits of a number.
            if splitter > 0.0:
                for d in range(2 * D):
                    vectors[d, e] = quantize(vectors[d, e], splitter)
            # The orbit technique gives the nearest obstacle agent a relative velocity of its own, any others none: what
            # the follower takes it to be, from exact positions, and so neither noisy nor rounded.
            if obstacle_counts[a] > 0 and roles[order[j]] == OBSTACLE:
                vectors[D, e] = taken[a, 0] if j == nearest[a] else 0.0
                vectors[D + 1, e] = taken[a, 1] if j == nearest[a] else 0.0
            for d in range(D):
                offsets[d, e] = vectors[d, e]
        begin = ends[a]


@kernel
def _add_noise(D: Index, e: Index, h: Index, position_noise: float, velocity_noise: float, vectors: Array) -> None:
    """Add noise to r_ij and v_ij of entry e, whose message has the hash h."""
    one = hash_combine(h, NOISE_STREAM)
    if D == 2:
        vectors[0, e] += position_noise * hash_to_normal(one, 0)
        vectors[1, e] += position_noise * hash_to_normal(one, 1)
        vectors[2, e] += velocity_noise * hash_to_normal(one, 2)
        vectors[3, e] += velocity_noise * hash_to_normal(one, 3)
    else:
        other = hash_combine(h, VELOCITY_NOISE_STREAM)
        for d in range(3):
            vectors[d, e] += position_noise * hash_to_normal(one, d)
            vectors[3 + d, e] += velocity_noise * hash_to_normal(other, d)


@kernel
def measure_messages(
    b: Index,
    first: Index,
    shift: Index,
    agents: Index,
    lists: Any,
    records: Any,
    roles: Array,
    rule_result: Any,
    flock_radio: Any,
    numbering: Any,
    vectors: Array,
) -> None:
    """Write into `vectors` (2 D, entries) r_ij and v_ij as the radio delivers them, and r_ij into the lists, too.

    Args:
        b: the flock.
        first: the record of the first agent of the batch.
        shift: how many records after its own, as it sent, an agent's record of now stands.
        agents: how many.
        lists: whose messages each of the batch uses.
        records: of all agents.
        roles: (N,), of agents.
        rule_result: what the obstacle rule says of each of the batch.
        flock_radio: see above.
        numbering: (order, ranks): record s is agent order[s], whose number is ranks[order[s]], or order[s] itself.
        vectors: memory for the result.
    """
    flock = hash_combine(flock_radio[0][0], b)
    # The constant lets the compiler leave the third coordinate out in the plane.
    if records[1].shape[1] == 2:
        _measure_messages_nd(
            2, first, shift, agents, lists, records, roles, rule_result, flock_radio, flock, numbering, vectors
        )
    else:
        _measure_messages_nd(
            3, first, shift, agents, lists, records, roles, rule_result, flock_radio, flock, numbering, vectors
        )
