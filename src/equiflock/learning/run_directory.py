"""The run directory of a training: its config, its tables, and how it is found and cleared."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import DamagedError, compute_checksum
from equiflock._runtime.files import atomic_write, check_writable, lock_dir, remove_path
from equiflock._runtime.provenance import (
    CONFIG,
    KIND,
    format_kind,
    is_of_kind,
    list_foreign_files,
    list_visible,
    read_config,
    remove_results,
    write_config,
)
from equiflock.controllers.networks.weights import read_weights
from equiflock.learning.recipe import DAgger
from equiflock.learning.validation import EpochReport, Validation

TRAINING = "training"
"""Kind of directory, as named in config.json."""
METRICS, VALIDATION = "metrics.csv", "validation.csv"
COLUMNS = {
    METRICS: ("epoch", "loss", "expert_share"),
    VALIDATION: ("epoch", "controller", "flock", "ivv", "iman"),
}
"""Columns of the tables of a training."""
WEIGHTS = "weights.safetensors"
INITIAL_WEIGHTS = "from.safetensors"
"""Copy of the weights that a training started from."""
CHECKPOINTS = "checkpoints"
OUTPUT_PATTERNS = (WEIGHTS, INITIAL_WEIGHTS, CHECKPOINTS, *COLUMNS, "events.*")
"""Patterns of the files that a training writes beside config.json."""


@dataclass(frozen=True)
class InitialWeights:
    """Weights file that a training started from."""

    name: str
    """Path given by the user."""
    checksum: str


@dataclass(frozen=True)
class RunConfig:
    """Everything that the result of a training depends on, as config.json holds it."""

    recipe: DAgger
    initial_versions: Mapping[str, str]
    """Versions of equiflock and its libraries at the start of the training."""
    initial_weights: InitialWeights | None = None
    """None for newly initialized ones."""

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
        """Read config.json; raise InputError if the directory is not that of a training, DamagedError if damaged."""
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
    network_fields: dict[str, Any] = {"controller": content.network}
    network_fields |= {key: content.options[key] for key in ("hops", "dimensions") if key in content.options}
    for key, value in network_fields.items():
        if key in given and getattr(recipe, key) != value:
            raise InputError(
                f"{weights} holds weights of {key} = {value}, not {getattr(recipe, key)}: omit {key} or change it"
            )
    return replace(recipe, **network_fields)


class RunTables:
    """The CSV tables of a run, with rows in memory, from which `write` writes the files.

    Numbers have their shortest exact form, so parsing restores the same bits.
    """

    def __init__(self, folder: Path, columns: Mapping[str, Sequence[str]]) -> None:
        self.folder = folder
        self._lines: dict[str, list[str]] = {name: [] for name in columns}
        self._files: dict[str, TextIO] = {}
        for name, header in columns.items():
            self.add_rows(name, [header])

    @property
    def contents(self) -> dict[str, str]:
        """Text of each table by name."""
        return {name: "".join(lines) for name, lines in self._lines.items()}

    def add_rows(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows to a table in memory and, inside `open_files`, on disk."""
        lines = [",".join(map(str, row)) + "\n" for row in rows]
        self._lines[name] += lines
        if name in self._files:
            self._files[name].writelines(lines)
            self._files[name].flush()

    def write(self) -> None:
        """Write all files atomically from the rows in memory."""
        for name, text in self.contents.items():
            with atomic_write(self.folder / name) as scratch:
                scratch.write_bytes(text.encode())

    @contextmanager
    def open_files(self) -> Iterator[None]:
        """Write all files; inside the block, every added row is also appended to its file and flushed."""
        self.write()
        with contextlib.ExitStack() as files:
            for name in self._lines:
                file = (self.folder / name).open("a", encoding="utf-8", newline="")
                self._files[name] = files.enter_context(file)
            files.callback(self._files.clear)
            yield


class Tables(RunTables):
    """The two tables of a training; the rows are also in every checkpoint.

    The files are rewritten from the checkpoint when a training resumes, never parsed. Call `add_validation` of the
    expert, as epoch 0, or `restore` first, then `add` inside `with tables.open_files()`.
    """

    def __init__(self, folder: Path, recipe: DAgger) -> None:
        super().__init__(folder, COLUMNS)
        self.recipe = recipe

    @property
    def checksums(self) -> dict[str, str]:
        """Checksum of each table by name."""
        return {name: compute_checksum(text.encode()) for name, text in self.contents.items()}

    @property
    def expert(self) -> Validation:
        """The expert's validation."""
        return _parse_validations(self._lines[VALIDATION][1:])[0]

    def restore(self, contents: Mapping[str, str]) -> list[Path]:
        """Replace the rows in memory by those of a checkpoint; return the files on disk that do not start with them.

        Validations at epochs where none is due are dropped: the final one of a training that was then extended.
        """
        changed = []
        for name, content in contents.items():
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

    def add(self, report: EpochReport) -> None:
        """Add the row of an epoch, and the rows of its validation, if any."""
        self.add_rows(METRICS, [(report.epoch, report.loss, report.expert_share)])
        if report.validation is not None:
            self.add_validation(report.epoch, report.validation)

    def add_validation(self, epoch: int, validation: Validation) -> None:
        """Add one row per flock of a validation of the network or, as epoch 0, of the expert."""
        controller = self.recipe.controller if epoch else self.recipe.expert
        pairs = zip(validation.ivv.tolist(), validation.iman.tolist(), strict=True)
        self.add_rows(VALIDATION, ((epoch, controller, flock, *pair) for flock, pair in enumerate(pairs)))

    def has_validation(self, epoch: int) -> bool:
        """Return whether the last validation in the table belongs to this epoch."""
        return _parse_epoch(self._lines[VALIDATION][-1]) == epoch


def read_reports(folder: Path) -> tuple[tuple[EpochReport, ...], Validation]:
    """Read the tables of a finished training, without comparing checksums: its reports, and the expert's validation."""
    rows = {name: (folder / name).read_text("utf-8").splitlines()[1:] for name in COLUMNS}
    validations = _parse_validations(rows[VALIDATION])
    reports = (
        EpochReport(int(epoch), float(loss), float(share), validations.get(int(epoch)))
        for epoch, loss, share in (line.split(",") for line in rows[METRICS])
    )
    return tuple(reports), validations[0]


def _parse_validations(lines: list[str]) -> dict[int, Validation]:
    """Return the validations in rows of validation.csv, without its header, by epoch; epoch 0 is the expert's."""
    flocks: dict[int, list[list[float]]] = {}
    for epoch, _, _, *numbers in (line.split(",") for line in lines):
        flocks.setdefault(int(epoch), []).append(list(map(float, numbers)))
    return {epoch: Validation(*np.array(numbers).T.copy()) for epoch, numbers in flocks.items()}


def _parse_epoch(line: str) -> int:
    """Return the first column of a row; -1 for the header."""
    first = line.split(",")[0]
    return int(first) if first.isdecimal() else -1


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
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    if not folder.exists():
        return
    trainings = find_trainings(folder)
    if not _has_only_trainings(folder, trainings):
        raise InputError(f"{folder} exists already and contains other files: choose another directory with --out")
    # Results and foreign files need the user's consent.
    if not force and any(has_results(each) or list_foreign_files(each, OUTPUT_PATTERNS) for each in trainings):
        raise InputError(
            f"{folder} exists already: continue with --resume {folder}, restart with --force, or choose another "
            "directory with --out"
        )
    _remove(folder, trainings)


def remove_empty_trainings(folder: Path) -> None:
    """Remove `folder` with the trainings of a failed command; do nothing if one has results or there are other files.

    `folder` is a training itself or contains trainings. Errors, for example because a process trains there, are
    ignored.
    """
    trainings = find_trainings(folder) if folder.is_dir() else []
    if trainings and _has_only_trainings(folder, trainings) and not any(map(has_results, trainings)):
        with contextlib.suppress(InputError, OSError):  # harmless: the next attempt replaces the files
            _remove(folder, trainings)


def _has_only_trainings(folder: Path, trainings: list[Path]) -> bool:
    """Return whether every visible entry of the directory is a training, or part of one."""
    return all(map(is_training, trainings)) and (trainings == [folder] or set(list_visible(folder)) == set(trainings))


def _remove(folder: Path, trainings: list[Path]) -> None:
    """Remove the trainings and their directory; if a process trains in one, raise InputError and remove nothing."""
    # Take all locks before removing anything.
    with contextlib.ExitStack() as locks:
        for training in trainings:
            locks.enter_context(lock_dir(training))
        for training in trainings:
            remove_results(training, TRAINING, OUTPUT_PATTERNS)
    remove_path(folder)  # only locks and other hidden files are left
