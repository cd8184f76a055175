"""A flight that was kept: frames with labelled axes, and the settings that made them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64, Int8, Int64
from numpy.typing import NDArray

from equiflock.flock import Condition, Flock, Groups, ObstacleIds, Roles
from equiflock.outcomes import Outcome
from equiflock.runtime.arrays import ReadOnlyDict
from equiflock.runtime.checks import InputError, check_positive, shorten_repr
from equiflock.runtime.checksums import compute_checksum
from equiflock.runtime.files import atomic_write, check_absent
from equiflock.runtime.zarr_store import write_zarr

if TYPE_CHECKING:
    import xarray

FORMAT = "equiflock trajectory 4"
CHECKSUM = "checksum"
BODY_PREFIX = "body_"
"""Begins the names of arrays of what bodies remembered."""
FRAME_ARRAYS, STATIC_ARRAYS = (
    ("positions", "velocities", "accelerations", "conditions"),
    ("roles", "obstacles", "groups"),
)
"""The names of the arrays that change from frame to frame, and of those that describe the agents and do not."""


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory:
    """What `simulate` returns: F kept frames of B flocks, and numbers recorded at each of T steps.

    Attributes:
        times: (F,) of the frames, in seconds; every step's unless fewer were kept (then F - 1 is below T).
        positions: (F, B, N, D).
        velocities: (F, B, N, D).
        accelerations: (F - 1, B, N, D), what the agents were commanded to do after each frame but the last.
        conditions: (F, B, N), values of `Condition`: who worked, and how others had failed.
        roles: (B, N), values of `Role`.
        obstacles: (B, N), the number of each obstacle agent's obstacle, as in `Flock`.
        groups: (B, N), the social group of each agent, as in `Flock`.
        steps: (B,), how many steps each flock flew; later frames of a flock repeat its last state.
        outcomes: (B,), codes of `Outcome`.
        time_step: dt, in seconds.
        comm_radius: the communication radius R.
        series: name -> (T + 1, B), what was recorded at every step.
        config: the settings of the run, as JSON would hold them.
        body_state: name -> (F, B, N, ..), what bodies remembered beyond position and velocity, such as headings.
    """

    times: Float64[np.ndarray, " F"]
    positions: Float64[np.ndarray, "F B N D"]
    velocities: Float64[np.ndarray, "F B N D"]
    accelerations: Float64[np.ndarray, "F-1 B N D"]
    conditions: Int8[np.ndarray, "F B N"]
    roles: Roles
    obstacles: ObstacleIds
    groups: Groups
    steps: Int64[np.ndarray, " B"]
    outcomes: Int8[np.ndarray, " B"]
    time_step: float
    comm_radius: float
    series: Mapping[str, Float64[np.ndarray, "steps B"]] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    body_state: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Arrays are read-only, so that what is read from the trajectory stays what was flown.
        arrays = [getattr(self, name) for name in ("times", *FRAME_ARRAYS, *STATIC_ARRAYS, "steps", "outcomes")]
        for array in (*arrays, *self.series.values(), *self.body_state.values()):
            array.setflags(write=False)
        # Nor can a series be added later: `dataclasses.replace` makes another trajectory with it.
        object.__setattr__(self, "series", ReadOnlyDict(self.series))
        object.__setattr__(self, "body_state", ReadOnlyDict(self.body_state))

    @property
    def outcome(self) -> tuple[Outcome, ...]:
        """How each flock's flight ended."""
        return tuple(Outcome(code) for code in self.outcomes.tolist())

    @property
    def has_every_step(self) -> bool:
        """Whether the frames are all the steps of the flight."""
        return len(self.times) == round(float(self.times[-1]) / self.time_step) + 1

    def flock(self, frame: int = -1) -> Flock:
        """The flock at one of the frames, the last by default."""
        crew = *(getattr(self, name) for name in STATIC_ARRAYS), self.conditions[frame]
        return Flock.view(self.positions[frame], self.velocities[frame], *crew, comm_radius=self.comm_radius)

    def body_state_at(self, frame: int = -1) -> dict[str, NDArray[Any]]:
        """What bodies remembered at one of the frames, the last by default: name -> (B, N, ..)."""
        return {name: values[frame] for name, values in self.body_state.items()}

    def __getitem__(self, flock: int) -> Trajectory:
        """One flock of the batch, as a trajectory of its own."""
        # Through a range, so that negative and wrong indices behave like those of a list.
        b = range(len(self.steps))[flock]
        one = slice(b, b + 1)
        return replace(
            self,
            **{name: getattr(self, name)[:, one] for name in FRAME_ARRAYS},
            **{name: getattr(self, name)[one] for name in STATIC_ARRAYS},
            steps=self.steps[one],
            outcomes=self.outcomes[one],
            series={name: values[:, one] for name, values in self.series.items()},
            body_state={name: values[:, one] for name, values in self.body_state.items()},
        )

    def __repr__(self) -> str:
        frames, B, N, D = self.positions.shape
        return f"Trajectory({frames} frames to t = {self.times[-1]:g}, B={B}, N={N:,}, D={D})"

    def to_xarray(self) -> xarray.Dataset:
        """The trajectory as a dataset with dimensions frame, flock, agent, axis (and step, for series)."""
        import xarray

        # Accelerations lie between frames, so they have an axis of their own.
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
        # Series have every step, frames perhaps not, so these axes differ too.
        for name, values in self.series.items():
            variables[f"series_{name}"] = (("step", "flock"), values)
        # Whatever further axes a body's memory has are its own.
        for name, values in self.body_state.items():
            own = (f"{name}_{k}" for k in range(values.ndim - 3))
            variables[f"{BODY_PREFIX}{name}"] = ((*vectors[:3], *own), values)
        coordinates = {"time": ("frame", self.times), "axis": list("xyz"[: self.positions.shape[-1]])}
        # Zarr keeps attributes as JSON. Outcomes that a scenario added are written with name and text beside the code.
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
        return data.assign_attrs({CHECKSUM: _compute_checksum(data)})

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the trajectory as a zarr store; nothing stands under `path` until all is written."""
        check_absent(path)
        with atomic_write(path) as scratch:
            write_zarr(self.to_xarray(), scratch)
        return Path(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trajectory:
        """Read a trajectory that `save` wrote; anything else is refused with a clear error."""
        import xarray

        if not isinstance(path, (str, os.PathLike)):
            raise InputError(f"a trajectory is loaded from a path; got {shorten_repr(path)}")
        source = Path(path)
        if not source.exists():
            raise InputError(f"no trajectory at {source}: there is no such file or folder")
        try:
            data = xarray.open_zarr(source, zarr_format=2, consolidated=True).load()
        except Exception as error:  # whatever a foreign or damaged store makes the readers raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"{source} is not a trajectory that can be read: {reason}") from None
        return _from_dataset(data, source)


def load_trajectories(path: str | os.PathLike[str]) -> list[Trajectory]:
    """The trajectory at a path or, if it is a folder of trajectories, all those in it, in the order of their names."""
    source = Path(path)
    inside = sorted(source.glob("*.zarr"))
    return [Trajectory.load(store) for store in inside or [source]]


def _compute_checksum(data: xarray.Dataset) -> str:
    """A checksum of all data, names, types and shapes in a dataset, as zarr reads a missing chunk as zeros."""
    # Attributes in the order of their names, except the checksum itself.
    settings = {name: value for name, value in data.attrs.items() if name != CHECKSUM}
    parts: list[bytes | memoryview] = [json.dumps(settings, sort_keys=True).encode()]
    # Then every array: what it is, and its bytes.
    for name in sorted(map(str, data.variables)):
        array = np.ascontiguousarray(data[name].values)
        if array.dtype.kind == "U":
            array = np.asarray(array.tolist(), "S")  # names of axes, whatever kind of text they were read as
        parts.append(f"{name} {data[name].dims} {array.dtype.str} {array.shape}".encode())
        parts.append(array.reshape(-1).view(np.uint8).data)
    return compute_checksum(*parts)


def _from_dataset(data: xarray.Dataset, source: Path) -> Trajectory:
    """The trajectory in a dataset that was read from `source`, or a clear error."""
    # The format is looked at first: an older trajectory is no damaged one.
    if data.attrs.get("format") != FORMAT:
        written = data.attrs.get("format")
        ours = isinstance(written, str) and written.startswith(FORMAT[:-1])
        raise InputError(
            f"{source} is a trajectory of another version, {written!r}, and this one reads {FORMAT!r}: fly it again"
            if ours
            else f"{source} is not a trajectory of this program: its format is {written!r}, expected {FORMAT!r}"
        )
    try:
        if _compute_checksum(data) != data.attrs.get(CHECKSUM):
            raise ValueError("its checksum does not fit")
        # Then everything is rebuilt; whatever is missing or of the wrong kind raises here.
        arrays = {name: data[name].values for name in (*FRAME_ARRAYS, *STATIC_ARRAYS, "steps")}
        times, positions = data["time"].values, arrays["positions"]
        time_step = check_positive("time_step", data.attrs["time_step"])
        comm_radius = check_positive("comm_radius", data.attrs["comm_radius"])
        frames, B, N, D = positions.shape
        found = Trajectory(
            times=times,
            **arrays,
            outcomes=_map_outcomes(data),
            time_step=time_step,
            comm_radius=comm_radius,
            series={str(n)[7:]: data[n].values for n in data.data_vars if str(n).startswith("series_")},
            config=dict(json.loads(data.attrs["config"])),
            body_state={
                str(n)[len(BODY_PREFIX) :]: data[n].values for n in data.data_vars if str(n).startswith(BODY_PREFIX)
            },
        )
        # A checksum proves that the file is as written, not that it was written by this program.
        shapes_fit = (
            found.velocities.shape == positions.shape
            and found.accelerations.shape == (frames - 1, B, N, D)
            and all(arrays[name].shape == (B, N) for name in STATIC_ARRAYS)
            and found.conditions.shape == (frames, B, N)
            and 0 <= found.conditions.min() <= found.conditions.max() < len(Condition)
            and found.steps.shape == found.outcomes.shape == (B,)
            and times.shape == (frames,)
            and all(values.shape[:3] == (frames, B, N) for values in found.body_state.values())
        )
        if not (shapes_fit and np.isfinite(times).all()):
            raise ValueError("shapes or values do not fit together")
        crew = *(arrays[name] for name in STATIC_ARRAYS), found.conditions[-1]
        # Making a checked flock of the last frame finds roles and numbers that no flock may have.
        Flock(positions[-1], found.velocities[-1], *crew, comm_radius=comm_radius)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{source} is a damaged trajectory: {error}") from None
    return found


def _map_outcomes(data: xarray.Dataset) -> Int8[np.ndarray, " B"]:
    """The outcomes by the codes that they have here; those that a scenario named itself may have had others."""
    # Codes of added outcomes depend on the order of adding, so they are found by name; the text may have changed since.
    named = json.loads(data.attrs["outcomes"])
    known = {outcome.name: outcome for outcome in Outcome.all()}
    codes = {int(code): int(known.get(name) or Outcome.add(name, text)) for code, (name, text) in named.items()}
    own = [codes.get(code, code) for code in data["outcomes"].values.tolist()]
    return np.array([int(Outcome(code)) for code in own], np.int8)
