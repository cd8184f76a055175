"""The RandomDisk initial conditions (section 5 of the paper, "Initial conditions")."""

from __future__ import annotations

import math
from typing import Any, Literal, NoReturn, get_args

import numpy as np

from equiflock.graph import cell_list, sort_into_cells, survey_flock, survey_memory
from equiflock.kernels import Array, kernel
from equiflock.randomness import stream
from equiflock.types import Flock, InputError, check_choice, check_count, check_positive

RadiusRule = Literal["quarter-power", "constant-density"]

PLACES_PER_AGENT = 10_000
"""How many places are tried for one agent."""
AGENTS_PER_FLOCK = 10_000_000
"""How many agents are drawn in all for one flock that is accepted (but 200 attempts are always made)."""

FINE, CROWDED, SPARSE, SPLIT = range(4)


def random_disk(
    flocks: int = 1,
    agents: int = 100,
    seed: int = 0,
    *,
    split: str = "test",
    dimensions: int = 2,
    radius_rule: RadiusRule = "quarter-power",
    disk_radius: float | None = None,
    density: float | None = None,
    comm_radius: float = 1.0,
    min_separation: float = 0.1,
    min_degree: int = 2,
    connected: bool = True,
    max_speed: float = 3.0,
) -> Flock:
    """Draw flocks whose agents lie uniformly in a disk and hear each other well enough to begin.

    Agents are placed one after the other, each uniformly in the disk at least `min_separation` from those before.
    Under "quarter-power" (disk radius N^(1/4)) a flock that does not meet the conditions on degree and
    connectivity is thrown away whole. Under "constant-density" (disk radius sqrt(N / (pi density))), made for large
    flocks where some agent always offends, only offending agents (too few neighbours, or outside the largest
    component) are placed anew, until none is left; agents are then numbered cell by cell. Velocities are V + b,
    every entry of V and of the flock's one b uniform in [-max_speed, max_speed].

    Flock b comes from its own stream (seed, split, b): more flocks begin with the same ones.

    Args:
        flocks: B.
        agents: N.
        seed: any whole number from 0 on.
        split: names a set of initial conditions, such as "train", "validation", "test"; sets are independent.
        dimensions: D; for 3 a ball in which two agents are as likely to hear each other as in the disk, so the mean
            degree is the same.
        radius_rule: "quarter-power" or "constant-density".
        disk_radius: the disk's radius itself, in place of a rule.
        density: agents per unit area for "constant-density"; that of 100 agents, 10 / pi, if left out.
        comm_radius: R, within which agents hear each other.
        min_separation: R_min, the least distance between agents.
        min_degree: how many others each agent hears at least.
        connected: whether the communication graph must be connected.
        max_speed: the bound on each entry, per unit of time.

    Raises:
        InputError: if an argument is out of range, or the conditions cannot be met with bounded effort; the text
            says which one failed and what to change.
    """
    check_count("flocks", flocks)
    check_count("agents", agents)
    check_count("min_degree", min_degree, least=0)
    check_positive("comm_radius", comm_radius)
    check_choice("radius_rule", radius_rule, get_args(RadiusRule))
    if dimensions not in (2, 3):
        raise InputError(f"dimensions must be 2 or 3; got {dimensions!r}")
    for name, value in (("min_separation", min_separation), ("max_speed", max_speed)):
        if value != 0:
            check_positive(name, value)
    if min_degree >= agents and min_degree > 0:
        raise InputError(f"min_degree must be below the number of agents, {agents}; got {min_degree}")
    if density is not None and radius_rule != "constant-density":
        raise InputError('density goes with radius_rule="constant-density"')
    radius = _disk_radius(agents, radius_rule, disk_radius, density)
    if radius > 1e9 * comm_radius:
        raise InputError(f"disk_radius must be at most 1e9 times comm_radius = {comm_radius:g}; got {radius:g}")
    if dimensions == 3:
        radius = ball_radius(radius, comm_radius)

    anew = radius_rule == "constant-density" and disk_radius is None
    conditions = radius, comm_radius, min_separation, min_degree, connected
    positions = np.empty((flocks, agents, dimensions))
    velocities = np.empty_like(positions)
    memory = _memory(agents)
    for b in range(flocks):
        rng = stream(seed, "random_disk", split, b)
        failure, number = _draw_positions(rng, positions[b], *conditions, anew, memory)
        if failure != FINE:
            _give_up(failure, number, agents, conditions)
        shared = rng.uniform(-max_speed, max_speed, dimensions)
        velocities[b] = rng.uniform(-max_speed, max_speed, (agents, dimensions)) + shared
    return Flock(positions, velocities)


def _disk_radius(agents: int, rule: RadiusRule, disk_radius: float | None, density: float | None) -> float:
    if disk_radius is not None:
        return check_positive("disk_radius", disk_radius)
    if rule == "quarter-power":
        return float(agents**0.25)
    per_area = 10.0 / math.pi if density is None else check_positive("density", density)
    return math.sqrt(agents / (math.pi * per_area))


def ball_radius(disk_radius: float, comm_radius: float) -> float:
    """The radius of the ball in which two agents hear each other as often as in the disk.

    For two uniform points at distance d in a disk or ball of radius a, with u = R / a <= 2:

        disk:  P(d <= R) = 1 + (2/pi) (u^2 - 1) arccos(u/2) - (u/pi) (1 + u^2/2) sqrt(1 - u^2/4)
        ball:  P(d <= R) = u^3 - 9 u^4 / 16 + u^6 / 32
    """
    u = comm_radius / disk_radius
    if u >= 2.0:
        return disk_radius
    chance = (
        1.0
        + 2.0 / math.pi * (u * u - 1.0) * math.acos(u / 2.0)
        - u / math.pi * (1.0 + u * u / 2.0) * math.sqrt(1.0 - u * u / 4.0)
    )
    low, high = 0.0, 2.0
    for _ in range(60):
        u = (low + high) / 2.0
        low, high = (u, high) if u**3 - 9.0 / 16.0 * u**4 + u**6 / 32.0 < chance else (low, u)
    return comm_radius / high


def _give_up(
    failure: int, number: int, agents: int, conditions: tuple[float, float, float, int, bool]
) -> NoReturn:
    radius, comm_radius, min_separation, min_degree, _ = conditions
    tried = f"after {_attempts(agents):,} attempts"
    raise InputError(
        {
            CROWDED: f"no room for agent {number} at least min_separation = {min_separation:g} from the others in a "
            f"disk of radius {radius:.4g}: lower min_separation, or raise disk_radius",
            SPARSE: f"{number} agents still hear fewer than min_degree = {min_degree} others {tried}: lower "
            f"min_degree, raise comm_radius = {comm_radius:g}, or lower disk_radius = {radius:.4g}",
            SPLIT: f"the communication graph still has {number} components {tried}: raise comm_radius = "
            f"{comm_radius:g}, lower disk_radius = {radius:.4g}, or pass connected=False",
        }[failure]
    )


@kernel
def _attempts(N: int) -> int:
    return max(200, AGENTS_PER_FLOCK // N)


@kernel
def _memory(N: int) -> Any:
    """Memory for drawing flocks: degrees, component labels and sizes, the survey's own, everyone's roles."""
    counts = np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N, np.int64)
    return counts, survey_memory(N), np.zeros(N, np.int8)


@kernel
def _draw_positions(
    rng: Any,
    positions: Array,
    radius: float,
    comm_radius: float,
    min_separation: float,
    min_degree: int,
    connected: bool,
    anew: bool,
    memory: Any,
) -> tuple[int, int]:
    """Fill positions (N, D) of one flock; returns which condition failed, if any, and a number that tells how."""
    N, D = positions.shape
    (degrees, labels, sizes), survey, roles = memory
    # A grid of about N cells over the disk, each at least min_separation wide, with a list of its agents.
    side = max(min_separation, 2.0 * radius / math.ceil(N ** (1.0 / D)))
    across = int(2.0 * radius / side) + 1
    heads = np.full(across**D, -1)
    links = np.empty(N, np.int64)
    failure, number = SPARSE, N
    misplaced = np.arange(N)
    for _ in range(_attempts(N)):
        if not anew:
            heads[:] = -1
        for i in misplaced:
            if not _place(rng, positions, i, radius, min_separation, side, across, heads, links):
                return CROWDED, i
        survey_flock(positions, roles, comm_radius, degrees, labels, survey)
        offending = degrees < min_degree
        failure, number = SPARSE, offending.sum()
        if number == 0 and connected:
            failure, number = SPLIT, labels.max() + 1
        if number == 0 or (failure == SPLIT and number == 1):
            if anew:
                _number_by_cell(positions, comm_radius)
            return FINE, 0
        if anew:
            if connected:
                sizes[:] = 0
                for i in range(N):
                    sizes[labels[i]] += 1
                offending |= labels != np.argmax(sizes)
            misplaced = np.flatnonzero(offending)
            for i in misplaced:
                _remove(positions, i, radius, side, across, heads, links)
    return failure, number


@kernel
def _cell(positions: Array, i: int, radius: float, side: float, across: int, d: int) -> int:
    return min(int((positions[i, d] + radius) / side), across - 1)


@kernel
def _place(
    rng: Any,
    positions: Array,
    i: int,
    radius: float,
    min_separation: float,
    side: float,
    across: int,
    heads: Array,
    links: Array,
) -> bool:
    """Draw agent i uniformly in the disk or ball until it is clear of the others; False if that never happens."""
    D = positions.shape[1]
    depth = 1 if D == 3 else 0
    for _ in range(PLACES_PER_AGENT):
        square = math.inf
        while square > radius * radius:
            square = 0.0
            for d in range(D):
                positions[i, d] = radius * (2.0 * rng.random() - 1.0)
                square += positions[i, d] * positions[i, d]
        x = _cell(positions, i, radius, side, across, 0)
        y = _cell(positions, i, radius, side, across, 1)
        z = _cell(positions, i, radius, side, across, 2) if D == 3 else 0
        clear = True
        for zz in range(max(z - depth, 0), min(z + depth, (across - 1) * depth) + 1):
            for yy in range(max(y - 1, 0), min(y + 1, across - 1) + 1):
                for xx in range(max(x - 1, 0), min(x + 1, across - 1) + 1):
                    j = heads[(zz * across + yy) * across + xx]
                    while j >= 0 and clear:
                        square = 0.0
                        for d in range(D):
                            square += (positions[i, d] - positions[j, d]) ** 2
                        clear = square >= min_separation * min_separation
                        j = links[j]
        if clear:
            cell = (z * across + y) * across + x
            links[i] = heads[cell]
            heads[cell] = i
            return True
    return False


@kernel
def _remove(
    positions: Array, i: int, radius: float, side: float, across: int, heads: Array, links: Array
) -> None:
    """Take agent i off the grid."""
    cell = 0
    for d in range(positions.shape[1] - 1, -1, -1):
        cell = cell * across + _cell(positions, i, radius, side, across, d)
    if heads[cell] == i:
        heads[cell] = links[i]
        return
    j = heads[cell]
    while links[j] != i:
        j = links[j]
    links[j] = links[i]


@kernel
def _number_by_cell(positions: Array, comm_radius: float) -> None:
    """Renumber agents cell by cell, so that those who hear each other are near each other in memory."""
    order, starts, bucket = cell_list(positions.shape[0])
    sort_into_cells(positions, comm_radius, order, starts, bucket)
    positions[:] = positions[order]
