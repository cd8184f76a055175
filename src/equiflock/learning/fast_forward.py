"""The data of fast-forward behaviour cloning (section 4.2 of the paper, "Behavior cloning with fast-forwarding").

The generalization bound needs independent samples, and the steps of one flight are not independent. Therefore every
tuple (observations, expert's accelerations) comes from a different flock, which the expert flew from t = 0 to the
tuple's time index. The data does not depend on any network: it is made once, before any training.

    config.json    settings and versions
    sum.npy        observations with the paper's channels, summed, (S, B, N, K, C, D): S time indices, B flocks each
    mean.npy       observations with the paper's channels, averaged, of the same flocks
    own.npy        observations with custom channels, instead of sum.npy and mean.npy
    targets.npy    the expert's accelerations, (S, B, N, D)
    parts/         a file per completed time index with the checksum of its slices of all arrays

At every time index, the first flocks are for training and the others for testing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float32, Int64

from equiflock._runtime import threads
from equiflock._runtime.checks import InputError, check_choice, check_count, check_positive
from equiflock._runtime.checksums import DamagedError, VersionMismatchError
from equiflock._runtime.files import check_writable, lock_dir
from equiflock._runtime.partitioned_arrays import PartitionedArrays, fill_parts
from equiflock._runtime.provenance import CONFIG, claim_run_dir, read_config, read_package_versions
from equiflock.controllers import load
from equiflock.features import Aggregation, Channel, HopMean, Senses, paper_senses
from equiflock.flock import check_comm_radius
from equiflock.learning.recipe import EXPERT
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.protocols import Controller
from equiflock.scenarios.random_disk import RandomDisk, VelocityRule
from equiflock.simulation.flight_builder import flight

Split = Literal["train", "test"]
DIMENSIONS = 2
KIND = "fast-forward data set"
"""Kind of directory, as named in config.json."""


@dataclass(frozen=True)
class FastForward:
    """Settings of a data set. The defaults are the paper's: 201 x (150 + 250) = 80,400 tuples."""

    seed: int = 0
    """Seed of the initial conditions."""
    train_flocks: int = 150
    """Number of training flocks per time index."""
    test_flocks: int = 250
    """Number of test flocks per time index."""
    steps: int = 200
    """Largest time index; the first is 0."""
    agents: int = 100
    """N, the number of agents per flock."""
    hops: int = 3
    """K, the number of hops of the observations."""
    time_step: float = 0.01
    """Seconds per step."""
    comm_radius: float = 1.0
    """R, the communication radius."""
    expert: str = EXPERT
    """Controller to imitate, as for `load`."""
    channels: tuple[Channel, ...] | None = None
    """Channels of the observations, as for `Senses`; default: the paper's, both summed and averaged."""
    velocities: VelocityRule = "entries"
    """Distribution of the velocities at t = 0, as for `RandomDisk`."""
    hop_mean: HopMean = "receiver"
    """Whose degree divides the sums of hops 2 .. K, as for `Senses`."""

    def __post_init__(self) -> None:
        if self.channels is not None:
            object.__setattr__(self, "channels", Senses(self.channels).channels)
        for name in ("train_flocks", "test_flocks", "agents", "hops"):
            check_count(name, getattr(self, name))
        for name in ("seed", "steps"):
            check_count(name, getattr(self, name), least=0)
        check_positive("time_step", self.time_step)
        check_comm_radius(self.comm_radius)
        for name, words in (("velocities", VelocityRule), ("hop_mean", HopMean)):
            check_choice(name, getattr(self, name), get_args(words))

    @property
    def flocks(self) -> int:
        """B, the number of flocks per time index."""
        return self.train_flocks + self.test_flocks

    @property
    def index_count(self) -> int:
        """S, the number of time indices."""
        return self.steps + 1

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays by name."""
        leading = self.index_count, self.flocks, self.agents
        return {
            **{name: (*leading, senses.hops, senses.width, DIMENSIONS) for name, senses in self.senses.items()},
            "targets": (*leading, DIMENSIONS),
        }

    @property
    def senses(self) -> dict[str, Senses]:
        """Senses of each observation array by name."""
        if self.channels is not None:
            return {"own": Senses(self.channels, self.hops, hop_mean=self.hop_mean)}
        return {kind: paper_senses(kind, self.hops, hop_mean=self.hop_mean) for kind in get_args(Aggregation)}

    def build_disk(self, step: int) -> RandomDisk:
        """Return the settings of the initial conditions of one time index's flocks; no two indices share a flock."""
        arguments = self.flocks, self.agents, self.seed, f"fast-forward {step}"
        return RandomDisk(*arguments, comm_radius=self.comm_radius, velocities=self.velocities)

    def compute_part(self, step: int) -> dict[str, Float32[np.ndarray, ...]]:
        """Fly the flocks of one time index under the expert from t = 0 to that index; return the tuples by array name.

        Observations are (B, N, K, C, D), and "targets", the expert's accelerations, (B, N, D).
        """
        expert: Controller = load(self.expert)
        sensing = {name: DelayedAggregation(senses) for name, senses in self.senses.items()}
        part: dict[str, Float32[np.ndarray, ...]] = {}
        loop = flight(self.build_disk(step).draw(), expert, time_step=self.time_step)
        for moment in islice(loop, step + 1):
            # Observations of K hops depend only on the last K moments, so earlier ones are skipped.
            if moment.step > step - self.hops:
                part |= {name: aggregation.observe(moment.flock) for name, aggregation in sensing.items()}
        part["targets"] = moment.accelerations.astype(np.float32)
        return part

    def make(
        self,
        folder: str | os.PathLike[str] | None = None,
        workers: int | None = None,
        on_part: Callable[[int], object] = lambda step: None,
        on_notice: Callable[[str], object] = lambda text: None,
    ) -> FastForwardData:
        """Make the data, or those time indices of it that are missing or damaged, and return all of it.

        With a folder, wait while another process writes there, and raise InputError if it holds data of other settings.

        Args:
            folder: directory of the memory-mapped data, where an interrupted call continues; default: in memory.
            workers: number of threads, each of which computes one time index at a time; default: one per core. The
                result does not depend on it.
            on_part: called with every completed time index, including those of earlier calls.
            on_notice: called with a line of text about damaged parts, which are recomputed.
        """
        workers = check_count("workers", threads.count() if workers is None else workers)
        if folder is None:
            arrays = {name: np.empty(shape, np.float32) for name, shape in self.shapes.items()}
            fill_parts(arrays, range(self.index_count), self.compute_part, workers, on_part)
            return FastForwardData(self, arrays)
        folder = Path(folder)
        check_writable(folder / CONFIG)
        folder.mkdir(parents=True, exist_ok=True)
        parts = PartitionedArrays(folder, self.shapes, repr(self))
        with lock_dir(folder, wait=True):  # a second process waits and then finds the data complete
            parts.remove_if_config_damaged(on_notice)
            claim_run_dir(folder, KIND, {"fast_forward": asdict(self), "versions": read_package_versions()})
            status = parts.check_parts()
            if status.damaged:
                on_notice(f"{folder} is damaged at {status.damage_summary} time indices; they are recomputed")
            for step in sorted(status.intact):
                on_part(step)
            missing = set(range(self.index_count)) - status.intact
            if missing:
                mapped = parts.open_for_writing(missing)

                def commit_part(step: int) -> None:
                    parts.commit_part(mapped, step)
                    on_part(step)

                fill_parts(mapped, missing, self.compute_part, workers, commit_part)
        return FastForwardData(self, parts.open_arrays("r"))


class FastForwardData:
    """Tuples of independent flocks, in memory or mapped from disk, with the shapes of `FastForward.shapes`."""

    def __init__(self, recipe: FastForward, arrays: Mapping[str, Float32[np.ndarray, ...]]) -> None:
        self.recipe = recipe
        for name, shape in recipe.shapes.items():
            if arrays[name].shape != shape or arrays[name].dtype != np.float32:
                raise InputError(
                    f"{name} must be float32 of shape {shape}; got {arrays[name].dtype} of shape {arrays[name].shape}"
                )
        self.arrays = arrays

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> FastForwardData:
        """Map the data that `FastForward.make` wrote to a directory into memory, after comparing all checksums."""
        folder = Path(folder)
        recipe = _read_recipe(folder / CONFIG)
        parts = PartitionedArrays(folder, recipe.shapes, repr(recipe))
        status = parts.check_parts()
        if status.damaged:
            raise DamagedError(
                f"{folder} is damaged at {status.damage_summary} time indices: call FastForward.make again to repair it"
            )
        missing = recipe.index_count - len(status.intact)
        if missing:
            raise InputError(
                f"{folder} lacks {missing} of {recipe.index_count} time indices: call FastForward.make again to "
                "complete it"
            )
        return cls(recipe, parts.open_arrays("r"))

    def __len__(self) -> int:
        """Return the number of tuples of both splits."""
        return self.recipe.index_count * self.recipe.flocks

    @property
    def hops(self) -> int:
        """K, the number of hops of the observations."""
        return self.recipe.hops

    @property
    def samples(self) -> int:
        """m, the number of training tuples."""
        return self.recipe.index_count * self.recipe.train_flocks

    def get_block(
        self, step: int, split: Split, channels: tuple[Channel, ...]
    ) -> tuple[Float32[np.ndarray, "b N K C D"], Float32[np.ndarray, "b N D"]]:
        """Return observations and targets of all training or test tuples of one time index."""
        check_choice("split", split, ("train", "test"))
        train_flocks = self.recipe.train_flocks
        flocks = slice(None, train_flocks) if split == "train" else slice(train_flocks, None)
        return self.arrays[self.find_array_name(channels)][step, flocks], self.arrays["targets"][step, flocks]

    def get_tuples(
        self, batch_indices: Int64[np.ndarray, " b"], channels: tuple[Channel, ...]
    ) -> tuple[Float32[np.ndarray, "b N K C D"], Float32[np.ndarray, "b N D"]]:
        """Return observations and targets of the training tuples with these indices, from 0 to `samples` - 1."""
        step_and_flock = np.divmod(batch_indices, self.recipe.train_flocks)
        return self.arrays[self.find_array_name(channels)][step_and_flock], self.arrays["targets"][step_and_flock]

    def largest_input(self, channels: tuple[Channel, ...]) -> float:
        """Return the largest |Z_i|_F of any agent in any tuple, for observations with these channels."""
        return self._largest_norms[self.find_array_name(channels)]

    def find_array_name(self, channels: tuple[Channel, ...]) -> str:
        """Return the name of the array of observations with these channels; raise InputError if there is none."""
        for name, senses in self.recipe.senses.items():
            if senses.channels == channels:
                return name
        available = " or ".join(str(senses.channels) for senses in self.recipe.senses.values())
        raise InputError(
            f"the data has the channels {available}, not {channels}: make it with FastForward(channels=...)"
        )

    @property
    def largest_target(self) -> float:
        """Largest norm of the expert's acceleration."""
        return self._largest_norms["targets"]

    @cached_property
    def _largest_norms(self) -> dict[str, float]:
        """Largest norm over all tuples, training and test, and agents of each array; raise InputError if not finite."""
        norms = {}
        for name, array in self.arrays.items():
            squares = 0.0  # one time index at a time, because the whole array may not fit into memory
            for step in range(self.recipe.index_count):
                vectors = np.asarray(array[step]).reshape(self.recipe.flocks * self.recipe.agents, -1)
                squares = np.maximum(squares, np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64).max())
            if not np.isfinite(squares):
                raise InputError(f"the data's {name} holds NaN or infinity")
            norms[name] = math.sqrt(squares)
        return norms


def _read_recipe(path: Path) -> FastForward:
    """Read the settings of a data set from config.json; raise InputError if it is missing, damaged or another kind."""
    try:
        settings = read_config(path.parent)["fast_forward"]
        if set(settings) != {field.name for field in fields(FastForward)}:
            raise KeyError("fields")
        return FastForward(**settings)
    except (DamagedError, VersionMismatchError):
        raise
    except FileNotFoundError:
        raise InputError(f"{path.parent} is not a directory of fast-forward data: there is no config.json") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} does not hold the settings of fast-forward data: {error!r}") from None
