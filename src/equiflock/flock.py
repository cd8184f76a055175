"""Data types shared by the whole package: flocks, roles, conditions and observations.

Axis letters:

    B  flocks of a batch        K  communication hops
    N  agents of a flock        C  channels of one hop
    T  steps of a flight        D  dimensions of space, 2 or 3
    F  stored frames of a flight
"""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int8, Int32
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, check_positive, is_finite, shorten_repr

MAX_MAGNITUDE = 1e20
"""Largest entry of a position or velocity: squared distances fit into float64, and observations, which are sums of sums
over neighbours, into float32."""
LARGEST_SCALE = 1e12
"""Upper bound of R and of the units of controllers, and the inverse of their lower bound. R^2 in any unit is then from
1e-48 to 1e48: it neither overflows, which would make agents at infinity neighbours, nor underflows."""

Vectors: TypeAlias = Float64[np.ndarray, "B N D"]
"""One vector per agent: positions, velocities or accelerations."""

Roles: TypeAlias = Int8[np.ndarray, "B N"]

ObstacleIds: TypeAlias = Int32[np.ndarray, "B N"]
"""Index of the obstacle that each obstacle agent belongs to, from 0; NO_OBSTACLE for all other agents."""
NO_OBSTACLE = -1

Groups: TypeAlias = Int32[np.ndarray, "B N"]
"""The social group of each agent, from 0; NO_GROUP for obstacle agents."""
NO_GROUP = -1

Conditions: TypeAlias = Int8[np.ndarray, "B N"]
"""Condition of each agent: values of `Condition`."""

Observations: TypeAlias = Float32[np.ndarray, "B N K C D"]
"""Network input of each agent: the C vectors of z^k for each hop k; hop index 0 is z^1(t)."""


class Role(enum.IntEnum):
    """Role of an agent. Only followers receive messages; agents of all three roles send."""

    FOLLOWER = 0
    """Receives messages from its neighbours and executes the accelerations of its controller."""
    LEADER = 1
    """Keeps its velocity."""
    OBSTACLE = 2
    """Stands still on the boundary of an obstacle; not counted as part of the flock."""


# Plain integers for kernels, and for loops in which attribute lookup on an enum would cost time.
FOLLOWER, LEADER, OBSTACLE = (int(role) for role in Role)


class Condition(enum.IntEnum):
    """Condition of an agent: working, or a kind of failure. Other agents can still collide with a failed agent."""

    WORKING = 0
    """Acts according to its role."""
    SILENT = 1
    """Sends no messages; works normally otherwise."""
    STOPPED = 2
    """Stands still, neither sends nor receives: an obstacle unknown to the other agents."""
    DRIFTING = 3
    """Receives nothing and keeps its velocity, but still sends."""


WORKING, SILENT, STOPPED, DRIFTING = (int(condition) for condition in Condition)


class FlockArrays(NamedTuple):
    """The arrays of B flocks, in the order of the fields of `Flock`; a flight's own are writable."""

    positions: Vectors
    velocities: Vectors
    roles: Roles
    obstacles: ObstacleIds
    groups: Groups
    conditions: Conditions


ARRAY_NAMES = FlockArrays._fields


@dataclass(frozen=True, eq=False, repr=False)
class Flock:
    """B flocks of N agents each, at one instant. Immutable and validated on construction.

    The arrays are read-only copies; `dataclasses.replace(flock, velocities=...)` returns a changed flock.
    """

    positions: Vectors
    """(B, N, D) float64, each entry at most MAX_MAGNITUDE."""
    velocities: Vectors
    """(B, N, D) float64, each entry at most MAX_MAGNITUDE; zero for obstacle agents."""
    roles: Roles = None  # type: ignore[assignment]
    """(B, N); all followers by default. Obstacle agents require D = 2 and at least one other agent."""
    obstacles: ObstacleIds = None  # type: ignore[assignment]
    """(B, N); by default all obstacle agents of a flock form obstacle 0."""
    groups: Groups = None  # type: ignore[assignment]
    """(B, N); all 0 by default."""
    conditions: Conditions = None  # type: ignore[assignment]
    """(B, N); all working by default. Obstacle agents are always working; stopped agents have zero velocity."""
    comm_radius: float = field(default=1.0, kw_only=True)
    """Communication radius R, used by flights, endings and metrics; from 1 / LARGEST_SCALE to LARGEST_SCALE."""

    def __post_init__(self) -> None:
        positions = _check_vectors("positions", self.positions)
        velocities = _check_vectors("velocities", self.velocities)
        if velocities.shape != positions.shape:
            raise InputError(f"velocities must have the shape of positions, {positions.shape}; got {velocities.shape}")
        # Obstacle agents stand still, and obstacle geometry is implemented for D = 2 only.
        roles = _check_codes("roles", Role, self.roles, positions.shape[:2])
        is_obstacle = roles == Role.OBSTACLE
        if is_obstacle.any():
            if positions.shape[2] != 2:
                raise InputError(f"obstacle agents require D = 2; got D = {positions.shape[2]}")
            if velocities[is_obstacle].any():
                raise InputError("obstacle agents must have zero velocity")
            if is_obstacle.all(axis=1).any():
                raise InputError("every flock must have a leader or follower; got a flock of obstacle agents only")
        conditions = _check_codes("conditions", Condition, self.conditions, is_obstacle.shape)
        if conditions[is_obstacle].any():
            raise InputError("obstacle agents cannot fail: their conditions must be 0 (working)")
        if velocities[conditions == STOPPED].any():
            raise InputError("stopped agents must have zero velocity")
        obstacles, groups = _check_obstacles(self.obstacles, is_obstacle), _check_groups(self.groups, is_obstacle)
        arrays = positions, velocities, roles, obstacles, groups, conditions
        self._set_fields(arrays, check_comm_radius(self.comm_radius))

    def _set_fields(self, arrays: tuple[NDArray[Any], ...], comm_radius: float) -> None:
        """Set the fields of the frozen dataclass; arrays are read-only views."""
        for name, array in zip(ARRAY_NAMES, arrays, strict=True):
            view = np.ascontiguousarray(array).view()  # kernels are compiled for this layout only
            view.setflags(write=False)
            object.__setattr__(self, name, view)
        object.__setattr__(self, "comm_radius", comm_radius)

    @classmethod
    def view(cls, *arrays: NDArray[Any], comm_radius: float) -> Flock:
        """Return a flock over the validated arrays of `FlockArrays`: no checks, no copies of contiguous arrays.

        The flock cannot change the arrays, but later changes of them show in it.
        """
        flock = object.__new__(cls)
        flock._set_fields(arrays, comm_radius)
        return flock

    def in_units(self, length: float, time: float) -> Flock:
        """Return the same flock in other units; `length` and `time` are the new units in terms of the present ones.

        Positions and R are divided by `length`, velocities multiplied by time / length.
        """
        # The aggregation refuses values that overflow here, in a flight that diverges.
        with np.errstate(over="ignore"):
            positions, velocities = self.positions / length, self.velocities * (time / length)
        return Flock.view(positions, velocities, *self.arrays[2:], comm_radius=self.comm_radius / length)

    @property
    def arrays(self) -> FlockArrays:
        """All arrays of the flock, read-only."""
        return FlockArrays(self.positions, self.velocities, self.roles, self.obstacles, self.groups, self.conditions)

    @property
    def all_working(self) -> bool:
        """Whether no agent has failed."""
        return not np.count_nonzero(self.conditions)

    @property
    def working(self) -> Bool[np.ndarray, "B N"]:
        """(B, N), mask of working leaders and followers."""
        return np.asarray((self.roles != OBSTACLE) & (self.conditions == WORKING))

    @property
    def muted(self) -> Bool[np.ndarray, "B N"]:
        """(B, N), mask of silent and stopped agents, which send nothing."""
        return np.asarray((self.conditions == SILENT) | (self.conditions == STOPPED))

    @property
    def effective_roles(self) -> Roles:
        """(B, N), roles in which stopped and drifting agents count as leaders: both ignore messages and commands."""
        is_passive = (self.conditions == STOPPED) | (self.conditions == DRIFTING)
        return np.where(is_passive, np.int8(LEADER), self.roles)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(B, N, D)."""
        B, N, D = self.positions.shape
        return B, N, D

    def __len__(self) -> int:
        """Return the number of flocks B."""
        return len(self.positions)

    def __getitem__(self, which: int | slice | NDArray[Any]) -> Flock:
        """Return a batch of the selected flocks; `flock[3]` is a batch of one."""
        if isinstance(which, (int, np.integer)):
            index = range(len(self))[which]  # raises IndexError, as a list does
            which = slice(index, index + 1)
        return Flock.view(*(array[which] for array in self.arrays), comm_radius=self.comm_radius)

    def __repr__(self) -> str:
        B, N, D = self.shape
        counts = ((int((self.roles == role).sum()), role.name.lower()) for role in Role)
        composition = ", ".join(f"{count:,} {name}s" for count, name in counts if count)
        failed = ((int((self.conditions == condition).sum()), condition.name.lower()) for condition in Condition)
        composition += "".join(f", {count:,} {name}" for count, name in failed if count and name != "working")
        return f"Flock(B={B}, N={N:,}, D={D}, R={self.comm_radius:g}: {composition})"


def check_flock(flock: object) -> Flock:
    """Return `flock`; raise InputError if it is not a Flock."""
    if not isinstance(flock, Flock):
        raise InputError(f"flock must be an equiflock.Flock; got {shorten_repr(flock)}")
    return flock


def check_comm_radius(comm_radius: float) -> float:
    """Return R as a float; raise InputError if it is not from 1 / LARGEST_SCALE to LARGEST_SCALE."""
    return check_scale("comm_radius", check_positive("comm_radius", comm_radius))


def check_scale(name: str, value: float) -> float:
    """Return `value` as a float; raise InputError if it is not from 1 / LARGEST_SCALE to LARGEST_SCALE."""
    if not is_finite(value) or not 1.0 / LARGEST_SCALE <= value <= LARGEST_SCALE:
        raise InputError(f"{name} must be from {1 / LARGEST_SCALE:g} to {LARGEST_SCALE:g}; got {shorten_repr(value)}")
    return float(value)


def _check_vectors(name: str, given: Any) -> Vectors:
    """Return a float64 copy of `given`; raise InputError if it is not of shape (B, N, D), D = 2 or 3.

    Also raise it if `given` is not real numbers, has masked entries, or an entry exceeds MAX_MAGNITUDE.
    """
    expected = f"{name} must be numbers of shape (B, N, D)"
    _check_unmasked(name, given)
    try:
        array = np.asarray(given)
    except (RuntimeError, TypeError, ValueError) as error:  # torch raises RuntimeError for tensors that require grad
        raise InputError(f"{expected}: {str(error).splitlines()[0]}") from None
    # NumPy would convert text, and drop the imaginary part with a mere warning.
    if array.dtype.kind not in "biuf":
        raise InputError(f"{expected}; got {array.dtype} of shape {array.shape}")
    array = np.array(array, dtype=np.float64, order="C")
    if array.ndim != 3:
        hint = f"; for one flock pass {name}[None]" if array.ndim == 2 else ""
        raise InputError(f"{name} must have shape (B, N, D); got {array.shape}{hint}")
    B, N, D = array.shape
    if B < 1 or N < 1 or D not in (2, 3):
        raise InputError(f"{name} must have shape (B >= 1, N >= 1, D = 2 or 3); got {array.shape}")
    # Name the first agent with a vector that is not finite or too large.
    fits = np.abs(array) <= MAX_MAGNITUDE
    if not fits.all():
        flock, agent, _ = np.argwhere(~fits)[0]
        raise InputError(
            f"{name} must be finite and at most {MAX_MAGNITUDE:g}; agent {agent} of flock {flock} has "
            f"{array[flock, agent]}"
        )
    return array


def _check_unmasked(name: str, given: Any) -> None:
    """Raise InputError if a masked array, or a list of arrays, has masked entries: NumPy would drop the mask."""
    masked_arrays = sys.modules.get("numpy.ma")  # there are no masked arrays if it was not imported
    rows = given if isinstance(given, (list, tuple)) else (given,)
    if masked_arrays is not None and any(map(masked_arrays.is_masked, rows)):
        raise InputError(f"{name} must not have masked entries: leave these agents out")


def _check_codes(name: str, kind: type[enum.IntEnum], given: Any, shape: tuple[int, ...]) -> Int8[np.ndarray, "B N"]:
    """Return roles or conditions as an int8 copy; zeros for None. Raise InputError for wrong shapes or codes."""
    if given is None:
        return np.zeros(shape, np.int8)
    codes = _check_shape(name, given, shape)
    if not np.isin(codes, list(kind)).all():
        allowed = ", ".join(f"{code.value} ({code.name.lower()})" for code in kind)
        raise InputError(f"{name} must be {allowed}; got {sorted(set(codes.ravel().tolist()) - set(kind))}")
    return codes.astype(np.int8)


def _check_shape(name: str, given: Any, shape: tuple[int, ...], kinds: str = "") -> NDArray[Any]:
    """Return a copy of `given` as an array; raise InputError if it is not of this shape, or its dtype not of a kind."""
    expected = f"{name} must {'be integers of' if kinds else 'have'} shape (B, N) = {shape}"
    _check_unmasked(name, given)
    try:
        array = np.array(given)
    except ValueError as error:
        raise InputError(f"{expected}: {error}") from None
    if array.shape != shape or (kinds and array.dtype.kind not in kinds):
        raise InputError(f"{expected}; got {array.dtype} of shape {array.shape}")
    return array


def _check_groups(given: Any, is_obstacle: Bool[np.ndarray, "B N"]) -> Groups:
    """Return group indices (B, N): zeros for None, NO_GROUP for obstacle agents, whose given values are ignored."""
    shape = is_obstacle.shape
    numbers = np.zeros(shape, np.int32) if given is None else _check_shape("groups", given, shape, "iu")
    wrong = ((numbers < 0) & ~is_obstacle) | (numbers > np.iinfo(np.int32).max)
    if wrong.any():
        flock, agent = np.argwhere(wrong)[0]
        raise InputError(
            f"groups must be from 0 to 2^31 - 1; agent {agent} of flock {flock} has {numbers[flock, agent]}"
        )
    return np.where(is_obstacle, NO_GROUP, numbers).astype(np.int32)


def _check_obstacles(given: Any, is_obstacle: Bool[np.ndarray, "B N"]) -> ObstacleIds:
    """Return obstacle indices (B, N); for None or all -1, the obstacle agents of a flock form one obstacle."""
    shape = is_obstacle.shape
    numbers = np.full(shape, NO_OBSTACLE) if given is None else _check_shape("obstacles", given, shape, "iu")
    if (numbers == NO_OBSTACLE).all():
        numbers = np.where(is_obstacle, 0, NO_OBSTACLE)
    # Indices stay below N, so kernels may count obstacles in arrays of length N.
    max_index = is_obstacle.shape[1] - 1
    if ((numbers < 0) | (numbers > max_index))[is_obstacle].any() or (numbers[~is_obstacle] != NO_OBSTACLE).any():
        raise InputError(
            f"obstacles must be from 0 to {max_index} for obstacle agents and {NO_OBSTACLE} for all others"
        )
    return numbers.astype(np.int32)
