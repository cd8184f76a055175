"""The observations of agents: features of neighbours, and delayed K-hop aggregation (section 2.4 of the paper).

With N_i(t) the neighbours of agent i at time t and psi the features of the channels (the paper's are
[v_ij, r_ij / |r_ij|^4, r_ij / |r_ij|^2]), agent i observes Z_i(t) = [z_i^1(t), .. z_i^K(t)]:

    z_i^1(t) = sum or mean over j in N_i(t) of psi(r_ij(t), v_ij(t))
    z_i^k(t) = mean over j in N_i(t) of z_j^(k-1)(t - dt),    k = 2 .. K

With `hop_mean="sender"` the divisor is the sender's degree |N_j|. A feature among agents of the same group, or of other
groups, is summed or averaged over these alone. Of several obstacle agents within R only the nearest is a neighbour, and
it stands still unless the orbit technique gives it a virtual velocity. Silent and stopped agents send nothing; stopped
and drifting ones receive nothing. Before t = 0 all observations are zero, and so are those of an agent without
neighbours. Relative vectors are subtracted in float64, so a flock far from the origin loses no precision. The paper's
features of r_ij and their sums, the older hops and the observations are float32; v_ij and declared features are summed
in float64.

With a `Radio` that is not ideal, N_i(t) are the senders whose messages agent i uses at t, psi is a function of the
measured r_ij and v_ij, and z_j^(k-1) is that of the step before the sender sent.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from equiflock._runtime import threads
from equiflock._runtime.checks import InputError, NumericRangeError, check_choice, shorten_repr
from equiflock._runtime.jit import Array
from equiflock._runtime.memory import check_fits_memory
from equiflock._runtime.threads import MAX_SMALL_FLOCK, split_flocks
from equiflock.features import Senses
from equiflock.flock import Flock, Observations, check_comm_radius, check_flock
from equiflock.graph.cell_list import MAX_CELL_INDEX, make_out_of_range_error
from equiflock.graph.radius_graph import Graph, radius_graph
from equiflock.observations.aggregation_kernels import (
    ChannelSpec,
    KernelArgs,
    LargeFlockAggregator,
    aggregate_flocks,
    aggregate_listed,
    pack_kernel_args,
)
from equiflock.observations.channel_sums import LARGEST_SUM, PAPER_CHANNELS
from equiflock.observations.feature_weights import build_senses_table
from equiflock.observations.message_buffer import MessageBuffer, RadioState
from equiflock.observations.orbit import NO_ORBIT, ObstacleRule, Orbit, count_neighbours
from equiflock.observations.radio import Radio
from equiflock.observations.radio_kernels import RadioArgs, pack_radio_args

Obstacles = Literal["nearest", "all"]


class ObservationBuffer(NamedTuple):
    """The observations of one step, twice in the same memory."""

    observations: Observations
    """(B, N, K, C, D) float32."""
    rows: Array
    """(B, N, K * C * D): a row per agent, as kernels take it."""


class StepArgs(NamedTuple):
    """The arguments of `aggregate_flocks` that belong to the aggregation, for a kernel that makes whole steps."""

    previous: Array
    """(B, N, K * C * D) float32: Z(t - dt). It swaps with `current` at every step after the first."""
    current: Array
    """(B, N, K * C * D) float32: memory for Z(t)."""
    packed_args: tuple[Any, ...]
    """The `KernelArgs`, packed."""
    packed_radio: tuple[Any, ...] | None
    """The `RadioArgs` of the first step, packed; None if all messages arrive at once and exact."""


def observe(flock: Flock, senses: Senses, *, comm_radius: float | None = None) -> Observations:
    """Return the observations (B, N, K, C, D) of a flock without a past: z^1 at hop index 0, zeros beyond.

    Agents that receive nothing (leaders, obstacle agents, stopped and drifting agents) observe zeros. Coincident agents
    are neighbours: v_ij counts in full, features of r_ij are exactly zero (weights use max(|r_ij|, 1e-8) in place of
    |r_ij|).

    Args:
        flock: the agents now.
        senses: the channels, hops and topology, such as `paper_senses(aggregation="mean", hops=3)`.
        comm_radius: R; default: that of the flock.
    """
    return DelayedAggregation(senses, comm_radius=comm_radius).observe(check_flock(flock))


class DelayedAggregation:
    """Delayed aggregation of a flock in flight: call `observe` once per time step.

    Args:
        senses: the channels, hops and topology.
        comm_radius: R; default: that of the flock.
        orbit: the orbit technique, which gives the nearest obstacle agent a virtual velocity; None: it stands still.
        obstacles: which obstacle agents within R are neighbours and count in |N_i|, "nearest" or "all".
        radio: how messages travel; default: all arrive at once and exact.

    It owns the observations of two steps: `observe` makes a step, `load_memory` sets what agents observed before, and a
    kernel that makes whole steps runs between `begin_steps` and, if it fails, `rollback`. Memory is O(N), times the
    largest age of a message in steps.
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
            raise InputError(f"senses must be a Senses, such as equiflock.paper_senses(); got {shorten_repr(senses)}")
        self.senses = senses
        self.comm_radius = None if comm_radius is None else check_comm_radius(comm_radius)
        self.obstacles = check_choice("obstacles", obstacles, ("nearest", "all"))
        self.orbit = orbit
        self.fixed_graph: Graph | None = None
        """The graph of the first step, which a fixed topology keeps; None for a dynamic one, or before that step."""
        self._radio_state = RadioState(senses.requires_ideal_radio)
        # Z(t) of the last step, and the memory of Z(t - dt): they swap at every step.
        self._current: ObservationBuffer | None = None
        self._previous: ObservationBuffer | None = None
        self._shape: tuple[int, ...] | None = None
        """(B, N, D) of the flock; None if the channels are not prepared."""
        self._channel_spec: ChannelSpec | None = None
        self._kernel_args: tuple[KernelArgs, tuple[Any, ...]] | None = None
        """The `KernelArgs` of the last step, and the same packed."""
        self._large_aggregator: LargeFlockAggregator | None = None
        self._begun: tuple[int, Array | None] = 0, None
        """Steps of the last `begin_steps`, and a copy of Z(t - dt) if they overwrite it."""
        self.radio = radio

    @property
    def radio(self) -> Radio:
        """How messages travel; may be set between two steps, None for the ideal radio.

        Messages in transit are lost unless both radios have the same `memory`.
        """
        return self._radio_state.radio

    @radio.setter
    def radio(self, radio: Radio | None) -> None:
        self._radio_state.set_radio(radio)
        # The records of a large flock have rows for the receivers if there is a delay.
        self._large_aggregator = None

    @property
    def message_buffer(self) -> MessageBuffer | None:
        """The messages in transit; None if all arrive at once and exact."""
        return self._radio_state.message_buffer

    @property
    def orbit(self) -> Orbit | None:
        """The orbit technique, or None without it; may be set between two steps."""
        return self._orbit

    @orbit.setter
    def orbit(self, orbit: Orbit | None) -> None:
        if orbit is not None and not isinstance(orbit, Orbit):
            raise InputError(f"orbit must be an Orbit, such as equiflock.Orbit(), or None; got {shorten_repr(orbit)}")
        self._orbit = orbit
        coefficients = NO_ORBIT if orbit is None else orbit.coefficients
        self._kernel_args = None
        self._obstacle_rule = ObstacleRule(self.obstacles == "nearest", orbit is not None, coefficients)

    def set_senses(self, senses: Senses) -> None:
        """Change the senses from the next step on.

        Observations and messages in transit are kept if hop count, channel count and units are unchanged, and lost
        otherwise. If the old and the new topology are both fixed, the graph is kept; if only the new one is, it is that
        of the next step. Raise InputError if the senses require an ideal radio and messages may be lost, late or
        inexact.
        """
        keep_state = senses.has_same_memory(self.senses)
        self._radio_state.set_senses(senses.requires_ideal_radio, keep_state)
        self.senses, self._shape = senses, None
        self.fixed_graph = self.fixed_graph if senses.topology == "fixed" else None
        if not keep_state:
            self._current = self._previous = self._large_aggregator = None

    def load_memory(self, flock: Flock, observations: Observations) -> None:
        """Continue as if the agents had observed this at the step before: (B, N, up to K, C, D); zeros beyond.

        Only hops 1 .. K - 1 matter.
        """
        memory = self._prepare(self.senses.scale_flock(check_flock(flock))).observations
        memory[:] = 0.0
        memory[:, :, : observations.shape[2]] = observations

    def observe(
        self,
        flock: Flock,
        flying: Bool[np.ndarray, " B"] | None = None,
        agent_ids: Int64[np.ndarray, " N"] | None = None,
    ) -> Observations:
        """Advance by one time step and return Z(t), (B, N, K, C, D), in memory that the step after the next overwrites.

        Raise NumericRangeError if a position, a velocity or a sum is too large.

        Args:
            flock: the agents now.
            flying: (B,), which flocks still fly, default all; observations of the others are zero and cost no time.
            agent_ids: (N,), the ids of agents, for a single large flock whose order in memory is another: neighbours
                within a cell are summed in the order of their ids.
        """
        flock = self.senses.scale_flock(check_flock(flock))
        active = np.arange(len(flock)) if flying is None else flying.nonzero()[0]
        previous, observations = self._rotate(flock, active)
        if (message_buffer := self._radio_state.get_message_buffer(flock)) is not None:
            message_buffer.begin_step(flock, previous)
        self._observe_active(flock, active, previous, observations, agent_ids)
        return self.observations

    def restart(self, flock: Flock, mask: Bool[np.ndarray, " B"], flying: Bool[np.ndarray, " B"]) -> Observations:
        """Let the flocks of a mask begin anew at the present step, without a past; return Z(t), (B, N, K, C, D).

        No bit of the other flocks changes. In a fixed topology, the links of these flocks are those of now.

        Args:
            flock: all flocks, in the order of agents of the last step.
            mask: (B,), which flocks begin anew.
            flying: (B,), those of them that have not ended at once; observations of the others are zero.
        """
        flock = self.senses.scale_flock(check_flock(flock))
        before, self._current = self._prepare(flock), self._make_buffer(flock.shape)
        assert self._previous is not None
        # New memory for Z(t), as the caller may still read the old one.
        self._current.rows[~mask] = before.rows[~mask]
        self._previous.rows[mask] = 0.0
        self._large_aggregator = None
        if self.fixed_graph is not None:
            self.fixed_graph = self.fixed_graph.replace_flocks(mask, radius_graph(flock, self._get_radius(flock)))
        self._radio_state.restart(flock, mask, self._previous.rows)
        self._observe_active(flock, np.flatnonzero(flying), self._previous.rows, self._current.rows, None)
        return self.observations

    def _observe_active(
        self, flock: Flock, active: Array, previous: Array, observations: Array, agent_ids: Array | None
    ) -> None:
        """Fill in `observations` of the active flocks, with the messages that arrive now."""
        if len(active) == 0:
            return
        if (message_buffer := self._radio_state.message_buffer) is not None:
            self._observe_by_radio(message_buffer, flock, active, previous, observations, agent_ids)
        elif self.senses.requires_ideal_radio:
            self._observe_with_sender_mean(flock, active, previous, observations, agent_ids)
        else:
            self._fill_observations(flock, active, previous, observations, agent_ids)

    @property
    def observations(self) -> Observations:
        """Z(t) of the last step, (B, N, K, C, D), in memory that the step after the next overwrites."""
        assert self._current is not None
        return self._current.observations

    def begin_steps(self, flock: Flock, active: Int64[np.ndarray, " active"], steps: int = 1) -> StepArgs:
        """Advance by `steps` time steps, whose observations a kernel computes in place of `observe`.

        The flock must be in the units of the senses, small, with working agents only, and the radio without memory.
        Observations of flocks that are not active become zero.
        """
        previous, observations = self._rotate(flock, active, steps)
        self._begun = steps, previous.copy() if steps > 1 else None
        packed_radio = None
        if (message_buffer := self._radio_state.message_buffer) is not None:
            message_buffer.begin_step(flock, previous)
            packed_radio = pack_radio_args(message_buffer.make_radio_args(flock))
            message_buffer.step += steps - 1
        return StepArgs(previous, observations, self._get_kernel_args(flock)[1], packed_radio)

    def rollback(self) -> None:
        """Undo the last `begin_steps`, after its kernel has failed."""
        steps, copy = self._begun
        if steps % 2 == 1:
            self._current, self._previous = self._previous, self._current
        if copy is not None:
            assert self._current is not None
            self._current.rows[:] = copy
        if (message_buffer := self._radio_state.message_buffer) is not None:
            message_buffer.step -= steps

    def _rotate(self, flock: Flock, active: Array, steps: int = 1) -> tuple[Array, Array]:
        """Advance by `steps` steps; return Z(t - dt) and the memory for Z(t) of the first, rows of K * C * D numbers.

        Observations of flocks that are not active become zero.
        """
        last, memory = self._prepare(flock), self._previous
        assert memory is not None
        if len(active) < len(flock):
            memory.rows[np.delete(np.arange(len(flock)), active)] = 0.0
        if steps % 2 == 1:
            self._current, self._previous = memory, last
        return last.rows, memory.rows

    def _prepare(self, flock: Flock) -> ObservationBuffer:
        """Return Z(t) of the last step; allocate zeros and describe the channels before the first one.

        Raise InputError if the shape of the flock has changed.
        """
        shape = flock.positions.shape
        if self._current is None or self._previous is None:
            self._current, self._previous = self._make_buffer(shape), self._make_buffer(shape)
            self._shape = None
        if self._shape != shape:
            B, N, _, _, D = self._current.observations.shape
            if shape != (B, N, D):
                raise InputError(f"the flock must stay {(B, N)}; got {shape[:2]}: use replace")
            self._shape, self._kernel_args = shape, None
            self._channel_spec = ChannelSpec(
                is_mean=self.senses.channels[0][1] == "mean",
                table=build_senses_table(self.senses, self._get_radius(flock)),
                paper_channel_count=PAPER_CHANNELS if self.senses.starts_with_paper_channels else 0,
                axes=tuple(range(D)),
            )
        return self._current

    def _make_buffer(self, shape: tuple[int, ...]) -> ObservationBuffer:
        """Allocate zeros for the observations of a flock of the shape (B, N, D)."""
        B, N, D = shape
        hops, channels = self.senses.hops, self.senses.width
        # The observations of two steps, in float32.
        size = 2 * 4 * B * N * hops * channels * D
        check_fits_memory(f"observing {hops:,} hops of {B * N:,} agents", size, "lower hops or agents")
        observations = np.zeros((B, N, hops, channels, D), np.float32)
        return ObservationBuffer(observations, observations.reshape(B, N, -1))

    def _copy_buffers(self, shape: tuple[int, ...], agents: Int64[np.ndarray, " kept"]) -> None:
        """Copy the observations of these agents, in this order, into new buffers of a flock; zeros for further agents.

        New arrays, as the caller may still read the old ones.
        """
        if self._current is not None and self._previous is not None:
            old = self._current, self._previous
            self._current, self._previous = self._make_buffer(shape), self._make_buffer(shape)
            for new, before in zip((self._current, self._previous), old, strict=True):
                new.rows[:, : len(agents)] = before.rows[:, agents]

    def _get_kernel_args(self, flock: Flock) -> tuple[KernelArgs, tuple[Any, ...]]:
        """Return what kernels need besides state and radio, as is and packed; cached while it is unchanged."""
        comm_radius = self._get_radius(flock)
        if self._kernel_args is None or self._kernel_args[0].comm_radius != comm_radius:
            assert self._channel_spec is not None
            kernel_args = KernelArgs(self._obstacle_rule, comm_radius, self._channel_spec)
            self._kernel_args = kernel_args, pack_kernel_args(kernel_args)
        return self._kernel_args

    def _fill_observations(
        self,
        flock: Flock,
        active: Array,
        previous: Array,
        observations: Array,
        agent_ids: Array | None,
        radio_args: RadioArgs | None = None,
    ) -> None:
        """Fill in `observations` of the active flocks; hops 2 .. K are means of `previous` over neighbours.

        With `radio_args`, flock and `previous` are as they were sent. Raise NumericRangeError if a value is too large.
        """
        _, N, D = flock.shape
        kernel_args, packed_args = self._get_kernel_args(flock)
        if self.senses.topology == "fixed" or N <= MAX_SMALL_FLOCK:
            packed_radio = None if radio_args is None else pack_radio_args(radio_args)
            state = flock.positions, flock.velocities, flock.roles, flock.groups, previous, observations
            parts = [(0, 1)] if len(active) == 1 else split_flocks(len(active), N)
            if self.senses.topology == "fixed":
                graph = self._get_fixed_graph(flock)
                common = *state, packed_args, packed_radio, graph.starts, graph.senders.view(np.uintp)
                results = threads.run_parallel(aggregate_listed, [(*common, active[slice(*part)]) for part in parts])
            else:
                jobs = [(*state, packed_args, packed_radio, active[slice(*part)], 0) for part in parts]
                results = threads.run_parallel(aggregate_flocks, jobs)
        else:
            if self._large_aggregator is None or self._large_aggregator.agents != N:
                older_size = (self.senses.hops - 1) * self.senses.width * D
                self._large_aggregator = LargeFlockAggregator(N, D, older_size, self.radio.delay > 0)
            aggregator, rest = self._large_aggregator, (agent_ids, kernel_args, radio_args)
            results = [aggregator.observe(flock, b, previous[b], observations[b], *rest) for b in active]
        if not all(results):
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
        """Fill in `observations` of the active flocks from the messages that arrive now.

        They are zero while no message can have arrived yet. Raise NumericRangeError if a value is too
        large.
        """
        flock = self._with_effective_roles(flock)
        # A fixed topology is that of the first step, even if its messages arrive later.
        graph = self._get_fixed_graph(flock) if self.senses.topology == "fixed" else None
        # No message can have arrived yet.
        if message_buffer.newest_send_step < message_buffer.first_step:
            observations[active] = 0.0
        elif message_buffer.mixes_send_steps:
            if not message_buffer.aggregate_delayed_messages(
                flock, active, self._get_kernel_args(flock)[0], graph, observations, agent_ids, self.senses.time_scale
            ):
                raise self._make_off_scale_error(flock)
        else:
            radio_args = message_buffer.make_radio_args(flock, self.senses.time_scale)
            sent_flock, sent_observations = message_buffer.get_sent_state(flock, previous)
            self._fill_observations(sent_flock, active, sent_observations, observations, agent_ids, radio_args)

    def _with_effective_roles(self, flock: Flock) -> Flock:
        """Return a view of the flock with R of the senses, and stopped and drifting agents as leaders.

        Leaders receive nothing.
        """
        positions, velocities, roles, *rest = flock.arrays
        roles = roles if flock.all_working else flock.effective_roles
        return Flock.view(positions, velocities, roles, *rest, comm_radius=self._get_radius(flock))

    def _observe_with_sender_mean(
        self, flock: Flock, active: Array, previous: Array, observations: Array, agent_ids: Array | None
    ) -> None:
        """Fill in `observations` of the active flocks, with hops 2 .. K divided by the sender's degree."""
        graph = self._get_fixed_graph(flock) if self.senses.topology == "fixed" else None
        degrees = count_neighbours(flock, active, self._get_radius(flock), graph, self.obstacles == "nearest")
        # Each sender relays z_j / |N_j|: a copy, as the caller may still read the previous observations.
        counts, relayed = degrees.astype(np.float32)[..., None], np.zeros_like(previous)
        np.divide(previous, counts, out=relayed, where=counts > 0.0)
        self._fill_observations(flock, active, relayed, observations, agent_ids)
        # The kernels return means; times |N_i| they are sums.
        observations[active, :, self.senses.width * flock.shape[2] :] *= counts[active]

    def _make_off_scale_error(self, flock: Flock) -> NumericRangeError:
        """Return the error for which the kernels refused a flock: its state, or the sum of a declared feature."""
        assert self._channel_spec is not None
        state = max(np.abs(flock.positions).max() / self._get_radius(flock), np.abs(flock.velocities).max())
        if self._channel_spec.table is None or not state <= MAX_CELL_INDEX:
            return make_out_of_range_error()
        names = ", ".join(dict.fromkeys(name for name, _ in self.senses.channels))
        return NumericRangeError(
            f"sums of features must be numbers below {LARGEST_SUM:g}; one of {names} is off the scale"
        )

    def _get_radius(self, flock: Flock) -> float:
        """Return R in the units of the senses, those of the flock."""
        return flock.comm_radius if self.comm_radius is None else self.comm_radius / self.senses.length_scale

    def compute_message_graph(self, flock: Flock, agent_ids: Int64[np.ndarray, " N"] | None = None) -> Graph:
        """Return the graph of the messages that the last `observe`, with the same arguments, used.

        It contains all obstacle agents in reach: the obstacle rule, which may keep only the nearest, is not applied.
        """
        flock = self.senses.scale_flock(flock)
        if (message_buffer := self._radio_state.message_buffer) is not None:
            return message_buffer.compute_message_graph(self._with_effective_roles(flock), self.fixed_graph, agent_ids)
        return radius_graph(flock, self._get_radius(flock)) if self.fixed_graph is None else self.fixed_graph

    @property
    def order(self) -> Int64[np.ndarray, " N"] | None:
        """The agents of the last large flock, cell by cell; None before it."""
        return None if self._large_aggregator is None else self._large_aggregator.order

    def renumber(self, order: Int64[np.ndarray, " N"]) -> None:
        """Reorder observations and messages: the new agent s is the old agent order[s]."""
        if self._current is not None:
            B, N, _, _, D = self._current.observations.shape
            self._copy_buffers((B, N, D), order)
        self._large_aggregator = None  # sorted by the old indices
        if self._radio_state.message_buffer is not None:
            self._radio_state.message_buffer.renumber(order)

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Continue with another flock, whose first agents are those in the mask `keep` (N,) of present agents.

        Kept agents keep observations, messages and, in a fixed topology, the links among them. New agents start with
        zero observations, no messages and no links.
        """
        self._copy_buffers(flock.shape, np.flatnonzero(keep))
        # A fixed topology keeps the links among the kept agents; new agents have no links.
        if self.fixed_graph is not None:
            self.fixed_graph = self.fixed_graph.subgraph(keep, flock.shape[1])
        self._radio_state.replace(self.senses.scale_flock(flock), keep)
        self._large_aggregator = None

    def _get_fixed_graph(self, flock: Flock) -> Graph:
        """Return the graph that a fixed topology keeps; the first call computes it from this flock and stores it."""
        if self.fixed_graph is None:
            self.fixed_graph = radius_graph(flock, self._get_radius(flock))
        return self.fixed_graph
