"""The data that flows through equiflock: flocks, roles, conditions, and what agents know.

Axis letters, the same everywhere:

    B  flocks of a batch        K  hops over which information has travelled
    N  agents of a flock        C  channels of one hop
    T  steps of a flight        D  dimensions of space, 2 or 3
    F  frames that were kept
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int8, Int32
from numpy.typing import NDArray

from equiflock.runtime.checks import InputError, check_positive, shorten_repr

Vectors: TypeAlias = Float64[np.ndarray, "B N D"]
"""One vector per agent: positions, velocities or accelerations."""

Roles: TypeAlias = Int8[np.ndarray, "B N"]

ObstacleIds: TypeAlias = Int32[np.ndarray, "B N"]
"""Which obstacle each obstacle agent belongs to, counted from 0; NO_OBSTACLE for all others."""
NO_OBSTACLE = -1

Groups: TypeAlias = Int32[np.ndarray, "B N"]
"""The social group of each agent, from 0; NO_GROUP for obstacle agents."""
NO_GROUP = -1

Conditions: TypeAlias = Int8[np.ndarray, "B N"]
"""Whether each agent works, or how it has failed: values of `Condition`."""

Observations: TypeAlias = Float32[np.ndarray, "B N K C D"]
"""What each agent knows: for each hop k the C vectors of z^k, hop index 0 being z^1(t)."""


class Role(enum.IntEnum):
    """What an agent does. Only followers hear others; agents of all three roles are heard."""

    FOLLOWER = 0
    """Hears its neighbours and accelerates as its controller says."""
    LEADER = 1
    """Keeps its velocity."""
    OBSTACLE = 2
    """Stands still, marks the rim of an obstacle, and is not counted as part of the flock."""


# As plain numbers, for kernels, and for loops in which looking an enum's member up would show.
FOLLOWER, LEADER, OBSTACLE = (int(role) for role in Role)


class Condition(enum.IntEnum):
    """Whether an agent works, or how it has failed. A failed agent is still there: others can collide with it."""

    WORKING = 0
    """Does what its role says."""
    SILENT = 1
    """Sends nothing, so that nobody hears it, and else works as before."""
    STOPPED = 2
    """Stands still, sends nothing and hears nobody: an obstacle that nobody announced."""
    DRIFTING = 3
    """Hears nobody and keeps its velocity, and still sends."""


WORKING, SILENT, STOPPED, DRIFTING = (int(condition) for condition in Condition)


# The arrays of a flock, in the order in which `Flock.view` takes them and `Flock.arrays` gives them.
ARRAY_NAMES = ("positions", "velocities", "roles", "obstacles", "groups", "conditions")


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
        groups: (B, N), the social group of each agent, a whole number from 0; all 0 if left out. Obstacle agents are in
            none: -1.
        conditions: (B, N), values of `Condition`; all work if left out. Obstacle agents always do, and the velocities
            of agents that stopped are zero.
        comm_radius: R, within which these agents hear each other. Flights, endings and metrics take it from here.

    The arrays are copied and read-only; `dataclasses.replace(flock, velocities=...)` makes a changed flock.
    """

    positions: Vectors
    velocities: Vectors
    roles: Roles = None  # type: ignore[assignment]
    obstacles: ObstacleIds = None  # type: ignore[assignment]
    groups: Groups = None  # type: ignore[assignment]
    conditions: Conditions = None  # type: ignore[assignment]
    comm_radius: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        positions = _check_vectors("positions", self.positions)
        velocities = _check_vectors("velocities", self.velocities)
        if velocities.shape != positions.shape:
            raise InputError(f"velocities must have the shape of positions, {positions.shape}; got {velocities.shape}")
        # The rim of obstacles is agents that stand still; the geometry of obstacles exists for the plane only.
        roles = _check_codes("roles", Role, self.roles, positions.shape[:2])
        rim = roles == Role.OBSTACLE
        if rim.any():
            if positions.shape[2] != 2:
                raise InputError(f"obstacle agents exist for D = 2 only; got D = {positions.shape[2]}")
            if velocities[rim].any():
                raise InputError("obstacle agents stand still: their velocities must be zero")
            if rim.all(axis=1).any():
                raise InputError("every flock needs a leader or follower; got one of obstacle agents only")
        conditions = _check_codes("conditions", Condition, self.conditions, rim.shape)
        if conditions[rim].any():
            raise InputError("obstacle agents cannot fail: their conditions must be 0 (working)")
        if velocities[conditions == STOPPED].any():
            raise InputError("agents that stopped stand still: their velocities must be zero")
        # The class is frozen: fields are set once, here, after all have passed their checks.
        crew = roles, _check_obstacles(self.obstacles, rim), _check_groups(self.groups, rim), conditions
        arrays = positions, velocities, *crew
        for name, array in zip(ARRAY_NAMES, arrays, strict=True):
            contiguous = np.ascontiguousarray(array)  # kernels are compiled for these, and anew for any other layout
            contiguous.setflags(write=False)
            object.__setattr__(self, name, contiguous)
        object.__setattr__(self, "comm_radius", check_positive("comm_radius", self.comm_radius))

    @classmethod
    def view(
        cls,
        positions: Vectors,
        velocities: Vectors,
        roles: Roles,
        obstacles: ObstacleIds,
        groups: Groups,
        conditions: Conditions,
        *,
        comm_radius: float,
    ) -> Flock:
        """A flock over arrays that were checked before: no check, no copy if contiguous, read-only through it."""
        flock = object.__new__(cls)
        arrays = positions, velocities, roles, obstacles, groups, conditions
        for name, array in zip(ARRAY_NAMES, arrays, strict=True):
            view = np.ascontiguousarray(array).view()  # kernels are compiled for contiguous arrays
            view.setflags(write=False)
            object.__setattr__(flock, name, view)
        object.__setattr__(flock, "comm_radius", comm_radius)
        return flock

    def in_units(self, length: float, time: float) -> Flock:
        """The same flock in other units, of which one is so many of the present ones; R is a length, too."""
        # What leaves the range of float64 by this is refused by whoever senses it.
        with np.errstate(over="ignore"):
            positions, velocities = self.positions / length, self.velocities * (time / length)
        return Flock.view(positions, velocities, *self.arrays[2:], comm_radius=self.comm_radius / length)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Positions, velocities, roles, obstacles, groups and conditions, each (B, N, ..), in the order of `view`."""
        return self.positions, self.velocities, self.roles, self.obstacles, self.groups, self.conditions

    @property
    def all_working(self) -> bool:
        """Whether no agent has failed."""
        return not np.count_nonzero(self.conditions)

    @property
    def working(self) -> Bool[np.ndarray, "B N"]:
        """(B, N), which leaders and followers work."""
        return np.asarray((self.roles != OBSTACLE) & (self.conditions == WORKING))

    @property
    def muted(self) -> Bool[np.ndarray, "B N"]:
        """(B, N), which agents send nothing: those that are silent or stopped."""
        return np.asarray((self.conditions == SILENT) | (self.conditions == STOPPED))

    @property
    def effective_roles(self) -> Roles:
        """(B, N), in which stopped and drifting agents are leaders: they keep their velocity and hear nobody."""
        deaf = (self.conditions == STOPPED) | (self.conditions == DRIFTING)
        return np.where(deaf, np.int8(LEADER), self.roles)

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
        return Flock.view(*(array[which] for array in self.arrays), comm_radius=self.comm_radius)

    def __repr__(self) -> str:
        B, N, D = self.shape
        counts = ((int((self.roles == role).sum()), role.name.lower()) for role in Role)
        crew = ", ".join(f"{count:,} {name}s" for count, name in counts if count)
        failed = ((int((self.conditions == condition).sum()), condition.name.lower()) for condition in Condition)
        crew += "".join(f", {count:,} {name}" for count, name in failed if count and name != "working")
        return f"Flock(B={B}, N={N:,}, D={D}, R={self.comm_radius:g}: {crew})"


def check_flock(flock: object) -> Flock:
    """`flock` if it is one, else a clear error."""
    if not isinstance(flock, Flock):
        raise InputError(f"flock must be an equiflock.Flock; got {shorten_repr(flock)}")
    return flock


def _check_vectors(name: str, given: Any) -> Vectors:
    """A copy of `given` as finite float64 of shape (B, N, D), or a clear error."""
    try:
        # NumPy would drop the imaginary part with no more than a warning.
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
    # The error names the first agent whose vector is not finite.
    finite = np.isfinite(array)
    if not finite.all():
        flock, agent, _ = np.argwhere(~finite)[0]
        raise InputError(f"{name} must be finite; agent {agent} of flock {flock} has {array[flock, agent]}")
    return array


def _check_codes(name: str, kind: type[enum.IntEnum], given: Any, shape: tuple[int, ...]) -> Int8[np.ndarray, "B N"]:
    """A copy of `given` as roles or conditions (B, N), all 0 if it is None, or a clear error."""
    if given is None:
        return np.zeros(shape, np.int8)
    try:
        codes = np.array(given)
    except ValueError as error:
        raise InputError(f"{name} must have shape (B, N) = {shape}: {error}") from None
    if codes.shape != shape:
        raise InputError(f"{name} must have shape (B, N) = {shape}; got {codes.shape}")
    if not np.isin(codes, list(kind)).all():
        allowed = ", ".join(f"{code.value} ({code.name.lower()})" for code in kind)
        raise InputError(f"{name} must be {allowed}; got {sorted(set(codes.ravel().tolist()) - set(kind))}")
    return codes.astype(np.int8)


def _check_integers(name: str, given: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """`given` as an array, if it has whole numbers of that shape."""
    expected = f"{name} must be whole numbers of shape (B, N) = {shape}"
    try:
        numbers = np.array(given)
    except ValueError as error:
        raise InputError(f"{expected}: {error}") from None
    if numbers.shape != shape or numbers.dtype.kind not in "iu":
        raise InputError(f"{expected}; got {numbers.dtype} of shape {numbers.shape}")
    return numbers


def _check_groups(given: Any, rim: Bool[np.ndarray, "B N"]) -> Groups:
    """A copy of `given` as group numbers (B, N), all 0 if it is None, and none for obstacle agents."""
    numbers = np.zeros(rim.shape, np.int32) if given is None else _check_integers("groups", given, rim.shape)
    # What stands for obstacle agents does not matter, since they are in no group.
    if ((numbers < 0) & ~rim).any() or (numbers > np.iinfo(np.int32).max).any():
        flock, agent = np.argwhere(((numbers < 0) & ~rim) | (numbers > np.iinfo(np.int32).max))[0]
        raise InputError(
            f"groups must be from 0 to 2^31 - 1; agent {agent} of flock {flock} has {numbers[flock, agent]}"
        )
    return np.where(rim, NO_GROUP, numbers).astype(np.int32)


def _check_obstacles(given: Any, rim: Bool[np.ndarray, "B N"]) -> ObstacleIds:
    """A copy of `given` as obstacle numbers (B, N); if it is None, a flock's obstacle agents are one obstacle."""
    numbers = np.full(rim.shape, NO_OBSTACLE) if given is None else _check_integers("obstacles", given, rim.shape)
    if (numbers == NO_OBSTACLE).all():
        numbers = np.where(rim, 0, NO_OBSTACLE)
    # There are no more obstacles than agents, so kernels may count obstacles in arrays of length N.
    most = rim.shape[1] - 1
    if ((numbers < 0) | (numbers > most))[rim].any() or (numbers[~rim] != NO_OBSTACLE).any():
        raise InputError(f"obstacles must be from 0 to {most} for obstacle agents and {NO_OBSTACLE} for all others")
    return numbers.astype(np.int32)
