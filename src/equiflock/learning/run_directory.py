"""config.json of a training's run directory: the recipe, the initial weights, and versions."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import DamagedError, compute_checksum, compute_file_checksum
from equiflock._runtime.files import atomic_write, check_writable, lock_dir, remove_path
from equiflock._runtime.provenance import (
    CONFIG,
    KIND,
    collect_versions,
    format_kind,
    is_of_kind,
    list_differences,
    read_config,
    remove_results,
    write_config,
)
from equiflock.controllers.networks.weights import FORMAT, read_tensors, read_weights, write_weights
from equiflock.learning.recipe import DAgger

if TYPE_CHECKING:
    from torch import nn

    from equiflock.learning.dagger import EpochReport
    from equiflock.learning.validation import Validation

TRAINING = "training"
"""Kind of directory, as named in config.json."""


@dataclass(frozen=True)
class InitialWeights:
    """Weights file that a training started from; the run directory holds a copy."""

    name: str
    """Path given by the user."""
    checksum: str
    """Checksum of the file."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that the result of a training depends on."""

    recipe: DAgger
    initial_versions: Mapping[str, str]
    """Versions of equiflock and its libraries at the start of the training."""
    initial_weights: InitialWeights | None = None
    """Weights that the training started from; None for newly initialized ones."""

    @property
    def run_key(self) -> dict[str, Any]:
        """Recipe and initial weights; stored with every result to identify its training."""
        initial_weights = {} if self.initial_weights is None else {"from": asdict(self.initial_weights)}
        return {"recipe": self.recipe.settings, **initial_weights}

    @property
    def command(self) -> str:
        """Command that repeats the training."""
        option = "" if self.initial_weights is None else f" --from {shlex.quote(self.initial_weights.name)}"
        return self.recipe.command + option

    def write(self, folder: Path) -> None:
        """Write config.json atomically, with a checksum."""
        content = {"command": self.command, **self.run_key, "versions": dict(self.initial_versions)}
        write_config(folder, TRAINING, content)

    @classmethod
    def read(cls, folder: Path) -> RunConfig:
        """Read config.json; raise InputError if the directory is not the run directory of a training.

        Raise DamagedError if the file is damaged.
        """
        path = folder / CONFIG
        if not path.is_file():
            reason = f"it has no {CONFIG}" if folder.exists() else "it does not exist"
            raise InputError(f"{folder} is not the run directory of a training: {reason}")
        try:
            content = read_config(folder)
        except DamagedError as error:
            raise DamagedError(f"{error}; restart with --force, or choose another directory") from None
        if content.get(KIND) != TRAINING:
            raise InputError(f"{folder} is the run directory of {format_kind(content)}, not of a training")
        # The checksum matched, so a file with missing entries was written by another program or version.
        try:
            settings, initial_versions = dict(content["recipe"]), dict(content["versions"])
            initial_weights = InitialWeights(**content["from"]) if "from" in content else None
        except (KeyError, TypeError, ValueError):
            raise DamagedError(f"{path} is damaged: expected a recipe and versions") from None
        return cls(DAgger.from_settings(settings, path), initial_versions, initial_weights)


def adapt_recipe(weights: Path, recipe: DAgger, given: Collection[str] = ()) -> DAgger:
    """Return the recipe with controller, hops and dimensions of a weights file.

    Raise InputError if one of them is named in `given`, the fields that the user set, and has another value in the
    recipe.
    """
    content = read_weights(weights)
    # The file determines the network; only options that the user set explicitly can contradict it.
    network_fields: dict[str, Any] = {"controller": content.network}
    network_fields |= {key: content.options[key] for key in ("hops", "dimensions") if key in content.options}
    for key, value in network_fields.items():
        if key in given and getattr(recipe, key) != value:
            raise InputError(
                f"{weights} holds weights of {key} = {value}, not {getattr(recipe, key)}: omit {key} or change it"
            )
    return replace(recipe, **network_fields)


# The tables of a training, metrics.csv and validation.csv.
#
# The rows are in memory and in every checkpoint, which has a checksum. The files are rewritten from the checkpoint when
# a training resumes, never parsed.

METRICS, VALIDATION = "metrics.csv", "validation.csv"
COLUMNS = {
    METRICS: ("epoch", "loss", "expert_share"),
    VALIDATION: ("epoch", "controller", "flock", "ivv", "iman"),
}


class Tables:
    """The two tables of a training.

    Call `add_expert_validation` or `restore` first, then `add` rows inside `with tables.open_files()`.
    """

    def __init__(self, folder: Path, recipe: DAgger) -> None:
        self.folder = folder
        self.recipe = recipe
        self._lines: dict[str, list[str]] = {name: [_format_row(columns)] for name, columns in COLUMNS.items()}
        self._files: dict[str, TextIO] = {}

    @property
    def contents(self) -> dict[str, str]:
        """Text of each table by name."""
        return {name: "".join(lines) for name, lines in self._lines.items()}

    @property
    def checksums(self) -> dict[str, str]:
        """Checksum of each table by name."""
        return {name: compute_checksum(text.encode()) for name, text in self.contents.items()}

    def add_expert_validation(self, expert: Validation) -> None:
        """Add one row per flock of the expert's validation, as epoch 0; call it before all other additions."""
        self._add_validation_rows(0, self.recipe.expert, expert)

    @property
    def expert(self) -> Validation:
        """The expert's validation, parsed from the table without loss of precision."""
        return _parse_validations(self._lines[VALIDATION][1:])[0]

    def restore(self, contents: Mapping[str, str]) -> list[Path]:
        """Replace the rows in memory by those of a checkpoint; return the files on disk that do not start with them.

        Validations at epochs where none is due are dropped: the final one of a training that was then extended.
        """
        changed = []
        for name, content in contents.items():
            # An extended training drops the validation after its previous last epoch, unless one is due there.
            self._lines[name] = [
                line
                for number, line in enumerate(content.splitlines(keepends=True))
                if number == 0 or name != VALIDATION or self.recipe.is_validation_due(_parse_epoch(line))
            ]
            path = self.folder / name
            file_content = path.read_bytes() if path.is_file() else b""
            # The file may have more rows, of epochs after the checkpoint, which will be repeated.
            if not file_content.startswith((content.encode(), self.contents[name].encode())):
                changed.append(path)
        return changed

    def write(self) -> None:
        """Write both files atomically from the rows in memory."""
        for name, text in self.contents.items():
            with atomic_write(self.folder / name) as scratch:
                scratch.write_bytes(text.encode())

    @contextmanager
    def open_files(self) -> Iterator[None]:
        """Write both files atomically; inside the block, every added row is also appended to its file and flushed."""
        self.write()
        with (
            (self.folder / METRICS).open("a", encoding="utf-8", newline="") as metrics,
            (self.folder / VALIDATION).open("a", encoding="utf-8", newline="") as validation,
        ):
            self._files = {METRICS: metrics, VALIDATION: validation}
            try:
                yield
            finally:
                self._files = {}

    def add(self, report: EpochReport) -> None:
        """Add the row of an epoch, and the rows of its validation, if any; on disk only inside `open_files`."""
        self._append(METRICS, [(report.epoch, report.loss, report.expert_share)])
        if report.validation is not None:
            self.add_validation(report.epoch, report.validation)

    def add_validation(self, epoch: int, validation: Validation) -> None:
        """Add one row per flock of a validation of the network."""
        self._add_validation_rows(epoch, self.recipe.controller, validation)

    def has_validation(self, epoch: int) -> bool:
        """Return whether the last validation in the table belongs to this epoch."""
        return _parse_epoch(self._lines[VALIDATION][-1]) == epoch

    def _add_validation_rows(self, epoch: int, controller: str, validation: Validation) -> None:
        """Add one row per flock of a validation."""
        pairs = zip(validation.ivv.tolist(), validation.iman.tolist(), strict=True)
        rows = [(epoch, controller, flock, ivv, iman) for flock, (ivv, iman) in enumerate(pairs)]
        self._append(VALIDATION, rows)

    def _append(self, name: str, rows: list[tuple[Any, ...]]) -> None:
        """Add rows to a table in memory and, while the files are open, on disk."""
        lines = [_format_row(row) for row in rows]
        self._lines[name] += lines
        if name in self._files:
            self._files[name].writelines(lines)
            self._files[name].flush()


def read_reports(folder: Path) -> tuple[tuple[EpochReport, ...], Validation]:
    """Read metrics.csv and validation.csv of a finished training: a report per epoch, and the expert's validation.

    Numbers have the bits that were written; checksums are not compared.
    """
    from equiflock.learning.dagger import EpochReport

    rows = {name: (folder / name).read_text("utf-8").splitlines()[1:] for name in COLUMNS}
    validations = _parse_validations(rows[VALIDATION])
    reports = (
        EpochReport(int(epoch), float(loss), float(share), validations.get(int(epoch)))
        for epoch, loss, share in (line.split(",") for line in rows[METRICS])
    )
    return tuple(reports), validations[0]


def _parse_validations(lines: list[str]) -> dict[int, Validation]:
    """Return the validations in rows of validation.csv, without its header, by epoch; epoch 0 is the expert's."""
    from equiflock.learning.validation import Validation

    # Numbers are written in their shortest exact form, so parsing restores the same bits.
    flocks: dict[int, list[list[float]]] = {}
    for epoch, _, _, *numbers in (line.split(",") for line in lines):
        flocks.setdefault(int(epoch), []).append(list(map(float, numbers)))
    return {epoch: Validation(*np.array(numbers).T.copy()) for epoch, numbers in flocks.items()}


def _format_row(row: tuple[Any, ...]) -> str:
    return ",".join(map(str, row)) + "\n"


def _parse_epoch(line: str) -> int:
    """Return the first column of a row; -1 for the header."""
    # The header, whose first column is not a number, has epoch -1.
    first = line.split(",")[0]
    return int(first) if first.isdecimal() else -1


# Run directories of trainings: find them, and clear them for new trainings without losing results.

WEIGHTS = "weights.safetensors"
INITIAL_WEIGHTS = "from.safetensors"
"""Copy of the weights that a training started from."""
CHECKPOINTS = "checkpoints"
OUTPUT_PATTERNS = (WEIGHTS, INITIAL_WEIGHTS, CHECKPOINTS, *COLUMNS, "events.*")
"""Patterns of the files that a training writes beside config.json."""


def find_trainings(folder: Path) -> list[Path]:
    """Return the visible subdirectories with a config.json, sorted, if the directory itself has none.

    Otherwise, also if there are no such subdirectories, return the directory itself.
    """
    inside = sorted(path.parent for path in folder.glob(f"[!.]*/{CONFIG}"))
    return inside if inside and not (folder / CONFIG).exists() else [folder]


def has_results(folder: Path) -> bool:
    """Return whether a training left weights or a checkpoint."""
    return (folder / WEIGHTS).exists() or any((folder / CHECKPOINTS).glob("epoch-*.safetensors"))


def is_training(folder: Path) -> bool:
    """Return whether this is the run directory of a training, even if its config.json is damaged."""
    return is_of_kind(folder, TRAINING)


def clear_run_dir(folder: Path, force: bool = False) -> None:
    """Remove old trainings, and then the directory itself; raise InputError if it holds something to keep.

    Trainings without results, e.g. killed in their first epochs, are removed; those with weights or checkpoints only
    with `force`, and none while a process trains there. Other files are never removed: they raise the error.
    """
    check_writable(folder)
    # Remove an empty directory.
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    if not folder.exists():
        return
    trainings = find_trainings(folder)
    # Everything in the directory must be a training, or part of one.
    only_trainings = all(map(is_training, trainings)) and (
        trainings == [folder] or _list_visible(folder) == set(trainings)
    )
    if not only_trainings:
        raise InputError(f"{folder} exists already and contains other files: choose another directory with --out")
    # Results and foreign files need the user's consent.
    if not force and any(has_results(training) or _has_foreign_files(training) for training in trainings):
        raise InputError(
            f"{folder} exists already: continue with --resume {folder}, restart with --force, or choose another "
            "directory with --out"
        )
    _remove(folder, trainings)


def remove_empty_trainings(folder: Path) -> None:
    """Remove the trainings of a failed command, if none of them has results; otherwise remove nothing.

    Errors, for example because a process trains there, are ignored.
    """
    trainings = find_trainings(folder) if folder.is_dir() else []
    if trainings and all(map(is_training, trainings)) and not any(map(has_results, trainings)):
        with contextlib.suppress(InputError, OSError):  # harmless: the next attempt replaces the files
            _remove(folder, trainings)


def _remove(folder: Path, trainings: list[Path]) -> None:
    """Remove the trainings and their directory; if a process trains in one, raise InputError and remove nothing."""
    # Take all locks before removing anything.
    with contextlib.ExitStack() as locks:
        for training in trainings:
            locks.enter_context(lock_dir(training))
        for training in trainings:
            remove_results(training, TRAINING, OUTPUT_PATTERNS)
    remove_path(folder)  # only locks and other hidden files are left


def _has_foreign_files(folder: Path) -> bool:
    """Return whether the directory holds visible files that no training writes."""
    return any(
        not any(fnmatch(path.name, pattern) for pattern in (CONFIG, *OUTPUT_PATTERNS)) for path in _list_visible(folder)
    )


def _list_visible(folder: Path) -> set[Path]:
    """Return the entries of a directory whose names do not start with a dot."""
    return {path for path in folder.iterdir() if not path.name.startswith(".")}


# The results of a training: weights, whose metadata holds the checksums of the tables, and the tables.


class Results:
    """Weights and tables of the training with this config, verified by checksums."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder = folder
        self.weights = folder / WEIGHTS
        self.config = config

    def write(self, network: nn.Module, tables: Tables) -> Path:
        """Write the weights atomically, with run key, versions and the checksums of the tables; return their path."""
        extra = {"command": self.config.command, **self.config.run_key, "versions": collect_versions("torch")}
        # Store the versions at the end, and those at the start if they differ, as the result may depend on both.
        if self.config.initial_versions != collect_versions("torch"):
            extra["begun_with"] = dict(self.config.initial_versions)
        return write_weights(network, self.weights, {**extra, "tables": tables.checksums})

    def read_epochs(self) -> int:
        """Read the number of epochs that the weights file was trained for, or 0 if there is no file.

        Raises:
            InputError: if the weights are damaged or belong to another training.
        """
        if not self.weights.exists():
            return 0
        metadata = dict(self._read_metadata())
        run_key = self.config.run_key
        try:
            epochs = int(metadata["recipe"]["epochs"])
            # The number of epochs may differ, because a training can be extended.
            stored_key = {"recipe": {**metadata["recipe"], "epochs": run_key["recipe"]["epochs"]}}
        except (KeyError, TypeError, ValueError):
            raise InputError(f"the metadata of {self.weights} has no recipe") from None
        if "from" in metadata:
            stored_key["from"] = metadata["from"]
        differences = ", ".join(list_differences(stored_key, run_key))
        if differences:
            raise InputError(f"{self.weights} was trained with another recipe: {differences}")
        return epochs

    def find_damaged_tables(self) -> list[Path]:
        """Return the tables that are missing or changed since the weights, which must exist, were written."""
        checksums = dict(self._read_metadata().get("tables", {}))
        paths = {name: self.folder / name for name in COLUMNS}
        return [
            path
            for name, path in paths.items()
            if not path.is_file() or compute_file_checksum(path) != checksums.get(name)
        ]

    def _read_metadata(self) -> dict[str, Any]:
        """Return the metadata of the weights file; raise InputError if the file is missing or damaged."""
        read_weights(self.weights)  # only to check that the weights are valid
        return read_tensors(self.weights, FORMAT)[1]
