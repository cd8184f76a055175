"""Flight logs: CSV files with a row per agent and time, read onto a common time grid, and written.

A log has a header, and columns in any order: `time` (s), `agent` (an integer or a name), `x`, `y`, in space `z`; and
optionally `vx`, `vy`, `vz`, `ax`, `ay`, `az`, `role` (follower, leader, obstacle) and `condition` (working, silent,
stopped, drifting). Other columns are ignored. Each agent may log at its own times.

Times are kept relative to that of the first row, which is subtracted in decimal arithmetic: near a Unix time of
1.7e9 s, numbers in float64 are 0.24 microseconds apart.
"""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, check_positive, shorten_repr
from equiflock._runtime.checksums import compute_checksum
from equiflock._runtime.files import atomic_write
from equiflock._runtime.memory import check_fits_memory
from equiflock.flock import MAX_MAGNITUDE, Condition, Role

Floats: TypeAlias = NDArray[np.float64]

ALIASES = {"t": "time", "timestamp": "time", "id": "agent", "robot": "agent"}
"""Further names of columns. Capital letters count as small ones."""
CODES = {
    name: {code.name.lower(): int(code) for code in kind} for name, kind in (("role", Role), ("condition", Condition))
}
"""Columns of words, with the code of each word."""
POSITION, VELOCITY, ACCELERATION = (tuple(f"{prefix}{axis}" for axis in "xyz") for prefix in ("", "v", "a"))
"""Columns of the vectors of a row; in the plane the first two."""
MAX_GAP_STEPS = 5
"""Default of `max_gap`, in time steps."""
SNAP_STEPS = 1e-6
"""Samples so close to a time of the grid, in steps, are moved to it, so that rounded times do not change values."""
SNAP_ULPS = 2
"""Samples are also moved if they are so close, in units of the last place of the log's largest time in float64: their
logger may have rounded them to it."""
MEMORY_FACTOR = 5
"""Bound of the memory of samples over the size of their file: a number of two characters takes eight bytes."""


class LogFrames(NamedTuple):
    """The frames of one flock, as in `Trajectory` but without the axis B, and the names of its agents."""

    times: Floats
    positions: Floats
    """(F, N, D); so are the velocities."""
    velocities: Floats
    accelerations: Floats
    """(F - 1, N, D)."""
    conditions: NDArray[np.int8]
    """(F, N)."""
    roles: NDArray[np.int8]
    """(N,)."""
    agents: list[int] | list[str]
    """Names of the agents in the order of their indices: sorted, integers by value."""


class _Column(NamedTuple):
    """A column of a log that is read."""

    name: str
    place: int
    """Index in a row."""
    values: array[Any]
    parse: Callable[[str], float]
    """Raises KeyError or ValueError for a wrong field."""
    expected: str


class _Clock:
    """Parses times as seconds after the first valid one, the origin."""

    def __init__(self) -> None:
        self.origin = Decimal(0)
        self._has_origin = False

    def parse(self, text: str) -> float:
        """Return the time after the origin; raise ValueError if the text is not a number."""
        try:
            time = Decimal(text)
            if not self._has_origin and time.is_finite() and abs(time) <= MAX_MAGNITUDE:
                self.origin, self._has_origin = time, True
            return float(time - self.origin)
        except DecimalException:
            raise ValueError from None


@dataclass(frozen=True)
class _AgentSamples:
    """The samples of one agent in the order of their times."""

    name: int | str
    lines: NDArray[np.int64]
    """Their lines in the file."""
    columns: dict[str, Any]
    """Arrays by the names of columns; words as codes."""
    origin: float
    """Time of the log's first row, in seconds."""

    @property
    def times(self) -> Floats:
        """Times of the samples, in seconds after the origin."""
        return np.asarray(self.columns["time"])

    def stack(self, names: Sequence[str]) -> Floats:
        """Return the vectors (samples, D) of these columns."""
        return np.stack([self.columns[name] for name in names], axis=1)


def read_flight_log(path: Path, time_step: float | None, max_gap: float | None) -> tuple[LogFrames, dict[str, Any]]:
    """Return the frames of a log, and their settings with JSON types; `Trajectory.from_csv` describes the arguments.

    Raise InputError if the log or an argument is invalid.
    """
    agents, checksum = _read_agents(path)
    for agent in agents:
        _check_times(agent, path)
        if "role" in agent.columns:
            _check_role(agent, path)
    step = _estimate_time_step(agents) if time_step is None else check_positive("time_step", time_step)
    gap = MAX_GAP_STEPS * step if max_gap is None else check_positive("max_gap", max_gap)
    tolerance = max(SNAP_STEPS * step, _find_resolution(agents))
    start, end = _find_common_span(agents, step, tolerance, path)
    for agent in agents:
        _check_gaps(agent, start, end, gap, tolerance, path)
    grid = _make_grid(end - start + tolerance, step, agents, path)
    frames = _resample(agents, start, grid, tolerance, path)
    columns = agents[0].columns
    settings = {
        "controller": path.name,
        "source": path.name,
        "checksum": checksum,
        "agents": frames.agents,
        "start_time": agents[0].origin + start,
        "log_duration": float(max(each.times[-1] for each in agents) - min(each.times[0] for each in agents)),
        "time_step": step,
        "duration": float(frames.times[-1]),
        "max_gap": gap,
        "velocities": "logged" if VELOCITY[0] in columns else "differences",
        "accelerations": "logged" if ACCELERATION[0] in columns else "realised",
    }
    return frames, settings


def write_flight_log(frames: LogFrames, path: Path) -> None:
    """Write frames as a log, by an atomic replacement of `path`: a row per frame and agent, in full precision.

    The last frame has no accelerations. There is a column `condition` if an agent has failed.
    """
    D = frames.positions.shape[2]
    header = ["time", "agent", *POSITION[:D], *VELOCITY[:D], *ACCELERATION[:D], "role"]
    words = [_list_words("role", frames.roles)]
    has_failures = bool(frames.conditions.any())
    with atomic_write(path) as scratch, scratch.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*header, "condition"] if has_failures else header)
        for k, time in enumerate(frames.times.tolist()):
            states = np.concatenate([frames.positions[k], frames.velocities[k]], axis=1).tolist()
            is_last = k == len(frames.accelerations)
            commands = [[""] * D] * len(states) if is_last else frames.accelerations[k].tolist()
            frame_words = [*words, _list_words("condition", frames.conditions[k])] if has_failures else words
            for agent, state, command, *own in zip(frames.agents, states, commands, *frame_words, strict=True):
                writer.writerow([time, agent, *state, *command, *own])


def _list_words(column: str, codes: NDArray[np.int8]) -> list[str]:
    """Return the words of codes of roles or conditions."""
    words = {code: word for word, code in CODES[column].items()}
    return [words[code] for code in codes.tolist()]


# Reading rows.


def _read_agents(path: Path) -> tuple[list[_AgentSamples], str]:
    """Return the samples of all agents, and the checksum of the file; raise InputError if a line is invalid."""
    if not path.is_file():
        raise InputError(f"no flight log at {path}: there is no such file")
    advice = "log fewer samples per second, or split the log"
    check_fits_memory(f"reading {path}", MEMORY_FACTOR * path.stat().st_size, advice)
    content = path.read_bytes()
    reader = csv.reader(io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline=""), skipinitialspace=True)
    lines, indices, clock = array("q"), dict[str, int](), _Clock()
    try:
        header = next(reader, [])
        columns = _make_columns(header, indices, clock, path)
        for row in reader:
            if row:
                _add_row(row, len(header), columns, f"{path}, line {reader.line_num}")
                lines.append(reader.line_num)
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a flight log: it must be text in UTF-8") from None
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error}") from None
    if not lines:
        raise InputError(f"{path} must have rows below its header; got none")
    arrays = {column.name: np.asarray(column.values) for column in columns}
    agents = _split_agents(arrays, np.asarray(lines), list(indices), float(clock.origin), path)
    return agents, compute_checksum(content)


def _make_columns(header: Sequence[str], indices: dict[str, int], clock: _Clock, path: Path) -> list[_Column]:
    """Return the columns to read; agents are numbered in `indices`. Raise InputError if one is missing or repeated."""
    names = [ALIASES.get(word, word) for word in (word.strip().lower() for word in header)]
    known = ("time", "agent", *POSITION, *VELOCITY, *ACCELERATION, *CODES)
    found = {name: names.index(name) for name in known if name in names}
    for name in found:
        if names.count(name) > 1:
            raise InputError(f"{path} must have one column for {name!r}; got {names.count(name)}")
    # A vector has an entry per dimension of space.
    D = 3 if any(vector[2] in found for vector in (POSITION, VELOCITY, ACCELERATION)) else 2
    optional = (vector[:D] for vector in (VELOCITY, ACCELERATION) if found.keys() & set(vector))
    required = ["time", "agent", *POSITION[:D], *(name for vector in optional for name in vector)]
    missing = [name for name in required if name not in found]
    if missing:
        raise InputError(f"{path} must have the columns {', '.join(required)}; its header lacks {', '.join(missing)}")
    return [_make_column(name, place, indices, clock) for name, place in found.items()]


def _make_column(name: str, place: int, indices: dict[str, int], clock: _Clock) -> _Column:
    """Return a column by its name and its index in a row."""
    if name == "time":
        return _Column(name, place, array("d"), clock.parse, "a number")
    if name == "agent":
        return _Column(name, place, array("q"), lambda text: _number_agent(text, indices), "an integer or a name")
    if name in CODES:
        codes = CODES[name]
        return _Column(name, place, array("b"), lambda text: codes[text.strip().lower()], f"one of {', '.join(codes)}")
    # No acceleration follows an agent's last sample; `_check_numbers` finds all others that are missing.
    parse: Callable[[str], float] = float if name not in ACCELERATION else lambda text: float(text or "nan")
    return _Column(name, place, array("d"), parse, "a number")


def _number_agent(text: str, indices: dict[str, int]) -> int:
    """Return the index of an agent by its name; raise ValueError for an empty name."""
    name = text.strip()
    if not name:
        raise ValueError
    return indices.setdefault(name, len(indices))


def _add_row(row: Sequence[str], width: int, columns: Sequence[_Column], place: str) -> None:
    """Append the fields of a row to the columns; raise InputError if the row or a field is wrong."""
    if len(row) != width:
        raise InputError(f"{place}: must have {width} fields, as the header; got {len(row)}")
    for column in columns:
        text = row[column.place]
        try:
            column.values.append(column.parse(text))
        except (KeyError, ValueError):
            raise InputError(f"{place}: {column.name} must be {column.expected}; got {shorten_repr(text)}") from None


def _split_agents(
    columns: dict[str, Any], lines: NDArray[np.int64], names: list[str], origin: float, path: Path
) -> list[_AgentSamples]:
    """Return the samples of each agent in the order of rows; agents are sorted, as integers if all are integers."""
    try:
        keys: list[Any] = [int(name) for name in names]
        if len(set(keys)) < len(keys):  # such as 7 and 07
            keys = names
    except ValueError:
        keys = names
    # Rows in the order of agents; the sort is stable.
    order = np.argsort(columns["agent"], kind="stable")
    ends = np.cumsum(np.bincount(columns["agent"]))
    samples = []
    for name, rows in zip(keys, np.split(order, ends[:-1]), strict=True):
        own = {key: values[rows] for key, values in columns.items()}
        samples.append(_AgentSamples(name, lines[rows], own, origin))
        _check_numbers(samples[-1], path)
    return sorted(samples, key=lambda agent: agent.name)


# Checks of samples.


def _check_numbers(agent: _AgentSamples, path: Path) -> None:
    """Raise InputError if a number is NaN or too large; an agent's last acceleration may be missing."""
    for name, column in agent.columns.items():
        values = column + agent.origin if name == "time" else column
        limit = float(np.finfo(np.float64).max) if name in ACCELERATION else MAX_MAGNITUDE
        fits = np.abs(values) <= limit  # NaN fails the comparison
        if name in ACCELERATION:
            fits[-1] |= np.isnan(values[-1])
        if not fits.all():
            k = int(np.argmin(fits))
            expected = f"a finite number of at most {limit:g}"
            raise InputError(f"{path}, line {agent.lines[k]}: {name} must be {expected}; got {values[k]:g}")


def _check_times(agent: _AgentSamples, path: Path) -> None:
    """Raise InputError if an agent has a single sample, or its times do not increase."""
    if len(agent.lines) < 2:
        text = f"agent {agent.name!r} has a single sample, and needs two: leave it out"
        raise InputError(f"{path}, line {agent.lines[0]}: {text}")
    times = agent.times
    wrong = np.flatnonzero(np.diff(times) <= 0)
    if len(wrong):
        k = int(wrong[0]) + 1
        time, last = agent.origin + times[k], agent.origin + times[k - 1]
        relation = "twice" if times[k] == times[k - 1] else f"after {last:.15g}"
        text = f"times of an agent must increase; agent {agent.name!r} has {time:.15g} {relation}"
        raise InputError(f"{path}, line {agent.lines[k]}: {text}")


def _check_role(agent: _AgentSamples, path: Path) -> None:
    """Raise InputError if an agent's role changes."""
    roles = agent.columns["role"]
    changed = np.flatnonzero(roles != roles[0])
    if len(changed):
        text = f"an agent must keep its role; agent {agent.name!r} has another than in line {agent.lines[0]}"
        raise InputError(f"{path}, line {agent.lines[changed[0]]}: {text}")


def _find_common_span(
    agents: Sequence[_AgentSamples], step: float, tolerance: float, path: Path
) -> tuple[float, float]:
    """Return the first and last time at which all agents have logged; raise InputError if they are not a step apart."""
    last, first = max(agents, key=lambda agent: agent.times[0]), min(agents, key=lambda agent: agent.times[-1])
    start, end = float(last.times[0]), float(first.times[-1])
    start_time, end_time = last.origin + start, last.origin + end
    if end < start:
        raise InputError(
            f"{path} must have times at which all agents log; agent {first.name!r} ends at {end_time:.15g} s, before "
            f"agent {last.name!r} begins at {start_time:.15g} s"
        )
    if end - start < step - tolerance:
        raise InputError(
            f"{path} must have all agents for at least one time step, {step:g} s; got {end - start:g} s, from "
            f"{start_time:.15g} s (agent {last.name!r}) to {end_time:.15g} s (agent {first.name!r})"
        )
    return start, end


def _check_gaps(agent: _AgentSamples, start: float, end: float, max_gap: float, tolerance: float, path: Path) -> None:
    """Raise InputError if an agent has no sample for longer than `max_gap` between start and end."""
    before, after = agent.times[:-1], agent.times[1:]
    too_long = np.flatnonzero((after - before > max_gap + tolerance) & (after > start) & (before < end))
    if len(too_long):
        k = int(too_long[0])
        last, following = agent.origin + before[k], agent.origin + after[k]
        raise InputError(
            f"{path}, line {agent.lines[k + 1]}: agent {agent.name!r} has no sample from {last:.15g} s to "
            f"{following:.15g} s, and may miss at most max_gap = {max_gap:g} s: raise max_gap, or leave the agent out"
        )


# The common grid.


def _find_resolution(agents: Sequence[_AgentSamples]) -> float:
    """Return a bound of the rounding of times, in seconds, by loggers that keep them in float64."""
    largest = max(abs(agent.origin + time) for agent in agents for time in agent.times[[0, -1]])
    return SNAP_ULPS * float(np.spacing(largest))


def _estimate_time_step(agents: Sequence[_AgentSamples]) -> float:
    """Return the median interval of all samples.

    If the first agent's samples are multiples of it, rounded to float64, return the shortest decimal that fits them.
    """
    times = agents[0].times
    first = float(times[1] - times[0])
    # A log that `write_flight_log` wrote, whose step is exact, while differences of its times are rounded.
    if np.array_equal(times - times[0], first * np.arange(len(times))):
        return first
    median = float(np.median(np.concatenate([np.diff(agent.times) for agent in agents])))
    resolution, steps = _find_resolution(agents), np.cumsum(np.rint(np.diff(times) / median))
    if steps[-1] < 1.0:
        return median
    even = float((times[-1] - times[0]) / steps[-1])
    is_even = (np.abs(times[1:] - times[0] - even * steps) <= resolution).all() and abs(even - median) <= resolution
    return _shorten_decimal(even, resolution / float(steps[-1])) if is_even else median


def _shorten_decimal(number: float, tolerance: float) -> float:
    """Return the number above 0 with the fewest decimals within a tolerance, which is smaller than the number."""
    candidates = (round(number, decimals) for decimals in range(18))
    return next((each for each in candidates if each > 0.0 and abs(each - number) <= tolerance), number)


def _make_grid(duration: float, step: float, agents: Sequence[_AgentSamples], path: Path) -> Floats:
    """Return the times of the frames within the duration; raise InputError if the frames exceed the memory."""
    steps = duration / step
    D = 3 if POSITION[2] in agents[0].columns else 2
    size = (steps + 1.0) * len(agents) * (3 * 8 * D + 1)
    check_fits_memory(f"keeping {steps + 1:,.0f} frames of {path}", size, "raise time_step")
    return np.arange(int(steps) + 1, dtype=np.float64) * step


def _resample(agents: Sequence[_AgentSamples], start: float, grid: Floats, tolerance: float, path: Path) -> LogFrames:
    """Return the frames at the times of the grid after `start`; raise InputError if differences exceed float64.

    Positions and velocities are interpolated linearly. Accelerations and conditions are those of the last sample.
    """
    columns, F, N = agents[0].columns, len(grid), len(agents)
    D = 3 if POSITION[2] in columns else 2
    step = float(grid[1])
    positions, velocities = np.empty((F, N, D)), np.empty((F, N, D))
    accelerations = np.empty((F - 1, N, D))
    conditions = np.zeros((F, N), np.int8)
    for i, agent in enumerate(agents):
        times = _snap_times(agent.times - start, step, tolerance)
        for d in range(D):
            positions[:, i, d] = np.interp(grid, times, agent.columns[POSITION[d]])
            if VELOCITY[d] in columns:
                velocities[:, i, d] = np.interp(grid, times, agent.columns[VELOCITY[d]])
        latest = np.searchsorted(times, grid, side="right") - 1
        if ACCELERATION[0] in columns:
            accelerations[:, i] = agent.stack(ACCELERATION[:D])[latest[:-1]]
        if "condition" in columns:
            conditions[:, i] = agent.columns["condition"][latest]
    with np.errstate(over="ignore", invalid="ignore"):
        if VELOCITY[0] not in columns:
            velocities = np.asarray(np.gradient(positions, step, axis=0))
        if ACCELERATION[0] not in columns:
            accelerations = np.diff(velocities, axis=0) / step
    if not np.isfinite(accelerations).all():
        raise InputError(f"{path} must have finite accelerations; got differences beyond float64: raise time_step")
    roles = [agent.columns["role"][0] if "role" in columns else 0 for agent in agents]
    names: Any = [agent.name for agent in agents]
    return LogFrames(grid, positions, velocities, accelerations, conditions, np.array(roles, np.int8), names)


def _snap_times(times: Floats, step: float, tolerance: float) -> Floats:
    """Return times after the start with those within the tolerance of a time of the grid moved to it."""
    nearest = np.rint(times / step) * step
    return np.asarray(np.where(np.abs(times - nearest) <= tolerance, nearest, times), np.float64)
