"""The observations of an agent: features of those it hears, and delayed K-hop aggregation (section 2.4 of the paper).

With N_i(t) the agents that i hears at time t and psi the features of the channels (the paper's are
[v_ij, r_ij / |r_ij|^4, r_ij / |r_ij|^2]), each agent knows Z_i(t) = [z_i^1(t), .. z_i^K(t)]:

    z_i^1(t) = sum or mean over j in N_i(t) of psi(r_ij(t), v_ij(t))
    z_i^k(t) = mean over j in N_i(t) of z_j^(k-1)(t - dt),    k = 2 .. K

Senses with another `hop_mean` divide otherwise. A feature among agents of the same group, or of others, is summed or
averaged over those alone. Of several obstacle agents within R only the nearest is heard, and it stands still unless the
`Orbit` technique says what else a follower takes it to do. Silent and stopped agents are heard by nobody, and stopped
and drifting ones hear nobody. Before t = 0 everything is zero, and so are the sums of an agent that hears nobody.
Relative vectors are subtracted in float64, so a flock far from the origin loses nothing. The paper's features of r_ij
and their sums, the older hops and the observations are float32; v_ij and declared features are summed in float64.

With a `Radio` that is not perfect, N_i(t) are those whose messages agent i uses at t, psi is made of what it measures,
and z_j^(k-1) is what the sender knew a step before it sent.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Int64

from equiflock.features import Senses
from equiflock.flock import Flock, Observations, check_flock
from equiflock.pairs.weights import ChannelTable, channel_table
from equiflock.runtime.checks import InputError, OffScaleError, check_choice, check_positive, short
from equiflock.runtime.jit import Array
from equiflock.runtime.threads import SMALL_FLOCK
from equiflock.senses.degrees import degrees_heard
from equiflock.senses.graph import Graph, radius_graph
from equiflock.senses.orbit import STAND_STILL, Orbit
from equiflock.senses.paper_sums import PAPER_CHANNELS
from equiflock.senses.radio import Radio
from equiflock.senses.receiver import Receiver
from equiflock.senses.reception import Reception
from equiflock.senses.sharing import LargeFlocks, hear_fixed, hear_small, off_scale

Obstacles = Literal["nearest", "all"]


def observe(flock: Flock, senses: Senses, *, comm_radius: float | None = None) -> Observations:
    """What every agent of a flock with no past knows, (B, N, K, C, D): z^1 at hop index 0, zeros beyond.

    Args:
        flock: the agents now.
        senses: the channels, hops and topology, such as `paper_senses(aggregation="mean", hops=3)`.
        comm_radius: R, if it shall be another than that of the flock.

    Coincident agents hear each other: v_ij counts in full, features of r_ij are exactly zero (weights are computed with
    max(|r_ij|, 1e-8) in place of |r_ij|).
    """
    return DelayedAggregation(senses, comm_radius=comm_radius).hear(check_flock(flock))


class DelayedAggregation:
    """Delayed aggregation of a flock in flight: call `hear` once per time step to get the observations of all agents.

    Args:
        senses: the channels, hops and topology.
        comm_radius: R, if it shall be another than that of the flock.
        orbit: what a follower makes of the nearest obstacle agent's position; None if that just stands still.
        obstacles: which obstacle agents within R are heard and counted in |N_i|, "nearest" or "all".
        radio: how messages travel; all arrive at once and exact if left out.

    Memory is O(N), times the steps that a message may be old. The array that `hear` returns is overwritten at the step
    after the next.
    """

    def __init__(
        self,
        senses: Senses,
        *,
        comm_radius: float | None = None,
        orbit: Orbit | None = None,
        obstacles: Obstacles = "nearest",
        radio: Radio | None = None,
    ) -> None:
        if not isinstance(senses, Senses):
            raise InputError(f"senses must be such as equiflock.paper_senses() or Senses(...); got {short(senses)}")
        self.senses = senses
        self.comm_radius = None if comm_radius is None else check_positive("comm_radius", comm_radius)
        self.obstacles = check_choice("obstacles", obstacles, ("nearest", "all"))
        self.orbit = orbit
        self.receiver = Receiver(senses.needs_perfection)
        # Z(t) and Z(t - dt) change places at every step; they are made when the flock's size is known.
        self._said: tuple[bool, ChannelTable | None, int] | None = None
        self._now: Observations | None = None
        self._before: Observations | None = None
        self._heard = (0, 0, 0)
        """The shape of the flock, (B, N, D)."""
        self.fixed_graph: Graph | None = None
        """The graph of the first step, which a fixed topology keeps; None in a dynamic one, or before that step."""
        self._large: LargeFlocks | None = None
        self.radio = radio

    @property
    def radio(self) -> Radio:
        """How messages travel; it may change between two steps, None being the perfect radio.

        What is on the way is lost, unless the other radio remembers as many steps.
        """
        return self.receiver.radio

    @radio.setter
    def radio(self, radio: Radio | None) -> None:
        self.receiver.tune(radio)
        # Memory for a large flock has room for what is measured if there is a delay.
        self._large = None

    @property
    def orbit(self) -> Orbit | None:
        """The technique by which followers avoid obstacles, if they do; it may change between two steps."""
        return self._orbit

    @orbit.setter
    def orbit(self, orbit: Orbit | None) -> None:
        if orbit is not None and not isinstance(orbit, Orbit):
            raise InputError(f"orbit must be an Orbit, such as equiflock.Orbit(), or None; got {short(orbit)}")
        self._orbit = orbit
        numbers = STAND_STILL if orbit is None else orbit.numbers
        self._rules = self.obstacles == "nearest", orbit is not None, numbers

    def change(self, senses: Senses) -> None:
        """Go on with other senses from the next step on; a fixed topology is that of the first step with it.

        What agents remember, and messages on the way, are kept if hops, channels and units are as many and the same.
        """
        kept = senses.remembers_as(self.senses)
        self.receiver.change(senses.needs_perfection, kept)
        self.senses, self._said = senses, None  # the kernels are told anew what is said
        self.fixed_graph = self.fixed_graph if senses.topology == "fixed" else None
        if not kept:
            self._now = self._before = self._large = None

    def hear(
        self, flock: Flock, flying: Bool[np.ndarray, " B"] | None = None, ranks: Int64[np.ndarray, " N"] | None = None
    ) -> Observations:
        """Let a time step pass and return Z(t), (B, N, K, C, D).

        Args:
            flock: the agents now.
            flying: (B,), which flocks still fly, all if left out; observations of the others are zero and cost no time.
            ranks: (N,), for a single large flock whose agents do not stand in their order in memory: the number of
                each. An agent adds up whom it hears within a cell in the order of their numbers.
        """
        flock = self.senses.measured(check_flock(flock))
        before, now = self.turn(flock)
        B = len(flock)
        active = np.arange(B) if flying is None else flying.nonzero()[0]
        if len(active) < B:
            now[~flying] = 0.0  # type: ignore[operator]
        if (reception := self.receiver.reception_of(flock)) is not None:
            self._hear_by_radio(reception, flock, active, before, now, ranks)
        elif len(active) > 0 and self.senses.needs_perfection:
            self._hear_by_sender(flock, active, before, now, ranks)
        elif len(active) > 0:
            self._hear(flock, active, before, now, ranks)
        assert self._now is not None
        return self._now

    def _hear(
        self, flock: Flock, active: Array, before: Array, now: Array, ranks: Array | None, air: Any = None
    ) -> None:
        """Fill in `now` for the active flocks from what was known `before`; hops 2 .. K are the receiver's means."""
        _, N, D = flock.shape
        terms = self.terms(flock)
        if self.senses.topology == "fixed":
            fine = hear_fixed(flock, active, before, now, self._first_graph(flock), terms, air)
        elif N <= SMALL_FLOCK:
            fine = hear_small(flock, active, before, now, terms, air)
        else:
            if self._large is None or self._large.agents != N:
                older = (self.senses.hops - 1) * self.senses.width * D
                self._large = LargeFlocks(N, D, older, self.radio.delay > 0)
            fine = all(self._large.hear(flock, b, before[b], now[b], ranks, terms, air) for b in active)
        if not fine:
            raise self._off_scale(flock)

    def _hear_by_radio(
        self, reception: Reception, flock: Flock, active: Array, before: Array, now: Array, ranks: Array | None
    ) -> None:
        """Fill in `now` for the active flocks from the messages that the radio delivers now."""
        reception.begin_step(flock, before, None if flock.all_work else flock.muted)
        flock = self._as_heard(flock)
        # A fixed topology is that of the first step, though its messages may come later.
        graph = self._first_graph(flock) if self.senses.topology == "fixed" else None
        # Nothing that was sent can have arrived yet.
        if len(active) == 0 or reception.sent_at < reception.first:
            now[:] = 0.0
        elif reception.is_late:
            if not reception.hear_late(flock, active, self.terms(flock), graph, now, ranks, self.senses.time_scale):
                raise self._off_scale(flock)
        else:
            sent, known = reception.sent(flock, before)
            self._hear(sent, active, known, now, ranks, reception.air(flock, self.senses.time_scale))

    def _as_heard(self, flock: Flock) -> Flock:
        """The flock, with the R that is heard within, and stopped and drifting agents as leaders, who hear nobody."""
        positions, velocities, roles, *rest = flock.arrays
        roles = roles if flock.all_work else flock.effective_roles
        return Flock.view(positions, velocities, roles, *rest, comm_radius=self._radius_of(flock))

    def _hear_by_sender(self, flock: Flock, active: Array, before: Array, now: Array, ranks: Array | None) -> None:
        """Fill in `now` for the active flocks, with hops 2 .. K divided by the sender's degree."""
        graph = self._first_graph(flock) if self.senses.topology == "fixed" else None
        degrees = degrees_heard(flock, active, self._radius_of(flock), graph, self.obstacles == "nearest")
        # Each sender passes on z_j / |N_j|: in a copy, as the caller may still look at what was known before.
        counts, passed_on = degrees.astype(np.float32)[..., None], np.zeros_like(before)
        np.divide(before, counts, out=passed_on, where=counts > 0.0)
        self._hear(flock, active, passed_on, now, ranks)
        # The kernels make means; times |N_i| they are sums.
        now[:, :, self.senses.width * flock.shape[2] :] *= counts

    def turn(self, flock: Flock) -> tuple[Array, Array]:
        """Let a time step pass, with nobody heard yet: Z(t - dt), and the memory for Z(t), each (B, N, K * C * D).

        `hear` begins with it; whoever fills in Z(t) by other means calls it too. A second call takes it back.
        """
        # At the first step there is no past: zeros. After it, the flock's size changes through `replace` only.
        B, N, _ = shape = check_flock(flock).shape
        if self._said is None:
            table, begun = channel_table(self.senses, self._radius_of(flock)), self.senses.begins_as_paper
            self._said = self.senses.channels[0][1] == "mean", table, PAPER_CHANNELS if begun else 0
        if self._now is None or self._before is None:
            self._now, self._before = (np.zeros(self._shape(flock), np.float32) for _ in range(2))
            self._heard = shape
        elif self._heard != shape:
            raise InputError(f"the flock must stay {self._heard[:2]}; got {shape[:2]}: use replace")
        # What was Z(t) a step ago is Z(t - dt) now; the older one is overwritten by the kernels.
        self._now, self._before = self._before, self._now
        # One row of K * C * D numbers per agent, as the kernels have it.
        return self._before.reshape(B, N, -1), self._now.reshape(B, N, -1)

    def terms(self, flock: Flock) -> tuple[Any, ...]:
        """What the kernels are told besides the state: the obstacle rule, R, and what is said. After a `turn`."""
        assert self._said is not None
        return self._rules, self._radius_of(flock), (*self._said, tuple(range(flock.shape[2])))

    def _shape(self, flock: Flock) -> tuple[int, ...]:
        """The shape of observations, (B, N, K, C, D)."""
        B, N, D = flock.shape
        return B, N, self.senses.hops, self.senses.width, D

    def _off_scale(self, flock: Flock) -> OffScaleError:
        """Why the kernels refuse a flock: because of its state, or of a feature that is no number or too large."""
        assert self._said is not None
        return off_scale(flock, self._radius_of(flock), self.senses, declared=self._said[1] is not None)

    def _radius_of(self, flock: Flock) -> float:
        """R in the units of the senses, in which the flock is."""
        return flock.comm_radius if self.comm_radius is None else self.comm_radius / self.senses.length_scale

    def heard(self, flock: Flock, ranks: Int64[np.ndarray, " N"] | None = None) -> Graph:
        """Who uses a message of whom, after `hear` with the same arguments, were it not for the obstacle rule."""
        flock = self.senses.measured(flock)
        if (reception := self.receiver.reception) is not None:
            return reception.used(self._as_heard(flock), self.fixed_graph, ranks)
        return radius_graph(flock, self._radius_of(flock)) if self.fixed_graph is None else self.fixed_graph

    @property
    def order(self) -> Int64[np.ndarray, " N"] | None:
        """The agents of the last large flock that was heard, cell by cell."""
        return None if self._large is None else self._large.order

    def renumber(self, order: Int64[np.ndarray, " N"]) -> None:
        """Go on with the same agents in another order: the s-th is the one that was number order[s]."""
        if self._now is not None and self._before is not None:
            self._now, self._before = self._now[:, order], self._before[:, order]
        self._large = None  # its order is that of the old numbers
        if self.receiver.reception is not None:
            self.receiver.reception.renumber(order)

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Go on with another flock: its first agents are the kept ones, whose histories follow them."""
        kept = int(keep.sum())
        N = flock.shape[1]
        # New agents have no past: zeros.
        for name in ("_now", "_before"):
            old = getattr(self, name)
            if old is not None:
                new = np.zeros(self._shape(flock), np.float32)
                new[:, :kept] = old[:, keep]
                setattr(self, name, new)
                self._heard = flock.shape
        # In a fixed topology, links among the kept agents stay, and new agents hear nobody.
        if self.fixed_graph is not None:
            self.fixed_graph = self.fixed_graph.among(keep, N)
        self.receiver.replace(self.senses.measured(flock), keep)
        self._large = None

    def _first_graph(self, flock: Flock) -> Graph:
        """The graph that a fixed topology keeps, made of this flock if it is the first."""
        if self.fixed_graph is None:
            self.fixed_graph = radius_graph(flock, self._radius_of(flock))
        return self.fixed_graph
