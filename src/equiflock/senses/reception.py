"""What the senses of a flight remember of its radio, and what they tell the kernels of it at every step."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

from equiflock.flock import FOLLOWER, Flock
from equiflock.runtime import threads
from equiflock.runtime.hashing import begin
from equiflock.runtime.jit import Array, kernel
from equiflock.runtime.threads import AGENTS_PER_THREAD, split_flocks
from equiflock.senses.air import quantize_past
from equiflock.senses.graph import Graph, radius_graph
from equiflock.senses.late import hear_late, sort_frame
from equiflock.senses.radio import Radio
from equiflock.senses.used import used_graph

NEVER = np.iinfo(np.int64).max
HASH_BITS = 53
"""Bits of a hash that decide whether a message is lost."""
FRACTION, EXPONENT_AND_SIGN = 53, 9
"""Bits of the fraction of float64, the leading one included; bits of a quantized number that are not fraction."""


@kernel
def _hash_of_seed(seed: int) -> Any:
    return begin(seed)


class Reception:
    """The radio of a flock in flight: `begin_step` once per step, then what the kernels are to be told.

    Args:
        radio: how messages travel.
        step: the number of the last step before it, which nobody hears of; -1 at the beginning of a flight.

    Memory is O(N) times the steps that a message may be old, plus one.
    """

    def __init__(self, radio: Radio, step: int = -1) -> None:
        self.radio = radio
        self.step = step
        self.first = step + 1
        """The step of the first messages that are remembered."""
        self._silent_from: Int64[np.ndarray, "B N"] | None = None
        self._born: Int64[np.ndarray, "B N"] = np.empty((0, 0), np.int64)
        self._frames: tuple[Array, Array, Array] | None = None
        self._cells: tuple[Array, Array, Array, Array] | None = None
        self._key = np.uint64(_hash_of_seed(radio.seed))  # else Numba takes a small one for a signed number

    def tuned(self, radio: Radio) -> Reception:
        """The reception of another radio from now on; what is on the way stays so if both remember as many steps."""
        other = Reception(radio, self.step)
        if radio.memory == self.radio.memory:
            other.first = self.first
            other._frames, other._silent_from, other._born = self._frames, self._silent_from, self._born
        return other

    @property
    def is_late(self) -> bool:
        """Whether messages of several steps may be used at once."""
        return self.radio.jitter + self.radio.last_known > 0

    @property
    def sent_at(self) -> int:
        """The step of the newest messages that may be heard now; before `first` if there are none yet."""
        return self.step - self.radio.delay

    def begin_step(self, flock: Flock, before: Array, muted: Bool[np.ndarray, "B N"] | None) -> None:
        """Take note of what agents send now: their state, and what they knew `before`, (B, N, K * C * D).

        `muted` are the agents that send nothing from now on, if there are any.
        """
        self.step += 1
        B, N, _ = flock.shape
        if self._silent_from is None:
            self._silent_from, self._born = np.full((B, N), NEVER), np.full((B, N), self.step)
        if muted is not None:
            self._silent_from = np.where(muted, np.minimum(self._silent_from, self.step), NEVER)
        # What is sent now is heard later; a radio without memory needs no copy.
        if self.radio.memory > 0:
            if self._frames is None:
                sizes = flock.shape[2], flock.shape[2], before.shape[2]
                kinds = np.float64, np.float64, np.float32
                slots = self.radio.memory + 1
                self._frames = tuple(  # type: ignore[assignment]
                    np.zeros((slots, B, N, size), kind) for size, kind in zip(sizes, kinds, strict=True)
                )
            assert self._frames is not None
            for frames, said in zip(self._frames, (flock.positions, flock.velocities, before), strict=True):
                frames[self.step % len(frames)] = said

    def sent(self, flock: Flock, before: Array) -> tuple[Flock, Array]:
        """The flock, and what its agents passed on, at the step at which the messages that are heard now were sent."""
        if self.radio.delay == 0:
            return flock, before
        assert self._frames is not None
        positions, velocities, past = (frames[self.sent_at % len(frames)] for frames in self._frames)
        return Flock.view(positions, velocities, *flock.arrays[2:], comm_radius=flock.comm_radius), past

    def air(self, flock: Flock, time_scale: float = 1.0) -> tuple[Any, ...]:
        """What the kernels are told, as `equiflock.senses.air` has it, with the state of the receivers now."""
        radio = self.radio
        # Lost after a lost one with probability 1 - 1 / burst, and after another so often that the share is right.
        bursts = radio.burst is not None and 0.0 < radio.loss < 1.0
        stay = 1.0 - 1.0 / radio.burst if bursts else 0.0  # type: ignore[operator]
        fall = radio.loss * (1.0 - stay) / (1.0 - radio.loss) if bursts else 0.0
        chances = np.uint64(round(radio.loss * 2**HASH_BITS)), bursts, stay, fall
        # The ring holds one more step than a message may be old; without it all records are of one step.
        slots, rows = (radio.memory + 1, flock.roles.size) if self.is_late else (1, 0)
        link = self._key, self.step if self.is_late else self.sent_at, slots, rows
        noise = radio.noise * flock.comm_radius
        delayed = radio.delay > 0 and not self.is_late
        measured = radio.memory > 0 or noise > 0.0 or radio.quantization is not None
        measuring = measured, delayed, noise, noise * time_scale, self._splitter
        return (
            link,
            chances,
            measuring,
            (radio.every, self._silent_from, self._born),
            (flock.positions, flock.velocities),
        )

    @property
    def _splitter(self) -> float:
        """The factor that leaves so many bits of a number's fraction (Veltkamp's splitting); 0 for all of them."""
        bits = self.radio.quantization
        return 0.0 if bits is None else 2.0 ** (FRACTION - (bits - EXPONENT_AND_SIGN + 1)) + 1.0

    def hear_late(
        self,
        flock: Flock,
        active: Array,
        terms: tuple[Any, float, Any],
        graph: Graph | None,
        now: Array,
        ranks: Array | None,
        time_scale: float,
    ) -> bool:
        """Fill in `now` (B, N, K * C * D) where messages of several steps are used; False if one is off the scale."""
        assert self._frames is not None
        (rules, comm_radius, said), (B, N, _) = terms, flock.shape
        slots, slot = len(self._frames[0]), self.step % len(self._frames[0])
        positions, velocities, past = self._frames
        numbers = np.empty(0, np.int64) if ranks is None else ranks
        flocks = [active[first:last] for first, last in split_flocks(len(active), N)]
        # What is sent now is put into cells once; all that is remembered is if there are no cells of it.
        unsorted = [slot] if self._cells is not None else range(slots)
        cells = self._cells = self._cells or _make_cells(slots, B, N)
        jobs = [
            (positions[each], velocities[each], numbers, comm_radius, cells, each, some)
            for some in flocks
            for each in unsorted
        ]
        if not all(threads.share(sort_frame, jobs)):
            return False
        # Numbers that are passed on are rounded once, too.
        air = self.air(flock, time_scale)
        if self._splitter > 0.0:
            quantize_past(past[slot].reshape(B * N, -1), past.shape[3], self._splitter, 0, B * N)
        # Flocks are shared out to threads, or the agents of a single one.
        parts = [(some, 0, N) for some in flocks]
        if len(active) == 1:
            parts = [(active, first, last) for first, last in threads.split(N, AGENTS_PER_THREAD)]
        window = self.radio.delay, self.radio.jitter, self.radio.last_known
        empty = np.empty(0, np.int64)
        links = (empty, empty) if graph is None else (graph.starts, graph.senders)
        order = np.tile(np.arange(B * N, dtype=np.uintp), slots)
        numbering = order, np.tile(np.arange(N) if ranks is None else ranks, B)
        crew = flock.roles.reshape(-1), flock.groups.reshape(-1)
        obstacles = flock.shape[2] == 2 and bool((flock.obstacles >= 0).any())
        rest = rules, comm_radius, said, now.reshape(B * N, -1), air, window, obstacles
        common = self._frames, numbering, crew, cells, links, *rest
        return all(threads.share(hear_late, [(*common, *part) for part in parts]))

    def used(self, flock: Flock, graph: Graph | None, ranks: Int64[np.ndarray, " N"] | None) -> Graph:
        """Who uses a message of whom now; `graph` is that of a fixed topology."""
        radio, newest = self.radio, self.sent_at

        def within_reach(step: int) -> Graph:
            if graph is not None:
                return graph
            # Who is silent now may have sent then, and who hears nobody now uses nothing.
            positions, velocities = flock.positions, flock.velocities
            if self._frames is not None:
                positions, velocities = (frames[step % len(frames)] for frames in self._frames[:2])
            _, _, _, obstacles, groups, conditions = flock.arrays
            crew = flock.effective_roles, obstacles, groups, np.zeros_like(conditions)
            return radius_graph(Flock.view(positions, velocities, *crew, comm_radius=flock.comm_radius))

        steps = range(max(newest - radio.jitter - radio.last_known, self.first), newest + 1)
        # The kernel compares with the step of now, whatever the step at which the messages of one delay were sent.
        (key, _, slots, rows), *rest = self.air(flock)
        window = radio.delay, radio.jitter, radio.last_known
        numbers = np.empty(0, np.int64) if ranks is None else ranks
        air = (key, self.step, slots, rows), *rest
        return used_graph(flock.effective_roles == FOLLOWER, steps, within_reach, air, window, numbers)

    def renumber(self, order: Int64[np.ndarray, " N"]) -> None:
        """Go on with the same agents in another order: the s-th is the one that was number order[s]."""
        if self._silent_from is not None:
            self._silent_from, self._born = self._silent_from[:, order], self._born[:, order]
        if self._frames is not None:
            self._frames = tuple(np.ascontiguousarray(frames[:, :, order]) for frames in self._frames)  # type: ignore[assignment]
        self._cells = None  # their order is that of the old numbers

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Go on with another flock: its first agents are the kept ones, whose messages on the way stay on the way."""
        if self._silent_from is None:
            return
        (B, N, _), kept = flock.shape, int(keep.sum())
        silent_from, born = np.full((B, N), NEVER), np.full((B, N), self.step + 1)
        silent_from[:, :kept], born[:, :kept] = self._silent_from[:, keep], self._born[:, keep]
        # Who was mute and is no more says nothing of that time: it begins anew.
        repaired = (silent_from < NEVER) & ~flock.muted
        silent_from[repaired], born[repaired] = NEVER, self.step + 1
        self._silent_from, self._born = silent_from, born
        if self._frames is None:
            return
        # New agents have said nothing yet; where they stand now is as good a place as any for the cells.
        made = []
        for frames, now in zip(self._frames, (flock.positions, flock.velocities, None), strict=True):
            fresh = np.zeros((len(frames), B, N, frames.shape[3]), frames.dtype)
            if now is not None:
                fresh[:] = now
            fresh[:, :, :kept] = frames[:, :, keep]
            made.append(fresh)
        self._frames, self._cells = tuple(made), None  # type: ignore[assignment]


def _make_cells(slots: int, B: int, N: int) -> tuple[Array, Array, Array, Array]:
    """Memory for the cell lists of all slots and flocks: order, starts, buckets and shapes."""
    shape = slots, B, N
    starts = np.zeros((slots, B, 2 * N + 65), np.uintp)
    return np.zeros(shape, np.uintp), starts, np.zeros(shape, np.uintp), np.ones((slots, B, 3), np.int64)
