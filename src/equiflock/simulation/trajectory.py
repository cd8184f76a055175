"""The trajectory of a flight: frames with labelled axes, recorded series, and settings; saved as a zarr store."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64, Int8, Int64
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, check_positive, format_names, shorten_repr
from equiflock._runtime.checksums import compute_checksum, matches_checksum, read_json, write_json
from equiflock._runtime.files import atomic_write, check_absent, delay_sigint
from equiflock._runtime.memory import ReadOnlyDict
from equiflock.flock import MAX_MAGNITUDE, Condition, Flock, Groups, ObstacleIds, Roles, check_comm_radius
from equiflock.outcomes import Outcome
from equiflock.simulation.flight_log import LogFrames, read_flight_log, write_flight_log
from equiflock.version import __version__

if TYPE_CHECKING:
    import xarray


CHUNK_BYTES = 16 * 2**20
"""Size of a chunk of a zarr store, which is written in a fraction of a second, so that Ctrl-C takes effect."""
FORMAT = "equiflock trajectory 4"
CHECKSUM = "checksum"
CHECKSUMS_FILE = "checksums.json"
"""File with the checksums of all trajectories in its folder."""
SERIES_PREFIX, BODY_PREFIX = "series_", "body_"
"""Prefixes of the names of series and of body state arrays in a dataset."""
FRAME_ARRAYS = "positions", "velocities", "accelerations", "conditions"
"""Names of the arrays that change from frame to frame."""
STATIC_ARRAYS = "roles", "obstacles", "groups"
"""Names of the arrays that do not."""


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory:
    """The result of `simulate`: F frames of B flocks, and numbers recorded at each of T steps."""

    times: Float64[np.ndarray, " F"]
    """Times of the frames in seconds; of every step, unless fewer were kept (then F - 1 < T)."""
    positions: Float64[np.ndarray, "F B N D"]
    velocities: Float64[np.ndarray, "F B N D"]
    accelerations: Float64[np.ndarray, "F-1 B N D"]
    """Commanded after each frame but the last."""
    conditions: Int8[np.ndarray, "F B N"]
    """Values of `Condition`: working agents, and how the others have failed."""
    roles: Roles
    """(B, N), as in `Flock`; so are `obstacles` and `groups`."""
    obstacles: ObstacleIds
    groups: Groups
    steps: Int64[np.ndarray, " B"]
    """Number of steps that each flock flew; later frames of a flock repeat its last state."""
    outcomes: Int8[np.ndarray, " B"]
    """Codes of `Outcome`."""
    time_step: float
    """dt, in seconds."""
    comm_radius: float
    """R, the communication radius."""
    series: Mapping[str, Float64[np.ndarray, "steps B"]] = field(default_factory=dict)
    """Values recorded at every step by name, (T + 1, B)."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the run, with JSON types."""
    body_state: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Body state beyond position and velocity, such as headings, by name, (F, B, N, ..)."""

    def __post_init__(self) -> None:
        # Arrays are read-only, so that a reader cannot change the trajectory.
        arrays = [getattr(self, name) for name in ("times", *FRAME_ARRAYS, *STATIC_ARRAYS, "steps", "outcomes")]
        for array in (*arrays, *self.series.values(), *self.body_state.values()):
            array.setflags(write=False)
        # Mappings are read-only, too: `dataclasses.replace` makes a trajectory with further series.
        object.__setattr__(self, "series", ReadOnlyDict(self.series))
        object.__setattr__(self, "body_state", ReadOnlyDict(self.body_state))

    @property
    def outcome(self) -> tuple[Outcome, ...]:
        """The outcome of each flock's flight."""
        return tuple(Outcome(code) for code in self.outcomes.tolist())

    @property
    def has_every_step(self) -> bool:
        """Whether there is a frame for every step of the flight."""
        return len(self.times) == round(float(self.times[-1]) / self.time_step) + 1

    def flock(self, frame: int = -1) -> Flock:
        """Return the flock at a frame; default: the last."""
        static = (getattr(self, name) for name in STATIC_ARRAYS)
        arrays = self.positions[frame], self.velocities[frame], *static, self.conditions[frame]
        return Flock.view(*arrays, comm_radius=self.comm_radius)

    def body_state_at(self, frame: int = -1) -> dict[str, NDArray[Any]]:
        """Return the body state at a frame, name -> (B, N, ..); default: the last."""
        return {name: values[frame] for name, values in self.body_state.items()}

    def __getitem__(self, flock: int) -> Trajectory:
        """Return the trajectory of one flock as a batch of one; raise IndexError if there is no such flock."""
        # Negative and wrong indices have the meaning that they have for a list.
        b = range(len(self.steps))[flock]
        which = slice(b, b + 1)
        return replace(
            self,
            **{name: getattr(self, name)[:, which] for name in FRAME_ARRAYS},
            **{name: getattr(self, name)[which] for name in STATIC_ARRAYS},
            steps=self.steps[which],
            outcomes=self.outcomes[which],
            series={name: values[:, which] for name, values in self.series.items()},
            body_state={name: values[:, which] for name, values in self.body_state.items()},
        )

    def __repr__(self) -> str:
        frames, B, N, D = self.positions.shape
        return f"Trajectory({frames} frames to t = {self.times[-1]:g}, B={B}, N={N:,}, D={D})"

    def to_xarray(self) -> xarray.Dataset:
        """Return the trajectory as a dataset with dimensions frame, flock, agent, axis (and step, for series)."""
        import xarray

        # Accelerations lie between frames, so their first dimension is another: interval.
        vectors = ("frame", "flock", "agent", "axis")
        variables: dict[str, Any] = {
            "positions": (vectors, self.positions),
            "velocities": (vectors, self.velocities),
            "accelerations": (("interval", *vectors[1:]), self.accelerations),
            "conditions": (vectors[:3], self.conditions),
            **{name: (("flock", "agent"), getattr(self, name)) for name in STATIC_ARRAYS},
            "steps": ("flock", self.steps),
            "outcomes": ("flock", self.outcomes),
        }
        # Series have every step, frames may not, so their first dimension is another: step.
        for name, values in self.series.items():
            variables[f"{SERIES_PREFIX}{name}"] = (("step", "flock"), values)
        # Body state may have further dimensions of any size.
        for name, values in self.body_state.items():
            extra = (f"{name}_{k}" for k in range(values.ndim - 3))
            variables[f"{BODY_PREFIX}{name}"] = ((*vectors[:3], *extra), values)
        coordinates = {"time": ("frame", self.times), "axis": list("xyz"[: self.positions.shape[-1]])}
        # Zarr stores attributes as JSON. Outcomes that a scenario added are stored with code, name and text.
        attributes = {
            "format": FORMAT,
            "time_step": self.time_step,
            "comm_radius": self.comm_radius,
            "config": json.dumps(dict(self.config)),
            "outcomes": json.dumps(
                {int(o): [o.name, o.message] for o in sorted(set(self.outcome)) if o.is_user_defined}
            ),
        }
        data = xarray.Dataset(variables, coordinates, attributes)
        return data.assign_attrs({CHECKSUM: compute_checksum(*_list_content(data))})

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the trajectory as a zarr store; `path` does not exist until all is written. Return the path.

        Raise InputError if `path` exists.
        """
        check_absent(path)
        with atomic_write(path) as scratch:
            write_zarr(self.to_xarray(), scratch)
        return Path(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trajectory:
        """Read a trajectory that `save` wrote, and register its user-defined outcomes.

        Raise InputError if there is none at this path, or it is damaged or of another version.
        """
        import xarray

        if not isinstance(path, (str, os.PathLike)):
            raise InputError(f"path must be a string or a path; got {shorten_repr(path)}")
        source = Path(path)
        if not source.exists():
            raise InputError(f"no trajectory at {source}: there is no such file or folder")
        try:
            data = xarray.open_zarr(source, zarr_format=2, consolidated=True).load()
        except Exception as error:  # a foreign or damaged store can raise anything in xarray and zarr
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"{source} is not a trajectory that can be read: {reason}") from None
        # Check the format first: an older trajectory is not damaged.
        file_format = data.attrs.get("format")
        if file_format != FORMAT:
            is_other_version = isinstance(file_format, str) and file_format.startswith(FORMAT[:-1])
            raise InputError(
                f"{source} is a trajectory of another version, {file_format!r}, but this one reads {FORMAT!r}: "
                "simulate it again"
                if is_other_version
                else f"{source} is not a trajectory of equiflock: its format is {file_format!r}, expected {FORMAT!r}"
            )
        try:
            return _from_dataset(data)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{source} is a damaged trajectory: {error}") from None

    def to_csv(self, path: str | os.PathLike[str]) -> Path:
        """Write the frames of one flock as a flight log, which `from_csv` reads again; return the path.

        The file appears when it is complete. It has the agents' states, roles and conditions to the steps that the
        flock flew, but no series, settings, groups, indices of obstacles or further body state. Raise InputError if
        `path` exists, or for several flocks.
        """
        if len(self.steps) > 1:
            raise InputError(
                f"a flight log has one flock; got {len(self.steps)}: choose one, such as run[0].to_csv(..)"
            )
        check_absent(path)
        # Later frames repeat the last state. Half a step allows for the rounding of times.
        count = int(np.count_nonzero(self.times < (int(self.steps[0]) + 0.5) * self.time_step))
        names = self.config.get("agents")
        indices = list(range(self.roles.shape[1]))
        frames = LogFrames(
            times=self.times[:count],
            positions=self.positions[:count, 0],
            velocities=self.velocities[:count, 0],
            accelerations=self.accelerations[: count - 1, 0],
            conditions=self.conditions[:count, 0],
            roles=self.roles[0],
            agents=names if isinstance(names, list) and len(names) == len(indices) else indices,
        )
        write_flight_log(frames, Path(path))
        return Path(path)

    @classmethod
    def from_csv(
        cls,
        path: str | os.PathLike[str],
        *,
        comm_radius: float,
        time_step: float | None = None,
        max_gap: float | None = None,
    ) -> Trajectory:
        """Read a flight log, such as that of real robots: a CSV file with a row per agent and time.

            log = Trajectory.from_csv("flight.csv", comm_radius=3.0)

        Columns, by header, in any order: `time` in seconds (or t, timestamp), `agent`, an integer or a name (or id,
        robot), `x`, `y`, and `z` in space. Optional ones: `vx`, `vy`, `vz`, `ax`, `ay`, `az`, `role` (follower, leader,
        obstacle; default: followers) and `condition` (working, silent, stopped, drifting). Others are ignored.

        Each agent may log at its own times. The frames have a fixed step, from the first time at which all agents have
        logged (`config["start_time"]`, t = 0 of the trajectory) to the last. Positions and velocities are interpolated
        linearly; without columns, velocities are central differences of the positions. Accelerations and conditions are
        those of an agent's last sample; without columns, accelerations are the realised ones, (v(t + dt) - v(t)) / dt.
        Agents are sorted; `config["agents"]` lists their names by index.

        Raise InputError, with the line, if the log is invalid.

        Args:
            path: the log.
            comm_radius: R of the robots' radio, which a log does not have.
            time_step: dt of the frames, in seconds; default: the median interval between an agent's samples.
            max_gap: longest time that an agent may be without a sample, in seconds; default: 5 time steps.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise InputError(f"path must be a string or a path; got {shorten_repr(path)}")
        radius = check_comm_radius(comm_radius)
        frames, settings = read_flight_log(Path(path), time_step, max_gap)
        F, N = frames.conditions.shape
        roles = np.broadcast_to(frames.roles, (F, N))
        try:
            # A batch of all frames, of which the constructor checks each.
            flocks = Flock(frames.positions, frames.velocities, roles, conditions=frames.conditions, comm_radius=radius)
        except InputError as error:
            raise InputError(f"{path} has a frame that is no flock: {error}") from None
        static = {name: getattr(flocks, name)[:1].copy() for name in STATIC_ARRAYS}
        return cls(
            times=frames.times,
            positions=frames.positions[:, None],
            velocities=frames.velocities[:, None],
            accelerations=frames.accelerations[:, None],
            conditions=frames.conditions[:, None],
            **static,
            steps=np.array([F - 1]),
            outcomes=np.array([Outcome.TIME_UP], np.int8),
            time_step=settings["time_step"],
            comm_radius=radius,
            config={**settings, "comm_radius": radius, "equiflock": __version__},
        )


def load_trajectories(path: str | os.PathLike[str]) -> list[Trajectory]:
    """Load all *.zarr in a folder in the order of their names or, if there are none, the trajectory at the path.

    Raise InputError if one is damaged, or if they are not those that `write_checksums` saw in the folder.
    """
    source = Path(path)
    stores = sorted(source.glob("*.zarr"))
    record = source / CHECKSUMS_FILE
    checksums = read_json(record) if stores and record.is_file() else {}
    names = {store.name for store in stores}
    if checksums and set(checksums) != names:
        raise InputError(
            f"{source} must have the flights that were saved there, {format_names(sorted(checksums))}; got "
            f"{format_names(sorted(names))}: restore them, or remove {record}"
        )
    trajectories = [Trajectory.load(store) for store in stores or [source]]
    for store in stores if checksums else ():
        if checksums[store.name] != _read_checksum(store):
            raise InputError(f"{store} is not the flight that was saved there: move it elsewhere, or remove {record}")
    return trajectories


def write_checksums(folder: Path) -> None:
    """Write the checksums of all *.zarr in a folder, so that `load_trajectories` detects replaced ones."""
    write_json({store.name: _read_checksum(store) for store in folder.glob("*.zarr")}, folder / CHECKSUMS_FILE)


def _read_checksum(store: Path) -> str:
    """Return the checksum in the metadata of a trajectory, which `Trajectory.load` compares with the content."""
    return str(json.loads((store / ".zmetadata").read_bytes())["metadata"][".zattrs"][CHECKSUM])


def write_zarr(data: xarray.Dataset, path: Path) -> None:
    """Write a dataset for `xarray.open_zarr`, in zarr format 2 with consolidated metadata.

    Replaces a store at `path`. Not atomic: write to the temporary path of `atomic_write`.
    """
    import zarr

    with delay_sigint():
        group = zarr.open_group(path, mode="w", zarr_format=2, attributes=dict(data.attrs))
    for name, variable in data.variables.items():
        # Write whole rows of the first axis, as many as fit into a chunk.
        values = variable.values
        row_bytes = max(values.itemsize * math.prod(values.shape[1:]), 1)
        rows = max(CHUNK_BYTES // row_bytes, 1)
        with delay_sigint():
            array: Any = group.create_array(
                str(name),
                shape=values.shape,
                dtype=values.dtype,
                chunks=(min(rows, max(len(values), 1)), *(max(size, 1) for size in values.shape[1:])),
                fill_value=None,  # readers interpret any other value as missing
                attributes={"_ARRAY_DIMENSIONS": [str(name) for name in variable.dims]},
            )
        for first in range(0, len(values), rows):
            # zarr writes in a background thread, which an interruption would leave running.
            with delay_sigint():
                array[first : first + rows] = np.ascontiguousarray(values[first : first + rows])
    with delay_sigint():
        zarr.consolidate_metadata(path, zarr_format=2)


def _list_content(data: xarray.Dataset) -> list[bytes | memoryview]:
    """Return what a checksum covers, all data, names, types and shapes: zarr reads a missing chunk as zeros."""
    # Attributes in the order of their names, except the checksum itself.
    settings = {name: value for name, value in data.attrs.items() if name != CHECKSUM}
    parts: list[bytes | memoryview] = [json.dumps(settings, sort_keys=True).encode()]
    # Then name, dimensions, type, shape and bytes of every array.
    for name in sorted(map(str, data.variables)):
        array = np.ascontiguousarray(data[name].values)
        if array.dtype.kind == "U":
            array = np.asarray(array.tolist(), "S")  # names of axes, which readers return as different string types
        parts.append(f"{name} {data[name].dims} {array.dtype.str} {array.shape}".encode())
        parts.append(array.reshape(-1).view(np.uint8).data)
    return parts


def _from_dataset(data: xarray.Dataset) -> Trajectory:
    """Return the trajectory in a dataset; raise KeyError, TypeError or ValueError if it is damaged."""
    if not matches_checksum(data.attrs.get(CHECKSUM), *_list_content(data)):
        raise ValueError("its checksum does not match")
    trajectory = Trajectory(
        times=data["time"].values,
        **{name: data[name].values for name in (*FRAME_ARRAYS, *STATIC_ARRAYS, "steps")},
        outcomes=_map_outcomes(data),
        time_step=check_positive("time_step", data.attrs["time_step"]),
        comm_radius=check_comm_radius(data.attrs["comm_radius"]),
        series=_select_variables(data, SERIES_PREFIX),
        config=dict(json.loads(data.attrs["config"])),
        body_state=_select_variables(data, BODY_PREFIX),
    )
    # A checksum proves that the file is unchanged, not that this program wrote it.
    frames, B, N, D = trajectory.positions.shape
    shapes_fit = (
        trajectory.velocities.shape == (frames, B, N, D)
        and trajectory.accelerations.shape == (frames - 1, B, N, D)
        and all(getattr(trajectory, name).shape == (B, N) for name in STATIC_ARRAYS)
        and trajectory.conditions.shape == (frames, B, N)
        and 0 <= trajectory.conditions.min() <= trajectory.conditions.max() < len(Condition)
        and trajectory.steps.shape == trajectory.outcomes.shape == (B,)
        and trajectory.times.shape == (frames,)
        and all(values.shape[:3] == (frames, B, N) for values in trajectory.body_state.values())
    )
    # NaN fails the comparison. Kernels of metrics need the range in every frame.
    values_fit = all((np.abs(array) <= MAX_MAGNITUDE).all() for array in (trajectory.positions, trajectory.velocities))
    if not (shapes_fit and values_fit and np.isfinite(trajectory.times).all()):
        raise ValueError("shapes or values do not fit together")
    # The constructor checks roles and the numbers of obstacles and groups; `Flock.view` does not.
    Flock(*trajectory.flock().arrays, comm_radius=trajectory.comm_radius)
    return trajectory


def _select_variables(data: xarray.Dataset, prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names have the prefix, by their names without it."""
    names = [str(name) for name in data.data_vars]
    return {name.removeprefix(prefix): data[name].values for name in names if name.startswith(prefix)}


def _map_outcomes(data: xarray.Dataset) -> Int8[np.ndarray, " B"]:
    """Return the outcomes (B,) with the codes of this process, which may differ for outcomes that scenarios added.

    Outcomes that this process does not know by name are added.
    """
    # Codes of added outcomes depend on the order of adding, so match them by name; the text may have changed since.
    added = json.loads(data.attrs["outcomes"])
    by_name = {outcome.name: outcome for outcome in Outcome.all()}
    codes = {int(code): int(by_name.get(name) or Outcome.add(name, text)) for code, (name, text) in added.items()}
    mapped = [codes.get(code, code) for code in data["outcomes"].values.tolist()]
    return np.array([int(Outcome(code)) for code in mapped], np.int8)
