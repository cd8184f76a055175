"""A flight that was kept: frames with labelled axes, and the settings that made them."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64, Int8, Int64
from numpy.typing import NDArray

from equiflock.files import check_new, uninterrupted, written_whole
from equiflock.types import Flock, InputError, Outcome, Roles, check_positive

if TYPE_CHECKING:
    import xarray

FORMAT = "equiflock trajectory 1"


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory:
    """What `simulate` returns: F kept frames of B flocks, and numbers recorded at each of T steps.

    Attributes:
        times: (F,) of the frames, in seconds; every step's unless fewer were kept (then F - 1 is below T).
        positions: (F, B, N, D).
        velocities: (F, B, N, D).
        accelerations: (F - 1, B, N, D), what the agents did after each frame but the last.
        roles: (B, N), values of `Role`.
        steps: (B,), how many steps each flock flew; later frames of a flock repeat its last state.
        outcomes: (B,), values of `Outcome`.
        time_step: dt, in seconds.
        radius: the communication radius R.
        series: name -> (T + 1, B), what was recorded at every step.
        config: the settings of the run, as JSON would hold them.
    """

    times: Float64[np.ndarray, " F"]
    positions: Float64[np.ndarray, "F B N D"]
    velocities: Float64[np.ndarray, "F B N D"]
    accelerations: Float64[np.ndarray, "F-1 B N D"]
    roles: Roles
    steps: Int64[np.ndarray, " B"]
    outcomes: Int8[np.ndarray, " B"]
    time_step: float
    radius: float
    series: Mapping[str, Float64[np.ndarray, "steps B"]] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for array in (self.times, self.positions, self.velocities, self.accelerations, self.roles):
            array.setflags(write=False)

    @property
    def outcome(self) -> tuple[Outcome, ...]:
        """How each flock's flight ended."""
        return tuple(Outcome(code) for code in self.outcomes.tolist())  # type: ignore[call-arg]

    @property
    def every_step(self) -> bool:
        """Whether the frames are all the steps of the flight."""
        return len(self.times) == round(float(self.times[-1]) / self.time_step) + 1

    def flock(self, frame: int = -1) -> Flock:
        """The flock at one of the frames, the last by default."""
        return Flock.view(self.positions[frame], self.velocities[frame], self.roles)

    def __getitem__(self, flock: int) -> Trajectory:
        """One flock of the batch, as a trajectory of its own."""
        b = range(len(self.steps))[flock]
        one = slice(b, b + 1)
        return replace(
            self,
            positions=self.positions[:, one],
            velocities=self.velocities[:, one],
            accelerations=self.accelerations[:, one],
            roles=self.roles[one],
            steps=self.steps[one],
            outcomes=self.outcomes[one],
            series={name: values[:, one] for name, values in self.series.items()},
        )

    def __repr__(self) -> str:
        frames, B, N, D = self.positions.shape
        return f"Trajectory({frames} frames to t = {self.times[-1]:g}, B={B}, N={N:,}, D={D})"

    def to_xarray(self) -> xarray.Dataset:
        """The trajectory as a dataset with dimensions frame, flock, agent, axis (and step, for series)."""
        import xarray

        vectors = ("frame", "flock", "agent", "axis")
        variables: dict[str, Any] = {
            "positions": (vectors, self.positions),
            "velocities": (vectors, self.velocities),
            "accelerations": (("interval", *vectors[1:]), self.accelerations),
            "roles": (("flock", "agent"), self.roles),
            "steps": ("flock", self.steps),
            "outcomes": ("flock", self.outcomes),
        }
        for name, values in self.series.items():
            variables[f"series_{name}"] = (("step", "flock"), values)
        checksums = {name: _checksum(array) for name, (_, array) in variables.items()}
        coordinates = {"time": ("frame", self.times), "axis": list("xyz"[: self.positions.shape[-1]])}
        attributes = {
            "format": FORMAT,
            "time_step": self.time_step,
            "radius": self.radius,
            "config": json.dumps(dict(self.config)),
            "checksums": json.dumps(checksums),
        }
        return xarray.Dataset(variables, coordinates, attributes)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the trajectory as a zarr store; nothing stands under `path` until all is written."""
        check_new(path)
        with uninterrupted(), written_whole(path) as scratch:
            self.to_xarray().to_zarr(scratch, zarr_format=2, consolidated=True)
        return Path(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trajectory:
        """Read a trajectory that `save` wrote; anything else is refused with a clear error."""
        import xarray

        source = Path(path)
        if not source.exists():
            raise InputError(f"no trajectory at {source}: there is no such file or folder")
        try:
            data = xarray.open_zarr(source, zarr_format=2, consolidated=True).load()
        except Exception as error:  # whatever a foreign or damaged store makes the readers raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"{source} is not a trajectory that can be read: {reason}") from None
        return _from_dataset(data, source)


def load_flights(path: str | os.PathLike[str]) -> list[Trajectory]:
    """The trajectory at a path or, if it is a folder of trajectories, all those in it, in the order of their names."""
    source = Path(path)
    inside = sorted(source.glob("*.zarr"))
    return [Trajectory.load(store) for store in inside or [source]]


def _checksum(array: NDArray[Any]) -> int:
    """Tells whether an array is the one that was written: zarr reads a missing piece as zeros."""
    content: Any = np.ascontiguousarray(array)
    return zlib.crc32(content)


def _from_dataset(data: xarray.Dataset, source: Path) -> Trajectory:
    if data.attrs.get("format") != FORMAT:
        raise InputError(
            f"{source} is not a trajectory of this program: its format is {data.attrs.get('format')!r}, "
            f"expected {FORMAT!r}"
        )
    try:
        for name, checksum in json.loads(data.attrs["checksums"]).items():
            if _checksum(data[name].values) != checksum:
                raise ValueError(f"{name} is not what was written")
        names = ("positions", "velocities", "accelerations", "roles", "steps", "outcomes")
        positions, velocities, accelerations, roles, steps, outcomes = (data[name].values for name in names)
        times = data["time"].values
        series = {str(n)[7:]: data[n].values for n in data.data_vars if str(n).startswith("series_")}
        config = dict(json.loads(data.attrs["config"]))
        time_step = check_positive("time_step", data.attrs["time_step"])
        radius = check_positive("radius", data.attrs["radius"])
        frames, B, N, D = positions.shape
        shapes_fit = (
            velocities.shape == positions.shape
            and accelerations.shape == (frames - 1, B, N, D)
            and roles.shape == (B, N)
            and steps.shape == outcomes.shape == (B,)
            and times.shape == (frames,)
        )
        if not (shapes_fit and np.isfinite(times).all() and set(np.unique(outcomes)) <= set(Outcome)):
            raise ValueError("shapes or values do not fit together")
        Flock(positions[-1], velocities[-1], roles)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{source} is a damaged trajectory: {error}") from None
    return Trajectory(
        times, positions, velocities, accelerations, roles, steps, outcomes, time_step, radius, series, config
    )
