"""What becomes of messages on the air: kernels that take lost ones out of lists, and measure what the others say.

With a hash of (seed, flock, step, receiver, sender), where `step` is the one at which a message was sent, a message is
lost if the hash, as a number from 0 to 1, is below the loss. Bursts are a chain of two states on every link, lost and
arrived (Gilbert-Elliott): with p the loss and b the mean length of a burst, a message is lost after a lost one with
probability 1 - 1/b, and after one that arrived with p / (b (1 - p)). The hash of a step says how the chain goes on,
and for many steps it says so whatever the state before; so the state now is found by going back to the last such step,
b (1 - p) steps on average for bursts that are longer than by chance, and nothing has to be remembered of a link.

The kernels of `hearing` get `air`, which is None for a perfect radio, and else a tuple of

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
from equiflock.runtime.hashing import blend, mix, normal, uniform, word
from equiflock.runtime.jit import Array, Index, inlined, kernel

_11 = np.uint64(11)
NOISE, JITTER, MORE_NOISE = np.uint64(1), np.uint64(2), np.uint64(3)
"""What further numbers of a message are about; each is a hash of the message's own."""
PHASE = -1
"""In place of a step: what an agent's phase is about."""


@kernel
def number_of(i: Index, ranks: Array) -> Index:
    """The number by which the caller knows agent i, which may stand elsewhere in memory."""
    return np.uint64(ranks[i]) if ranks.size > 0 else np.uint64(i)


@kernel
def lost_in_burst(flock: Index, step: Index, receiver: Index, sender: Index, stay: float, fall: float) -> bool:
    """Whether the message of a step is lost, by the chain of its link; `flock` is the hash of seed and flock."""
    # Where the number is between the two probabilities, the state before is kept, or turned over if stay < fall.
    low, high, turned = min(stay, fall), max(stay, fall), False
    while True:
        number = uniform(blend(blend(blend(flock, step), receiver), sender))
        if number < low or number >= high:
            return bool((number < low) != turned)
        turned ^= stay < fall
        step -= 1


@kernel
def step_of(j: Index, link: Any) -> Index:
    """The step at which record j of a ring was sent."""
    _, step, slots, rows = link
    return step - (step % slots - np.int64(j) // rows) % slots


@kernel
def is_quiet(flock: Index, step: Index, sender: Index, every: Index) -> bool:
    """Whether an agent does not send at a step, as its turn is at another."""
    if every == 1:
        return False
    phase = blend(blend(flock, PHASE), sender) % np.uint64(every)
    return bool((np.uint64(step) + phase) % np.uint64(every) != 0)


@kernel
def call_up(b: Index, order: Array, ranks: Array, air: Any, calls: Any, first: Index, last: Index) -> None:
    """Write into `calls` what is hashed of the senders with records first .. last, and mark those that sent nothing."""
    words, quiet = calls
    (key, step, _, _), _, _, (every, silent_from, born), _ = air
    flock = blend(key, b)
    for s in range(np.uintp(first), np.uintp(last)):
        i = order[s]
        number, there = number_of(i, ranks), born[b, i] <= step < silent_from[b, i]
        words[s], quiet[s] = word(number), not there or is_quiet(flock, step, number, every)


@inlined
def _receive_of(
    D: Index, b: Index, first: Index, agents: Index, lists: Any, numbering: Any, air: Any, calls: Any
) -> None:
    senders, offsets, ends = lists
    (order, ranks), (words, quiet) = numbering, calls
    (key, step, _, _), (threshold, bursts, stay, fall), _, (_, _, born), _ = air
    flock, begin, kept = blend(key, b), np.uintp(0), np.uintp(0)
    now = blend(flock, step)
    for a in range(agents):
        receiver = number_of(order[first + a], ranks)
        # Who was not there when the messages were sent hears none of them.
        mine, there = blend(now, receiver), born[b, order[first + a]] <= step
        for e in range(begin, ends[a]):
            j = np.uintp(senders[e])
            # Written always and kept if it arrives: no branch for the processor to guess.
            senders[kept] = senders[e]
            offsets[0, kept], offsets[1, kept] = offsets[0, e], offsets[1, e]
            if D == 3:
                offsets[2, kept] = offsets[2, e]
            arrives = (mix(mine ^ words[j]) >> _11) >= threshold
            if bursts:
                arrives = not lost_in_burst(flock, step, receiver, number_of(order[j], ranks), stay, fall)
            kept += np.uintp(arrives & there & (not quiet[j]))
        begin, ends[a] = ends[a], kept


@kernel
def receive(b: Index, first: Index, agents: Index, lists: Any, numbering: Any, air: Any, calls: Any) -> None:
    """Leave in the lists of a batch of agents, whose records begin with `first`, the messages that arrive."""
    # The constant lets the compiler leave the third coordinate out in the plane.
    if lists[1].shape[0] == 4:
        _receive_of(2, b, first, agents, lists, numbering, air, calls)
    else:
        _receive_of(3, b, first, agents, lists, numbering, air, calls)


@kernel
def quantized(x: float, splitter: float) -> float:
    """X rounded to the nearest number of fewer bits of fraction (Veltkamp's splitting); x itself if splitter is 0."""
    wide = x * splitter
    return wide - (wide - x) if splitter > 0.0 else x


@kernel
def quantize_past(past: Array, older: Index, splitter: float, first: Index, last: Index) -> None:
    """Round what agents pass on, in the records first .. last, to the bits of a message."""
    for s in range(first, last):
        for n in range(older):
            past[s, n] = quantized(np.float64(past[s, n]), splitter)


@inlined
def _measure_of(
    D: Index,
    first: Index,
    shift: Index,
    agents: Index,
    lists: Any,
    records: Any,
    roles: Array,
    rule: Any,
    air: Any,
    flock: Index,
    numbering: Any,
    vectors: Array,
) -> None:
    place, motion, _ = records
    senders, offsets, ends = lists
    order, ranks = numbering
    taken, nearest, rims = rule
    link, _, (_, _, position_noise, velocity_noise, splitter), _, _ = air
    begin, now = np.uintp(0), blend(flock, link[1])
    for a in range(agents):
        own, receiver = first + shift + a, number_of(order[first + a], ranks)
        mine = blend(now, receiver)
        for e in range(begin, ends[a]):
            # Relative position and velocity: the receiver's now, the sender's when it sent.
            j = np.uintp(senders[e])
            for d in range(D):
                vectors[d, e] = place[d, own] - place[d, j]
                vectors[D + d, e] = motion[own, d] - motion[j, d]
            # Noise of the measurement, which belongs to the message.
            if position_noise > 0.0:
                sent = mine if link[3] == 0 else blend(blend(flock, step_of(j, link)), receiver)
                h = blend(sent, number_of(order[j], ranks))
                _add_noise(D, e, h, position_noise, velocity_noise, vectors)
            # The bits of a number.
            if splitter > 0.0:
                for d in range(2 * D):
                    vectors[d, e] = quantized(vectors[d, e], splitter)
            # The orbit technique gives the nearest obstacle agent a relative velocity of its own, any others none: what
            # the follower takes it to be, from exact positions, and so neither noisy nor rounded.
            if rims[a] > 0 and roles[order[j]] == OBSTACLE:
                vectors[D, e] = taken[a, 0] if j == nearest[a] else 0.0
                vectors[D + 1, e] = taken[a, 1] if j == nearest[a] else 0.0
            for d in range(D):
                offsets[d, e] = vectors[d, e]
        begin = ends[a]


@kernel
def _add_noise(D: Index, e: Index, h: Index, position_noise: float, velocity_noise: float, vectors: Array) -> None:
    """Add noise to r_ij and v_ij of entry e, whose message has the hash h."""
    one = blend(h, NOISE)
    if D == 2:
        vectors[0, e] += position_noise * normal(one, 0)
        vectors[1, e] += position_noise * normal(one, 1)
        vectors[2, e] += velocity_noise * normal(one, 2)
        vectors[3, e] += velocity_noise * normal(one, 3)
    else:
        other = blend(h, MORE_NOISE)
        for d in range(3):
            vectors[d, e] += position_noise * normal(one, d)
            vectors[3 + d, e] += velocity_noise * normal(other, d)


@kernel
def measure(
    b: Index,
    first: Index,
    shift: Index,
    agents: Index,
    lists: Any,
    records: Any,
    roles: Array,
    rule: Any,
    air: Any,
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
        rule: what the obstacle rule says of each of the batch.
        air: see above.
        numbering: (order, ranks): record s is agent order[s], whose number is ranks[order[s]], or order[s] itself.
        vectors: memory for the result.
    """
    flock = blend(air[0][0], b)
    # The constant lets the compiler leave the third coordinate out in the plane.
    if records[1].shape[1] == 2:
        _measure_of(2, first, shift, agents, lists, records, roles, rule, air, flock, numbering, vectors)
    else:
        _measure_of(3, first, shift, agents, lists, records, roles, rule, air, flock, numbering, vectors)
