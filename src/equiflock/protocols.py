"""The interfaces between the parts of a flight: its moments, and the protocols of controllers, bodies and endings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int8, Int64
from numpy.typing import NDArray

from equiflock.features import Senses
from equiflock.flock import Flock, Observations, Roles, Vectors


@dataclass(frozen=True, eq=False, slots=True)
class Moment:
    """One instant of a flight, before the step that its accelerations make.

    The arrays are read-only views, valid until the next step; copy what must last.

    Attributes:
        step: the number of steps made so far.
        time: step times the time step, in seconds.
        flock: positions and velocities now.
        observations: (B, N, K, C, D), what every agent knows now.
        accelerations: (B, N, D), what every agent is commanded to do next, which its body may not manage; zero for
            leaders, obstacle agents, agents that stopped or drift, and ended flocks.
        flying: (B,), which flocks are still flying.
        outcomes: (B,), codes of `Outcome`.
        comm_radius: the communication radius R.
        body_state: name -> (B, N, ..), what bodies remember beyond position and velocity, such as headings.
        compute_message_graph: called, it tells who uses a message of whom now, as an `equiflock.Graph`; None if the senses cannot tell.
    """

    step: int
    time: float
    flock: Flock
    observations: Observations
    accelerations: Vectors
    flying: Bool[np.ndarray, " B"]
    outcomes: Int8[np.ndarray, " B"]
    comm_radius: float
    body_state: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    compute_message_graph: Callable[[], Any] | None = None


@runtime_checkable
class LocalController(Protocol):
    """A controller that each agent can run by itself: it sees observations, never the flock."""

    @property
    def senses(self) -> Senses:
        """The channels, hops and topology of the observations that it needs."""
        ...

    def __call__(self, observations: Observations, /) -> Float[np.ndarray, "B N D"]:
        """Accelerations (B, N, D) from observations (B, N, K, C, D), each agent's from its own block alone."""
        ...


@runtime_checkable
class PrivilegedController(Protocol):
    """A controller that sees the whole flock, so no swarm could run it: an expert to learn from."""

    @property
    def senses(self) -> Senses:
        """The channels, hops and topology of the observations that it needs."""
        ...

    @property
    def privileged(self) -> Literal[True]:
        """True: the mark by which flights and users know that it sees the whole flock."""
        ...

    def __call__(self, flock: Flock, observations: Observations, /) -> Float[np.ndarray, "B N D"]:
        """Accelerations (B, N, D) from the flock and its observations (B, N, K, C, D)."""
        ...


Controller: TypeAlias = LocalController | PrivilegedController


@runtime_checkable
class Sensing(Protocol):
    """The senses of a flock in flight, which remember what was heard: `observe` once per time step."""

    def observe(
        self,
        flock: Flock,
        flying: Bool[np.ndarray, " B"] | None = None,
        agent_ids: Int64[np.ndarray, " N"] | None = None,
    ) -> Observations:
        """Let a time step pass and return what every agent knows, (B, N, K, C, D)."""
        ...

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Go on with another flock: its first agents are the kept ones, whose histories follow them."""
        ...


@runtime_checkable
class Body(Protocol):
    """What a commanded acceleration does to an agent."""

    def advance(
        self,
        positions: Vectors,
        velocities: Vectors,
        roles: Roles,
        accelerations: Vectors,
        time_step: float,
        active: Int64[np.ndarray, " active"],
    ) -> None:
        """Move the active flocks by one time step, in place.

        Args:
            positions: (B, N, D), changed in place.
            velocities: (B, N, D), changed in place.
            roles: (B, N), values of `Role`. Leaders keep their velocity and obstacle agents stand still. Agents that
                stopped or drift are leaders here.
            accelerations: (B, N, D), what controllers command; zero for all but followers.
            time_step: dt > 0, in seconds.
            active: the indices of the flocks to move.
        """
        ...


@runtime_checkable
class StatefulBody(Protocol):
    """A body that remembers more than position and velocity, such as a heading, or that is moved by chance.

    It is known by having `init_state`. What it remembers belongs to the flight, which hands it to each step, keeps it with
    the agents when they are reordered or taken away, and shows it in moments and trajectories.
    """

    def init_state(self, flock: Flock) -> dict[str, NDArray[Any]]:
        """What it remembers of agents that are new: arrays (B, N, ..) by name; none if there is nothing to remember."""
        ...

    def advance(
        self,
        positions: Vectors,
        velocities: Vectors,
        roles: Roles,
        accelerations: Vectors,
        time_step: float,
        active: Int64[np.ndarray, " active"],
        state: Mapping[str, NDArray[Any]],
        step: int,
        agent_ids: Int64[np.ndarray, " N"] | None = None,
    ) -> None:
        """Move the active flocks by one time step, in place.

        Args:
            positions: as for `Body`, and so are all arguments up to `active`.
            velocities: (B, N, D), changed in place.
            roles: (B, N).
            accelerations: (B, N, D).
            time_step: dt > 0, in seconds.
            active: the indices of the flocks to move.
            state: the arrays that `init_state` made, changed in place.
            step: how many steps were made before this one. What happens by chance is a function of it, of the number
                of the flock and of that of the agent, never a draw in some order.
            agent_ids: (N,), the caller's number of every agent as they stand in memory; as they stand if left out.
        """
        ...


AnyBody: TypeAlias = Body | StatefulBody


@runtime_checkable
class FusedStep(Protocol):
    """Move, sense and decide in one call: what the parts of a flight make one after the other, to the bit.

    The state of a flight, `state` (positions, velocities, roles, ..) and `accelerations`, is changed in place; `flock`
    is a read-only view of it. What agents remember is that of the senses.
    """

    def fits(self, flock: Flock, sensing: Sensing, body: AnyBody) -> bool:
        """Whether it does what these parts would do with this flock; asked at every step, as parts may change."""
        ...

    def step(
        self,
        flock: Flock,
        state: tuple[NDArray[Any], ...],
        accelerations: Vectors,
        time_step: float,
        active: Int64[np.ndarray, " active"],
        move_first: bool,
    ) -> Observations | None:
        """Move the active flocks, if `move_first`, and let them sense and decide; observations (B, N, K, C, D).

        None if a flock is off the scale or an acceleration no finite number: the move is made, but the senses are as
        before, so that the parts by themselves can tell what is wrong.
        """
        ...

    def skip(
        self,
        flock: Flock,
        state: tuple[NDArray[Any], ...],
        accelerations: Vectors,
        time_step: float,
        move_first: bool,
        steps: int,
    ) -> bool:
        """Make so many steps of all flocks, of which the first begins with a move if `move_first`.

        False, and everything as before, if one of them would fail.
        """
        ...


@runtime_checkable
class Ending(Protocol):
    """Decides, at every instant, which flocks have ended and how."""

    def __call__(self, time: float, flock: Flock, flying: Bool[np.ndarray, " B"], /) -> Int8[np.ndarray, " B"]:
        """Codes of `Outcome` (B,), FLYING where the flight goes on, or booleans, True where it ends.

        Flocks not flying are ignored.
        """
        ...
