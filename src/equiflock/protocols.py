"""Interfaces between the parts of a flight: Moment, and the protocols of controllers, bodies and endings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float64, Int8, Int64
from numpy.typing import NDArray

from equiflock._runtime.memory import ReadOnlyDict
from equiflock.features import Senses
from equiflock.flock import Flock, Observations, Roles, Vectors


class LastStep(NamedTuple):
    """The step that led to a moment. For a flock at its start, both are those of the moment itself."""

    velocities: Vectors
    """(B, N, D), before the step."""
    accelerations: Vectors
    """(B, N, D), commanded for the step."""


@dataclass(frozen=True, eq=False, slots=True)
class Moment:
    """State of a flight before a step.

    The arrays are read-only views that are valid until the next step; copy what must last.
    """

    step: int
    """Number of steps of the flight so far."""
    time: float
    """step times the time step, in seconds."""
    flock: Flock
    observations: Observations
    accelerations: Vectors
    """Commands for the next step, which a body may not reach; zero for leaders, obstacle agents, stopped and drifting
    agents, and ended flocks."""
    flying: Bool[np.ndarray, " B"]
    """Mask of the flocks that are still flying."""
    outcomes: Int8[np.ndarray, " B"]
    """Codes of `Outcome`."""
    comm_radius: float
    time_step: float
    """dt, in seconds."""
    start_steps: Int64[np.ndarray, " B"]
    """Step of the flight at which each flock started: 0, or that of its last `Flight.restart`."""
    body_state: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """name -> (B, N, ..), state of bodies beyond position and velocity, such as headings."""
    compute_message_graph: Callable[[], Any] | None = None
    """Returns the graph of the messages in use now, an `equiflock.Graph`; None if the senses cannot compute it."""
    last_step: LastStep | None = None
    """The step before, which `simulate` adds for metrics with `uses_last_step`; otherwise None."""
    safety_states: Int8[np.ndarray, "B N"] | None = None
    """Codes of `SafetyState`: which limit changed the acceleration of an agent; None without limits (`Safe`)."""

    @property
    def flock_steps(self) -> Int64[np.ndarray, " B"]:
        """Number of steps since the start of each flock, (B,); `step` for flocks that were not restarted."""
        return self.step - self.start_steps

    @property
    def flock_times(self) -> Float64[np.ndarray, " B"]:
        """Time since the start of each flock, (B,), in seconds."""
        return self.flock_steps * self.time_step

    def with_last_step(self, last_step: LastStep) -> Moment:
        """Return the moment with the step before."""
        return replace(self, last_step=last_step)


@runtime_checkable
class LocalController(Protocol):
    """A decentralized controller: it receives observations, never the flock."""

    @property
    def senses(self) -> Senses:
        """Channels, hops and topology of its observations."""

    def __call__(self, observations: Observations, /) -> Float[np.ndarray, "B N D"]:
        """Return accelerations (B, N, D), each from the agent's own block of observations (B, N, K, C, D) only."""


@runtime_checkable
class PrivilegedController(Protocol):
    """A controller that receives the whole flock: an expert for training, which no swarm could run."""

    @property
    def senses(self) -> Senses:
        """Channels, hops and topology of its observations."""

    @property
    def privileged(self) -> Literal[True]:
        """True; marks the controller as privileged."""

    def __call__(self, flock: Flock, observations: Observations, /) -> Float[np.ndarray, "B N D"]:
        """Return accelerations (B, N, D) from the flock and its observations (B, N, K, C, D)."""


Controller: TypeAlias = LocalController | PrivilegedController


@runtime_checkable
class Sensing(Protocol):
    """Stateful observations of a flock in flight; call `observe` once per time step."""

    def observe(
        self,
        flock: Flock,
        flying: Bool[np.ndarray, " B"] | None = None,
        agent_ids: Int64[np.ndarray, " N"] | None = None,
    ) -> Observations:
        """Advance by one time step and return the observations (B, N, K, C, D)."""

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Continue with another flock; its first agents are the kept ones, with their histories."""

    def restart(self, flock: Flock, mask: Bool[np.ndarray, " B"], flying: Bool[np.ndarray, " B"], /) -> Observations:
        """Let the flocks of a mask begin anew at the present step, without a past; return the observations of all.

        Those of the other flocks keep their bits. `flying` is the part of the mask that has not ended at once.
        """


class BodyStep(NamedTuple):
    """One time step of B flocks, as a body executes it; positions, velocities and state are changed in place."""

    positions: Vectors
    """(B, N, D)."""
    velocities: Vectors
    """(B, N, D)."""
    roles: Roles
    """(B, N), values of `Role`. Leaders keep their velocity and obstacle agents stand still. Stopped and drifting
    agents count as leaders."""
    accelerations: Vectors
    """(B, N, D), commands; zero for all but followers."""
    time_step: float
    """dt > 0, in seconds."""
    active: Int64[np.ndarray, " active"]
    """Indices of the flocks to move."""
    state: Mapping[str, NDArray[Any]] = ReadOnlyDict()
    """Arrays of `init_state`, for a `StatefulBody`; otherwise empty."""
    number: int = 0
    """Steps of the flight before this one. Random motion must be a function of it, the flock's index and the agent's
    id, never of the order of draws."""
    agent_ids: Int64[np.ndarray, " N"] | None = None
    """(N,), the caller's id of each agent in memory order; None for 0 .. N - 1."""


@runtime_checkable
class Body(Protocol):
    """Dynamics of an agent under a commanded acceleration."""

    def advance(self, step: BodyStep, /) -> None:
        """Move the active flocks by one time step, in place."""
        ...


@runtime_checkable
class StatefulBody(Body, Protocol):
    """A body with state beyond position and velocity, such as a heading: `advance` finds it in `BodyStep.state`.

    The flight owns the state: it passes it to each step, reorders and removes it together with the agents, and stores
    it in moments and trajectories. A body may also have `check_start(flock)`, which raises InputError for flocks with
    which it cannot start a flight.
    """

    def init_state(self, flock: Flock) -> dict[str, NDArray[Any]]:
        """Return the state of new agents: arrays (B, N, ..) by name; an empty dict if there is none."""


AnyBody: TypeAlias = Body | StatefulBody


@runtime_checkable
class FusedStep(Protocol):
    """Move, observe and control in one call, with the same bits as the separate parts of a flight.

    The arrays of a `BodyStep` are changed in place, accelerations included; `flock` is a read-only view of the same
    agents. The memory of the agents stays in `sensing`.
    """

    def fits(self, flock: Flock, sensing: Sensing, body: AnyBody) -> bool:
        """Return whether it can replace these parts for this flock; called at every step, as parts may change."""

    def step(self, flock: Flock, body_step: BodyStep, move_first: bool) -> Observations | None:
        """Move the active flocks if `move_first`, then observe and control; return observations (B, N, K, C, D).

        Return None if a flock is out of range or an acceleration is not finite: the move is done but the senses are
        unchanged, so that the separate parts can raise the error.
        """

    def skip(self, flock: Flock, body_step: BodyStep, move_first: bool, steps: int) -> bool:
        """Advance all flocks by `steps` steps, the first with a move only if `move_first`.

        Return False, with nothing changed, if a step would fail.
        """


@runtime_checkable
class Ending(Protocol):
    """Condition that ends flights; called at every step."""

    def __call__(
        self, times: Float64[np.ndarray, " B"], flock: Flock, flying: Bool[np.ndarray, " B"], /
    ) -> Int8[np.ndarray, " B"]:
        """Return codes of `Outcome`, (B,), FLYING where the flight continues, or booleans, True where it ends.

        `times` are the seconds since the start of each flock: a flock at 0 begins, or begins anew. What is returned for
        flocks that are not `flying` is ignored, and an ending with memory must not change theirs.
        """
