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
from equiflock.pairs.feature_weights import ChannelTable, build_senses_table
from equiflock.runtime.checks import InputError, NumericRangeError, check_choice, check_positive, shorten_repr
from equiflock.runtime.jit import Array
from equiflock.runtime.threads import MAX_SMALL_FLOCK
from equiflock.senses.degrees import count_neighbours
from equiflock.senses.graph import Graph, radius_graph
from equiflock.senses.message_buffer import MessageBuffer
from equiflock.senses.orbit import NO_ORBIT, Orbit
from equiflock.senses.paper_sums import PAPER_CHANNELS
from equiflock.senses.parallel_aggregation import (
    LargeFlockAggregator,
    aggregate_fixed_graph,
    aggregate_small_flocks,
    make_off_scale_error,
)
from equiflock.senses.radio import Radio
from equiflock.senses.radio_state import RadioState

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
    return DelayedAggregation(senses, comm_radius=comm_radius).observe(check_flock(flock))


class DelayedAggregation:
    """Delayed aggregation of a flock in flight: call `observe` once per time step to get the observations of all agents.

    Args:
        senses: the channels, hops and topology.
        comm_radius: R, if it shall be another than that of the flock.
        orbit: what a follower makes of the nearest obstacle agent's position; None if that just stands still.
        obstacles: which obstacle agents within R are heard and counted in |N_i|, "nearest" or "all".
        radio: how messages travel; all arrive at once and exact if left out.

    Memory is O(N), times the steps that a message may be old. The array that `observe` returns is overwritten at the step
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
            raise InputError(
                f"senses must be such as equiflock.paper_senses() or Senses(...); got {shorten_repr(senses)}"
            )
        self.senses = senses
        self.comm_radius = None if comm_radius is None else check_positive("comm_radius", comm_radius)
        self.obstacles = check_choice("obstacles", obstacles, ("nearest", "all"))
        self.orbit = orbit
        self.radio_state = RadioState(senses.requires_ideal_radio)
        # Z(t) and Z(t - dt) change places at every step; they are made when the flock's size is known.
        self._channel_spec: tuple[bool, ChannelTable | None, int] | None = None
        self._observations: Observations | None = None
        self._previous_observations: Observations | None = None
        self._flock_shape = (0, 0, 0)
        """The shape of the flock, (B, N, D)."""
        self.fixed_graph: Graph | None = None
        """The graph of the first step, which a fixed topology keeps; None in a dynamic one, or before that step."""
        self._large_aggregator: LargeFlockAggregator | None = None
        self.radio = radio

    @property
    def radio(self) -> Radio:
        """How messages travel; it may change between two steps, None being the perfect radio.

        What is on the way is lost, unless the other radio remembers as many steps.
        """
        return self.radio_state.radio

    @radio.setter
    def radio(self, radio: Radio | None) -> None:
        self.radio_state.set_radio(radio)
        # Memory for a large flock has room for what is measured if there is a delay.
        self._large_aggregator = None

    @property
    def orbit(self) -> Orbit | None:
        """The technique by which followers avoid obstacles, if they do; it may change between two steps."""
        return self._orbit

    @orbit.setter
    def orbit(self, orbit: Orbit | None) -> None:
        if orbit is not None and not isinstance(orbit, Orbit):
            raise InputError(f"orbit must be an Orbit, such as equiflock.Orbit(), or None; got {shorten_repr(orbit)}")
        self._orbit = orbit
        coefficients = NO_ORBIT if orbit is None else orbit.coefficients
        self._obstacle_rule = self.obstacles == "nearest", orbit is not None, coefficients

    def set_senses(self, senses: Senses) -> None:
        """Go on with other senses from the next step on; a fixed topology is that of the first step with it.

        What agents remember, and messages on the way, are kept if hops, channels and units are as many and the same.
        """
        kept = senses.has_same_memory(self.senses)
        self.radio_state.set_senses(senses.requires_ideal_radio, kept)
        self.senses, self._channel_spec = senses, None  # the kernels are told anew what is said
        self.fixed_graph = self.fixed_graph if senses.topology == "fixed" else None
        if not kept:
            self._observations = self._previous_observations = self._large_aggregator = None

    def observe(
        self,
        flock: Flock,
        flying: Bool[np.ndarray, " B"] | None = None,
        agent_ids: Int64[np.ndarray, " N"] | None = None,
    ) -> Observations:
        """Let a time step pass and return Z(t), (B, N, K, C, D).

        Args:
            flock: the agents now.
            flying: (B,), which flocks still fly, all if left out; observations of the others are zero and cost no time.
            agent_ids: (N,), for a single large flock whose agents do not stand in their order in memory: the number of
                each. An agent adds up whom it hears within a cell in the order of their numbers.
        """
        flock = self.senses.scale_flock(check_flock(flock))
        previous, observations = self.swap_buffers(flock)
        B = len(flock)
        active = np.arange(B) if flying is None else flying.nonzero()[0]
        if len(active) < B:
            observations[~flying] = 0.0  # type: ignore[operator]
        if (message_buffer := self.radio_state.get_message_buffer(flock)) is not None:
            self._observe_by_radio(message_buffer, flock, active, previous, observations, agent_ids)
        elif len(active) > 0 and self.senses.requires_ideal_radio:
            self._observe_with_sender_mean(flock, active, previous, observations, agent_ids)
        elif len(active) > 0:
            self._fill_observations(flock, active, previous, observations, agent_ids)
        assert self._observations is not None
        return self._observations

    def _fill_observations(
        self,
        flock: Flock,
        active: Array,
        previous: Array,
        observations: Array,
        agent_ids: Array | None,
        flock_radio: Any = None,
    ) -> None:
        """Fill in `observations` for the active flocks from what was known `previous`; hops 2 .. K are the receiver's means."""
        _, N, D = flock.shape
        kernel_args = self.kernel_args(flock)
        if self.senses.topology == "fixed":
            fine = aggregate_fixed_graph(
                flock, active, previous, observations, self._get_fixed_graph(flock), kernel_args, flock_radio
            )
        elif N <= MAX_SMALL_FLOCK:
            fine = aggregate_small_flocks(flock, active, previous, observations, kernel_args, flock_radio)
        else:
            if self._large_aggregator is None or self._large_aggregator.agents != N:
                older_size = (self.senses.hops - 1) * self.senses.width * D
                self._large_aggregator = LargeFlockAggregator(N, D, older_size, self.radio.delay > 0)
            fine = all(
                self._large_aggregator.observe(
                    flock, b, previous[b], observations[b], agent_ids, kernel_args, flock_radio
                )
                for b in active
            )
        if not fine:
            raise self._make_off_scale_error(flock)

    def _observe_by_radio(
        self,
        message_buffer: MessageBuffer,
        flock: Flock,
        active: Array,
        previous: Array,
        observations: Array,
        agent_ids: Array | None,
    ) -> None:
        """Fill in `observations` for the active flocks from the messages that the radio delivers now."""
        message_buffer.begin_step(flock, previous, None if flock.all_working else flock.muted)
        flock = self._with_effective_roles(flock)
        # A fixed topology is that of the first step, though its messages may come later.
        graph = self._get_fixed_graph(flock) if self.senses.topology == "fixed" else None
        # Nothing that was sent can have arrived yet.
        if len(active) == 0 or message_buffer.newest_send_step < message_buffer.first_step:
            observations[:] = 0.0
        elif message_buffer.mixes_send_steps:
            if not message_buffer.aggregate_delayed_messages(
                flock, active, self.kernel_args(flock), graph, observations, agent_ids, self.senses.time_scale
            ):
                raise self._make_off_scale_error(flock)
        else:
            sent_state, known = message_buffer.sent_state(flock, previous)
            self._fill_observations(
                sent_state,
                active,
                known,
                observations,
                agent_ids,
                message_buffer.flock_radio(flock, self.senses.time_scale),
            )

    def _with_effective_roles(self, flock: Flock) -> Flock:
        """The flock, with the R that is heard within, and stopped and drifting agents as leaders, who hear nobody."""
        positions, velocities, roles, *rest = flock.arrays
        roles = roles if flock.all_working else flock.effective_roles
        return Flock.view(positions, velocities, roles, *rest, comm_radius=self._get_radius(flock))

    def _observe_with_sender_mean(
        self, flock: Flock, active: Array, previous: Array, observations: Array, agent_ids: Array | None
    ) -> None:
        """Fill in `observations` for the active flocks, with hops 2 .. K divided by the sender's degree."""
        graph = self._get_fixed_graph(flock) if self.senses.topology == "fixed" else None
        degrees = count_neighbours(flock, active, self._get_radius(flock), graph, self.obstacles == "nearest")
        # Each sender passes on z_j / |N_j|: in a copy, as the caller may still look at what was known before.
        counts, passed_on = degrees.astype(np.float32)[..., None], np.zeros_like(previous)
        np.divide(previous, counts, out=passed_on, where=counts > 0.0)
        self._fill_observations(flock, active, passed_on, observations, agent_ids)
        # The kernels make means; times |N_i| they are sums.
        observations[:, :, self.senses.width * flock.shape[2] :] *= counts

    def swap_buffers(self, flock: Flock) -> tuple[Array, Array]:
        """Let a time step pass, with nobody heard yet: Z(t - dt), and the memory for Z(t), each (B, N, K * C * D).

        `observe` begins with it; whoever fills in Z(t) by other means calls it too. A second call takes it back.
        """
        # At the first step there is no past: zeros. After it, the flock's size changes through `replace` only.
        B, N, _ = shape = check_flock(flock).shape
        if self._channel_spec is None:
            table, paper_channel_count = (
                build_senses_table(self.senses, self._get_radius(flock)),
                self.senses.starts_with_paper_channels,
            )
            self._channel_spec = (
                self.senses.channels[0][1] == "mean",
                table,
                PAPER_CHANNELS if paper_channel_count else 0,
            )
        if self._observations is None or self._previous_observations is None:
            self._observations, self._previous_observations = (
                np.zeros(self._compute_shape(flock), np.float32) for _ in range(2)
            )
            self._flock_shape = shape
        elif self._flock_shape != shape:
            raise InputError(f"the flock must stay {self._flock_shape[:2]}; got {shape[:2]}: use replace")
        # What was Z(t) a step ago is Z(t - dt) now; the older one is overwritten by the kernels.
        self._observations, self._previous_observations = self._previous_observations, self._observations
        # One row of K * C * D numbers per agent, as the kernels have it.
        return self._previous_observations.reshape(B, N, -1), self._observations.reshape(B, N, -1)

    def kernel_args(self, flock: Flock) -> tuple[Any, ...]:
        """What the kernels are told besides the state: the obstacle rule, R, and what is said. After a `swap_buffers`."""
        assert self._channel_spec is not None
        return self._obstacle_rule, self._get_radius(flock), (*self._channel_spec, tuple(range(flock.shape[2])))

    def _compute_shape(self, flock: Flock) -> tuple[int, ...]:
        """The shape of observations, (B, N, K, C, D)."""
        B, N, D = flock.shape
        return B, N, self.senses.hops, self.senses.width, D

    def _make_off_scale_error(self, flock: Flock) -> NumericRangeError:
        """Why the kernels refuse a flock: because of its state, or of a feature that is no number or too large."""
        assert self._channel_spec is not None
        return make_off_scale_error(
            flock, self._get_radius(flock), self.senses, needs_feature_buffers=self._channel_spec[1] is not None
        )

    def _get_radius(self, flock: Flock) -> float:
        """R in the units of the senses, in which the flock is."""
        return flock.comm_radius if self.comm_radius is None else self.comm_radius / self.senses.length_scale

    def compute_message_graph(self, flock: Flock, agent_ids: Int64[np.ndarray, " N"] | None = None) -> Graph:
        """Who uses a message of whom, after `observe` with the same arguments, were it not for the obstacle rule."""
        flock = self.senses.scale_flock(flock)
        if (message_buffer := self.radio_state.message_buffer) is not None:
            return message_buffer.compute_message_graph(self._with_effective_roles(flock), self.fixed_graph, agent_ids)
        return radius_graph(flock, self._get_radius(flock)) if self.fixed_graph is None else self.fixed_graph

    @property
    def order(self) -> Int64[np.ndarray, " N"] | None:
        """The agents of the last large flock that was heard, cell by cell."""
        return None if self._large_aggregator is None else self._large_aggregator.order

    def renumber(self, order: Int64[np.ndarray, " N"]) -> None:
        """Go on with the same agents in another order: the s-th is the one that was number order[s]."""
        if self._observations is not None and self._previous_observations is not None:
            self._observations, self._previous_observations = (
                self._observations[:, order],
                self._previous_observations[:, order],
            )
        self._large_aggregator = None  # its order is that of the old numbers
        if self.radio_state.message_buffer is not None:
            self.radio_state.message_buffer.renumber(order)

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Go on with another flock: its first agents are the kept ones, whose histories follow them."""
        kept = int(keep.sum())
        N = flock.shape[1]
        # New agents have no past: zeros.
        for name in ("_observations", "_previous_observations"):
            old = getattr(self, name)
            if old is not None:
                new = np.zeros(self._compute_shape(flock), np.float32)
                new[:, :kept] = old[:, keep]
                setattr(self, name, new)
                self._flock_shape = flock.shape
        # In a fixed topology, links among the kept agents stay, and new agents hear nobody.
        if self.fixed_graph is not None:
            self.fixed_graph = self.fixed_graph.subgraph(keep, N)
        self.radio_state.replace(self.senses.scale_flock(flock), keep)
        self._large_aggregator = None

    def _get_fixed_graph(self, flock: Flock) -> Graph:
        """The graph that a fixed topology keeps, made of this flock if it is the first."""
        if self.fixed_graph is None:
            self.fixed_graph = radius_graph(flock, self._get_radius(flock))
        return self.fixed_graph
