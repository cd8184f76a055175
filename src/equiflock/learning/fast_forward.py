"""The data of fast-forward behaviour cloning (section 4.2 of the paper, "Behavior cloning with fast-forwarding").

The generalization bound needs independent samples, and the steps of one flight are not independent. So every tuple
(observations, expert's accelerations) comes from a flock of its own, which the expert flew from t = 0 to the tuple's
time index. The data does not depend on any network: it is made once, before any training.

    config.json    the numbers, and versions
    sum.npy        observations by the paper's channels, summed, (S, B, N, K, C, D): S time indices, B flocks for each
    mean.npy       observations by the paper's channels, averaged, of the same flocks
    own.npy        observations by channels of one's own, in place of these two
    targets.npy    the expert's accelerations, (S, B, N, D)
    parts/         one mark for each time index that is done, with the checksum of its slices of all arrays

At every time index the first flocks are for training and the rest for the test.
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

from equiflock.controllers import load
from equiflock.features import Aggregation, Channel, HopMean, Senses, paper_senses
from equiflock.learning.partitioned_arrays import PartitionedArrays, fill_parts
from equiflock.learning.recipe import EXPERT
from equiflock.protocols import Controller
from equiflock.runtime import threads
from equiflock.runtime.checks import InputError, check_choice, check_count, check_positive
from equiflock.runtime.checksums import DamagedError, VersionMismatchError
from equiflock.runtime.files import check_writable, lock_dir
from equiflock.runtime.provenance import CONFIG, claim_run_dir, read_config, read_package_versions
from equiflock.scenarios.random_disk import RandomDisk, VelocityRule
from equiflock.senses.aggregation import DelayedAggregation
from equiflock.simulation.flight_builder import flight

Split = Literal["train", "test"]
DIMENSIONS = 2
KIND = "fast-forward data set"
"""The kind of folder that its config names."""


@dataclass(frozen=True)
class FastForward:
    """The settings of a data set. The defaults are the paper's: 201 x (150 + 250) = 80,400 tuples."""

    seed: int = 0
    """Seeds the initial conditions."""
    train_flocks: int = 150
    """How many training flocks there are for every time index."""
    test_flocks: int = 250
    """How many test flocks there are for every time index."""
    steps: int = 200
    """The largest time index; the first is 0."""
    agents: int = 100
    """N, the agents of a flock."""
    hops: int = 3
    """K, the hops of the observations."""
    time_step: float = 0.01
    """Seconds per step."""
    comm_radius: float = 1.0
    """R, within which agents hear each other."""
    expert: str = EXPERT
    """The controller to learn from, as for `load`."""
    channels: tuple[Channel, ...] | None = None
    """The channels of the observations, as for `Senses`; if left out the paper's, once summed and once averaged."""
    velocities: VelocityRule = "entries"
    """How velocities are drawn at t = 0, as for `RandomDisk`."""
    hop_mean: HopMean = "receiver"
    """By whose degree the sums of hops 2 .. K are divided, as for `Senses`."""

    def __post_init__(self) -> None:
        if self.channels is not None:
            object.__setattr__(self, "channels", Senses(self.channels).channels)
        for name in ("train_flocks", "test_flocks", "agents", "hops"):
            check_count(name, getattr(self, name))
        for name in ("seed", "steps"):
            check_count(name, getattr(self, name), least=0)
        for name in ("time_step", "comm_radius"):
            check_positive(name, getattr(self, name))
        for name, words in (("velocities", VelocityRule), ("hop_mean", HopMean)):
            check_choice(name, getattr(self, name), get_args(words))

    @property
    def flocks(self) -> int:
        """B, the flocks of every time index."""
        return self.train_flocks + self.test_flocks

    @property
    def index_count(self) -> int:
        """S, how many time indices there are."""
        return self.steps + 1

    @property
    def senses(self) -> dict[str, Senses]:
        """The senses of each array of observations, by its name."""
        if self.channels is not None:
            return {"own": Senses(self.channels, self.hops, hop_mean=self.hop_mean)}
        return {kind: paper_senses(kind, self.hops, hop_mean=self.hop_mean) for kind in get_args(Aggregation)}

    def disk(self, step: int) -> RandomDisk:
        """The initial conditions of the flocks of this time index; no two indices share a flock."""
        numbers = self.flocks, self.agents, self.seed, f"fast-forward {step}"
        return RandomDisk(*numbers, comm_radius=self.comm_radius, velocities=self.velocities)

    def compute_part(self, step: int) -> dict[str, Float32[np.ndarray, ...]]:
        """The tuples of one time index: sum and mean, each (B, N, K, C, D), and targets, (B, N, D)."""
        expert: Controller = load(self.expert)
        sensing = {name: DelayedAggregation(senses) for name, senses in self.senses.items()}
        found: dict[str, Float32[np.ndarray, ...]] = {}
        loop = flight(self.disk(step).draw(), expert, time_step=self.time_step)
        for moment in islice(loop, step + 1):
            # Observations of K hops depend on the last K moments only, so earlier ones need not be sensed.
            if moment.step > step - self.hops:
                found |= {name: each.observe(moment.flock) for name, each in sensing.items()}
        found["targets"] = moment.accelerations.astype(np.float32)
        return found

    def make(
        self,
        folder: str | os.PathLike[str] | None = None,
        workers: int | None = None,
        on_part: Callable[[int], object] = lambda step: None,
        on_notice: Callable[[str], object] = lambda text: None,
    ) -> FastForwardData:
        """Make the data, or those parts of it that are missing or damaged.

        Args:
            folder: where it is kept, memory-mapped; an interrupted call is continued there. In memory if left out.
            workers: how many time indices are made at once, each on a thread; one per core if left out. The result
                does not depend on it.
            on_part: called with every time index that is done, or was before.
            on_notice: called with a line of text about damaged parts, which are made again.
        """
        workers = check_count("workers", threads.count() if workers is None else workers)
        if folder is None:
            arrays = {name: np.empty(shape, np.float32) for name, shape in self.shapes.items()}
            fill_parts(arrays, range(self.index_count), self.compute_part, workers, on_part)
            return FastForwardData(self, arrays)
        folder = Path(folder)
        check_writable(folder / CONFIG)
        folder.mkdir(parents=True, exist_ok=True)
        parts = PartitionedArrays(folder, self.shapes)
        with lock_dir(folder, wait=True):  # a second process waits, and then finds it done
            parts.remove_if_config_damaged(on_notice)
            claim_run_dir(folder, KIND, {"fast_forward": asdict(self), "versions": read_package_versions()})
            found = parts.check_parts()
            if found.damaged:
                on_notice(f"{folder} is damaged at {found.damage_summary} time indices; they are made again")
            for step in sorted(found.intact):
                on_part(step)
            missing = set(range(self.index_count)) - found.intact
            if missing:
                mapped = parts.open_for_writing(missing)

                def commit_part(step: int) -> None:
                    parts.commit_part(mapped, step)
                    on_part(step)

                fill_parts(mapped, missing, self.compute_part, workers, commit_part)
        return FastForwardData(self, parts.open_arrays("r"))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the arrays, by their names."""
        tuples = self.index_count, self.flocks, self.agents
        return {
            **{name: (*tuples, senses.hops, senses.width, DIMENSIONS) for name, senses in self.senses.items()},
            "targets": (*tuples, DIMENSIONS),
        }


class FastForwardData:
    """Tuples of independent flocks, in memory or mapped from disk.

    Args:
        recipe: the settings that they were made by.
        arrays: observations and targets, by the names and shapes of `FastForward.shapes`.
    """

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
        """The data that `FastForward.make` kept in a folder: checked now, then mapped into memory."""
        folder = Path(folder)
        recipe = _read_recipe(folder / CONFIG)
        parts = PartitionedArrays(folder, recipe.shapes)
        found = parts.check_parts()
        if found.damaged:
            raise DamagedError(f"{folder} is damaged at {found.damage_summary} time indices: make it again to mend it")
        missing = recipe.index_count - len(found.intact)
        if missing:
            raise InputError(f"{folder} lacks {missing} of {recipe.index_count} time indices: make it again to go on")
        return cls(recipe, parts.open_arrays("r"))

    def __len__(self) -> int:
        """How many tuples there are."""
        return self.recipe.index_count * self.recipe.flocks

    @property
    def hops(self) -> int:
        """K, the hops of the observations."""
        return self.recipe.hops

    @property
    def samples(self) -> int:
        """m, the number of training tuples."""
        return self.recipe.index_count * self.recipe.train_flocks

    def get_block(
        self, step: int, split: Split, channels: tuple[Channel, ...]
    ) -> tuple[Float32[np.ndarray, "b N K C D"], Float32[np.ndarray, "b N D"]]:
        """Observations and targets of all training or test tuples of one time index."""
        check_choice("split", split, ("train", "test"))
        first = self.recipe.train_flocks
        part = slice(None, first) if split == "train" else slice(first, None)
        return self.arrays[self.find_array_name(channels)][step, part], self.arrays["targets"][step, part]

    def get_tuples(
        self, batch_indices: Int64[np.ndarray, " b"], channels: tuple[Channel, ...]
    ) -> tuple[Float32[np.ndarray, "b N K C D"], Float32[np.ndarray, "b N D"]]:
        """Observations and targets of the training tuples with these indices, from 0 to `samples` - 1."""
        where = np.divmod(batch_indices, self.recipe.train_flocks)
        return self.arrays[self.find_array_name(channels)][where], self.arrays["targets"][where]

    def largest_input(self, channels: tuple[Channel, ...]) -> float:
        """The largest |Z_i|_F of any agent in any tuple, for observations with these channels."""
        return self._largest_norms[self.find_array_name(channels)]

    def find_array_name(self, channels: tuple[Channel, ...]) -> str:
        """The name of the array of observations with these channels; a clear error if there is none."""
        for name, senses in self.recipe.senses.items():
            if senses.channels == channels:
                return name
        has = " or ".join(str(senses.channels) for senses in self.recipe.senses.values())
        raise InputError(f"the data has the channels {has}, not {channels}: make it with FastForward(channels=...)")

    @property
    def largest_target(self) -> float:
        """The largest norm of the expert's acceleration."""
        return self._largest_norms["targets"]

    @cached_property
    def _largest_norms(self) -> dict[str, float]:
        found = {}
        for name, array in self.arrays.items():
            squares = 0.0  # one time index after the other, as the whole may not fit into memory
            for step in range(self.recipe.index_count):
                vectors = np.asarray(array[step]).reshape(self.recipe.flocks * self.recipe.agents, -1)
                squares = np.maximum(squares, np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64).max())
            if not np.isfinite(squares):
                raise InputError(f"the data's {name} holds NaN or infinity")
            found[name] = math.sqrt(squares)
        return found


def _read_recipe(path: Path) -> FastForward:
    try:
        settings = read_config(path.parent)["fast_forward"]
        if set(settings) != {field.name for field in fields(FastForward)}:
            raise KeyError("fields")
        return FastForward(**settings)
    except (DamagedError, VersionMismatchError):
        raise
    except FileNotFoundError:
        raise InputError(f"{path.parent} is not a folder of fast-forward data: there is no config.json") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} does not say what the data is: {error!r}") from None
