"""Damages to the files of runs: bits, lengths, lines, and copies of other files; the results must not change silently.

Each attempt copies a run, damages one file of it and uses it as a command would: a sweep or evaluation is run again, a
training or tuning continues, a data set, a weights file or saved flights are read. It is a fault if an exception other
than InputError or OSError, which the command line turns into one line, is raised, or if the result differs from that of
the undamaged run without a notice.
"""

from __future__ import annotations

import contextlib
import io
import random
import shutil
import tempfile
import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, ClassVar

import pytest

import equiflock as ef
from equiflock import cli
from equiflock._runtime.checks import InputError
from equiflock._runtime.files import remove_path
from equiflock.controllers.networks.weights import collect_tensors
from equiflock.controllers.trained import bundled_weights_path
from equiflock.learning.fast_forward import FastForward, FastForwardData
from equiflock.learning.training_run import TrainingRun
from equiflock.simulation.trajectory import load_trajectories
from equiflock.tuning.tuning_recipe import Tuning
from equiflock.tuning.tuning_run import TuningRun
from equiflock.viewer.flight_archive import save_flights
from tests._runtime.here import work_here
from tests.attacks import Attempt
from tests.damage import DAMAGES
from tests.learning.small import small
from tests.tuning.small import FLOCKING, tuned

SMALL_FLIGHTS = ("--flocks", "2", "--time-step", "0.01", "--duration", "0.05", "--workers", "1", "--out", "run")


class Target:
    """A kind of run: `build` makes one in an empty folder, `use` returns its result, which must not change."""

    patterns: ClassVar[tuple[str, ...]]
    """Files, and folders that count as one, that are damaged or exchanged."""
    has_own_config: ClassVar[bool] = True
    """Whether a config states which run it is, so that everything else cannot be that of another run."""

    @abstractmethod
    def build(self, folder: Path, seed: int) -> None:
        """Make a run of this seed."""

    @abstractmethod
    def use(self, folder: Path, on_notice: Callable[[str], object]) -> Any:
        """Use the run again, report notices, and return what it gives."""

    def list_parts(self, folder: Path) -> list[Path]:
        """Return what can be damaged, as relative paths."""
        return sorted({path.relative_to(folder) for pattern in self.patterns for path in folder.glob(pattern)})


class Sweep(Target):
    """A sweep over controllers and flock sizes by the command line, run again."""

    patterns = "run/jobs/*.csv", "run/config.json"

    def build(self, folder: Path, seed: int) -> None:
        self.use(folder, lambda text: None, seed)

    def use(self, folder: Path, on_notice: Callable[[str], object], seed: int = 0) -> Any:
        arguments = "--controller", "tanner,reynolds,etdagnn", "--agents", "8,10", "--seeds", str(seed)
        return run_command(
            folder, on_notice, "sweep", *arguments, *SMALL_FLIGHTS, results=("run/sweep.csv", "run/summary.csv")
        )


class Evaluation(Target):
    """An evaluation of a weights file by the command line, run again."""

    patterns = "run/jobs/*.csv", "run/config.json", "mine.safetensors"

    def build(self, folder: Path, seed: int) -> None:
        shutil.copy(bundled_weights_path("etdagnn", seed), folder / "mine.safetensors")
        self.use(folder, lambda text: None)

    def use(self, folder: Path, on_notice: Callable[[str], object]) -> Any:
        arguments = "mine.safetensors", "--agents", "20", *SMALL_FLIGHTS
        tables = [f"run/{name}.csv" for name in ("flocking", "flights", "summary", "comparison")]
        return run_command(folder, on_notice, "evaluate", *arguments, results=tuple(tables))


class FinishedTraining(Target):
    """A training that is finished."""

    patterns: ClassVar[tuple[str, ...]] = "config.json", "*.csv", "weights.safetensors", "checkpoints/*.safetensors"
    results = "weights.safetensors", "metrics.csv", "validation.csv"
    epochs = 6

    def build(self, folder: Path, seed: int) -> None:
        first = TrainingRun.create(folder.with_suffix(".first"), small(epochs=1, seed=seed)).train()
        remaining = iter([False] * self.epochs)
        with contextlib.suppress(KeyboardInterrupt):
            TrainingRun.create(folder, small(seed=seed), first).train(should_stop=lambda: next(remaining, True))

    def use(self, folder: Path, on_notice: Callable[[str], object]) -> Any:
        TrainingRun(folder).train(on_notice=on_notice)
        return [(folder / name).read_bytes() for name in self.results]


class StoppedTraining(FinishedTraining):
    """A training that was stopped after five of its six epochs."""

    patterns = (*FinishedTraining.patterns, "from.safetensors")
    epochs = 5


class TuningSearch(Target):
    """A tuning that is finished."""

    patterns = "start.safetensors", "run/config.json", "run/*.csv", "run/scores/*.csv", "run/weights.safetensors"
    results = "weights.safetensors", "generations.csv", "validation.csv"

    def build(self, folder: Path, seed: int) -> None:
        shutil.copy(bundled_weights_path("etdagnn", seed), folder / "start.safetensors")
        self.use(folder, lambda text: None)

    def use(self, folder: Path, on_notice: Callable[[str], object]) -> Any:
        options = {"generations": 3, "population": 4, "flocks": 1, "validation_flocks": 1, "validate_every": 2}
        recipe = Tuning(tasks=FLOCKING, measures="1*variance", **options)
        tuned(TuningRun(folder / "run", recipe, folder / "start.safetensors", "start"), on_notice=on_notice)
        return [(folder / "run" / name).read_bytes() for name in self.results]


class Data(Target):
    """Data for behaviour cloning."""

    patterns = "config.json", "*.npy", "parts/*"

    def build(self, folder: Path, seed: int) -> None:
        FastForward(seed=seed, train_flocks=1, test_flocks=1, steps=4, agents=8).make(folder, workers=1)

    def use(self, folder: Path, on_notice: Callable[[str], object]) -> Any:
        FastForward(train_flocks=1, test_flocks=1, steps=4, agents=8).make(folder, 1, on_notice=on_notice)
        return {name: array.tobytes() for name, array in FastForwardData.open(folder).arrays.items()}


class WeightsFile(Target):
    """Weights of a network, which are read; nothing says which ones they should be, so there is no other file."""

    patterns = ("weights.safetensors",)
    has_own_config = False

    def build(self, folder: Path, seed: int) -> None:
        shutil.copy(bundled_weights_path("starling", 0), folder / "weights.safetensors")

    def use(self, folder: Path, on_notice: Callable[[str], object]) -> Any:
        tensors = collect_tensors(ef.load(folder / "weights.safetensors"))
        return {name: tensor.tobytes() for name, tensor in tensors.items()}


class SavedFlights(Target):
    """Flights that were saved together."""

    patterns = "flights/*.zarr", "flights/*.zarr/.z*", "flights/*.zarr/*/*", "flights/*.zarr/*/.z*", "flights/*.json"
    has_own_config = False

    def build(self, folder: Path, seed: int) -> None:
        start = ef.random_disk(1, 6, seed=seed)
        runs = [ef.simulate(start, ef.load(name), duration=0.03) for name in ("tanner", "etdagnn")]
        save_flights(runs, folder, 1.0, lambda done, total: None).rename(folder / "flights")

    def use(self, folder: Path, on_notice: Callable[[str], object]) -> Any:
        runs = load_trajectories(folder / "flights")
        arrays = [(run.positions, run.velocities, run.accelerations, run.times, run.steps) for run in runs]
        return [dict(run.config) for run in runs], [[array.tobytes() for array in each] for each in arrays]


TARGETS = (Sweep, Evaluation, FinishedTraining, StoppedTraining, TuningSearch, Data, WeightsFile, SavedFlights)


def run_command(folder: Path, on_notice: Callable[[str], object], *arguments: str, results: tuple[str, ...]) -> Any:
    """Run a command in a folder; return the content of its results. Raise InputError if it exits with code 2."""
    errors = io.StringIO()
    try:
        with chdir(folder), redirect_stdout(io.StringIO()), redirect_stderr(errors):
            cli.main(list(arguments))
    except SystemExit as stop:
        if stop.code == 2 and errors.getvalue().count("\n") == 1:
            raise InputError(errors.getvalue()) from None
        raise RuntimeError(f"exit code {stop.code}: {errors.getvalue()}") from None
    if errors.getvalue():
        on_notice(errors.getvalue())
    return [(folder / name).read_bytes() for name in results]


def copy_over(source: Path, path: Path) -> None:
    """Replace a file or folder by a copy of another one."""
    if path.is_dir():
        shutil.rmtree(path)
        shutil.copytree(source, path)
    else:
        shutil.copy(source, path)


def exchange(one: Path, other: Path) -> None:
    """Exchange the names of two files or folders."""
    aside = one.with_name(".aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def read_content(path: Path) -> list[bytes]:
    """Return the bytes of a file or of all files in a folder."""
    return [each.read_bytes() for each in ([path] if path.is_file() else sorted(path.rglob("*"))) if each.is_file()]


class Run:
    """A run of a target, and another one with another seed, whose files are copied over those of the first."""

    def __init__(self, target: Target, scratch: Path) -> None:
        self.target, self.own, self.other = target, scratch / "own", scratch / "other"
        for seed, folder in enumerate((self.own, self.other)):
            if not isinstance(target, FinishedTraining):  # it creates its folder itself
                folder.mkdir(parents=True)
            target.build(folder, seed)
        self.parts, self.other_parts = target.list_parts(self.own), target.list_parts(self.other)
        notices: list[str] = []
        undamaged = scratch / "undamaged"
        shutil.copytree(self.own, undamaged)
        self.result = target.use(undamaged, notices.append)
        if notices:
            raise RuntimeError(f"the undamaged {type(target).__name__} gives notices: {notices}")

    def damage(self, folder: Path, rng: random.Random, neighbours: list[Path]) -> str:
        """Damage a copy of the run, so that a file changes; return what was done.

        `neighbours` are files of runs of other kinds.
        """
        while True:
            part = rng.choice(self.parts)
            path, before = folder / part, read_content(folder / part)
            action: Any = rng.choice([*DAMAGES, "remove", "copy", "exchange", "foreign", "neighbour", "all"])
            name = getattr(action, "__name__", action)
            if callable(action):
                if path.is_file() and path.stat().st_size:
                    action(path, rng)
            elif action == "remove":
                remove_path(path)
            elif action == "all":
                name = "copy everything but the config of another run, such as"
                for each in self.parts:
                    if each in self.other_parts and not each.name.startswith("config") and self.target.has_own_config:
                        copy_over(self.other / each, folder / each)
            else:
                sources = {
                    "copy": [folder / each for each in self.parts],
                    "exchange": [folder / each for each in self.parts],
                    # The file of this name in the other run or, as names of jobs depend on the seed, one of its kind.
                    "foreign": [self.other / each for each in self.other_parts if each == part]
                    or [self.other / each for each in self.other_parts],
                    "neighbour": neighbours if self.target.has_own_config else [],
                }[action]
                alike = [each for each in sources if each != path and find_kind(each) == find_kind(part)]
                if alike:
                    source = rng.choice(alike)
                    (exchange if action == "exchange" else copy_over)(source, path)
                    name = f"{action} {source.parent.name}/{source.name}"
            if not path.exists() or read_content(path) != before:
                return f"{type(self.target).__name__}: {name}: {part}"

    def attempt(self, folder: Path, rng: random.Random, neighbours: list[Path]) -> Attempt:
        """Use a damaged copy of the run."""
        shutil.copytree(self.own, folder)
        action = self.damage(folder, rng, neighbours)
        notices: list[str] = []
        try:
            result = self.target.use(folder, notices.append)
        except (InputError, OSError):
            return Attempt(action)
        except Exception as error:
            return Attempt(f"{action}: {traceback.format_exception_only(error)[-1].strip()}", "traceback")
        return Attempt(action, "" if result == self.result or notices else "silent")


def find_kind(part: Path) -> str:
    """Return what files that are copied over each other have in common: the suffix or, if hidden, the name."""
    return part.name if part.name.startswith(".") else part.suffix


def attack(count: int, seed: int) -> Iterator[Attempt]:
    """Damage runs of all kinds in turn."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        work_here(patch)
        runs: dict[int, Run] = {}
        for number in range(count):
            kind = number % len(TARGETS)
            if kind not in runs:
                runs[kind] = Run(TARGETS[kind](), Path(scratch) / f"{kind}")
            folder = Path(scratch) / "damaged" / f"{number}"
            neighbours = [run.own / part for run in runs.values() if run is not runs[kind] for part in run.parts]
            yield runs[kind].attempt(folder, rng, neighbours)
            shutil.rmtree(folder, ignore_errors=True)
