"""The RandomDisk initial conditions (section 5 of the paper, "Initial conditions"), and how to stop their search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, get_args

import numpy as np
from jaxtyping import Float64

from equiflock._runtime.checks import (
    InputError,
    check_choice,
    check_count,
    check_nonnegative,
    check_positive,
    shorten_repr,
)
from equiflock._runtime.randomness import make_rng
from equiflock.flock import MAX_MAGNITUDE, Flock, check_comm_radius
from equiflock.scenarios.disk_placement import (
    CROWDED,
    DISCONNECTED,
    PLACED,
    SPARSE,
    draw_positions,
    make_drawing_buffers,
)

RadiusRule = Literal["quarter-power", "constant-density"]
VelocityRule = Literal["entries", "disc"]

DEFAULT_DENSITY = 10.0 / math.pi
"""Agents per R^2 under the constant-density rule: that of 100 agents under the other."""
MAX_AGENTS = 100_000_000
"""Most agents of all flocks together: more would need tens of gigabytes."""
MAX_PLACEMENTS_PER_FLOCK = 10_000_000
"""Agents placed for one flock before the search gives up; at least 200 attempts are made in any case."""


class SearchCancelledError(InputError):
    """The search for initial conditions was stopped."""


class NoStartError(InputError):
    """The search found no start that meets the conditions on distances, degrees and connectivity."""


class Stop:
    """A request to stop a search. Any thread can make it at any time; it cannot be withdrawn."""

    def __init__(self) -> None:
        # Kernels run without Python's global lock, and read the flag from memory each time, since the compiler must
        # assume that calls of the random generator can change it.
        self.requested = np.zeros(1, np.bool_)

    def set(self) -> None:
        """Request the search to stop."""
        self.requested[0] = True

    def check(self) -> None:
        """Raise `SearchCancelledError` if a stop was requested."""
        if self.requested[0]:
            raise SearchCancelledError("the search was cancelled")


@dataclass(frozen=True)
class RandomDisk:
    """Connected flocks with agents uniform in a disk, each with enough neighbours.

    Agents are placed one after the other, each uniformly in the disk at least `min_separation` from those before.
    Under "quarter-power" (disk radius R N^(1/4)) a flock that violates the conditions on degree and connectivity is
    discarded and drawn again. Under "constant-density" (disk radius sqrt(N / (pi density))), for large flocks in which
    some agent always violates a condition, only such agents (too few neighbours, or outside the largest component) are
    placed again, until none is left; agents are then numbered cell by cell.
    Velocities are V + b: a random vector V for each agent and one b for the whole flock, by the rule `velocities`.

    Flock b has its own random stream (seed, split, b), so it does not depend on the number of flocks.
    """

    flocks: int = 1
    """Number of flocks, B."""
    agents: int = 100
    """Number of agents in each flock, N."""
    seed: int = 0
    """Random seed, at least 0; the same seed gives the same flocks."""
    split: str = "test"
    """Name of a set of initial conditions, such as train, validation or test; sets are independent."""
    dimensions: Literal[2, 3] = 2
    """D; for 3, a ball in which two agents are neighbours as often as in the disk, so the mean degree is the same."""
    radius_rule: RadiusRule = "quarter-power"
    """How the disk grows with the number of agents."""
    disk_radius: float | None = None
    """Radius of the disk, instead of a rule, whose disk grows with R."""
    density: float | None = None
    """Agents per unit area for the constant-density rule; default: 10 / (pi R^2), that of 100 agents."""
    comm_radius: float = 1.0
    """Communication radius R."""
    min_separation: float = 0.1
    """R_min, the least distance between agents."""
    min_degree: int = 2
    """Least number of neighbours of each agent."""
    connected: bool = True
    """Whether the communication graph must be connected."""
    max_speed: float = 3.0
    """Bound on each entry of a random velocity; under `velocities` = "disc", on its norm. It applies to initial
    velocities only: --top-speed limits the body."""
    velocities: VelocityRule = "entries"
    """What is uniform: the "entries" of V and b, each in [-max_speed, max_speed], as in the text of section 5; or the
    vectors, in the "disc" (ball) of radius max_speed: then |V + b| <= 2 max_speed, as in a caption of the paper."""
    disk_scale: float = 1.0
    """Factor on the disk's radius: below 1 the flock is denser, above 1 sparser."""

    def __post_init__(self) -> None:
        check_count("flocks", self.flocks)
        check_count("agents", self.agents)
        if self.flocks * self.agents > MAX_AGENTS:
            raise InputError(f"flocks x agents must be at most {MAX_AGENTS:,}; got {self.flocks * self.agents:,}")
        check_count("seed", self.seed, least=0)
        check_count("min_degree", self.min_degree, least=0)
        check_comm_radius(self.comm_radius)
        check_positive("disk_scale", self.disk_scale)
        check_choice("radius_rule", self.radius_rule, get_args(RadiusRule))
        check_choice("velocities", self.velocities, get_args(VelocityRule))
        if not isinstance(self.connected, bool):
            raise InputError(f"connected must be True or False; got {shorten_repr(self.connected)}")
        if not isinstance(self.split, str):
            raise InputError(f"split must be a name; got {shorten_repr(self.split)}")
        if self.dimensions not in (2, 3):
            raise InputError(f"dimensions must be 2 or 3; got {self.dimensions!r}")
        for name in ("min_separation", "max_speed"):
            if check_nonnegative(name, getattr(self, name)) > MAX_MAGNITUDE / 2:
                raise InputError(f"{name} must be at most {MAX_MAGNITUDE / 2:g}; got {getattr(self, name):g}")
        if self.min_degree >= self.agents:
            raise InputError(
                f"agents must be more than min_degree = {self.min_degree}, the least number of neighbours; "
                f"got {self.agents}: lower min_degree or take more agents"
            )
        # Refuse options that would have no effect, rather than ignore them.
        if self.density is not None and (self.radius_rule != "constant-density" or self.disk_radius is not None):
            raise InputError("density goes with the constant-density rule only, and not with disk_radius")
        # Farther apart or closer together, float64 cannot tell which agents are neighbours.
        if not 1e-9 * self.comm_radius <= self.radius <= 1e9 * self.comm_radius:
            raise InputError(f"disk_radius must be from 1e-9 to 1e9 comm_radius; got {self.radius:g}")

    @property
    def radius(self) -> float:
        """Radius of the disk or ball: `disk_radius` if given, else by the rule, in proportion to R."""
        if self.disk_radius is not None:
            return self.disk_scale * check_positive("disk_radius", self.disk_radius)
        if self.radius_rule == "quarter-power":
            disk = self.comm_radius * self.agents**0.25
        elif self.density is None:
            disk = self.comm_radius * math.sqrt(self.agents / (math.pi * DEFAULT_DENSITY))
        else:
            disk = math.sqrt(self.agents / (math.pi * check_positive("density", self.density)))
        return self.disk_scale * (disk if self.dimensions == 2 else ball_radius(disk, self.comm_radius))

    @property
    def redraws_agents_only(self) -> bool:
        """Whether only agents that violate a condition are placed again, rather than the whole flock."""
        return self.radius_rule == "constant-density" and self.disk_radius is None

    def draw(self, stop: Stop | None = None) -> Flock:
        """Draw the flocks.

        Raise NoStartError, which says what to change, if a condition cannot be met with bounded effort, or
        SearchCancelledError once any thread has set `stop`.
        """
        stop = stop or Stop()
        # Disks of radius R_min / 2 around the agents must not overlap, so their total area or volume must fit in.
        half = self.min_separation / 2
        if self.agents * half**self.dimensions > (self.radius + half) ** self.dimensions:
            self._raise_no_start(CROWDED, self.agents)
        conditions = self.radius, self.comm_radius, self.min_separation, self.min_degree, self.connected
        max_attempts = compute_max_attempts(self.agents)
        positions = np.empty((self.flocks, self.agents, self.dimensions))
        velocities = np.empty_like(positions)
        buffers = make_drawing_buffers(self.agents)
        for b in range(self.flocks):
            # A random stream for each flock, so that flock b does not depend on the number of flocks.
            rng = make_rng(self.seed, "random_disk", self.split, b)
            result = draw_positions(
                rng, positions[b], *conditions, self.redraws_agents_only, max_attempts, buffers, stop.requested
            )
            stop.check()
            if result.status != PLACED:
                self._raise_no_start(result.status, result.number)
            # V + b: one vector for each agent, and one for the whole flock.
            shared = self.draw_velocities(rng, 1)
            velocities[b] = self.draw_velocities(rng, self.agents) + shared
        return Flock(positions, velocities, comm_radius=self.comm_radius)

    def draw_velocities(self, rng: np.random.Generator, count: int) -> Float64[np.ndarray, "count D"]:
        """Return independent random vectors by the rule `velocities`: V or b, not their sum."""
        shape = count, self.dimensions
        if self.velocities == "entries":
            return rng.uniform(-self.max_speed, self.max_speed, shape)
        # A vector of normal numbers has a uniform direction. A share (r / max_speed)^D of the ball lies within r of its
        # centre, so r = max_speed u^(1/D) for u uniform in [0, 1].
        directions = rng.normal(size=shape)
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        radii = self.max_speed * rng.random((count, 1)) ** (1.0 / self.dimensions)
        return np.asarray(radii * directions)

    def _raise_no_start(self, status: int, number: int) -> NoReturn:
        """Raise NoStartError with the condition that could not be met, a `PlacementResult`, and what to change."""
        tried = f"after {compute_max_attempts(self.agents):,} attempts"
        large = "" if self.redraws_agents_only else ", or use the constant-density rule"
        where = f"in a disk of radius {self.radius:.4g}"
        size = "disk_radius" if self.disk_scale == 1.0 else "disk_scale"
        raise NoStartError(
            {
                CROWDED: f"no room {where} for agent {number} at least min_separation = {self.min_separation:g} from "
                f"the others: lower min_separation, raise {size}{large}",
                SPARSE: f"{number} agents {where} still have fewer than min_degree = {self.min_degree} neighbours "
                f"{tried}: lower min_degree or {size}, raise comm_radius = {self.comm_radius:g}{large}",
                DISCONNECTED: f"the communication graph {where} still has {number} components {tried}: lower {size}, "
                f"raise comm_radius = {self.comm_radius:g}, set connected to False{large}",
            }[status]
        )


def compute_max_attempts(agents: int) -> int:
    """Return how often to draw a flock of `agents`, or place its agents again, before giving up: at least 200."""
    return max(200, MAX_PLACEMENTS_PER_FLOCK // agents)


def check_disk(disk: RandomDisk) -> None:
    """Raise InputError if `disk` is not a `RandomDisk`."""
    if not isinstance(disk, RandomDisk):
        raise InputError(f"disk must be an equiflock.RandomDisk; got {shorten_repr(disk)}")


def random_disk(flocks: int = 1, agents: int = 100, seed: int = 0, **options: Any) -> Flock:
    """Draw flocks of a `RandomDisk`; `options` are its other fields. Raise InputError if one is unknown or invalid."""
    try:
        disk = RandomDisk(flocks, agents, seed, **options)
    except TypeError as error:
        raise InputError(f"options of random_disk must be fields of RandomDisk: {error}") from None
    return disk.draw()


def ball_radius(disk_radius: float, comm_radius: float) -> float:
    """Return the radius of the ball in which two agents are neighbours (within R) as often as in the disk.

    It is the disk's radius if that is at most R / 2, as then all agents are neighbours.

    For two uniform points at distance d in a disk or ball of radius a, with u = R / a <= 2:

        disk:  P(d <= R) = 1 + (2/pi) (u^2 - 1) arccos(u/2) - (u/pi) (1 + u^2/2) sqrt(1 - u^2/4)
        ball:  P(d <= R) = u^3 - 9 u^4 / 16 + u^6 / 32
    """
    # In a disk or ball no wider than R all agents are neighbours.
    if comm_radius >= 2.0 * disk_radius:
        return disk_radius
    u = comm_radius / disk_radius
    probability = (
        1.0
        + 2.0 / math.pi * (u * u - 1.0) * math.acos(u / 2.0)
        - u / math.pi * (1.0 + u * u / 2.0) * math.sqrt(1.0 - u * u / 4.0)
    )
    # Bisection for the u of the ball: its probability grows from 0 at u = 0 to 1 at u = 2.
    low, high = 0.0, 2.0
    for _ in range(60):
        u = (low + high) / 2.0
        low, high = (u, high) if u**3 - 9.0 / 16.0 * u**4 + u**6 / 32.0 < probability else (low, u)
    return comm_radius / high
