"""The data that flows through equiflock, and what a controller is.

Axis letters, the same everywhere:

    B  flocks of a batch        K  hops a message has travelled
    N  agents of a flock        D  dimensions of space, 2 or 3
    T  steps of a flight        F  frames that were kept
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int8, Int32
from numpy.typing import NDArray

from equiflock.checks import InputError, check_positive, short

Vectors: TypeAlias = Float64[np.ndarray, "B N D"]
"""One vector per agent: positions, velocities or accelerations."""

Roles: TypeAlias = Int8[np.ndarray, "B N"]

ObstacleNumbers: TypeAlias = Int32[np.ndarray, "B N"]
"""Which obstacle each obstacle agent belongs to, counted from 0; NO_OBSTACLE for all others."""
NO_OBSTACLE = -1

Messages: TypeAlias = Float32[np.ndarray, "B N K 3 D"]
"""What each agent knows: for each hop k the three vectors of z^k, hop index 0 being z^1(t)."""

OneHop: TypeAlias = Literal["sum", "mean"]
Neighbourhood: TypeAlias = Literal["moving", "frozen"]


class Role(enum.IntEnum):
    """What an agent does. Only followers listen; all three are heard."""

    FOLLOWER = 0
    """Hears its neighbours and accelerates as its controller says."""
    LEADER = 1
    """Keeps its velocity."""
    OBSTACLE = 2
    """Stands still, marks the rim of an obstacle, and is not counted as part of the flock."""


class Outcome(enum.IntEnum):
    """How a flock's flight stands or ended; its text is the message."""

    message: str

    def __new__(cls, code: int, message: str) -> Outcome:
        """A code that carries its message."""
        outcome = int.__new__(cls, code)
        outcome._value_ = code
        outcome.message = message
        return outcome

    FLYING = 0, "still flying"
    TIME_UP = 1, "flew for the whole duration"
    DISCONNECTED = 2, "the communication graph lost its connectivity"
    COLLIDED = 3, "two agents came too near each other"
    HIT_OBSTACLE = 4, "an agent came too near the obstacle"
    PASSED = 5, "the flock passed the obstacle"
    ENDED = 6, "the ending's condition was met"

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, eq=False, repr=False)
class Flock:
    """B flocks of N agents each, at one instant. Immutable; checked when made.

    Attributes:
        positions: (B, N, D) float64, finite.
        velocities: (B, N, D) float64, finite; zero for obstacle agents.
        roles: (B, N), values of `Role`; all followers if left out. Obstacle agents exist for D = 2 only, and never
            alone.
        obstacles: (B, N), the number of the obstacle that each obstacle agent belongs to, from 0, and -1 for all other
            agents; if left out, the obstacle agents of a flock are one obstacle, number 0.
        comm_radius: R, within which these agents hear each other. Flights, endings and metrics take it from here.

    The arrays are copied and read-only; `dataclasses.replace(flock, velocities=...)` makes a changed flock.
    """

    positions: Vectors
    velocities: Vectors
    roles: Roles = None  # type: ignore[assignment]
    obstacles: ObstacleNumbers = None  # type: ignore[assignment]
    comm_radius: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        positions = _vectors("positions", self.positions)
        velocities = _vectors("velocities", self.velocities)
        if velocities.shape != positions.shape:
            raise InputError(f"velocities must have the shape of positions, {positions.shape}; got {velocities.shape}")
        roles = _roles(self.roles, positions.shape[:2])
        rim = roles == Role.OBSTACLE
        if rim.any():
            if positions.shape[2] != 2:
                raise InputError(f"obstacle agents exist for D = 2 only; got D = {positions.shape[2]}")
            if velocities[rim].any():
                raise InputError("obstacle agents stand still: their velocities must be zero")
            if rim.all(axis=1).any():
                raise InputError("every flock needs a leader or follower; got one of obstacle agents only")
        obstacles = _obstacles(self.obstacles, rim)
        arrays = {"positions": positions, "velocities": velocities, "roles": roles, "obstacles": obstacles}
        for name, array in arrays.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "comm_radius", check_positive("comm_radius", self.comm_radius))

    @classmethod
    def view(
        cls, positions: Vectors, velocities: Vectors, roles: Roles, obstacles: ObstacleNumbers, *, comm_radius: float
    ) -> Flock:
        """A flock over arrays that are known to be good: no check, no copy if contiguous, read-only through it."""
        flock = object.__new__(cls)
        arrays = ("positions", positions), ("velocities", velocities), ("roles", roles), ("obstacles", obstacles)
        for name, array in arrays:
            view = np.ascontiguousarray(array).view()  # kernels are compiled for contiguous arrays
            view.setflags(write=False)
            object.__setattr__(flock, name, view)
        object.__setattr__(flock, "comm_radius", comm_radius)
        return flock

    @property
    def shape(self) -> tuple[int, int, int]:
        """(B, N, D)."""
        B, N, D = self.positions.shape
        return B, N, D

    def __len__(self) -> int:
        """The number of flocks B."""
        return len(self.positions)

    def __getitem__(self, which: int | slice | NDArray[Any]) -> Flock:
        """Some of the flocks, as a batch again: `flock[3]` is a batch of one."""
        if isinstance(which, (int, np.integer)):
            index = range(len(self))[which]  # an IndexError like a list's
            which = slice(index, index + 1)
        arrays = self.positions, self.velocities, self.roles, self.obstacles
        return Flock.view(*(array[which] for array in arrays), comm_radius=self.comm_radius)

    def __repr__(self) -> str:
        B, N, D = self.shape
        counts = ((int((self.roles == role).sum()), role.name.lower()) for role in Role)
        crew = ", ".join(f"{count:,} {name}s" for count, name in counts if count)
        return f"Flock(B={B}, N={N:,}, D={D}, R={self.comm_radius:g}: {crew})"


def check_flock(flock: object) -> Flock:
    """`flock` if it is one, else a clear error."""
    if not isinstance(flock, Flock):
        raise InputError(f"flock must be an equiflock.Flock; got {short(flock)}")
    return flock


def _vectors(name: str, given: Any) -> Vectors:
    try:
        if np.iscomplexobj(given):
            raise TypeError("complex numbers came")
        array = np.array(given, dtype=np.float64, order="C")
    except (OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers of shape (B, N, D): {error}") from None
    if array.ndim != 3:
        hint = f"; for one flock pass {name}[None]" if array.ndim == 2 else ""
        raise InputError(f"{name} must have shape (B, N, D); got {array.shape}{hint}")
    B, N, D = array.shape
    if B < 1 or N < 1 or D not in (2, 3):
        raise InputError(f"{name} must have shape (B >= 1, N >= 1, D = 2 or 3); got {array.shape}")
    finite = np.isfinite(array)
    if not finite.all():
        flock, agent, _ = np.argwhere(~finite)[0]
        raise InputError(f"{name} must be finite; agent {agent} of flock {flock} has {array[flock, agent]}")
    return array


def _roles(given: Any, shape: tuple[int, ...]) -> Roles:
    if given is None:
        return np.zeros(shape, np.int8)
    try:
        roles = np.array(given)
    except ValueError as error:
        raise InputError(f"roles must have shape (B, N) = {shape}: {error}") from None
    if roles.shape != shape:
        raise InputError(f"roles must have shape (B, N) = {shape}; got {roles.shape}")
    if not np.isin(roles, list(Role)).all():
        allowed = ", ".join(f"{role.value} ({role.name.lower()})" for role in Role)
        raise InputError(f"roles must be {allowed}; got {sorted(set(roles.ravel().tolist()) - set(Role))}")
    return roles.astype(np.int8)


def _obstacles(given: Any, rim: Bool[np.ndarray, "B N"]) -> ObstacleNumbers:
    expected = f"obstacles must be whole numbers of shape (B, N) = {rim.shape}"
    try:
        numbers = np.full(rim.shape, NO_OBSTACLE) if given is None else np.array(given)
    except ValueError as error:
        raise InputError(f"{expected}: {error}") from None
    if numbers.shape != rim.shape or numbers.dtype.kind not in "iu":
        raise InputError(f"{expected}; got {numbers.dtype} of shape {numbers.shape}")
    if (numbers == NO_OBSTACLE).all():
        numbers = np.where(rim, 0, NO_OBSTACLE)
    most = rim.shape[1] - 1
    if ((numbers < 0) | (numbers > most))[rim].any() or (numbers[~rim] != NO_OBSTACLE).any():
        raise InputError(f"obstacles must be from 0 to {most} for obstacle agents and {NO_OBSTACLE} for all others")
    return numbers.astype(np.int32)


@dataclass(frozen=True, eq=False, slots=True)
class Moment:
    """One instant of a flight, before the step that its accelerations make.

    The arrays are read-only views, valid until the next step; copy what must last.

    Attributes:
        step: the number of steps made so far.
        time: step times the time step, in seconds.
        flock: positions and velocities now.
        messages: (B, N, K, 3, D), what every agent knows now.
        accelerations: (B, N, D), what every agent does next; zero for leaders, obstacle agents, ended flocks.
        flying: (B,), which flocks are still flying.
        outcomes: (B,), values of `Outcome`.
        radius: the communication radius R.
    """

    step: int
    time: float
    flock: Flock
    messages: Messages
    accelerations: Vectors
    flying: Bool[np.ndarray, " B"]
    outcomes: Int8[np.ndarray, " B"]
    radius: float


@runtime_checkable
class LocalController(Protocol):
    """A controller that each agent can run by itself: it sees messages, never the flock.

    It declares `hops` (K >= 1) and `one_hop` ("sum" or "mean"), and may declare
    `neighbourhood` ("moving", the default, or "frozen": whoever was near at t = 0 is heard for ever).
    """

    @property
    def hops(self) -> int:
        """K, how many hops of messages it uses."""
        ...

    @property
    def one_hop(self) -> OneHop:
        """How it wants the messages of its neighbours put together."""
        ...

    def __call__(self, messages: Messages, /) -> Float[np.ndarray, "B N D"]:
        """Accelerations (B, N, D) from messages (B, N, K, 3, D), each agent's from its own block alone."""
        ...


@runtime_checkable
class PrivilegedController(Protocol):
    """A controller that sees the whole flock, so no swarm could run it: an expert to learn from."""

    @property
    def hops(self) -> int:
        """K, how many hops of messages it uses."""
        ...

    @property
    def one_hop(self) -> OneHop:
        """How it wants the messages of its neighbours put together."""
        ...

    @property
    def privileged(self) -> Literal[True]:
        """Says openly that it is."""
        ...

    def __call__(self, flock: Flock, messages: Messages, /) -> Float[np.ndarray, "B N D"]:
        """Accelerations (B, N, D) from the flock and its messages (B, N, K, 3, D)."""
        ...


Controller: TypeAlias = LocalController | PrivilegedController


@runtime_checkable
class Ending(Protocol):
    """Decides, at every instant, which flocks have ended and how."""

    def __call__(self, time: float, flock: Flock, flying: Bool[np.ndarray, " B"], /) -> Int8[np.ndarray, " B"]:
        """Values of `Outcome` (B,), FLYING where the flight goes on, or booleans, True where it ends.

        Flocks not flying are ignored.
        """
        ...
